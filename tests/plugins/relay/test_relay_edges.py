"""What a door knows of its edges, without a wire: in the middle of what it stores, and when that fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from shipper.plugin import Batch, Outdated, PluginFault
from shipper.plugin.state import Kept, Quota, Version, digest_of
from shipper.testing import RecordingInputContext
from shipper_plugins.relay.frames import Generation, Head, Hello, Part, Poll, part_of
from shipper_plugins.relay.principal.answers import Answers
from shipper_plugins.relay.principal.door import Refused
from shipper_plugins.relay.principal.edges import Edges
from shipper_plugins.relay.principal.parts import Parts, Sent
from shipper_plugins.relay.principal.state import KeyedState
from shipper_plugins.relay.state import Arrived, Compare, Limits, StateHead
from tests.plugins.relay.pair import entry

INSTANCE = "1" * 32
LIMITS = Limits(frozenset({"things"}), 1000, Quota(1, 1000))
ONE = b'{"n":1}'


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
    await Parts(edges).take(Sent("berlin", Head(other, 2, 0), parts(entry(1)), awaits=True))
    context.stored["berlin/1"] = b"of another source"
    context.go_on = trio.Event()

    async def take() -> None:
        with pytest.raises(Refused):
            await Parts(edges).take(Sent("berlin", Head(one, 1, 0), parts(entry(2))))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        (key,) = context.awaited
        context.awaited[key] = b"\0"
        edges.answered([key])
        told = await Answers(edges).told("berlin", Poll(Head(other, 2, 0), 0, 0.0))
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


async def test_an_edge_without_a_session_here_has_to_begin_one() -> None:
    with pytest.raises(Refused) as refused:
        Edges(RecordingInputContext()).heard("berlin", Head(Generation("ab" * 16, 1), 1, 0))

    assert refused.value.code == "session_over"


async def test_answers_are_told_once_and_only_to_the_edge_that_has_them() -> None:
    context = RecordingInputContext()
    edges = Edges(context)
    head = Head(await begun(edges, 1), 1, 0)
    await Parts(edges).take(Sent("berlin", head, parts(entry(1), entry(2)), awaits=True))
    one, other = context.awaited
    context.awaited[one] = b"\0"
    edges.answered(["paris/1/2/3", one, one, other])
    told = await Answers(edges).told("berlin", Poll(head, 0, 0.0))

    assert ([each.seq for each in told.answers], told.upto) == ([1], 2), "there is no answer for the other one"


def arrived(key: str, place: int, collection: str = "things") -> Arrived:
    return Arrived(Version("", collection, key, place, digest_of(ONE), False), ONE, False)


class Failing(RecordingInputContext):
    """Raises this, in this order, before it keeps or stores anything."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []

    async def emit(self, *batches: Batch, **how: object) -> None:
        self._fail()
        await super().emit(*batches, **how)  # type: ignore[arg-type]

    async def keep(self, *what: object, **how: object) -> tuple[Kept, ...]:
        self._fail()
        return await super().keep(*what, **how)  # type: ignore[arg-type]

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


@pytest.mark.parametrize("what", ["parts", "versions"])
async def test_what_another_one_has_changed_is_read_again_once_and_then_the_edge_is_put_off(what: str) -> None:
    context = Failing()
    edges = Edges(context)
    generation = await begun(edges, 1)

    async def send() -> object:
        if what == "parts":
            return await Parts(edges).take(Sent("berlin", Head(generation, 1, 0), parts(entry(1))))
        return await KeyedState(edges).keep("berlin", StateHead(generation, 1, 0), [arrived("a", 5)], LIMITS)

    context.errors = [Outdated("berlin/1")] * 2
    with pytest.raises(Refused) as refused:
        await send()
    assert refused.value.code == "busy"
    context.errors = [Outdated("berlin/1")]
    await send()
    assert context.count + len(context.state) == 1


async def test_versions_and_keys_that_cannot_be_stored_are_refused_for_good() -> None:
    context = Failing()
    edges = Edges(context)
    generation = await begun(edges, 1)
    context.errors = [PluginFault("no such name")] * 2
    with pytest.raises(Refused) as of_edge:
        await KeyedState(edges).keep("berlin", StateHead(generation, 1, 0), [arrived("a", 5)], LIMITS)
    with pytest.raises(Refused) as of_program:
        await KeyedState(edges).put("berlin", "things", "a", ONE, LIMITS)
    with pytest.raises(Refused) as unreadable:
        await KeyedState(edges).compare("berlin", Compare(generation, 1, b"\xff"), LIMITS)

    assert [one.value.status for one in (of_edge, of_program, unreadable)] == [422, 400, 400]
