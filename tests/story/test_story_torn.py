"""The power fails at any call, and the disk keeps any part of the unsynced writes: reordered, torn, names lost.

A real sidecar is recorded; from that, disks are made as a cut before any call may leave them (`tests.torn`), and the
spool that opens each is compared with what others had been told until then. The next sidecar starts on one of them, so
that a disk that was cut once is cut again.

CUTS=20000 SEED=7 pytest --limit=0 tests/story/test_story_torn.py
"""

from __future__ import annotations

import os
import random
import re
from collections import defaultdict
from copy import deepcopy
from pathlib import Path

import msgspec
import pytest

from shipper.spool.spool import Spool, open_spool
from shipper.testing import Reply
from shipper.values import Revision
from shipper_demo.ports import free_port
from tests.canary import EVENT
from tests.fakes import stored_batch
from tests.journal import Received, Sent, Step, read, tracer
from tests.story.driver import Message, Sidecar, launched
from tests.story.http import post_bulk
from tests.story.world import World, open_world, secret
from tests.torn import TornDisk, cuts, lay_out

CUTS = int(os.environ.get("CUTS", "60"))
SEED = int(os.environ.get("SEED", "20261121"))
CUTS_OF_A_LIFE = min(CUTS, max(30, CUTS // 50))


class Told:
    """The messages to others, from the sockets and pipes of a process."""

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        """Events of requests to the bulk receiver that it answered with 200."""
        self.answered: set[int] = set()
        """Events of requests to the destination that it answered with 200: the spool may know."""
        self.said: list[Message] = []
        self._requests: defaultdict[int, bytes] = defaultdict(bytes)

    def note(self, step: Step) -> None:
        match step:
            case Sent(_, content) if content.startswith(b'{"type":'):
                self.said += [msgspec.json.decode(line) for line in content.splitlines()]
            case Sent(fd, content):
                self._answer(fd, content, self.accepted)
            case Received(fd, content):
                self._answer(fd, content, self.answered)

    def _answer(self, fd: int, content: bytes, events: set[int]) -> None:
        """A connection carries a request in one direction and its answer in the other."""
        if not content.startswith(b"HTTP/1.1 "):
            self._requests[fd] += content
            return
        request = self._requests.pop(fd, b"")
        if content.startswith(b"HTTP/1.1 200 "):
            events.update(map(int, re.findall(rb"%s (\d+) " % EVENT.encode(), request)))

    def kept(self) -> Told:
        """Returns a copy for the moment of a cut, without requests that were under way."""
        copy = deepcopy(self)
        copy._requests.clear()
        return copy

    def acks(self, stage: str) -> list[Message]:
        return [message for message in self.said if message["type"] == "ack" and message["stage"] == stage]


# -- a life to be recorded ---------------------------------------------------------------------------------------------


class Producer:
    """Posts events that have numbers."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._url = f"http://127.0.0.1:{free_port()}"
        self._posted = 0
        self.input = f'  in: {{type: elasticsearch, address: "{self._url[7:]}"}}\n'

    async def post(self) -> None:
        numbers = range(self._posted, self._posted + self._draw.choice((1, 5, 20)))
        self._posted = numbers.stop
        size = self._draw.choice((0, 200, 4_000, 12_000))
        events = [{"message": f"{EVENT} {n} {self._draw.randbytes(size).hex()}"} for n in numbers]

        assert await post_bulk(self._url, events) == [201] * len(events)


async def live(world: World, producer: Producer, sidecar: Sidecar, revisions: range) -> None:
    """Runs a process that rotates keys; the destination is unreachable now and then."""
    ready = await sidecar.hello()
    await sidecar.send({"type": "credentials", "credentials": {id: secret(id) for id in ready["credentials_wanted"]}})
    for revision in revisions:
        key = f"k{revision}"
        world.grant(key)
        url = world.destination.url
        output = f'  main: {{type: elasticsearch, hosts: ["{url}"], compression: none, credential: {key},'
        output += " backoff: {first: 20ms, longest: 50ms}}\n"
        await world.offer(sidecar, revision, key, inputs=producer.input, outputs=output)
        await sidecar.ack(revision, "drained")
        await producer.post()
        world.destination.script = lambda request, documents: Reply(status=503)
        for _ in range(3):
            await producer.post()
        world.destination.script = None
    await sidecar.holds(0)


async def record(world: World, producer: Producer, files: dict[str, bytes], revisions: range) -> list[Step]:
    """Returns the steps of a process on a disk with these files; at the end it has delivered everything."""
    lay_out(world.state, files)
    trace = world.directory / "trace"
    async with launched(world.state, tracer=tracer(trace)) as sidecar:
        await live(world, producer, sidecar, revisions)
        await sidecar.stop()
    steps = list(read(trace, world.state, files))

    assert whole(steps, files) == {path.name: path.read_bytes() for path in world.state.iterdir()}
    return steps


def whole(steps: list[Step], files: dict[str, bytes]) -> dict[str, bytes]:
    """Replays a recording without a failure, and compares the directory: the recording is complete then."""
    disk = TornDisk(files)
    for step in steps:
        disk.do(step)
    return disk.sync()


# -- cuts --------------------------------------------------------------------------------------------------------------


async def judge(directory: Path, told: Told) -> None:
    """Checks that every message is true after the cut, and that nothing is damaged."""
    async with open_spool(directory, None) as spool:
        assert spool.store.report is None
        assert not [name for name in os.listdir(directory) if name.startswith("quarantine-")]
        assert await spool.drains.doubts() == set()
        waiting, oldest = await entries(spool)
        assert told.accepted - told.answered <= waiting, sorted(told.accepted - told.answered - waiting)
        await judge_revisions(spool, told, oldest)


async def entries(spool: Spool) -> tuple[set[int], Revision | None]:
    """Returns the numbers of all waiting events, and their oldest revision."""
    found: set[int] = set()
    revisions = []
    for lane in await spool.revisions.lanes():
        assert lane.settings is not None
        for entry in await spool.queue.window(lane.id, 0, 1000):
            revisions.append(entry.revision)
            if not entry.is_barrier:
                documents = (await stored_batch(spool, lane.id, entry)).own()
                found.update(int(str(document["message"]).split()[1]) for document in documents)
    return found, min(revisions, default=None)


async def judge_revisions(spool: Spool, told: Told, oldest: Revision | None) -> None:
    standing = await spool.revisions.standing(())
    for stage in ("received", "active", "drained"):
        for ack in told.acks(stage):
            assert getattr(standing.stages, stage) >= at(ack)
            assert stage != "drained" or oldest is None or oldest >= at(ack)
            assert not {*ack.get("credentials", {}).get("released", ())} & {*standing.in_use}
    for known in standing.stored.known:
        assert await spool.revisions.policy_text(known.at)
        for ack in told.acks("drained"):
            stored = known.drained and {"type": "ack", "stage": "drained", **msgspec.to_builtins(known.drained)}
            assert at(ack) != known.at or {"confirms": None, **ack} == stored


def at(message: Message) -> Revision:
    return Revision(message["epoch"], message["revision"])


async def cut_anywhere(
    steps: list[Step], files: dict[str, bytes], told: Told, draw: random.Random, directory: Path
) -> tuple[dict[str, bytes], Told]:
    """Cuts the power at many places and judges each; returns one of the disks, and the messages until then."""
    survivors = []
    noted = 0
    for place, left in cuts(steps, files, CUTS_OF_A_LIFE, draw):
        for step in steps[noted:place]:
            told.note(step)
        noted = place
        lay_out(directory, left)
        try:
            await judge(directory, told)
        except BaseException as error:
            error.add_note(f"cut before step {place} of {len(steps)}")
            raise
        if draw.random() < 5 / CUTS_OF_A_LIFE or not survivors:
            survivors.append((left, told.kept()))
    return draw.choice(survivors)


@pytest.mark.root
async def test_whatever_part_of_the_disk_a_power_cut_keeps_all_that_was_told_is_so(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    (tmp_path / "cut").mkdir()
    async with open_world(tmp_path) as world:
        world.state.mkdir(mode=0o700)
        producer = Producer(draw)
        files: dict[str, bytes] = {}
        told = Told()
        for revision in range(1, 1 + 4 * (CUTS // CUTS_OF_A_LIFE), 4):
            world.destination.documents.clear()
            steps = await record(world, producer, files, range(revision, revision + 4))
            assert told.accepted - told.answered <= {*world.numbers()}
            files, told = await cut_anywhere(steps, files, told, draw, tmp_path / "cut")
