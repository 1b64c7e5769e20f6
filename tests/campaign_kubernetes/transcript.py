"""What the sidecar of one member has heard and said, as the recorder between it and its supervisor wrote it down.

Instants are of CLOCK_MONOTONIC. A message is written down before it goes on, so nobody acts on it before its instant.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.campaign_fleet.recorded import Record
from tests.campaign_kubernetes.records import Mark, marks, name_of

Revision = tuple[int, int]
STAGES = ("received", "active", "drained")


class Offer(NamedTuple):
    """A policy that was heard."""

    at: float
    revision: Revision
    marks: Mapping[str, Mark]
    digest: str
    """Of its text."""
    contents: Mapping[str, str]
    """By the id of the credential, the name of its content."""
    sends: Mapping[str, tuple[str, str]]
    """By the name of the output, its timeout and the id of its credential."""


@dataclass
class Transcript(Record):
    """What it is about."""

    offers: list[Offer] = field(default_factory=list)
    """Each policy that was heard; the same revision may be heard again."""
    reached: list[tuple[float, str, Revision]] = field(default_factory=list)
    """Each stage that was said."""
    supplied: list[tuple[float, str, str]] = field(default_factory=list)
    """Each credential that was heard: its id, and the name of its content."""
    nacks: list[tuple[float, Revision, str]] = field(default_factory=list)
    leases: list[tuple[float, float | None]] = field(default_factory=list)
    """Each lease that was heard: its end by CLOCK_BOOTTIME, or None if none is needed."""
    lacks: list[tuple[str, str]] = field(default_factory=list)
    """By the newest `observed`, the credentials for which events wait in vain, each with one to which they may go."""
    _holding: list[tuple[float, frozenset[str]]] = field(default_factory=list)
    """After each change, the ids that it was given and has not given up."""
    _names: dict[str, str] = field(default_factory=dict)
    _first: dict[Revision, Offer] = field(default_factory=dict)

    # -- heard ---------------------------------------------------------------------------------------------------------

    def _heard(self, at: float, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "hello":
            self.leases.append((at, 0.0 if message.get("lease") else None))
        elif kind == "lease":
            self.leases.append((at, message["until"]))
        elif kind in ("policy", "credentials"):
            contents = {id: _name(secret) for id, secret in (message.get("credentials") or {}).items() if secret}
            withdrawn = {id for id, secret in (message.get("credentials") or {}).items() if secret is None}
            self._names |= contents
            self.supplied += [(at, id, name) for id, name in contents.items()]
            self._hold(at, (self._held() | contents.keys()) - withdrawn)
            if kind == "policy":
                self._offered(at, message, contents)

    def _offered(self, at: float, message: dict[str, Any], contents: Mapping[str, str]) -> None:
        revision = (message.get("epoch", 0), message["revision"])
        text = message["policy"]
        offer = Offer(at, revision, marks(text), hashlib.sha256(text.encode()).hexdigest(), contents, _sends(text))
        self.offers.append(offer)
        self._first.setdefault(revision, offer)

    # -- said ----------------------------------------------------------------------------------------------------------

    def _said(self, at: float, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "ack":
            self.reached.append((at, message["stage"], (message["epoch"], message["revision"])))
            self._give_up(at, (message.get("credentials") or {}).get("released", ()))
        elif kind == "released":
            self._give_up(at, message["credentials"])
        elif kind == "nack":
            self.nacks.append((at, (message["epoch"], message["revision"]), message["reason"]))
            self._give_up(at, message.get("released", ()))
        elif kind == "result":
            self._give_up(at, (message.get("result") or {}).get("released", ()))
        elif kind == "ready":
            found = message["revisions"]
            self.reached += [(at, stage, (found[stage][0], found[stage][1])) for stage in STAGES if found[stage]]
            if found["active"]:  # what it wants it does not have in memory
                used = {*message["credentials_in_use"]} - {*message.get("credentials_wanted", ())}
                self._hold(at, self._held() & used)
        elif kind == "observed":
            self.lacks = [*_lacks(message)]

    def _give_up(self, at: float, ids: Collection[str]) -> None:
        if ids:
            self._hold(at, self._held() - {*ids})

    def _held(self) -> frozenset[str]:
        return self._holding[-1][1] if self._holding else frozenset()

    def _hold(self, at: float, ids: frozenset[str]) -> None:
        if ids != self._held():
            self._holding.append((at, frozenset(ids)))

    # -- what it shows -------------------------------------------------------------------------------------------------

    def holds(self, at: float) -> set[str]:
        """Returns the names of the contents that it might still use at an instant."""
        found = bisect.bisect_right(self._holding, at, key=lambda one: one[0])
        return {self._names[id] for id in self._holding[found - 1][1]} if found else set()

    def name_of(self, id: str) -> str:
        """Returns the name of the content that an id stands for; empty for an unknown one."""
        return self._names.get(id, "")

    def has_reached(self, stage: str, policy: str, number: int, at: float) -> bool:
        """Whether by an instant a revision with a mark of a policy, or a newer one, had reached a stage."""
        newest = self._newest(stage, at)
        return newest is not None and any(
            revision <= newest and policy in offer.marks and offer.marks[policy].number >= number
            for revision, offer in self._first.items()
        )

    def has_dropped(self, policy: str, at: float) -> bool:
        """Whether by an instant a revision without a policy was drained, or it never had the policy."""
        newest = self._newest("drained", at)
        with_it = [revision for revision, offer in self._first.items() if policy in offer.marks and offer.at <= at]
        without = [revision for revision, offer in self._first.items() if policy not in offer.marks]
        return not with_it or any(newest is not None and one <= newest for one in without)

    def _newest(self, stage: str, at: float) -> Revision | None:
        enough = STAGES[STAGES.index(stage) :]
        return max((revision for said, what, revision in self.reached if what in enough and said <= at), default=None)

    def provisioned_again(self) -> Iterator[tuple[Offer, Offer]]:
        """Yields what was heard under a new number, though it is what was heard just before."""
        before: Offer | None = None
        for offer in self.offers:
            if before is not None and offer.revision != before.revision and _same(before, offer):
                yield before, offer
            before = offer

    def had_lease(self, at: float, ahead: float) -> bool:
        """Whether it could send just before an instant; `ahead` is what CLOCK_BOOTTIME is ahead."""
        before = bisect.bisect_left(self.leases, at, key=lambda one: one[0])
        return before > 0 and self.sends_until(self.leases[before - 1][0]) >= at + ahead

    def sends_until(self, at: float) -> float:
        """Returns until when it could send, by CLOCK_BOOTTIME, by what it had heard at an instant."""
        heard = bisect.bisect_right(self.leases, at, key=lambda one: one[0])
        if not heard or self.leases[heard - 1][1] is None:
            return math.inf
        return max(until for _, until in self.leases[max(0, heard - 20) : heard] if until is not None)


def _lacks(observed: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for draining in observed.get("draining", ()):
        for output in draining["outputs"].values():
            if output.get("code") in ("credential_missing", "credential_withdrawn") and output.get("rebind_to"):
                yield from ((lost, output["rebind_to"]) for lost in output.get("rebind_from", ()))


def _sends(text: str) -> dict[str, tuple[str, str]]:
    """Reads the outputs of a text of block YAML, as supervisors write it; a reader of YAML would take minutes."""
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for line in text.partition("\noutputs:\n")[2].splitlines():
        if not line.startswith(" "):
            break
        key, _, value = line.strip().partition(": ")
        if line.startswith("  ") and line[2:3] != " ":
            name = key.rstrip(":")
        elif key in ("timeout", "credential"):
            timeout, credential = found.get(name, ("", ""))
            found[name] = (value, credential) if key == "timeout" else (timeout, value.strip("'\""))
    return found


def _same(one: Offer, other: Offer) -> bool:
    return one.digest == other.digest and one.contents.keys() == other.contents.keys()


def _name(secret: Mapping[str, Any]) -> str:
    return name_of(next((value for value in secret.values() if isinstance(value, str)), ""))
