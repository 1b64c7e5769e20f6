"""Parts of many edges that come together, without a wire."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from shipper.plugin import Batch
from shipper.testing import RecordingInputContext
from shipper_plugins.inputs.relay_door import Refused
from shipper_plugins.inputs.relay_edges import Edges
from shipper_plugins.inputs.relay_parts import Parts, Sent
from shipper_plugins.relay.frames import Answered, Generation, Head, Hello
from tests.plugins.relay import entry
from tests.plugins.test_relay_edges import INSTANCE, parts


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


async def heads(edges: Edges, *names: str) -> list[Head]:
    begun = [await edges.begin(name, Hello(1, INSTANCE, 1), is_connected=True) for name in names]
    return [Head(one.generation, 1, 0) for one in begun]


async def test_the_parts_of_many_edges_that_come_together_are_one_transaction() -> None:
    context = Counting()
    edges = Edges(context)
    names = [f"edge-{number}" for number in range(100)]
    those = [Sent(name, head, parts(entry(1))) for name, head in zip(names, await heads(edges, *names), strict=True)]
    before = context.emits
    answers = await Parts(edges).take_together(those)

    assert answers == [Answered([1])] * 100
    assert (context.emits - before, context.count) == (1, 100)


async def test_each_edge_of_a_group_is_answered_again_for_what_it_has_sent_before() -> None:
    context = Counting()
    edges = Edges(context)
    one, other = await heads(edges, "berlin", "paris")
    await Parts(edges).take_together([Sent("berlin", one, parts(entry(1)))])
    before = context.emits
    answers = await Parts(edges).take_together(
        [Sent("berlin", one, parts(entry(1))), Sent("paris", other, parts(entry(1), entry(2)))]
    )

    assert answers == [Answered([1]), Answered([1, 2])]
    assert (context.emits - before, context.count) == (1, 3)


async def test_what_is_wrong_with_a_request_leaves_those_beside_it_stored() -> None:
    context = Counting()
    edges = Edges(context)
    one, other = await heads(edges, "berlin", "paris")
    over = Head(Generation("0" * 32, 1), 1, 0)
    answers = await Parts(edges).take_together(
        [
            Sent("berlin", over, parts(entry(1))),
            Sent("paris", other, parts(entry(2))),
            Sent("berlin", one, parts(entry(3))),
        ]
    )

    assert answers == [None, Answered([2]), Answered([3])]
    assert context.count == 2


async def test_a_second_request_of_an_edge_in_a_group_is_taken_alone() -> None:
    context = Counting()
    edges = Edges(context)
    (head,) = await heads(edges, "berlin")
    answers = await Parts(edges).take_together(
        [Sent("berlin", head, parts(entry(1))), Sent("berlin", head, parts(entry(2)))]
    )

    assert answers == [Answered([1]), None]
    assert context.count == 1


async def test_a_group_does_not_wait_for_an_edge_that_stores_something() -> None:
    context = Counting()
    edges = Edges(context)
    one, other = await heads(edges, "berlin", "paris")
    context.may_go_on = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Parts(edges).take, Sent("berlin", one, parts(entry(1))))
        await trio.testing.wait_all_tasks_blocked()
        stays, context.may_go_on = context.may_go_on, trio.Event()
        context.may_go_on.set()
        answers = await Parts(edges).take_together(
            [Sent("berlin", one, parts(entry(2))), Sent("paris", other, parts(entry(3)))]
        )
        stays.set()

    assert answers == [None, Answered([3])]


async def test_what_another_source_has_stored_of_one_edge_lets_each_of_a_group_be_taken_alone() -> None:
    context = Counting()
    edges = Edges(context)
    one, other = await heads(edges, "berlin", "paris")
    context.stored["berlin/1"] = b"of another source"
    those = [Sent("berlin", one, parts(entry(1))), Sent("paris", other, parts(entry(2)))]

    assert await Parts(edges).take_together(those) == [None, None]
    assert await Parts(edges).take(those[1]) == Answered([2])
    assert context.count == 1


async def test_without_room_all_of_a_group_are_put_off() -> None:
    context = Counting()
    edges = Edges(context)
    one, other = await heads(edges, "berlin", "paris")
    context.full = True
    answers = await Parts(edges).take_together(
        [Sent("berlin", one, parts(entry(1))), Sent("paris", other, parts(entry(2)))]
    )

    assert [answer.status for answer in answers if isinstance(answer, Refused)] == [429, 429]
    assert context.count == 0
