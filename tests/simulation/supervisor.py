"""The supervisor: sends policies, keeps credentials and revokes them by the rules of the protocol, restarts what died.

It revokes in the very instant in which the line that allows it is written; there is no stricter supervisor. What a
step of the scenario does is a method of its name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import trio

from tests.simulation.backend import BACKENDS
from tests.simulation.disk import Disk
from tests.simulation.node import Node
from tests.simulation.offers import At, Feed, Offer, Shape, Target, offer
from tests.simulation.scenario import Step
from tests.simulation.stage import Stage
from tests.simulation.streams import STREAMS

_HELLO = {
    "type": "hello",
    "protocol": 1,
    "state_keys": [{"id": "k1", "key": base64.b64encode(b"k" * 32).decode()}],
    "heartbeat_seconds": 10.0,
}


class Supervisor:
    """One for each world."""

    def __init__(self, stage: Stage, disk: Disk) -> None:
        self.stage, self.disk = stage, disk
        self.node = Node(stage, self.hear)
        self.sent: list[Offer] = []
        """Sound policies, in the order of their numbers."""
        self.nacked: set[At] = set()
        self.revoked: set[str] = set()
        self.active: At | None = None
        self.is_over = False
        self._draining: list[dict[str, Any]] = []
        self._number = 0
        self._stamp = 0
        self._ids = 0
        self._actions = 0
        self._withheld: set[str] = set()
        self._late: set[str] = set()
        queue = stage.scenario.queue_bytes
        self.shape = Shape({}, {"pull": Feed(), "push": Feed()}, stage.scenario.workers, queue)
        self.shape = self.shape.with_output("main", self._target("east"))

    # -- what it hears -------------------------------------------------------------------------------------------------

    def hear(self, line: bytes) -> None:
        """A line of standard output."""
        message = json.loads(line)
        message.pop("pid", None)
        self.stage.note("said", message=message)
        match message["type"]:
            case "ack":
                self._hear_ack(message)
            case "released":
                self._revoke(message["credentials"], self.active)
            case "nack":
                self._hear_nack(message)
            case "ready":
                self._hear_ready(message)
            case "observed":
                self._draining = message["draining"]
                self._supply(message["credentials_wanted"])

    def _hear_ack(self, ack: dict[str, Any]) -> None:
        at = (ack["epoch"], ack["revision"])
        if ack["stage"] != "received":
            self.active = max(self.active or at, at)
        if ack["stage"] == "drained":
            self._revoke(ack["credentials"]["released"], at)

    def _hear_nack(self, nack: dict[str, Any]) -> None:
        at = (nack["epoch"], nack["revision"])
        if any(offer.at == at and offer.sha256 == nack["sha256"] for offer in self.sent) and nack["reason"] != "stale":
            self.nacked.add(at)
        self._revoke(nack.get("released", ()), self.active)

    def _hear_ready(self, ready: dict[str, Any]) -> None:
        active = ready["revisions"]["active"]
        if active is not None:
            self.active = tuple(active)
            known = {id for offer in self.sent if offer.at <= self.active for id in offer.shape.credentials}
            self._revoke(known.difference(ready["credentials_in_use"]), self.active)
        self._supply(ready["credentials_wanted"])

    def _revoke(self, released: Iterable[str], base: At | None) -> None:
        """Revoke what was released, unless a policy sent after `base` and not nacked refers to it."""
        newer = [offer for offer in self.sent if (base is None or offer.at > base) and offer.at not in self.nacked]
        kept = {id for offer in newer for id in offer.shape.credentials}
        for id in sorted(set(released) - kept - self.revoked):
            self.revoked.add(id)
            for backend in BACKENDS.values():
                backend.valid.discard(id)
            self.stage.note("revoked", credential=id)

    def _supply(self, wanted: Iterable[str]) -> None:
        given = []
        for id in wanted:
            if not self.stage.healed and (id in self._withheld or self.stage.strikes("withheld")):
                self._withheld.add(id)
            elif id not in self.revoked:
                given.append(id)
        if given:
            self._say({"type": "credentials", "credentials": {id: _secret(id) for id in given}})

    # -- what it says --------------------------------------------------------------------------------------------------

    def _say(self, message: dict[str, Any]) -> None:
        self.node.send(json.dumps(message).encode() + b"\n")

    def _send(self, offer: Offer) -> None:
        self.stage.note("sent", offer=offer)
        self.node.send(offer.line())

    def _credential(self) -> str:
        """A new one, which destinations know, perhaps only later."""
        self._ids += 1
        id = f"c{self._ids}"
        if self.stage.strikes("late_grant"):
            self._late.add(id)
        else:
            self._grant(id)
        return id

    def _grant(self, id: str) -> None:
        for backend in BACKENDS.values():
            backend.valid.add(id)

    def _target(self, to: str) -> Target:
        return Target(to, self._credential())

    def _next(self, shape: Shape, *, same: bool = False) -> Offer:
        """The next sound policy; a credential that was revoked meanwhile is replaced by a new one."""
        for name, target in shape.outputs.items():
            if target.credential in self.revoked:
                shape = shape.with_output(name, self._target(target.to))
                same = False
        self._number += 1
        if not same:
            self._stamp = self._number
        made = offer((0, self._number), shape, self._stamp)
        self.shape = shape
        self.sent.append(made)
        return made

    def _offer(self, shape: Shape, *, same: bool = False) -> None:
        self._send(self._next(shape, same=same))

    def _flawed(self, flaw: str, **changes: Any) -> None:
        """A policy that must be nacked for this reason; its number is not spent."""
        made = offer((0, self._number + 1), self.shape, self._stamp)
        self._send(replace(made, flaw=flaw, **changes))

    # -- its work ------------------------------------------------------------------------------------------------------

    async def keep_alive(self) -> None:
        """Start the process, and again whenever it has ended, until the world is over."""
        random = self.stage.random("restarts")
        while not self.is_over:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._greet, random.choice((0.0, 0.0, 0.05)), random.random())
                await self.node.live(json.dumps(_HELLO).encode() + b"\n")
                nursery.cancel_scope.cancel()
            if self.stage.notes[-1].kind == "failed":
                self.stage.nursery.cancel_scope.cancel("the process failed by itself")
            if not self.is_over:
                await trio.sleep(random.choice((0.0, 0.01, 0.5)))

    async def _greet(self, delay: float, draw: float) -> None:
        """The policies again: the newest, the active one, or both."""
        await trio.sleep(delay)
        usable = [offer for offer in self.sent if offer.at not in self.nacked and self._is_whole(offer)]
        active = [offer for offer in usable if offer.at == self.active and draw < 0.6]
        wants_newest = draw > 0.3 or self.stage.healed
        newest = [offer for offer in usable[-1:] if offer not in active and wants_newest]
        for again in active + newest:
            self._send(again)
        if not self.sent:
            self._offer(self.shape)

    def _is_whole(self, offer: Offer) -> bool:
        return not offer.shape.credentials & self.revoked

    async def follow(self, steps: Iterable[Step]) -> None:
        """Do what the scenario says, when it says."""
        for step in steps:
            await trio.sleep_until(step.at)
            self.stage.note("step", kind=step.kind)
            self.stage.faults[f"step {step.kind}"] += 1
            await getattr(self, f"_do_{step.kind}")(step.random())

    async def heal(self) -> None:
        """All faults end: one last policy, under which everything must be delivered."""
        self.stage.healed = True
        for backend in BACKENDS.values():
            backend.down = False
        for id in sorted({f"c{n}" for n in range(1, self._ids + 1)} - self.revoked):
            self._grant(id)
        self.node.set_deaf(False)
        self.stage.crash_in = None
        self.stage.note("healed")
        if not self.stage.alive:
            await self.stage.until(lambda: self.stage.alive)
        self._supply(sorted(self._withheld))
        shape = replace(self.shape, inputs={name: Feed() for name in STREAMS}, queue_bytes=1 << 20)
        self._offer(shape if shape.outputs else shape.with_output("main", self._target("east")))

    # -- steps: revisions ----------------------------------------------------------------------------------------------

    async def _do_rotate(self, random: Random) -> None:
        """Another credential for an output, often with events on their way."""
        if random.random() < 0.6:
            await self._do_write(random)
        name = self._some_output(random)
        self._offer(self.shape.with_output(name, self._target(self._to(name, random))))

    async def _do_rotate_all(self, random: Random) -> None:
        """Another credential for every output, perhaps one for all."""
        await self._do_write(random)
        shape, shared = self.shape, self._credential() if random.random() < 0.3 else None
        for name, target in self.shape.outputs.items():
            shape = shape.with_output(name, replace(target, credential=shared or self._credential()))
        self._offer(shape)

    def _some_output(self, random: Random) -> str:
        return random.choice(list(self.shape.outputs) or ["main"])

    def _to(self, name: str, random: Random) -> str:
        target = self.shape.outputs.get(name)
        return random.choice(("east", "west")) if target is None else target.to

    async def _do_retarget(self, random: Random) -> None:
        """Another destination, with the same credential."""
        name = self._some_output(random)
        if name in self.shape.outputs:
            to = "west" if self.shape.outputs[name].to == "east" else "east"
            self._offer(self.shape.with_output(name, replace(self.shape.outputs[name], to=to)))

    async def _do_back(self, random: Random) -> None:
        """What an output was in an earlier revision, if its credential was not released meanwhile."""
        name = self._some_output(random)
        before = [offer.shape.outputs[name] for offer in self.sent if name in offer.shape.outputs]
        before = [target for target in before if target.credential not in self.revoked]
        if before:
            self._offer(self.shape.with_output(name, random.choice(before)))

    async def _do_outputs(self, random: Random) -> None:
        """One more output, or one less; it may share a credential."""
        name = random.choice(("main", "side", "third"))
        if name in self.shape.outputs:
            self._offer(self.shape.with_output(name, None))
            return
        target = self._target(random.choice(("east", "west")))
        if self.shape.outputs and random.random() < 0.3:
            target = replace(target, credential=self.shape.outputs[self._some_output(random)].credential)
        self._offer(self.shape.with_output(name, target))

    async def _do_tune(self, random: Random) -> None:
        """A change that matters to no queued event."""
        self._offer(replace(self.shape, workers=random.randint(1, 4)))

    async def _do_same(self, random: Random) -> None:
        """The same text under a new number."""
        self._offer(self.shape, same=bool(self.sent))

    async def _do_replace_input(self, random: Random) -> None:
        """An input that is opened anew, or goes, or comes back."""
        name = random.choice(("pull", "push"))
        inputs = dict(self.shape.inputs)
        if name in inputs and random.random() < 0.4:
            del inputs[name]
        else:
            feed = inputs.get(name, Feed())
            inputs[name] = replace(feed, spot=feed.spot + 1, pad=random.choice((0, 0, 1500)))
        self._offer(replace(self.shape, inputs=inputs))

    async def _do_route(self, random: Random) -> None:
        """An input that feeds some of the outputs, or none."""
        name = random.choice(list(self.shape.inputs) or ["pull"])
        outputs = tuple(output for output in self.shape.outputs if random.random() < 0.5)
        feed = replace(self.shape.inputs.get(name, Feed()), outputs=outputs)
        self._offer(replace(self.shape, inputs={**self.shape.inputs, name: feed}))

    async def _do_flood(self, random: Random) -> None:
        """Many revisions in a row."""
        for _ in range(random.randint(2, 6)):
            await self._do_rotate(random)
            if random.random() < 0.5:
                await trio.sleep(random.uniform(0.0, 0.05))

    async def _do_disorder(self, random: Random) -> None:
        """A newer revision overtakes an older one."""
        name = self._some_output(random)
        older = self._next(self.shape.with_output(name, self._target("east")))
        newer = self._next(self.shape.with_output(name, self._target("west")))
        self._send(newer)
        self._send(older)

    async def _do_again(self, random: Random) -> None:
        """The newest policy once more."""
        usable = [offer for offer in self.sent if offer.at not in self.nacked and self._is_whole(offer)]
        for again in usable[-1:]:
            self._send(again)

    async def _do_stale(self, random: Random) -> None:
        """An old policy that is not the active one."""
        old = [offer for offer in self.sent if self.active is not None and offer.at < self.active]
        if old:
            self._send(replace(random.choice(old), flaw="stale"))

    async def _do_conflict(self, random: Random) -> None:
        """The active number with another text."""
        active = next((offer for offer in self.sent if offer.at == self.active), None)
        if active is not None:
            self._send(replace(active, flaw="conflict", text=active.text + " ", sha256=None))

    async def _do_invalid(self, random: Random) -> None:
        text = random.choice(("version: 1\nsurprise: 1\n", "version: 1\ninputs: {a: {type: nothing}}\n", ": [", ""))
        self._flawed("invalid", text=text, sha256=None)

    async def _do_digest(self, random: Random) -> None:
        self._flawed("invalid", sha256="0" * 64)

    async def _do_missing(self, random: Random) -> None:
        """A credential that did not come with the policy."""
        shape = self.shape.with_output("main", Target("east", f"unknown{self._number}"))
        self._send(replace(offer((0, self._number + 1), shape, self._stamp, []), flaw="credential_missing"))

    async def _do_clash(self, random: Random) -> None:
        """A known id with another secret."""
        active = next((offer for offer in self.sent if offer.at == self.active), None)
        ids = sorted(active.shape.credentials) if active is not None else []
        if ids:
            self._flawed("credential_conflict", credentials={ids[0]: {"api_key": f"{ids[0]}:another"}})

    async def _do_garbage(self, random: Random) -> None:
        lines = (b"{\n", b"\xff\xfe\n", b"\n", b'{"type":"dance"}\n', b'{"type":"policy"}\n', b"[" * 2000 + b"\n")
        self.node.send(random.choice(lines))

    # -- steps: the process and its surroundings -----------------------------------------------------------------------

    async def _do_write(self, random: Random) -> None:
        stream = STREAMS[random.choice(("pull", "push"))]
        stream.write(random.choice((1, 3, 10, 30)))
        self.stage.note("written", stream=stream.name, upto=stream.written)

    async def _do_crash(self, random: Random) -> None:
        self.stage.crash_in = random.randint(0, 40)

    async def _do_eof(self, random: Random) -> None:
        self.stage.note("told_to_stop", how="eof")
        self.node.close()

    async def _do_signal(self, random: Random) -> None:
        self.stage.note("told_to_stop", how="signal")
        self.node.signal()
        if random.random() < 0.3:
            await trio.sleep(random.uniform(0.0, 1.0))
            self.node.signal()

    async def _do_stop(self, random: Random) -> None:
        self.stage.note("told_to_stop", how="stop")
        self._say({"type": "stop", "within_seconds": random.choice((0.0, 0.1, 5.0))})

    async def _do_wall(self, random: Random) -> None:
        """The wall clock jumps; nothing depends on it."""
        self.stage.wall_offset += random.choice((-3e8, -3600.0, 3600.0, 3e8))

    async def _do_revoke(self, random: Random) -> None:
        """Somebody destroyed a credential too early; it comes back when the world heals."""
        id = self.shape.outputs[self._some_output(random)].credential if self.shape.outputs else "c1"
        for backend in BACKENDS.values():
            backend.valid.discard(id)

    async def _do_deaf(self, random: Random) -> None:
        self.node.set_deaf(True)
        self.stage.nursery.start_soon(self._later, random.uniform(0.1, 10.0), lambda: self.node.set_deaf(False))

    async def _do_down(self, random: Random) -> None:
        backend = BACKENDS[random.choice(("east", "west"))]
        backend.down = True
        self.stage.nursery.start_soon(self._later, random.uniform(0.1, 10.0), lambda: setattr(backend, "down", False))

    async def _do_disk_full(self, random: Random) -> None:
        self.disk.is_full = True
        self.stage.nursery.start_soon(
            self._later, random.uniform(0.1, 8.0), lambda: setattr(self.disk, "is_full", False)
        )

    async def _later(self, seconds: float, do: Any) -> None:
        await trio.sleep(seconds)
        do()

    # -- steps: orders -------------------------------------------------------------------------------------------------

    async def _do_end_drain(self, random: Random) -> None:
        """Give up what the oldest drain still waits for."""
        if self._draining:
            oldest = self._draining[0]
            params = {"epoch": oldest["epoch"], "revision": oldest["revision"]}
            self.act(random.choice(("drop", "dead_letter")), params)

    async def _do_rebind(self, random: Random) -> None:
        """Bind what drains with an old credential to the one in use."""
        old = sorted({target.credential for offer in self.sent for target in offer.shape.outputs.values()})
        new = sorted(self.shape.credentials)
        if old and new:
            self.act("rebind", {"from": random.choice(old), "to": random.choice(new)})

    def act(self, name: str, params: dict[str, Any]) -> str:
        """Order an action; returns its id."""
        self._actions += 1
        id = f"a{self._actions}"
        self.stage.note("acted", id=id, name=name)
        self._say({"type": "action", "id": id, "name": name, "params": params})
        return id


def _secret(id: str) -> dict[str, str]:
    return {"api_key": f"{id}:secret-of-{id}"}
