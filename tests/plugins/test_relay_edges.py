"""What a door knows of its edges, without a wire: in the middle of what it stores, and when that fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from shipper.plugin import Batch
from shipper.testing import RecordingInputContext
from shipper_plugins.inputs.relay_edges import Edges, Refused
from shipper_plugins.relay.frames import Generation, Head, Hello, Part, Poll, part_of
from tests.plugins.relay import entry

INSTANCE = "1" * 32


class Slow(RecordingInputContext):
    """Its positions are read when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = trio.Event()
        self.go_on.set()

    async def positions(self, prefix: str = "") -> dict[str, bytes]:
        await self.go_on.wait()
        return dict(await super().positions(prefix))


async def begun(edges: Edges, link: int) -> Generation:
    return (await edges.begin("berlin", Hello(1, INSTANCE, link), is_connected=True)).generation


def parts(*batches: Batch) -> Sequence[tuple[Part, Batch]]:
    return [(part_of(batch), batch) for batch in batches]


async def test_an_answer_is_told_while_what_is_known_of_an_edge_is_read_again() -> None:
    context = Slow()
    edges = Edges(context)
    one, other = await begun(edges, 1), await begun(edges, 2)
    await edges.take("berlin", Head(other, 2, 0), parts(entry(1)), awaits=True)
    context.stored["berlin/1"] = b"of another source"
    context.go_on = trio.Event()

    async def take() -> None:
        with pytest.raises(Refused):
            await edges.take("berlin", Head(one, 1, 0), parts(entry(2)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        (key,) = context.awaited
        context.awaited[key] = b"\0"
        edges.answered([key])
        told = await edges.answers("berlin", Poll(Head(other, 2, 0), 0, 0.0))
        context.go_on.set()

    assert [one.seq for one in told.answers] == [1]


async def test_nothing_is_remembered_of_a_session_that_could_not_be_stored() -> None:
    context = Slow()
    edges = Edges(context)
    await begun(edges, 1)
    context.full = True
    for link in range(2, 40):
        with pytest.raises(Refused):
            await begun(edges, link)

    assert list(edges._edges["berlin"].sessions._newest) == [1]
