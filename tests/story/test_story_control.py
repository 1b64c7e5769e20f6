"""The control channel of the real process with a careless, hostile or dying supervisor."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from shipper.testing import Reply
from tests.canary import EVENT
from tests.disks import fill, small_disk
from tests.story.driver import launched, policy
from tests.story.world import open_world, secret, shipping

STATE_KEYS = {name: base64.b64encode(bytes([n]) * 32).decode() for n, name in enumerate(("k1", "k2"), start=1)}


def keys(*names: str) -> list[dict[str, str]]:
    return [{"id": name, "key": STATE_KEYS[name]} for name in names]


async def test_a_credential_that_nothing_refers_to_is_named_in_the_log_once_and_not_kept(tmp_path: Path) -> None:
    text = policy(inputs="  g: {type: generate, count: 1}\n", outputs="  out: {type: console}\n")
    async with launched(tmp_path) as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, text, {"es-7": secret("es-7")})
        await sidecar.ack(1, "drained")
        await sidecar.policy(2, f"{text}log_level: info\n", {"es-7": secret("es-7")})
        await sidecar.ack(2, "drained")
        observed = await sidecar.observe()
        await sidecar.stop()

    told = [line for line in map(json.loads, sidecar.log.splitlines()) if "shipper.credentials" in line]
    assert [line["shipper.credentials"] for line in told] == [["es-7"]]
    assert observed["credentials_in_use"] == []


async def test_every_bad_line_is_one_error_and_changes_nothing(tmp_path: Path) -> None:
    bad = [
        b"nonsense",
        b"[1,2]",
        b'{"type":"foo"}',
        b"\xff\xfe",
        b"[" * 50000,
        b'{"type":"policy","revision":-1,"policy":""}',
    ]
    bad += [
        b'{"type":"policy","policy":"x"}',
        b'{"type":"hello","protocol":1}',
        b'{"type":"stop","within_seconds":NaN}',
    ]
    async with open_world(tmp_path, "a") as world, launched(world.state) as sidecar:
        await sidecar.send({"type": "observe"})
        await sidecar.hello()
        await world.settled(sidecar, 1, "a")
        for line in bad:
            await sidecar.send(line)
        await sidecar.send(b"x" * (5 << 20))
        world.write(10)
        await world.delivered()
        observed = await sidecar.observe()
        await sidecar.stop()

    errors = [m for m in sidecar.said if m["type"] == "error"]
    assert [error["line"] for error in errors] == [1, *range(4, 5 + len(bad))]
    assert observed["revisions"]["active"] == [0, 1]


async def test_a_secret_in_a_bad_line_is_not_repeated(tmp_path: Path) -> None:
    canary = "canary-4711-secret"
    lines = [
        {"type": "policy", "revision": 1, "policy": "version: 1\n", "credentials": {"a": {"api_key": 5, "x": canary}}},
        {
            "type": "policy",
            "revision": 1,
            "policy": f"version: 1\noutputs: {{main: {{type: console, api_key: {canary}}}}}",
        },
        {"type": "policy", "revision": 1, "policy": f"version: 1\n{canary}: ["},
        {"type": "action", "id": "a", "name": "rebind", "params": {"from": [canary]}},
        {"type": "credentials", "credentials": {"a": canary}},
        {"type": canary},
    ]
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        for line in lines:
            await sidecar.send(line)
        await sidecar.wait(lambda m: m["type"] == "error" and m["line"] == 1 + len(lines))
        await sidecar.stop()

    assert canary not in sidecar.raw.decode()
    assert canary not in sidecar.log.decode()
    assert len([m for m in sidecar.said if m["type"] in ("error", "nack", "result")]) == len(lines)


async def test_the_end_of_standard_input_is_a_stop(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar):
        world.write(1000)
        assert sidecar.process.stdin is not None
        await sidecar.process.stdin.aclose()
        with trio.fail_after(60):
            status = await sidecar.process.wait()

    assert status == 0
    assert sidecar.said[-1]["type"] == "stopped"


async def test_a_stop_waits_for_no_fuller_request(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state) as sidecar:
        await sidecar.hello()
        outputs = f'  main: {{type: elasticsearch, hosts: ["{world.destination.url}"], credential: a, flush: 5s}}\n'
        await world.settled(sidecar, 1, "a", outputs=outputs)
        world.write()
        await world.delivered()
        written = time.monotonic()
        world.write(3)
        await sidecar.state(lambda o: o["queue"]["events"] >= 3)
        stopped = await sidecar.stop()

    assert stopped["undelivered"] == 0
    assert world.destination.total == 4
    assert world.destination.log[-1].arrived < written + 5


async def test_a_signal_is_a_stop_and_a_second_one_ends_at_once(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar):
        world.destination.script = lambda request, documents: Reply(status=503)
        world.write(100)
        await sidecar.holds(100)
        sidecar.process.send_signal(signal.SIGTERM)
        await sidecar.wait(lambda m: m["type"] == "observed" and m["state"] == "STOPPING")
        sidecar.process.send_signal(signal.SIGTERM)
        with trio.fail_after(60):
            status = await sidecar.process.wait()
        world.destination.script = None
        async with world.shipping("a") as again:
            await world.delivered()
            await again.stop()

    assert status == 0
    assert sidecar.said[-1] == {"type": "stopped", "clean": True, "undelivered": 100}


async def test_what_is_not_delivered_in_time_is_said_and_stays(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world:
        async with world.shipping("a") as sidecar:
            world.destination.script = lambda request, documents: Reply(status=503)
            world.write(77)
            await sidecar.holds(77)
            stopped = await sidecar.stop(within=0)
        world.destination.script = None
        async with world.shipping("a") as sidecar:
            await world.delivered()
            await sidecar.stop()

    assert stopped == {"type": "stopped", "clean": True, "undelivered": 77}


@pytest.mark.root
async def test_a_stop_on_a_full_disk_is_clean_since_all_that_was_accepted_is_durable(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world:
        world.state.mkdir(mode=0o700)
        with small_disk(world.state, "48m"):
            async with world.shipping("a") as sidecar:
                fill(world.state / "filler")
                world.write(100_000)
                await sidecar.state(lambda o: o["message"] == "disk full: intake waits")
                stopped = await sidecar.stop()
                assert await sidecar.process.wait() == 0
            (world.state / "filler").unlink()
            async with world.shipping("a") as sidecar:
                await world.delivered()
                await sidecar.stop()

    assert stopped["clean"]


async def test_a_second_process_on_a_state_directory_ends_with_75_and_changes_nothing(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state) as first:
        await first.hello()
        async with launched(world.state) as second:
            await second.send(b"garbage")
            await second.send({"type": "hello", "protocol": 1})
            with trio.fail_after(60):
                status = await second.process.wait()
            error = await second.wait(lambda m: m["type"] == "error" and m["line"] == 2)
        await world.settled(first, 1, "a")
        world.write(10)
        await world.delivered()
        await first.stop()

    assert status == 75
    assert str(first.process.pid) in error["message"]


@pytest.mark.parametrize("wrong", [{"protocol": 2}, {"protocol": 1, "state_keys": [{"id": "k", "key": "AAAA"}]}])
async def test_a_hello_that_cannot_be_taken_is_refused_with_78_and_its_line(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.send(b"garbage")
        await sidecar.send({"type": "hello", **wrong})
        with trio.fail_after(60):
            status = await sidecar.process.wait()

    assert status == 78
    assert [(m["type"], m["line"]) for m in sidecar.said] == [("error", 1), ("error", 2)]


async def test_given_keys_seal_and_rotate_and_wrong_ones_are_locked_out(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world:
        async with launched(world.state) as sidecar:
            await sidecar.hello(state_keys=keys("k1"))
            await world.settled(sidecar, 1, "a")
            world.destination.script = lambda request, documents: Reply(status=503)
            world.write(50)
            await sidecar.holds(50)
            await sidecar.kill()
        for wrong in ({"state_keys": keys("k2")}, {}):
            async with launched(world.state) as sidecar:
                await sidecar.send({"type": "hello", "protocol": 1, "heartbeat_seconds": 0.1, **wrong})
                failed = await sidecar.wait(lambda m: m["type"] == "observed")
                assert failed == await sidecar.wait(lambda m: m["type"] == "observed", since=3)
                assert failed == await sidecar.observe()
                assert (await sidecar.action("diagnostics"))["status"] == "FAILED"
                await world.offer(sidecar, 1, "a")
                nack = await sidecar.nack(1)
                await sidecar.stop()
            assert (failed["state"], nack["reason"]) == ("FAILED", "locked")
        async with launched(world.state) as sidecar:
            await sidecar.send(b'{"type":"hello","protocol":1}\n{"type":"action","id":"a","name":"diagnostics"}')
            assert [(await sidecar.wait(lambda m: True, since=n))["type"] for n in (0, 1)] == ["observed", "result"]
            await sidecar.stop()
        async with launched(world.state) as sidecar:
            await sidecar.hello(state_keys=keys("k2", "k1"))
            await sidecar.stop(within=0)
        world.destination.script = None
        async with launched(world.state) as sidecar:
            await sidecar.hello(state_keys=keys("k2"))
            await world.settled(sidecar, 1, "a")
            await world.delivered()
            await sidecar.stop()


async def test_nobody_reading_standard_output_holds_up_no_event(tmp_path: Path) -> None:
    """The pipe stays full; shipping continues, and the next process reports the durable stages."""
    read_end, write_end = os.pipe()
    async with open_world(tmp_path, "a", "b") as world:
        command = [sys.executable, "-m", "shipper", "run", "--state", str(world.state)]
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=write_end, stderr=subprocess.DEVNULL
        )
        os.close(write_end)
        assert process.stdin is not None
        lines = [{"type": "hello", "protocol": 1}]
        lines += [{"type": "policy", "revision": 1, "policy": world.text("a"), "credentials": {"a": secret("a")}}]
        for line in lines:
            await process.stdin.send_all(json.dumps(line).encode() + b"\n")
        for _ in range(900):
            await process.stdin.send_all(b'{"type":"bad"}\n')
        world.write(1000)
        await world.delivered()
        process.kill()
        await process.wait()
        os.close(read_end)
        async with launched(world.state) as sidecar:
            ready = await sidecar.hello()
            await sidecar.stop(within=0)

    assert ready["revisions"]["drained"] == [0, 1]


async def test_all_nack_reasons_of_a_policy(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a", "b") as world, launched(world.state) as sidecar:
        await sidecar.hello()
        await world.settled(sidecar, 5, "a")
        text = world.text("b")

        async def reason(revision: int, text: str, credentials: dict[str, dict[str, str]], **fields: object) -> str:
            since = len(sidecar.said)
            await sidecar.policy(revision, text, credentials, **fields)
            return str((await sidecar.nack(revision, since=since))["reason"])

        reasons = [
            await reason(4, text, {"b": secret("b")}),
            await reason(5, text, {"b": secret("b")}),
            await reason(6, text, {}),
            await reason(6, text, {"b": secret("b"), "a": secret("other")}),
            await reason(6, text + "zzz: 1\n", {"b": secret("b")}),
            await reason(6, text, {"b": secret("b")}, sha256="0" * 64),
            await reason(6, text, {"b": {"bearer_token": "x", "more": "y"}}),
            await reason(6, policy(outputs="  main: {type: console, credential: b}\n"), {"b": secret("b")}),
        ]
        drained = await world.settled(sidecar, 6, "b")
        repeated = await world.settled(sidecar, 6, "b")
        await sidecar.stop()

    assert reasons == [
        "stale",
        "conflict",
        "credential_missing",
        "credential_conflict",
        "invalid",
        "invalid",
        "invalid",
        "invalid",
    ]
    assert drained == repeated


async def test_a_small_queue_fills_up_to_its_limit_while_a_destination_is_away(tmp_path: Path) -> None:
    """Events that entered also reach the output that accepts them."""
    limit = 512 << 10
    async with open_world(tmp_path, "a") as world, launched(world.state) as sidecar:
        world.destination.script = lambda request, documents: Reply(status=503)
        world.log.write_text("".join(f"{EVENT} {n} {secrets.token_hex(500)}\n" for n in range(3000)))
        copy = tmp_path / "copy.ndjson"
        outputs = f'  main: {{type: elasticsearch, hosts: ["{world.destination.url}"]}}\n'
        outputs += f'  copy: {{type: file, path: "{copy}"}}\n'
        small = policy(paths=str(world.log), outputs=outputs, more=f"queue: {{max_bytes: {limit >> 10}KiB}}\n")
        await sidecar.hello()
        await sidecar.policy(1, small)
        observed = await sidecar.state(lambda o: "the queue is full" in json.dumps(o["units"]))
        full = await sidecar.state(lambda o: o["queue"]["events"] == copy.read_bytes().count(b"\n"))
        await sidecar.stop(0)

    assert limit * 14 // 16 <= observed["queue"]["bytes"] <= limit
    assert full["queue"]["events"] > 500
