"""Parts of many edges that come together, without a wire."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from shipper.plugin import Batch
from shipper.testing import RecordingInputContext
from shipper_plugins.relay.frames import Answered, Generation, Head, Hello
from shipper_plugins.relay.principal.door import Refused
from shipper_plugins.relay.principal.edges import Edges
from shipper_plugins.relay.principal.parts import Parts, Sent
from tests.plugins.relay.pair import entry
from tests.plugins.relay.test_relay_edges import INSTANCE, parts


class Counting(RecordingInputContext):
    """Counts transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.emits = 0
        self.may_go_on = trio.Event()
        self.may_go_on.set()

    async def emit(self, *batches: Batch, **how: Any) -> None:
        self.emits += 1
        await self.may_go_on.wait()
        await super().emit(*batches, **how)


class Group:
    """Edges that have a session each, and what the door takes of them."""

    def __init__(self) -> None:
        self.context = Counting()
        self._edges = Edges(self.context)
        self._heads: dict[str, Head] = {}
        self.parts = Parts(self._edges)

    async def begin(self, *names: str) -> None:
        for name in names:
            begun = await self._edges.begin(name, Hello(1, INSTANCE, 1), is_connected=True)
            self._heads[name] = Head(begun.generation, 1, 0)
        self.context.emits = 0

    def sent(self, name: str, *places: int) -> Sent:
        """A part for each place."""
        return Sent(name, self._heads[name], parts(*map(entry, places)))


@pytest.fixture
async def group() -> Group:
    made = Group()
    await made.begin("berlin", "paris")
    return made


async def test_the_parts_of_many_edges_that_come_together_are_one_transaction(group: Group) -> None:
    names = [f"edge-{number}" for number in range(100)]
    await group.begin(*names)
    answers = await group.parts.take_together([group.sent(name, 1) for name in names])

    assert answers == [Answered([1])] * 100
    assert (group.context.emits, group.context.count) == (1, 100)


async def test_each_edge_of_a_group_is_answered_again_for_what_it_has_sent_before(group: Group) -> None:
    await group.parts.take_together([group.sent("berlin", 1)])
    answers = await group.parts.take_together([group.sent("berlin", 1), group.sent("paris", 1, 2)])

    assert answers == [Answered([1]), Answered([1, 2])]
    assert (group.context.emits, group.context.count) == (2, 3)


async def test_what_is_wrong_with_a_request_leaves_those_beside_it_stored(group: Group) -> None:
    over = Sent("berlin", Head(Generation("0" * 32, 1), 1, 0), parts(entry(1)))
    answers = await group.parts.take_together([over, group.sent("paris", 2), group.sent("berlin", 3)])

    assert answers == [None, Answered([2]), Answered([3])]
    assert group.context.count == 2


async def test_a_second_request_of_an_edge_in_a_group_is_taken_alone(group: Group) -> None:
    answers = await group.parts.take_together([group.sent("berlin", 1), group.sent("berlin", 2)])

    assert answers == [Answered([1]), None]
    assert group.context.count == 1


async def test_a_group_does_not_wait_for_an_edge_that_stores_something(group: Group) -> None:
    stays = group.context.may_go_on = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.parts.take, group.sent("berlin", 1))
        await trio.testing.wait_all_tasks_blocked()
        group.context.may_go_on = trio.Event()
        group.context.may_go_on.set()
        answers = await group.parts.take_together([group.sent("berlin", 2), group.sent("paris", 3)])
        stays.set()

    assert answers == [None, Answered([3])]


async def test_what_another_source_has_stored_of_one_edge_lets_each_of_a_group_be_taken_alone(group: Group) -> None:
    group.context.stored["berlin/1"] = b"of another source"
    those = [group.sent("berlin", 1), group.sent("paris", 2)]

    assert await group.parts.take_together(those) == [None, None]
    assert await group.parts.take(those[1]) == Answered([2])
    assert group.context.count == 1


async def test_without_room_all_of_a_group_are_put_off(group: Group) -> None:
    group.context.full = True
    answers = await group.parts.take_together([group.sent("berlin", 1), group.sent("paris", 2)])

    assert [answer.status for answer in answers if isinstance(answer, Refused)] == [429, 429]
    assert group.context.count == 0
