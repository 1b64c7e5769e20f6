"""A fence before each request."""

from __future__ import annotations

import trio

from shipper.pipeline.destination.fenced import Fenced
from shipper.plugin import Answers, NotBegun, Sender
from shipper.sdk.event import Batch


class Spy(Sender):
    def __init__(self) -> None:
        self.sent = 0

    async def send(self, batch: Batch) -> Answers:
        self.sent += 1
        return Answers(batch.count)


async def test_what_may_begin_is_sent() -> None:
    spy = Spy()

    assert (await Fenced(spy, lambda: True, lambda: None).send(Batch.documents([b"{}"]))).count == 1


async def test_what_may_not_begin_ends_the_session_and_is_not_sent() -> None:
    spy = Spy()
    with trio.CancelScope() as session:
        await Fenced(spy, lambda: False, session.cancel).send(Batch.documents([b"{}"]))

    assert session.cancelled_caught
    assert spy.sent == 0


async def test_what_was_not_begun_later_ends_the_session_too() -> None:
    class Late(Sender):
        async def send(self, batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            raise NotBegun

    with trio.CancelScope() as session:
        await Fenced(Late(), lambda: True, session.cancel).send(Batch.documents([b"{}"]))

    assert session.cancelled_caught
