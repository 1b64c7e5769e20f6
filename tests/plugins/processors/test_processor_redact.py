from typing import Any

import pytest

from shipper.plugin import BadOption, Batch
from shipper.sdk.typed import holds_bytes
from shipper.testing import check_processor
from shipper_plugins.processors.redact import DEEPEST, LONGEST_TEXT, Redact


def test_every_occurrence_is_replaced() -> None:
    redact = Redact(patterns=(r"(?i)token=\S+", r"\b\d{4}-\d{4}\b"))
    made = check_processor(redact, Batch.lines(b"TOKEN=a 1234-5678 token=b\nnothing\n", offset=0, shared={}))

    assert [event["message"] for event in made.whole()] == ["[redacted] [redacted] [redacted]", "nothing"]


def test_the_replacement_is_taken_literally() -> None:
    redact = Redact(patterns=(r"(secret)",), replacement=r"\1 \0 \\")
    (made,) = check_processor(redact, Batch.events([{"message": "a secret é"}])).whole()

    assert made["message"] == r"a \1 \0 \\ é"


def test_texts_of_a_list_are_searched_and_other_values_stay() -> None:
    redact = Redact(patterns=("x",), fields=("a", "b.c", "absent"), replacement="")
    (made,) = check_processor(redact, Batch.events([{"a": ["x1", 2, "y"], "b": {"c": 5}}])).whole()

    assert made == {"a": ["1", 2, "y"], "b": {"c": 5}}


def test_a_text_too_long_to_be_searched_is_replaced_as_a_whole() -> None:
    (made,) = check_processor(Redact(patterns=("x",)), Batch.events([{"message": "a" * (LONGEST_TEXT + 1)}])).whole()

    assert made["message"] == "[redacted]"


def test_an_expression_that_cannot_be_searched_in_linear_time_is_refused() -> None:
    with pytest.raises(BadOption) as caught:
        Redact(patterns=("fine", "(?=a)"))

    assert caught.value.at == ("patterns", 1)


SECRET = r"secret|\d{4} ?\d{4}"


@pytest.mark.parametrize(
    "event",
    [
        {"a.b": "secret", "a": {"b": "x"}},
        {"a.b": "x", "a": {"b": "secret"}},
        {"a": {"b.c": "secret"}, "a.b": {"c": "secret"}},
        {"a": [{"b": "secret"}, [{"b": "secret"}]]},
        {"a": {"b": [{"c": {"secret": ["secret"]}}]}},
        {"a": {"b": 12345678, "b.c": [12345678.5]}},
        {"a": {"b": b"a secret"}},
        {"a": {"b": [{"c": b"\xff secret"}]}},
        {"a": {"b": "x" * LONGEST_TEXT + "secret"}},
    ],
)
@pytest.mark.parametrize("is_shared", [False, True])
def test_nothing_that_a_field_holds_passes_without_being_searched(event: dict[str, Any], is_shared: bool) -> None:
    may_be_shared = not holds_bytes([event])
    batch = Batch.events([{"n": 1}], shared=event) if is_shared and may_be_shared else Batch.events([{"n": 1, **event}])
    (made,) = check_processor(Redact(patterns=(SECRET,), fields=("a.b",)), batch).whole()

    assert "secret" not in str(made)
    assert "12345678" not in str(made)
    assert "tags" not in made


def test_what_is_nested_too_deeply_to_be_searched_is_replaced() -> None:
    value: Any = "secret"
    for _ in range(DEEPEST + 1):
        value = [value]
    (made,) = check_processor(Redact(patterns=("no",)), Batch.events([{"message": value}])).whole()

    assert "secret" not in str(made)


def test_values_without_an_occurrence_keep_their_types() -> None:
    event = {"message": [1, 2.5, True, None, "x", {"y": b"z"}]}

    assert check_processor(Redact(patterns=("secret",)), Batch.events([event])).whole() == [event]
