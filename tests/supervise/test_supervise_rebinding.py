"""What is moved from a withdrawn credential to its successor, and that an order is given for it."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from shipper.protocol.messages import Draining, Observed, QueueFigures, Waiting
from shipper.supervise.ledger import Kept, Ledger
from shipper.supervise.rebinding import Rebinding, successors
from shipper.values import DeadLetterFigures, Revisions

HELD = Waiting(1, "", held=True, rebind_to="es-2", rebind_from=["es-1"])


def observed(*waiting: Waiting) -> Observed:
    drains = [Draining(0, at, 1, 1, 0.0, {"main": one}) for at, one in enumerate(waiting)]
    queue = QueueFigures(events=1, bytes=1, limit_bytes=1, oldest_seconds=0, disk_bytes=0)
    return Observed(
        state="DEGRADED",
        message="",
        revisions=Revisions(),
        draining=drains,
        units=(),
        queue=queue,
        dead_letters=DeadLetterFigures(),
        credentials_in_use=(),
        credentials_wanted=(),
    )


def test_only_held_events_of_a_withdrawn_secret_go_with_the_one_that_replaces_it_at_the_same_destination() -> None:
    held = Waiting(1, "", held=True, rebind_to="es-2", rebind_from=["es-1", "other"])

    assert successors(observed(held), {"es-1"}) == [("es-1", "es-2")]
    assert successors(observed(held), {"es-3"}) == []
    assert successors(observed(Waiting(1, "", rebind_to="es-2", rebind_from=["es-1"])), {"es-1"}) == []
    assert successors(observed(Waiting(1, "", held=True, rebind_from=["es-1"])), {"es-1"}) == []
    assert successors(None, {"es-1"}) == []


class HoldingMember:
    """Stands in for a member of the supervisor."""

    def __init__(self, *ids: str) -> None:
        self.ledger = Ledger()
        self.ledger.kept |= {id: Kept(id, {}, [], [], shared=True) for id in ids}
        self.observed: Observed | None = None
        self.orders: list[Any] = []
        self.ordered = trio.Event()

    async def order(self, name: str, params: dict[str, str]) -> None:
        await trio.lowlevel.checkpoint()
        self.orders.append((name, params))
        self.ordered.set()
        del self.ledger.kept[params["from"]]


async def test_an_order_is_given_once_the_sidecar_says_what_has_replaced_a_credential(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    member = HoldingMember("es-1")
    rebinding = Rebinding(lambda: member)  # type: ignore[arg-type, return-value]
    nursery.start_soon(rebinding.run)
    rebinding.add(["es-1"])
    await wait_all_tasks_blocked()
    assert member.orders == []
    member.observed = observed(HELD)
    await member.ordered.wait()

    assert member.orders == [("rebind", {"from": "es-1", "to": "es-2"})]


async def test_a_credential_that_is_withdrawn_later_is_looked_for_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    member = HoldingMember("es-0", "es-1")
    member.observed = observed(HELD)
    rebinding = Rebinding(lambda: member)  # type: ignore[arg-type, return-value]
    nursery.start_soon(rebinding.run)
    rebinding.add(["es-0"])
    await wait_all_tasks_blocked()
    rebinding.add(["es-1"])
    await wait_all_tasks_blocked()

    assert member.orders == [("rebind", {"from": "es-1", "to": "es-2"})]


async def test_what_no_order_can_move_is_not_looked_for_for_ever(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    member = HoldingMember("es-1")
    rebinding = Rebinding(lambda: member)  # type: ignore[arg-type, return-value]
    nursery.start_soon(rebinding.run)
    rebinding.add(["es-1"])
    await trio.sleep(100)
    member.observed = observed(HELD)
    await trio.sleep(100)

    assert member.orders == []
