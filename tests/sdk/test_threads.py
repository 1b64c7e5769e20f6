"""Functions that run in worker threads, and what their errors keep."""

from __future__ import annotations

import pytest

from shipper.sdk.errors import Later, raised_at
from shipper.sdk.threads import in_thread
from tests.freed import BODY, failed


def doubled(number: int) -> int:
    return number * 2


def refuse(size: int) -> None:
    body = bytes(size)
    raise Later(f"{len(body)} bytes")


async def test_a_function_in_a_thread_gives_its_result() -> None:
    assert await in_thread(doubled, 2) == 4


def fail() -> None:
    raise ZeroDivisionError


async def test_an_expected_error_is_freed_with_what_its_function_held() -> None:
    assert await failed(lambda: in_thread(refuse, BODY)) == (f"Later: {BODY} bytes", set())


async def test_any_other_error_says_where_it_was_raised() -> None:
    with pytest.raises(ZeroDivisionError) as found:
        await in_thread(fail)

    assert raised_at(found.value).startswith("ZeroDivisionError at test_threads.py:")
