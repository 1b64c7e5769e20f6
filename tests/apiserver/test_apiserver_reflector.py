"""What a reflector tells through gaps, silence and failures of a scripted server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from shipper.apiserver import reflector as module
from shipper.apiserver.objects import Event
from shipper.apiserver.reflector import Reflector
from shipper.apiserver.watching import SILENT_SECONDS
from tests.apiserver.server import THINGS, Exchange, Scripted, Talk, client_of, listing, scripted, thing
from tests.apiserver.told import Told


@asynccontextmanager
async def following(talk: Talk, **more: Any) -> AsyncIterator[tuple[Reflector, Told, Scripted]]:
    told = Told()
    async with scripted(talk) as server, client_of(server) as client, trio.open_nursery() as nursery:
        made = Reflector(
            client, THINGS, heed=told.heed, trouble=told.trouble, caught_up=told.note, environment=module.REAL, **more
        )
        nursery.start_soon(made.run)
        yield made, told, server
        nursery.cancel_scope.cancel()


def is_watch(exchange: Exchange) -> bool:
    return "watch" in exchange.asked.query


def is_initial(exchange: Exchange) -> bool:
    return "sendInitialEvents" in exchange.asked.query


async def give(exchange: Exchange, *objects: dict[str, Any], at: str) -> None:
    """Begins a watch with all objects."""
    await exchange.begin()
    for one in objects:
        await exchange.event("ADDED", one)
    await exchange.bookmark(at, ends_initial=True)


async def test_all_objects_come_first_then_changes_in_order():
    async def talk(exchange: Exchange) -> None:
        await give(exchange, thing("a", 2), thing("b", 3), at="5")
        await exchange.event("MODIFIED", thing("b", 6))
        await exchange.event("DELETED", thing("a", 7))
        await trio.sleep_forever()

    async with following(talk) as (reflector, told, server):
        await reflector.synced()
        await told.wait_for("DELETED", "a", "7")

        assert told.events == [
            ("ADDED", "a", "2"),
            ("ADDED", "b", "3"),
            ("SYNCED", "", "5"),
            ("MODIFIED", "b", "6"),
            ("DELETED", "a", "7"),
        ]
        assert [*reflector.objects] == ["b"]
        assert reflector.seen == "7"
        assert told.troubles == []
        assert len(server.asked) == 1


async def test_nothing_is_told_before_all_objects_are_there():
    """A consumer that acts on half of a list would delete what is in the other half."""
    goes_on = trio.Event()

    async def talk(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.event("ADDED", thing("a", 2))
        await exchange.event("ADDED", thing("b", 3))
        await exchange.event("DELETED", thing("a", 4))
        await goes_on.wait()
        await exchange.bookmark("5", ends_initial=True)
        await trio.sleep_forever()

    async with following(talk) as (reflector, told, server):
        await server.wait_for(1)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert told.events == []
        goes_on.set()
        await reflector.synced()

        assert told.events == [("ADDED", "b", "3"), ("SYNCED", "", "5")]


@pytest.mark.parametrize("answer", ["422", "500 in the stream", "an early end"])
async def test_a_server_that_does_not_give_objects_in_a_watch_is_asked_for_a_list(answer):
    async def talk(exchange: Exchange) -> None:
        if is_initial(exchange):
            if answer == "422":
                await exchange.refuse(422, "Invalid", "sendInitialEvents is forbidden")
                return
            await exchange.begin()
            if answer == "500 in the stream":
                await exchange.event("ERROR", {"kind": "Status", "code": 500, "message": "etcd is too old"})
            await exchange.end()
        elif is_watch(exchange):
            await exchange.begin()
            await exchange.event("MODIFIED", thing("a", 6))
            await trio.sleep_forever()
        else:
            await exchange.answer(listing(thing("a", 2), version=5))

    async with following(talk) as (_reflector, told, server):
        await told.wait_for("MODIFIED", "a", "6")

        assert told.events == [("ADDED", "a", "2"), ("SYNCED", "", "5"), ("MODIFIED", "a", "6")]
        assert told.troubles == []
        assert server.asked[-1].query["resourceVersion"] == "5", "that of the list, not of its last item (K8)"


async def test_a_server_that_ignores_the_wish_for_all_objects_is_asked_for_a_list(jumping_clock):
    async def talk(exchange: Exchange) -> None:
        if is_watch(exchange):
            await exchange.begin()
            await trio.sleep_forever()
        await exchange.answer(listing(thing("a", 2), version=5))

    async with following(talk) as (reflector, told, _):
        await told.wait_for("SYNCED", "", "5")

        assert [*reflector.objects] == ["a"]


async def test_a_watch_that_ends_goes_on_after_what_was_seen():
    async def talk(exchange: Exchange) -> None:
        if is_initial(exchange):
            await give(exchange, thing("a", 2), at="5")
            await exchange.event("MODIFIED", thing("a", 7))
            await exchange.end()
        elif is_watch(exchange):
            await exchange.begin()
            await exchange.event("MODIFIED", thing("a", 8))
            await trio.sleep_forever()
        else:
            await exchange.answer(listing(version=8))

    async with following(talk) as (_, told, server):
        await told.wait_for("MODIFIED", "a", "8")

        assert next(asked for asked in server.asked[1:] if "watch" in asked.query).query["resourceVersion"] == "7"
        assert told.troubles == []


async def test_t844_6_a_bookmark_alone_moves_the_place_to_go_on_from():
    async def talk(exchange: Exchange) -> None:
        if is_initial(exchange):
            await give(exchange, thing("a", 2), at="5")
            await exchange.bookmark("90")
            await exchange.end()
        elif is_watch(exchange):
            await exchange.begin()
            await exchange.event("MODIFIED", thing("a", 91))
            await trio.sleep_forever()
        else:
            await exchange.answer(listing(version=90))

    async with following(talk) as (_, told, server):
        await told.wait_for("MODIFIED", "a", "91")

        assert told.caught_up == ["5", "90"]
        assert next(asked for asked in server.asked[1:] if "watch" in asked.query).query["resourceVersion"] == "90"


@pytest.mark.parametrize("where", ["answer", "stream"])
async def test_t844_6_a_version_that_is_gone_is_told_as_the_changes_to_the_newest_state(where):
    initials: list[str] = []

    async def talk(exchange: Exchange) -> None:
        if is_initial(exchange):
            initials.append("again")
            if len(initials) == 1:
                await give(exchange, thing("a", 2), thing("b", 3), at="5")
                await exchange.event("MODIFIED", thing("a", 6))
                await exchange.end()
            else:
                await give(exchange, thing("b", 9), thing("c", 8), at="12")
                await trio.sleep_forever()
        elif is_watch(exchange):
            if where == "answer":
                await exchange.refuse(410, "Expired")
            else:
                await exchange.begin()
                await exchange.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
                await exchange.end()
        else:
            await exchange.answer(listing(version=12))

    async with following(talk) as (_, told, _server):
        await told.wait_for("SYNCED", "", "12")

        assert told.events[4:] == [
            ("DELETED", "a", "6"),
            ("MODIFIED", "b", "9"),
            ("ADDED", "c", "8"),
            ("SYNCED", "", "12"),
        ]
        assert told.troubles == []


async def test_t844_6_a_store_that_was_restored_is_found_by_its_version():
    """The watch of a version in the future says nothing; the version of a list beside it does."""
    initials: list[str] = []

    async def talk(exchange: Exchange) -> None:
        if is_initial(exchange):
            initials.append("again")
            if len(initials) == 1:
                await give(exchange, thing("a", 90), at="95")
                await exchange.event("MODIFIED", thing("a", 96))
                await exchange.end()
            else:
                await give(exchange, thing("a", 20), at="30")
                await trio.sleep_forever()
        elif is_watch(exchange):
            await exchange.begin()
            await trio.sleep_forever()
        else:
            await exchange.answer(listing(version=29))

    async with following(talk) as (reflector, told, server):
        await told.wait_for("SYNCED", "", "30")

        assert ("MODIFIED", "a", "20") in told.events
        assert reflector.seen == "30"
        [looked] = [asked for asked in server.asked if "watch" not in asked.query]
        assert looked.query == {"limit": "1"}
        assert "PartialObjectMetadataList" in looked.headers["accept"]


async def test_t844_6_a_silent_watch_is_begun_anew_without_trouble_and_without_a_list(jumping_clock):
    async def talk(exchange: Exchange) -> None:
        if is_initial(exchange):
            await give(exchange, thing("a", 2), at="5")
        elif is_watch(exchange):
            await exchange.begin()
            if len([asked for asked in server.asked if "watch" in asked.query]) == 4:
                await exchange.event("MODIFIED", thing("a", 6))
        else:
            await exchange.answer(listing(version=5))
            return
        await trio.sleep_forever()

    async with following(talk) as (_, told, server):
        before = trio.current_time()
        await told.wait_for("MODIFIED", "a", "6")

        assert trio.current_time() - before == pytest.approx(3 * SILENT_SECONDS, abs=3)
        assert len([asked for asked in server.asked if "sendInitialEvents" in asked.query]) == 1
        assert told.troubles == []


async def test_a_server_that_is_gone_is_a_trouble_with_its_time_until_it_is_back(jumping_clock):
    is_gone = True

    async def talk(exchange: Exchange) -> None:
        if is_gone:
            await exchange.break_off()
        else:
            await give(exchange, at="5")
            await trio.sleep_forever()

    async with following(talk) as (_, told, _server):
        await told.wait_until(lambda: len(told.troubles) > 12)
        is_gone = False
        await told.wait_until(lambda: told.troubles[-1] is None)

    first, last = told.troubles[0], told.troubles[-2]
    assert first is not None
    assert last is not None
    assert first.startswith("changes of things in namespace logging have not been seen for 0 s: 127.0.0.1:")
    seconds = int(last.split("have not been seen for ")[1].split(" s:")[0])
    assert seconds > 15
    assert told.troubles.count(None) == 1


async def test_a_missing_right_is_told_apart_from_other_failures(jumping_clock):
    refused: list[str] = []
    answers = iter([403, 401, 404])

    async def talk(exchange: Exchange) -> None:
        status = next(answers, None)
        if status is None:
            await give(exchange, at="5")
            await trio.sleep_forever()
        await exchange.refuse(status, {403: "Forbidden", 401: "Unauthorized"}.get(status, "NotFound"))

    async with following(talk, refused=lambda error: refused.append(error.reason)) as (reflector, told, _server):
        await reflector.synced()

    assert refused == ["Forbidden", "Unauthorized"]
    assert told.troubles[-1] is None


async def test_attempts_are_never_made_in_a_hot_loop(jumping_clock):
    """A server that ends each watch at once, and one that has lost every version."""
    times: list[float] = []

    async def talk(exchange: Exchange) -> None:
        times.append(trio.current_time())
        if is_initial(exchange):
            await give(exchange, at="5")
            await exchange.end()
        elif is_watch(exchange):
            await exchange.refuse(410, "Expired")
        else:
            await exchange.answer(listing(version=5))

    async with following(talk) as (_, _told, _server):
        await trio.sleep(300)

    assert len(times) < 200, "ten seconds between attempts at last"


async def test_a_server_that_ends_each_watch_after_a_change_is_not_asked_in_a_hot_loop(jumping_clock):
    """The first end is gone over at once: a server that is stopped ends a watch too."""
    times: list[float] = []

    async def talk(exchange: Exchange) -> None:
        times.append(trio.current_time())
        if is_initial(exchange):
            await give(exchange, thing("a", 5), at="5")
        elif is_watch(exchange):
            await exchange.begin()
            await exchange.event("MODIFIED", thing("a", 10 + len(times)))
        else:
            await exchange.answer(listing(version=10 + len(times)))
            return
        await exchange.end()

    async with following(talk):
        await trio.sleep(10)

    assert 20 < len(times) < 10 * 2 * 11, "at most ten watches a second, each with a look at the version"


async def test_t844_2_a_burst_of_changes_is_told_whole_and_in_order():
    async def talk(exchange: Exchange) -> None:
        await give(exchange, thing("a", 1), at="1")
        for number in range(2, 1002):
            await exchange.event("MODIFIED", thing("a", number))
        await trio.sleep_forever()

    async with following(talk) as (_reflector, told, _):
        await told.wait_for("MODIFIED", "a", "1001")

        assert [at for type, _, at in told.events if type == "MODIFIED"] == [str(n) for n in range(2, 1002)]


async def test_selectors_go_with_every_request():
    async def talk(exchange: Exchange) -> None:
        if is_initial(exchange):
            await exchange.refuse(422, "Invalid")
        elif is_watch(exchange):
            await exchange.begin()
            await trio.sleep_forever()
        else:
            await exchange.answer(listing(version=5))

    async with following(talk, labels="app=web", fields="metadata.name=a", namespace="other") as (_, _told, server):
        await server.wait_for(3)

    for asked in server.asked:
        assert asked.path == "/apis/example.dev/v1/namespaces/other/things"
        assert (asked.query["labelSelector"], asked.query["fieldSelector"]) == ("app=web", "metadata.name=a")


async def test_what_a_consumer_raises_ends_the_reflector():
    async def talk(exchange: Exchange) -> None:
        await give(exchange, thing("a", 2), at="5")
        await trio.sleep_forever()

    def heed(event: Event) -> None:
        raise RuntimeError("a bug of a consumer")

    async with scripted(talk) as server, client_of(server) as client:
        with pytest.raises(RuntimeError, match="a bug of a consumer"):
            await Reflector(client, THINGS, heed=heed, trouble=lambda text: None).run()
