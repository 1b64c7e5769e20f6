"""The supervisor: sends policies, keeps credentials and revokes them by the rules of the protocol, restarts what died.

It revokes in the very instant in which the line that allows it is written; there is no stricter supervisor. What a
step of the scenario does is a method of its name.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import trio
from msgspec import json

from tests.simulation.backend import BACKENDS
from tests.simulation.disk import Disk
from tests.simulation.node import Node
from tests.simulation.offers import At, Feed, Offer, Shape, Target, offer
from tests.simulation.ports import outside
from tests.simulation.stage import Stage


class Supervisor:
    """One for each world."""

    def __init__(self, stage: Stage, disk: Disk) -> None:
        self.stage, self.disk = stage, disk
        self.node = Node(stage, self.hear)
        self._outside = outside(stage, disk, self.node)
        self.sent: list[Offer] = []
        """Sound policies, in the order of their numbers."""
        self.nacked: set[At] = set()
        self._unanswered: Counter[At] = Counter()
        """Policies sent to this process, less the nacks."""
        self.revoked: set[str] = set()
        self.active: At | None = None
        self.is_over = False
        self.draining: list[dict[str, Any]] = []
        self.epoch = 0
        self.number = 0
        self.keys = ["k1"]
        """State keys, the newest first; those that a process was given to open with go when it is ready."""
        self._opening: list[str] = []
        self.stamp = 0
        self._ids = 0
        self._actions = 0
        self._withheld: set[str] = set()
        queue = stage.scenario.queue_bytes
        self.shape = Shape({}, self._all_inputs(), stage.scenario.workers, queue)
        self.shape = self.shape.with_output("main", self.target("east"))
        if stage.random("outputs").random() < 0.5:
            self.shape = self.shape.with_output("side", self.target("west"))

    # -- what it hears -------------------------------------------------------------------------------------------------

    def hear(self, line: bytes) -> None:
        """A line of standard output."""
        message = json.decode(line)
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
                self.draining = message["draining"]
                self._supply(message["credentials_wanted"])

    def _hear_ack(self, ack: dict[str, Any]) -> None:
        at = (ack["epoch"], ack["revision"])
        self.nacked.discard(at)  # sent twice, and only once refused
        if ack["stage"] != "received":
            self.active = max(self.active or at, at)
        if ack["stage"] == "drained":
            self._revoke(ack["credentials"]["released"], at)

    def _hear_nack(self, nack: dict[str, Any]) -> None:
        at = (nack["epoch"], nack["revision"])
        self._unanswered[at] -= 1
        if any(offer.at == at and offer.sha256 == nack["sha256"] for offer in self.sent) and nack["reason"] != "stale":
            self.nacked.add(at)
        self._revoke(nack.get("released", ()), self.active)

    def _hear_ready(self, ready: dict[str, Any]) -> None:
        self.keys = [id for id in self.keys if id not in self._opening]
        active = ready["revisions"]["active"]
        if active is not None:
            self.active = tuple(active)
            known = {id for offer in self.sent if offer.at <= self.active for id in offer.shape.credentials}
            self._revoke(known.difference(ready["credentials_in_use"]), self.active)
        self._supply(ready["credentials_wanted"])

    def _revoke(self, released: Iterable[str], base: At | None) -> None:
        """Revoke what was released, unless a policy sent after `base` and not nacked refers to it.

        A policy that was sent twice and nacked once is on its way still.
        """
        refused = {at for at in self.nacked if self._unanswered[at] <= 0}
        newer = [offer for offer in self.sent if (base is None or offer.at > base) and offer.at not in refused]
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
            self.stage.note("supplied", credentials=given)
            self.say({"type": "credentials", "credentials": {id: _secret(id) for id in given}})

    def _hello(self) -> bytes:
        self._opening = self.keys[1:]
        keys = [{"id": id, "key": base64.b64encode(id.encode().ljust(32)).decode()} for id in self.keys]
        needs_lease = self.stage.scenario.is_leased and not self.stage.healed
        self.stage.note("greeted", lease=needs_lease)
        hello = {"type": "hello", "protocol": 1, "state_keys": keys, "heartbeat_seconds": 10.0, "lease": needs_lease}
        return json.encode(hello) + b"\n"

    # -- what it says --------------------------------------------------------------------------------------------------

    def say(self, message: dict[str, Any]) -> None:
        self.node.send(json.encode(message) + b"\n")

    def send(self, offer: Offer) -> None:
        self.stage.note("sent", offer=offer)
        self._unanswered[offer.at] += 1
        self.node.send(offer.line())

    def act(self, name: str, params: dict[str, Any]) -> str:
        """Order an action; returns its id."""
        self._actions += 1
        id = f"a{self._actions}"
        self.stage.note("acted", id=id, name=name)
        self.say({"type": "action", "id": id, "name": name, "params": params})
        return id

    def lease(self, until: float | None) -> None:
        self.stage.note("leased", until=until)
        self.say({"type": "lease", "until": until})

    def withdraw(self, id: str) -> None:
        self.stage.note("withdrawn", credential=id)
        self.say({"type": "credentials", "credentials": {id: None}})

    def new_credential(self) -> str:
        """A new one, which destinations know, perhaps only later."""
        self._ids += 1
        id = f"c{self._ids}"
        if not self.stage.strikes("late_grant"):  # else when the world heals
            self._grant(id)
        return id

    def _grant(self, id: str) -> None:
        for backend in BACKENDS.values():
            backend.valid.add(id)

    def target(self, to: str) -> Target:
        return Target(to, self.new_credential())

    def next(self, shape: Shape, *, same: bool = False) -> Offer:
        """The next sound policy; a credential that was revoked meanwhile is replaced by a new one."""
        for name, target in shape.outputs.items():
            if target.credential in self.revoked:
                shape = shape.with_output(name, self.target(target.to))
                same = False
        self.number += 1
        if not same:
            self.stamp = self.number
        made = offer((self.epoch, self.number), shape, self.stamp)
        self.shape = shape
        self.sent.append(made)
        return made

    def offer(self, shape: Shape, *, same: bool = False) -> None:
        self.send(self.next(shape, same=same))

    def send_flawed(self, flaw: str, **changes: Any) -> None:
        """A policy that must be nacked for this reason; its number is not spent."""
        made = offer((self.epoch, self.number + 1), self.shape, self.stamp)
        self.send(replace(made, flaw=flaw, **changes))

    # -- its work ------------------------------------------------------------------------------------------------------

    async def keep_alive(self) -> None:
        """Start the process, and again whenever it has ended, until the world is over."""
        random = self.stage.random("restarts")
        while not self.is_over:
            self._unanswered.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._greet, random.choice((0.0, 0.0, 0.05)), random.random())
                await self.node.live(self._outside, self._hello())
                nursery.cancel_scope.cancel()
            if self.stage.notes[-1].kind == "failed":
                self.stage.nursery.cancel_scope.cancel("the process failed by itself")
            if not self.is_over:
                await trio.sleep(random.choice((0.0, 0.01, 0.5)))

    async def _greet(self, delay: float, draw: float) -> None:
        """The policies again: the newest, the active one, or both."""
        await trio.sleep(delay)
        usable = [offer for offer in self.sent if offer.at not in self.nacked and self.is_whole(offer)]
        active = [offer for offer in usable if offer.at == self.active and draw < 0.6]
        wants_newest = draw > 0.3 or self.stage.healed
        newest = [offer for offer in usable[-1:] if offer not in active and wants_newest]
        for again in active + newest:
            self.send(again)
        if not self.sent:
            self.offer(self.shape)

    def is_whole(self, offer: Offer) -> bool:
        return not offer.shape.credentials & self.revoked

    def is_answered(self) -> bool:
        """Whether the policy that was sent last is active, or was refused."""
        return not self.sent or self.sent[-1].at in {self.active, *self.nacked}

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
        if self.stage.scenario.is_leased:
            self.lease(None)
        self._supply(sorted(self._withheld))
        shape = replace(self.shape, inputs=self._all_inputs(), queue_bytes=1 << 20)
        self.offer(shape if shape.outputs else shape.with_output("main", self.target("east")))

    def _all_inputs(self) -> dict[str, Feed]:
        return {name: Feed() for name in self.stage.scenario.inputs}


def _secret(id: str) -> dict[str, str]:
    return {"api_key": f"{id}:secret-of-{id}"}
