"""T49.1 to T49.13: the barrier's scenarios, each against the real process and a real destination that revokes keys."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.testing import Reply
from shipper_demo.ports import free_port
from tests.canary import EVENT
from tests.story.driver import PATIENCE, Message, Sidecar, launched, policy
from tests.story.http import post_bulk
from tests.story.world import World, key, open_world, secret, shipping

DOWN = Reply(status=503)


async def queued(world: World, sidecar: Sidecar, count: int) -> None:
    """Write lines while the destination is down, and wait until they are in the spool."""
    world.destination.script = lambda request, documents: DOWN
    world.write(count)
    await sidecar.state(lambda observed: observed["queue"]["events"] >= count)


async def test_T49_1_drained_comes_only_after_every_older_event_has_its_answer(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a", "b") as (world, sidecar):
        await queued(world, sidecar, 500)
        at_drained: list[int] = []

        def note(message: Message) -> None:
            if message["type"] == "ack" and message["stage"] == "drained" and message["revision"] == 2:
                at_drained.append(world.destination.total)
                world.revoke("a")

        sidecar.on_message = note
        await world.offer(sidecar, 2, "b")
        await sidecar.ack(2, "active")
        observed = await sidecar.state(lambda o: bool(o["draining"]))
        assert sidecar.acks() == [1]
        world.destination.script = None
        drained = await sidecar.ack(2, "drained")
        await sidecar.stop()

    assert observed["draining"][0]["revision"] == 1
    assert observed["draining"][0]["outputs"]["main"]["events"] == 500
    assert at_drained == [500]
    assert drained["credentials"] == {"in_use": ["b"], "released": ["a"]}
    assert drained["ledger"]["accepted"] == drained["ledger"]["delivered"] == 500
    assert world.destination.refused == 0


async def test_T49_2_a_change_that_touches_no_queued_event_is_drained_at_once(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar):
        await queued(world, sidecar, 100)
        await world.offer(sidecar, 2, "a", more="log_level: warning\nqueue: {max_bytes: 512MiB}\n")
        live = await sidecar.ack(2, "drained")
        await world.offer(sidecar, 3, "a", more="# a comment\nqueue: {max_bytes: 512MiB}\nlog_level: warning\n")
        same = await sidecar.ack(3, "drained")
        events = (await sidecar.observe())["queue"]["events"]
        world.destination.script = None
        await world.delivered()
        await sidecar.stop()

    assert (live["change"], same["change"]) == ("live", "none")
    assert live["credentials"]["released"] == []
    assert events == 100


async def test_T49_3_events_of_a_removed_input_go_out_with_the_old_key_and_its_peers_are_refused(
    tmp_path: Path,
) -> None:
    port = free_port()
    both = f'  access: {{type: file, paths: ["{tmp_path}/access.log"]}}\n'
    both += f'  apps: {{type: elasticsearch, address: "127.0.0.1:{port}"}}\n'
    async with shipping(tmp_path, "a", "b", inputs=both) as (world, sidecar):
        await queued(world, sidecar, 10)
        answers = await post_bulk(f"http://127.0.0.1:{port}", [{"message": f"{EVENT} {n}"} for n in range(10, 20)])
        world.lines += 10
        await world.offer(sidecar, 2, "b")
        await sidecar.ack(2, "active")
        await refused(port)
        world.destination.script = None
        drained = await sidecar.ack(2, "drained")
        await world.delivered()
        await sidecar.stop()

    assert answers == [201] * 10
    assert drained["ledger"]["delivered"] == 20
    with_b = world.destination.requests_with(key("b"))
    assert sum(request.items for request in with_b if request.status == 200) == 0


async def refused(port: int) -> None:
    """Waits until connections are refused; the kernel may accept some while the input closes."""
    with trio.fail_after(PATIENCE), suppress(OSError):
        while True:
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()


async def test_T49_4_a_dead_destination_holds_the_barrier_until_the_deadline_that_the_policy_names(
    tmp_path: Path,
) -> None:
    async with shipping(tmp_path, "a", "b", "c") as (world, sidecar):
        await queued(world, sidecar, 50)
        await world.offer(sidecar, 2, "b", more="drain: {deadline: 300ms, on_deadline: hold}\n")
        await sidecar.ack(2, "active")
        held = await sidecar.state(lambda o: "deadline" in json.dumps(o["units"]) or "deadline" in o["message"])
        assert sidecar.acks() == [1]
        await world.offer(sidecar, 3, "b", more="drain: {deadline: 300ms, on_deadline: dead_letter}\n")
        drained = await sidecar.ack(3, "drained")
        letters = (await sidecar.observe())["dead_letters"]["events"]
        await sidecar.stop()

    assert held["state"] == "DEGRADED"
    assert drained["ledger"] == {
        "accepted": 50,
        "delivered": 0,
        "duplicate": 0,
        "dead_letter": 50,
        "dropped": 0,
        "damaged": 0,
        "superseded": 0,
    }
    assert letters == 50
    assert drained["credentials"]["released"] == ["a"]


async def test_T49_5_a_burst_of_revisions_ends_with_the_last_and_acks_rise(tmp_path: Path) -> None:
    names = [f"k{n}" for n in range(30)]
    async with open_world(tmp_path, *names) as world, launched(world.state) as sidecar:
        await sidecar.hello()
        await world.settled(sidecar, 1, "k0")
        await queued(world, sidecar, 20)
        for revision, name in enumerate(names[1:], start=2):
            await world.offer(sidecar, revision, name)
        await sidecar.ack(30, "active")
        observed = await sidecar.observe()
        world.destination.script = None
        world.write(20)
        await sidecar.ack(30, "drained")
        await world.delivered()
        await sidecar.stop()

    nacks = {m["revision"]: m["reason"] for m in sidecar.said if m["type"] == "nack"}
    assert set(nacks.values()) <= {"superseded"}
    for stage in ("received", "active", "drained"):
        assert sidecar.acks(stage) == sorted(sidecar.acks(stage))
    assert not set(sidecar.acks("active")) & set(nacks)
    assert set(sidecar.acks("active")) | set(nacks) == set(range(1, 31))
    assert len(observed["draining"]) <= 2
    released = [id for m in sidecar.said if m["type"] == "ack" for id in m.get("credentials", {}).get("released", ())]
    released += [id for m in sidecar.said if m["type"] == "released" for id in m["credentials"]]
    forgotten = [id for m in sidecar.said if m["type"] == "nack" for id in m["released"]]
    assert set(released) | set(forgotten) == set(names) - {"k29"}


async def test_T49_6_going_back_to_an_earlier_content_is_a_new_revision(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a", "b") as (world, sidecar):
        await queued(world, sidecar, 30)
        await world.offer(sidecar, 2, "b")
        await sidecar.ack(2, "active")
        await world.offer(sidecar, 3, "a")
        await sidecar.ack(3, "active")
        world.write(10)
        await sidecar.holds(40)
        world.destination.script = None
        drained = await sidecar.ack(3, "drained")
        await world.delivered()
        await sidecar.stop()

    assert drained["credentials"]["in_use"] == ["a"]
    released = [id for m in sidecar.said if m["type"] == "ack" for id in m.get("credentials", {}).get("released", ())]
    released += [id for m in sidecar.said if m["type"] == "released" for id in m["credentials"]]
    assert set(released) == {"b"}


async def test_T49_7_a_killed_process_knows_its_barriers_and_what_it_needs(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a", "b") as world:
        async with world.shipping("a") as sidecar:
            await queued(world, sidecar, 200)
            await world.offer(sidecar, 2, "b")
            await sidecar.ack(2, "active")
            await sidecar.kill()
        world.destination.script = None
        async with launched(world.state) as sidecar:
            ready = await sidecar.hello()
            await sidecar.state(lambda o: o["state"] == "DEGRADED" and "credential a is missing" in o["message"])
            assert sidecar.acks() == []
            await sidecar.send({"type": "credentials", "credentials": {"a": secret("a")}})
            drained = await sidecar.ack(2, "drained")
            world.revoke("a")
            await world.offer(sidecar, 2, "b")
            again = await sidecar.ack(2, "drained", since=len(sidecar.said))
            world.write(5)
            await world.delivered()
            await sidecar.stop()

    assert ready["revisions"] == {"received": [0, 2], "active": [0, 2], "drained": [0, 1]}
    assert ready["credentials_wanted"] == ["a"]
    assert ready["credentials_in_use"] == ["a", "b"]
    assert drained["ledger"]["accepted"] == 200
    assert again == drained
    assert world.destination.refused == 0


async def test_T49_8_a_key_that_died_too_early_is_held_visibly_until_an_order(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a", "b") as (world, sidecar):
        await queued(world, sidecar, 40)
        world.revoke("a")
        await world.offer(sidecar, 2, "b")
        await sidecar.ack(2, "active")
        world.destination.script = None  # as below
        held = await sidecar.state(lambda o: "401" in json.dumps(o["draining"]))
        nothing = await sidecar.action("drop", revision=7)
        assert sidecar.acks() == [1]
        result = await sidecar.action("dead_letter", revision=1)
        drained = await sidecar.ack(2, "drained")
        listed = await sidecar.action("dead_letters", list=True)
        await sidecar.stop()

    assert held["state"] == "DEGRADED"
    assert (nothing["status"], "revision 1 of output main" in nothing["message"]) == ("FAILED", True)
    assert result["status"] == "SUCCESS"
    assert drained["ledger"]["dead_letter"] == 40
    assert len(listed["result"]["dead_letters"]) == 40
    assert EVENT not in json.dumps(listed)


async def test_T49_8_a_rebind_delivers_with_the_new_key_what_was_bound_to_the_dead_one(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a", "b") as (world, sidecar):
        await queued(world, sidecar, 100)
        world.revoke("a")
        await world.offer(sidecar, 2, "b")
        await sidecar.ack(2, "active")
        world.destination.script = None  # not before: one that was checked before the key was revoked would be taken
        result = await sidecar.action("rebind", **{"from": "a", "to": "b"})
        drained = await sidecar.ack(2, "drained")
        await world.delivered()
        await sidecar.stop()

    assert (result["status"], result["result"]) == ("SUCCESS", {"released": ["a"]})
    assert drained["ledger"]["accepted"] == drained["ledger"]["delivered"] == 100
    assert drained["credentials"]["in_use"] == ["b"]


async def test_T49_9_only_the_output_that_changed_drains(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a", "b", "x") as world, open_world(tmp_path / "..", "x") as other:

        def output(name: str, url: str, credential: str) -> str:
            pace = "backoff: {first: 50ms, longest: 200ms}"
            return f'  {name}: {{type: elasticsearch, hosts: ["{url}"], {pace}, credential: {credential}}}\n'

        def text(credential: str) -> str:
            outputs = output("main", world.destination.url, credential) + output("second", other.destination.url, "x")
            return policy(paths=str(world.log), outputs=outputs)

        async with launched(world.state) as sidecar:
            await sidecar.hello()
            await sidecar.policy(1, text("a"), {"a": secret("a"), "x": secret("x")})
            await sidecar.ack(1, "drained")
            other.destination.script = lambda request, documents: DOWN
            world.write(100)
            await world.delivered()
            await sidecar.policy(2, text("b"), {"b": secret("b"), "x": secret("x")})
            drained = await sidecar.ack(2, "drained")
            observed = await sidecar.observe()
            other.destination.script = None
            await other.destination.wait_for(100)
            await sidecar.stop()

    assert drained["credentials"] == {"in_use": ["b", "x"], "released": ["a"]}
    assert observed["queue"]["events"] == 100
    assert drained["ledger"]["accepted"] == drained["ledger"]["delivered"]


async def test_T49_10_a_policy_without_inputs_or_outputs_is_acknowledged(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state) as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, "version: 1\n")
        await sidecar.ack(1, "drained")
        await world.settled(sidecar, 2, "a")
        world.write(10)
        await world.delivered()
        await sidecar.policy(3, policy(paths=str(world.log), outputs=""))
        drained = await sidecar.ack(3, "drained")
        held = await sidecar.state(lambda o: o["state"] == "DEGRADED")
        world.write(5)
        await sidecar.policy(4, "version: 1\n")
        await sidecar.ack(4, "drained")
        await world.settled(sidecar, 5, "a")
        await world.delivered()
        await sidecar.stop()

    assert drained["credentials"] == {"in_use": [], "released": ["a"]}
    assert held["units"][0]["id"] == "inputs.access"


async def test_T49_11_an_event_that_races_the_switch_belongs_to_exactly_one_revision(tmp_path: Path) -> None:
    port = free_port()
    receiver = f'  apps: {{type: elasticsearch, address: "127.0.0.1:{port}"}}\n'
    async with shipping(tmp_path, "k1", inputs=receiver) as (world, sidecar):
        sent: list[int] = []
        done = trio.Event()

        async def produce(start: int) -> None:
            number = start
            while not done.is_set():
                answers = await post_bulk(f"http://127.0.0.1:{port}", [{"message": f"{EVENT} {number}"}])
                assert answers == [201]
                sent.append(number)
                number += 4

        async with trio.open_nursery() as nursery:
            for start in range(4):
                nursery.start_soon(produce, start)
            for revision in range(2, 10):
                await world.settled(sidecar, revision, f"k{revision}", inputs=receiver)
                world.revoke(f"k{revision - 1}")
            done.set()
        await world.destination.wait_for(len(sent))
        stopped = await sidecar.stop()

    assert stopped["undelivered"] == 0
    assert world.numbers() == sorted(sent)
    assert set(world.destination.copies.values()) == {1}
    assert world.destination.refused == 0


async def test_T49_12_only_the_items_that_were_put_off_hold_the_barrier(tmp_path: Path) -> None:
    def some(request: Any, documents: list[Any]) -> Reply:
        sevenths = [n for n, d in enumerate(documents) if json.loads(d.source)["message"].endswith("7")]
        return Reply(items=dict.fromkeys(sevenths, (429, "es_rejected_execution_exception")))

    async with shipping(tmp_path, "a", "b") as (world, sidecar):
        world.destination.script = some
        world.write(100)
        await world.destination.wait_for(90)
        await world.offer(sidecar, 2, "b")
        await sidecar.ack(2, "active")
        observed = await sidecar.holds(10)
        assert sidecar.acks() == [1]
        world.destination.script = None
        drained = await sidecar.ack(2, "drained")
        await world.delivered()
        await sidecar.stop()

    assert observed["draining"][0]["events"] == 10
    assert 10 <= drained["ledger"]["accepted"] <= 100
    assert drained["ledger"]["delivered"] == drained["ledger"]["accepted"]
    assert set(world.destination.copies.values()) == {1}


@pytest.mark.parametrize("refusal", [(403, "security_exception"), (404, "index_not_found_exception")])
async def test_a_data_stream_that_is_refused_holds_its_own_events_and_no_others(
    tmp_path: Path, refusal: tuple[int, str]
) -> None:
    """An order that drops undeliverable events drops none that the destination would have accepted."""

    def only(request: Any, documents: list[Any]) -> Reply:
        return Reply(items={n: refusal for n, document in enumerate(documents) if document.index == "logs-app-default"})

    app = tmp_path / "app.log"
    app.write_text("".join(f"{EVENT} app {n}\n" for n in range(2000)))
    async with open_world(tmp_path, "a", "b") as world, launched(world.state) as sidecar:
        both = f'  access: {{type: file, paths: ["{world.log}"]}}\n'
        both += f'  app: {{type: file, paths: ["{app}"], data_stream: {{dataset: app}}}}\n'
        world.destination.script = only
        await sidecar.hello()
        await world.settled(sidecar, 1, "a", inputs=both)
        for _ in range(20):
            world.write(100)
            await world.delivered()
        await sidecar.holds(2000)
        observed = await sidecar.observe()
        await world.offer(sidecar, 2, "b", inputs=both)
        await sidecar.ack(2, "active")
        await sidecar.action("drop", revision=1)
        drained = await sidecar.ack(2, "drained")
        await sidecar.stop()

    assert observed["message"].startswith(f"output main: logs-app-default: {refusal[0]} {refusal[1]}")
    assert (drained["ledger"]["accepted"], drained["ledger"]["dropped"]) == (2000, 2000)
    assert drained["credentials"]["released"] == ["a"]


async def test_T49_13_a_pipeline_that_cannot_start_leaves_the_old_one_running(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as taken:
        broken = f'  apps: {{type: elasticsearch, address: "127.0.0.1:{port}"}}\n'
        async with shipping(tmp_path, "a", "b") as (world, sidecar):
            await world.offer(sidecar, 2, "b", inputs=broken)
            nack = await sidecar.nack(2)
            world.write(100)
            await world.delivered()
            observed = await sidecar.observe()
            taken.close()
            drained = await world.settled(sidecar, 2, "b", inputs=broken)
            await sidecar.stop()

    assert (nack["reason"], nack["released"]) == ("failed", ["b"])
    assert "in use" in nack["errors"][0]["message"]
    assert observed["revisions"] == {"received": [0, 1], "active": [0, 1], "drained": [0, 1]}
    assert drained["credentials"]["released"] == ["a"]


async def test_an_output_that_has_nothing_but_dead_letters_is_not_healthy(tmp_path: Path) -> None:
    refuse = dict.fromkeys(range(1000), (400, "document_parsing_exception"))
    async with shipping(tmp_path, "a") as (world, sidecar):
        world.destination.script = lambda request, documents: Reply(items=refuse)
        world.write(20)
        degraded = await sidecar.state(lambda o: o["dead_letters"]["events"] == 20 and o["state"] == "DEGRADED")
        world.destination.script = None
        world.write(1)
        await sidecar.state(lambda o: o["state"] == "HEALTHY")
        await sidecar.stop()

    assert "refused for good" in degraded["message"]
    assert "document_parsing_exception" in degraded["message"]
    assert b"events became dead letters" in sidecar.log
