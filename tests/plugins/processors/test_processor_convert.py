import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import BadOption, Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.convert import Convert, Type, converted


def once(event: Fields, **fields: Type) -> Fields:
    (made,) = check_processor(Convert(fields=fields), Batch.events([event])).whole()
    return made


def test_a_value_gets_the_type() -> None:
    for type, value, result in [
        ("integer", "200", 200),
        ("integer", " -7 ", -7),
        ("integer", "0x1f", 31),
        ("integer", 3.0, 3),
        ("integer", True, 1),
        ("float", "1.5e3", 1500.0),
        ("float", 2, 2.0),
        ("boolean", "TRUE", True),
        ("boolean", 0, False),
        ("boolean", "f", False),
        ("string", 5, "5"),
        ("string", {"a": [1]}, '{"a":[1]}'),
        ("string", "as it is", "as it is"),
        ("ip", "2001:DB8::0001", "2001:db8::1"),
        ("ip", "10.0.0.1", "10.0.0.1"),
        ("integer", ["1", "2"], [1, 2]),
    ]:
        made = once({"v": value}, v=type)

        assert made == {"v": result}
        assert isinstance(made["v"], result.__class__)


def test_a_value_without_such_a_meaning_stays_and_is_tagged() -> None:
    for type, value in [
        ("integer", "12 apples"),
        ("integer", "1_000"),
        ("integer", 2.5),
        ("integer", "9223372036854775808"),
        ("integer", "9" * 10_000),
        ("integer", {"a": 1}),
        ("float", "nan"),
        ("float", "1e999"),
        ("float", "1_0"),
        ("boolean", "yes"),
        ("boolean", 2),
        ("ip", "10.0.0.256"),
        ("ip", 7),
        ("integer", ["1", "x"]),
    ]:
        made = once({"v": value, "w": "1"}, w="integer", v=type)

        assert (made["v"], made["w"]) == (value, "1")
        assert made["error"] == {"message": f"convert: the value of v is no {type}"}


def test_a_field_that_is_absent_is_passed_over() -> None:
    assert once({"w": "1"}, v="integer", w="integer") == {"w": 1}


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_integer_survives_as_text(number: int) -> None:
    assert converted("integer", "v", converted("string", "v", number)) == number


@pytest.mark.parametrize("fields", [{}, {"": "integer"}, {"a..b": "integer"}])
def test_fields_that_make_no_sense_are_refused(fields: dict[str, Type]) -> None:
    with pytest.raises(BadOption):
        Convert(fields=fields)
