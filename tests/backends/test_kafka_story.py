"""The whole program with a real Kafka: credentials are deleted at `drained`, brokers die, and nothing is lost."""

import json
from collections import Counter
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from tests.backends.kafka_proxy import proxied
from tests.canary import EVENT
from tests.story.driver import launched, policy

pytestmark = pytest.mark.backend

ROTATIONS = 4


def text(kafka, log: Path, topic: str, user: str, *, address: str = "", more: str = "") -> str:
    where = f'hosts: ["{address}"]' if address else f'hosts: ["{kafka.sasl}"], tls: {{ca: {kafka.ca}}}'
    login = f"sasl: {{mechanism: SCRAM-SHA-512, credential: {user}}}"
    output = f"  main: {{type: kafka, {where}, topic: {topic}, {login}}}\n"
    return policy(outputs=output, inputs=f'  access: {{type: file, paths: ["{log}"]}}\n', more=more)


async def write(log: Path, numbers: range) -> None:
    async with await trio.open_file(log, "a") as file:
        await file.write("".join(f"{EVENT} {number} {sha256(b'%d' % number).hexdigest()}\n" for number in numbers))


def numbers(kafka, topic: str) -> Counter[int]:
    return Counter(int(json.loads(record.value())["message"].split()[1]) for record in kafka.records(topic))


def secret(user: tuple[str, str]) -> dict[str, dict[str, str]]:
    return {user[0]: {"username": user[0], "password": user[1]}}


async def test_rotations_delete_each_user_at_drained_while_events_flow(kafka, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.touch()
    topic = kafka.create_topic("rotation", 3)
    released: list[str] = []

    def heed(message: dict) -> None:
        if message["type"] == "ack" and message["stage"] == "drained":
            for user in message["credentials"]["released"]:
                kafka.delete_user(user)
                released.append(user)

    written = 0
    done, ended = trio.Event(), trio.Event()

    async def flow() -> None:
        nonlocal written
        for part in count():
            await write(log, range(part * 100, part * 100 + 100))
            written += 100
            if done.is_set():
                ended.set()
                return
            await trio.sleep(0.01)

    async def found() -> Counter[int]:
        return await trio.to_thread.run_sync(numbers, kafka, topic)

    async with launched(tmp_path / "state") as sidecar, trio.open_nursery() as nursery:
        sidecar.on_message = heed
        await sidecar.hello()
        for rotation in range(ROTATIONS):
            user = await trio.to_thread.run_sync(
                lambda n=rotation: kafka.create_user(f"rotated-{n}", topics="rotation")
            )
            await sidecar.policy(rotation + 1, text(kafka, log, topic, user[0]), secret(user))
            if not rotation:
                nursery.start_soon(flow)
            await sidecar.ack(rotation + 1, "drained", seconds=60)
            since = written
            while written < since + 500:  # noqa: ASYNC110 - what happens meanwhile is the test
                await trio.sleep(0.01)
        done.set()
        await ended.wait()
        with trio.move_on_after(60):  # an empty queue does not say that the last lines were read
            while (await found()).total() < written:  # noqa: ASYNC110 - the broker tells nobody
                await trio.sleep(0.1)
        stopped = await sidecar.stop()

    assert released == [f"rotated-{n}" for n in range(ROTATIONS - 1)]
    assert await found() == Counter(range(written))
    assert stopped["undelivered"] == 0
    assert not [m for m in sidecar.said if m["type"] == "observed" and "SASL" in json.dumps(m)]


async def test_a_wrong_password_holds_events_until_the_right_one_comes(kafka, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    await write(log, range(100))
    topic = kafka.create_topic("mistake")
    name, password = kafka.create_user("mistake", topics="mistake")
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        wrong = {"wrong": {"username": name, "password": "not-its-password"}}
        await sidecar.policy(1, text(kafka, log, topic, "wrong"), wrong)
        observed = await sidecar.state(lambda m: any(u.get("code") == "unauthorized" for u in m["units"]))
        right = {"right": {"username": name, "password": password}}
        await sidecar.policy(2, text(kafka, log, topic, "right"), right)
        await sidecar.ack(2, "active")
        await sidecar.action("rebind", **{"from": "wrong", "to": "right"})
        await sidecar.ack(2, "drained")
        await sidecar.stop()
    (unit,) = [unit for unit in observed["units"] if unit["id"] == "outputs.main"]
    assert unit["state"] == "DEGRADED"
    assert "SASL_AUTHENTICATION_FAILED" in unit["message"]
    assert numbers(kafka, topic) == Counter(range(100))


async def test_a_full_queue_waits_for_a_broker_that_is_away_and_each_line_arrives_once(kafka, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    lines = 40_000
    await write(log, range(1000))
    topic = kafka.create_topic("away", 2)
    user = kafka.create_user("away", topics="away")
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        wanted = text(kafka, log, topic, user[0], address=kafka.front, more="queue: {max_bytes: 1MiB}\n")
        async with proxied(kafka):
            await sidecar.policy(1, wanted, secret(user))
            await sidecar.state(lambda m: m["queue"]["events"] == 0 and kafka.count(topic) == 1000)
        await write(log, range(1000, lines))
        full = await sidecar.state(lambda m: any(u.get("code") == "queue_full" for u in m["units"]), seconds=60)
        async with proxied(kafka):
            await sidecar.state(lambda m: m["queue"]["events"] == 0 and kafka.count(topic) >= lines, seconds=120)
        await sidecar.stop()
    assert full["queue"]["bytes"] <= 2 << 20
    assert numbers(kafka, topic) == Counter(range(lines))


async def test_a_topic_that_is_made_later_gets_what_waited_for_it(kafka, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    await write(log, range(10))
    user = kafka.create_user("patient", topics="patient")
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, text(kafka, log, "patient", user[0]), secret(user))
        await sidecar.state(lambda m: "UNKNOWN_TOPIC" in json.dumps(m["units"]))
        kafka.create_topic("patient")
        await sidecar.state(lambda m: m["queue"]["events"] == 0, seconds=60)
        await sidecar.stop()
    assert numbers(kafka, "patient") == Counter(range(10))


async def test_a_credential_that_is_withdrawn_has_no_connection_left(kafka, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    await write(log, range(100))
    topic = kafka.create_topic("withdrawn")
    user = kafka.create_user("withdrawn", topics="withdrawn")
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, text(kafka, log, topic, user[0]), secret(user))
        await sidecar.state(lambda m: m["queue"]["events"] == 0 and kafka.count(topic) == 100)
        await sidecar.send({"type": "credentials", "credentials": {user[0]: None}})
        await write(log, range(100, 200))
        await sidecar.state(lambda m: any(u.get("code") == "credential_withdrawn" for u in m["units"]))
        left = kafka.connections(kafka.sasl, sidecar.process.pid)
        await sidecar.send({"type": "credentials", "credentials": secret(user)})
        await sidecar.state(lambda m: m["queue"]["events"] == 0 and kafka.count(topic) == 200)
        again = kafka.connections(kafka.sasl, sidecar.process.pid)
        await sidecar.stop()
    assert (left, bool(again)) == ([], True)
    assert numbers(kafka, topic) == Counter(range(200))
