"""What decides who closes what a thread may use, and whose turn it is."""

from __future__ import annotations

import threading
from collections import deque

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.tail import calls
from shipper_plugins.tail.calls import Calls, Lent, at
from shipper_plugins.tail.identity import Identity
from shipper_plugins.tail.queue import Turn, Turns
from shipper_plugins.tail.stream import Stream


@given(st.lists(st.sampled_from(["enter", "leave", "close"])))
def test_what_is_lent_is_closed_once_and_never_while_it_is_used(steps: list[str]) -> None:
    closed: list[int] = []
    users, is_over = 0, False
    lent = Lent(lambda: closed.append(users))
    for step in steps:
        if step == "enter" and is_over:
            with pytest.raises(OSError, match="closed meanwhile"):
                lent.__enter__()
        elif step == "enter":
            lent.__enter__()
            users += 1
        elif step == "leave" and users:
            users -= 1
            lent.__exit__()
        elif step == "close":
            is_over = True
            lent.close()

    assert closed == ([0] if is_over and not users else [])


@given(st.lists(st.tuples(st.sampled_from(["wake", "next", "done", "more", "back"]), st.integers(0, 4))))
def test_a_stream_that_was_woken_gets_a_turn_and_never_two_at_once(steps: list[tuple[str, int]]) -> None:
    streams = [Stream(str(n), Identity(str(n), (0, n)), turn=Turn(slow=n == 0)) for n in range(5)]
    owed: set[Stream] = set()
    """Woken, and not begun since."""

    async def follow() -> None:
        turns, busy = Turns[Stream](), deque[Stream]()
        for step, number in steps:
            if step == "wake":
                turns.wake(streams[number])
                owed.add(streams[number])
            elif step == "next" and owed - set(busy):
                begun = await turns.next(number + 1)
                assert not set(begun) & set(busy)
                assert len(begun) == 1 or not any(stream.turn.slow for stream in begun)
                busy.extend(begun)
                owed.difference_update(begun)
            elif step == "back" and busy:
                stream = busy.pop()
                turns.put_back([stream])
                owed.add(stream)
            elif step in ("done", "more") and busy:
                stream = busy.popleft()
                turns.done(stream, more=step == "more")
                if step == "more":
                    owed.add(stream)
        while busy:
            turns.done(busy.popleft(), more=False)
        while owed:
            for stream in await turns.next(5):
                owed.discard(stream)
                turns.done(stream, more=False)
        await turns.quiet()

    trio.run(follow)


async def test_a_call_that_goes_on_is_not_told_of_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SILENT", 0.1)
    monkeypatch.setattr(calls, "_LOOK", 0.01)
    these, silent = Calls("test"), list[dict[str, str]]()

    def walk() -> None:
        pause = threading.Event()
        for number in range(40):
            at(f"/log/{number}")
            pause.wait(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(these.watch, lambda: silent.append(these.silent()))
        await these.run("/log", walk)
        nursery.cancel_scope.cancel()

    assert len(silent) > 5
    assert not any(silent)
