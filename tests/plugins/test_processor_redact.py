import pytest

from shipper.plugin import BadOption, Batch
from shipper.testing import check_processor
from shipper_plugins.processors.redact import LONGEST_TEXT, Redact


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


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)"])
def test_an_expression_that_cannot_be_searched_in_linear_time_is_refused(pattern: str) -> None:
    with pytest.raises(BadOption) as caught:
        Redact(patterns=("fine", pattern))

    assert caught.value.at == ("patterns", 1)
