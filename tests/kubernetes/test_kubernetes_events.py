"""What a person must see to is an Event, as long as it lasts, and one Event is written once."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio
from msgspec.structs import replace
from trio.testing import wait_all_tasks_blocked

from shipper.apiserver.errors import AlreadyExists, ApiError, Forbidden
from shipper.apiserver.objects import Kind, Object
from shipper.kubernetes.events import EVENTS, GAP_SECONDS, REFUSED_SECONDS, REPEAT_SECONDS, Events
from shipper.kubernetes.kinds import MEMBERS, POLICIES
from shipper.process.environment import REAL


@dataclass
class Server:
    """Takes Events as the API server does."""

    namespace: str = "logging"
    refuses: ApiError | None = None
    asked: int = 0

    def __post_init__(self) -> None:
        self.events: dict[str, Object] = {}

    async def create(self, kind: Kind, obj: Object) -> Object:
        await trio.lowlevel.checkpoint()
        assert kind is EVENTS
        self.asked += 1
        if self.refuses is not None:
            raise self.refuses
        if obj["metadata"]["name"] in self.events:
            raise AlreadyExists("there is one", status=409)
        self.events[obj["metadata"]["name"]] = obj
        return obj

    @property
    def said(self) -> list[tuple[str, str, str]]:
        return [(one["involvedObject"]["name"], one["reason"], one["message"]) for one in self.events.values()]


class Running:
    def __init__(self, server: Server) -> None:
        self.server, self.sentences = server, list[str]()
        at = trio.current_time
        environment = replace(REAL, boottime=at, wall=lambda: 36_000_000.0 + at(), draw=random.Random(1))
        self.events = Events(server, "node-1", self.sentences.append, environment)  # type: ignore[arg-type]

    def policy(self, message: str | None, reason: str = "Invalid", uid: Callable[[], str] = lambda: "u-web") -> None:
        self.events.show(POLICIES, "web", uid, "Degraded", reason, message)


@asynccontextmanager
async def running(**server: Any) -> AsyncIterator[Running]:
    on = Running(Server(**server))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(on.events.run)
        yield on
        nursery.cancel_scope.cancel()


async def test_an_event_names_its_object_so_that_describe_shows_it(autojump_clock: Any) -> None:
    async with running() as on:
        on.policy("outputs.main.hosts: expected a list (node-1)")
        await trio.sleep(1)
        (made,) = on.server.events.values()

    assert made["involvedObject"] == {
        "apiVersion": "shipper.dev/v1",
        "kind": "ShipperPolicy",
        "name": "web",
        "namespace": "logging",
        "uid": "u-web",
    }
    assert (made["type"], made["reason"]) == ("Warning", "Invalid")
    assert made["message"].startswith("outputs.main.hosts")
    assert made["metadata"]["name"].startswith("web.")


async def test_what_lasts_is_said_again_before_the_api_server_has_forgotten_it(autojump_clock: Any) -> None:
    async with running() as on:
        on.policy("broken")
        await trio.sleep(REPEAT_SECONDS - 1)
        assert on.server.asked == 1
        await trio.sleep(REPEAT_SECONDS)
        assert on.server.asked == 2
        on.policy(None)
        await trio.sleep(3 * REPEAT_SECONDS)
        assert on.server.asked == 2


async def test_another_leader_and_a_new_process_write_the_same_event_once(autojump_clock: Any) -> None:
    async with running() as first, running() as second:
        second.server.events = first.server.events
        for on in (first, second):
            on.policy("broken")
        await trio.sleep(1)

        assert first.server.said == [("web", "Invalid", "broken")]
        assert second.sentences == []


async def test_a_cause_that_changes_all_the_time_is_said_once_a_minute(autojump_clock: Any) -> None:
    async with running() as on:
        for number in range(100):
            on.policy(f"broken {number}")
            await trio.sleep(GAP_SECONDS / 10)

        assert on.server.asked <= 11


async def test_a_right_to_write_events_that_comes_is_noticed_and_its_lack_said_once(autojump_clock: Any) -> None:
    async with running(refuses=Forbidden("no right to create events", status=403)) as on:
        on.policy("broken")
        await trio.sleep(600)
        assert on.server.asked < 30
        assert len(on.sentences) == 1
        on.server.refuses = None
        await trio.sleep(REFUSED_SECONDS + 1)

        assert on.server.said == [("web", "Invalid", "broken")]


async def test_of_an_object_that_is_not_there_yet_an_event_waits(autojump_clock: Any) -> None:
    known = ""
    async with running() as on:
        on.events.show(MEMBERS, "node-1", lambda: known, "apart", "Apart", "another directory has its name")
        await wait_all_tasks_blocked()
        assert on.server.asked == 0
        known = "u-node-1"
        await trio.sleep(10)

        assert on.server.said == [("node-1", "Apart", "another directory has its name")]


async def test_who_leads_no_longer_says_nothing_of_policies(autojump_clock: Any) -> None:
    async with running() as on:
        on.policy("broken")
        await trio.sleep(1)
        on.events.forget(POLICIES)
        await trio.sleep(3 * REPEAT_SECONDS)

        assert on.server.asked == 1
