"""Orders of people to the sidecar: each has one result, also where the sidecar ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from shipper.protocol.messages import Result
from shipper.sdk.codes import Code
from shipper.supervise.order_results import MOST, Orders, freed, outcome


class Giving:
    """Gives orders, and keeps their results."""

    def __init__(self) -> None:
        self.orders, self.results = Orders(), list[Result]()
        self.sent: list[Mapping[str, Any]] = []

    async def give(self, name: str) -> None:
        self.results.append(await self.orders.give(self.sent.append, name, {"revision": 1}))


async def test_an_order_has_the_result_of_its_own_id() -> None:
    giving = Giving()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(giving.give, "drop")
        await wait_all_tasks_blocked()
        (sent,) = giving.sent
        giving.orders.answered(Result(id="another", status="SUCCESS"))
        giving.orders.answered(Result(id=sent["id"], status="SUCCESS", result={"released": ["k1", 7]}))

    (result,) = giving.results
    assert (sent["type"], sent["name"], sent["params"]) == ("action", "drop", {"revision": 1})
    assert outcome(result)["status"] == "SUCCESS"
    assert freed(result) == ["k1"]
    assert freed(Result(id="", status="FAILED")) == []


async def test_orders_without_a_result_fail_with_the_sidecar_and_too_many_at_once() -> None:
    giving = Giving()
    async with trio.open_nursery() as nursery:
        for _ in range(MOST + 1):
            nursery.start_soon(giving.give, "drop")
        await wait_all_tasks_blocked()
        assert [result.code for result in giving.results] == [Code.TOO_MANY_ACTIONS]
        giving.orders.lost()

    assert [result.code for result in giving.results[1:]] == [Code.NOT_RUNNING] * MOST
