"""Names are asked for beside everything else, and given up in time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing

from shipper import resolve as resolving
from shipper.resolve import resolve


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No name is answered while the block runs; the event says that somebody has asked."""
    asked, go_on = threading.Event(), threading.Event()
    getaddrinfo = socket.getaddrinfo

    def hang(*args: Any, **options: Any) -> Any:
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            return getaddrinfo(*args, **options)
        asked.set()
        go_on.wait(25)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        yield asked
    finally:
        go_on.set()


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
async def test_an_address_asks_nobody(host: str, family: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with hanging(monkeypatch):
        [found] = await resolve(host, 80)

    assert (found[0], found[4][:2]) == (family, (host, 80))


async def test_a_name_is_found() -> None:
    assert {found[4][0] for found in await resolve("localhost", 80)} <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("name", ["256.0.0.1", "a..b", "x" * 70, ""])
async def test_a_name_that_is_none_is_an_error_with_a_reason(name: str) -> None:
    with pytest.raises(OSError) as caught:
        await resolve(name, 80)

    assert caught.value.strerror


async def test_names_that_hang_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither trio's own threads, however many, nor who gives up."""
    with hanging(monkeypatch) as asked, trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(resolve, "logs.example", 80)
            await trio.to_thread.run_sync(asked.wait)
            nursery.cancel_scope.cancel()


async def test_a_name_that_hangs_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    with hanging(monkeypatch), pytest.raises(TimeoutError) as caught:
        await resolve("logs.example", 80)

    assert caught.value.strerror == "no answer to the question for this name within 5 s"
    assert trio.current_time() >= resolving.RESOLVE_SECONDS
