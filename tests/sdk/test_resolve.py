"""Names are asked for beside everything else, and given up in time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
import trio
import trio.testing

from shipper.sdk import resolve as resolving
from shipper.sdk.resolve import resolve


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch, *, but: str | None = None) -> Iterator[threading.Event]:
    """No name is answered while the block runs, but one; the event says that somebody has asked."""
    asked, go_on = threading.Event(), threading.Event()
    getaddrinfo = socket.getaddrinfo

    def hang(*args: Any, **options: Any) -> Any:
        if options.get("flags", 0) & socket.AI_NUMERICHOST or args[0] == but:
            return getaddrinfo(*args, **options)
        asked.set()
        go_on.wait(60)
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
    with hanging(monkeypatch) as asked, trio.fail_after(60):
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


@dataclass
class Slow:
    """A resolver that answers once `go_on` is set, for names that end with `name` and that no other test asks for."""

    name: str
    asked: list[str] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    is_asked: threading.Event = field(default_factory=threading.Event)

    def answer(self, host: str) -> None:
        """A thread that an earlier test left behind may ask as late as now; that is nobody's question here."""
        if not host.endswith(self.name):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        self.asked.append(host)
        self.is_asked.set()
        self.go_on.wait(60)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow(f"es{next(_numbers)}.example")
    getaddrinfo = socket.getaddrinfo

    def answer(host: str, *args: Any, **options: Any) -> Any:
        if not options.get("flags", 0) & socket.AI_NUMERICHOST:
            slow.answer(host)
            host = "127.0.0.9"
        return getaddrinfo(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    yield slow
    slow.go_on.set()


_numbers = count()


async def test_all_who_want_a_name_ask_one_question(slow: Slow) -> None:
    found: list[tuple[str, int]] = []

    async def want(port: int) -> None:
        found.extend(address[4] for address in await resolve(slow.name, port))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for port in range(1, 51):
                nursery.start_soon(want, port)
            await trio.testing.wait_all_tasks_blocked()
            slow.go_on.set()

    assert slow.asked == [slow.name]
    assert sorted(found) == [("127.0.0.9", port) for port in range(1, 51)]


async def test_a_question_that_hangs_is_not_asked_again(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "RESOLVE_SECONDS", 0.01)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await resolve(slow.name, 80)
    await trio.to_thread.run_sync(slow.is_asked.wait, 20)

    assert slow.asked == [slow.name]


async def test_an_answer_that_comes_too_late_is_there_for_the_next_one_who_asks(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a resolver that takes longer than anybody waits is one that never answers."""
    monkeypatch.setattr(resolving, "RESOLVE_SECONDS", 0.01)
    with pytest.raises(TimeoutError):
        await resolve(slow.name, 80)
    monkeypatch.setattr(resolving, "RESOLVE_SECONDS", 20.0)
    waiting = next(iter(resolving._asked.get().values()))
    waiting.began -= 30
    slow.go_on.set()
    with trio.fail_after(60):
        await waiting.answered.wait()

    assert (await resolve(slow.name, 80))[0][4] == ("127.0.0.9", 80)
    assert slow.asked == [slow.name]


async def test_names_without_an_answer_are_bounded(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "RESOLVE_SECONDS", 0.01)
    monkeypatch.setattr(resolving, "MOST_ASKED", 3)
    for number in range(3):
        with pytest.raises(TimeoutError):
            await resolve(f"{number}.{slow.name}", 80)

    with pytest.raises(OSError, match="3 other names wait for an answer"):
        await resolve(f"3.{slow.name}", 80)


async def test_an_answer_in_time_is_not_kept(slow: Slow) -> None:
    slow.go_on.set()
    await resolve(slow.name, 80)
    await resolve(slow.name, 80)

    assert slow.asked == [slow.name, slow.name]
