"""Errors that are kept, and what they keep."""

from __future__ import annotations

import pytest

from shipper.sdk.codes import Code
from shipper.sdk.errors import Held, Later, anew, forget_frames
from shipper.sdk.http_answer import NoAnswer


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as same:
        return same


@pytest.mark.parametrize(
    "error",
    [
        Later("no room", 7.0, code=Code.OVERLOADED),
        Held("401"),
        NoAnswer("es:9200: timed out", "timeout", Code.TIMED_OUT),
    ],
)
def test_a_new_error_is_equal_and_has_passed_no_frame(error: Exception) -> None:
    new = anew(raised(error))

    assert new is not error
    assert (type(new), str(new), new.__dict__) == (type(error), str(error), error.__dict__)
    assert (new.__traceback__, new.__context__) == (None, None)


def test_an_error_that_is_a_bug_keeps_its_place() -> None:
    bug = raised(KeyError("x"))

    assert anew(bug) is bug
    assert bug.__traceback__ is not None


def test_an_error_forgets_the_frames_of_all_that_led_to_it() -> None:
    first, second, third = OSError(1), ValueError(2), KeyError(3)
    second.__cause__, third.__context__ = raised(first), raised(second)
    first.__context__ = raised(third)

    forget_frames(third)

    assert [error.__traceback__ for error in (first, second, third)] == [None] * 3
