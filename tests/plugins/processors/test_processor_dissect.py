import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import BadOption, Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.dissect import Dissect, cut, parsed


def once(tokenizer: str, text: str, **options: object) -> Fields:
    dissect = Dissect(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
    (made,) = check_processor(dissect, Batch.events([{"message": text}])).whole()
    return made


def test_a_line_is_cut_at_the_delimiters() -> None:
    made = once(
        '%{source.ip} - %{?user} [%{time}] "%{request}" %{status|integer}',
        '10.0.0.1 - bob [17/May/2026:12:00:00 +0000] "GET / HTTP/1.1" 200',
        target_prefix="",
    )

    assert made["source"] == {"ip": "10.0.0.1"}
    assert (made["time"], made["request"], made["status"]) == ("17/May/2026:12:00:00 +0000", "GET / HTTP/1.1", 200)
    assert "user" not in made


def test_each_form_of_a_key_is_known() -> None:
    for tokenizer, text, fields in [
        ("%{a} %{b}", "1 2 3", {"a": "1", "b": "2 3"}),
        ("%{a},%{},%{b}", "1,2,3", {"a": "1", "b": "3"}),
        ("%{a} %{+a} %{b}", "x y z", {"a": "x y", "b": "z"}),
        ("%{a->} %{b}", "x     y", {"a": "x", "b": "y"}),
        ("[%{a}]", "[x]", {"a": "x"}),
        ("%{a}", "", {"a": ""}),
        ("%{a}|%{b|float}", "|1.5", {"a": "", "b": 1.5}),
    ]:
        assert cut(parsed(tokenizer), text) == fields


@pytest.mark.parametrize(
    ("tokenizer", "text"), [("%{a} %{b}", "one"), ("[%{a}]", "x]"), ("[%{a}]", "[x"), ("%{a|integer}", "x")]
)
def test_a_text_that_does_not_fit_stays_and_is_tagged(tokenizer: str, text: str) -> None:
    made = once(tokenizer, text)

    assert (made["message"], made["tags"]) == (text, ["processor_error"])
    assert "dissect" not in made
    assert text not in made["error"]["message"]


def test_a_field_that_is_there_is_replaced_only_if_that_is_wanted() -> None:
    assert "error" in once("%{message}", "x", target_prefix="")
    assert once("<%{message}>", "<x>", target_prefix="", overwrite_keys=True) == {"message": "x"}


def test_an_event_without_the_text_is_tagged() -> None:
    assert once("%{a}", "x", field="other")["error"] == {"message": "dissect: there is no text in other"}


@given(st.lists(st.text("abc", max_size=4), min_size=1, max_size=6))
def test_what_was_joined_is_cut_again(values: list[str]) -> None:
    tokenizer = ";".join(f"%{{k{at}}}" for at in range(len(values)))

    assert cut(parsed(tokenizer), ";".join(values)) == {f"k{at}": value for at, value in enumerate(values)}


def test_a_tokenizer_that_makes_no_sense_is_refused() -> None:
    for tokenizer in [
        "",
        "no keys",
        "%{}",
        "%{?a}",
        "%{a}%{b}",
        "%{a..b}",
        "%{a} %{a}",
        "%{+a}",
        "%{+}x%{a}",
        "%{a|date}",
        "%{&a} %{b}",
    ]:
        with pytest.raises(BadOption) as caught:
            Dissect(tokenizer=tokenizer)

        assert caught.value.at == ("tokenizer",)
