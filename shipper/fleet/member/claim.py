"""Whether the name of a member is free for this process: the key of the lease, and how long its last holder counts."""

from __future__ import annotations

from dataclasses import dataclass

from shipper.fleet.member.steps import Claim, Seen, Terms
from shipper.fleet.memory import Memory
from shipper.fleet.records import Alive, Report

DRIFT = 0.02
"""How far clocks may run apart."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another holder has the name, or had it just now."""

    until: float
    """When to look again."""
    why: str


class Name:
    """The key `alive/NAME` as a look has found it."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.claimed = False
        """Whether the key is this process's."""
        self._revision = 0
        self._contended = False
        """Whether another holder was seen since this process had the name."""
        self._gone: float | None = None
        """When the lease of another holder was first seen to be over."""
        self._entered = False

    def step(self, memory: Memory) -> Claim | None:
        """Returns the step that claims the name; None if this process has it."""
        alive = Alive(memory.directory, self._terms.boot, self._terms.instance)
        return None if self.claimed else Claim(alive, self._revision)

    def judge(self, seen: Seen, memory: Memory, now: float) -> Taken | None:
        """Returns who is in the way of this process; None if nobody is."""
        alive, terms = seen.alive, self._terms
        self._revision = seen.alive_revision
        self.claimed = self.claimed and alive is not None and alive.instance == terms.instance
        if alive is None:
            return self._absent(seen.report, memory, now)
        if alive.instance != terms.instance and (alive.directory, alive.boot) != (memory.directory, terms.boot):
            self._contended, self._gone = True, None
            why = "another host runs under the name of this member, or did just now"
            return Taken(now + terms.lease / 3, why)
        self._enter()
        return None

    def _absent(self, found: Report | None, memory: Memory, now: float) -> Taken | None:
        """As `judge`, where nobody has a lease. What is in its place was written over somebody's, perhaps just now."""
        self._contended = self._contended or (self._revision != 0 and not self._entered)
        newcomer = found is not None and found.directory != memory.directory and found.state != "left"
        if newcomer or self._contended:
            self._gone = now if self._gone is None else self._gone
            until = self._gone + _longest_use(found, self._terms.lease)
            if now < until:
                why = "another host had the name of this member until now"
                return Taken(min(until, now + self._terms.lease / 3), why)
        self._enter()
        return None

    def _enter(self) -> None:
        self._contended, self._gone, self._entered = False, None, True


def _longest_use(old: Report | None, lease: float) -> float:
    """Returns the seconds after which the former holder of a name, gone now, has certainly noticed."""
    if old is None:
        return lease * (1 + DRIFT)
    return max(lease, old.lease) * (1 + DRIFT) + (old.fence.request if old.fence is not None else 0.0)
