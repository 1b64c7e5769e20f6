"""Decides what one member of a fleet does next; a state machine without I/O and without a clock.

`next` returns one step. The caller performs it, reports the outcome by the method that the step names, and asks again.
An event in between (`saw_head`, `answered`, `leave`) only changes what the next step is. So nothing is queued, a step
that failed is decided anew, and the newest version and the newest answers always win.

    unknown ── Look ──> ours ── Claim, Look ── Save, Write (joining) ── Look ── Save, Write (member) ── Fetch, Offer
                         │  └ Save, Write: in every third of the lease, and when the sidecar has answered
                         ├> taken   another directory has the name: Look until its lease is over for long enough
                         ├> apart   the record is not what this directory wrote last, or the store lost versions:
                         │          only Mark is written until a person accepts (`Head.accepting`), or it passes
                         └> out     the member left or was forgotten

Instants are seconds of CLOCK_BOOTTIME.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from msgspec.structs import replace

from shipper.fleet.memory import Memory
from shipper.fleet.records import Alive, Fence, Head, Lost, Refusal, Report, Restored, Undelivered, Version
from shipper.supervise.answers import STAGES, Stage
from shipper.values import Counts

Place = Literal["unknown", "taken", "apart", "ours", "out"]

UNAUTHENTIC = "unauthentic"
PROMPT = 3
"""Writes for the answers to one version that are not put off to the next renewal."""
PROBLEMS = 10
RELEASED = 200
"""Released ids that a member remembers, the newest: a restored store may have them as today's."""
LOST = 32
"""Lost directories that a report lists; the oldest are joined to one, under the name of the last of them."""
DRIFT = 0.02
"""How far clocks may run apart."""
_SOON = 1.0
"""Seconds before another attempt where somebody else was faster."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What one process of a member brings along."""

    name: str
    boot: str
    """Names the state directory on this boot of the machine."""
    instance: str
    spare: str
    """A new id for the directory, in case it turns out to be older than its own report."""
    lease: float
    hold: bool = False
    releases: bool = False
    forget_after: float | None = None
    http: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true of the sidecar and of the world now."""

    using: frozenset[str] = frozenset()
    undelivered: Undelivered = field(default_factory=Undelivered)
    request: float = 0.0
    """Seconds of its longest request."""
    wall: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a linearizable reading found; a forged record is None, with its revision."""

    report: Report | None = None
    revision: int = 0
    alive: Alive | None = None
    alive_revision: int = 0
    head: Head | None = None
    at: int = 0
    restored: Restored | None = None
    restored_revision: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """Read the lease's key, the own record, that of `Mark`, and then the head: `looked`."""

    since: int
    """The head is known as of this revision."""


@dataclass(frozen=True, slots=True)
class Save:
    """Make this durable: `saved`."""

    memory: Memory


@dataclass(frozen=True, slots=True)
class Claim:
    """Write the lease's key under a new lease, over this revision: `claimed`."""

    alive: Alive
    expected: int


@dataclass(frozen=True, slots=True)
class Write:
    """Renew the lease, see that its key is there still, and write the report over this revision: `wrote`, or `lapsed`
    if the lease has ended, or the key is not as it was claimed."""

    report: Report
    expected: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Write over this revision what this member knows that takes no part; None: remove it. Then `marked`."""

    restored: Restored | None
    expected: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read the text and the secrets of a version: `fetched`, `missing` or `unauthentic`."""

    version: Version


@dataclass(frozen=True, slots=True)
class Offer:
    """Keep a fetched version durably, and offer it: `offered`."""

    version: Version


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Withdraw released secrets from the sidecar: `withdrew`."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove released secrets that are no longer used from the ledger: `forgot`."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """Let the sidecar send until an instant; None: for ever. Then `granted`."""

    until: float | None


@dataclass(frozen=True, slots=True)
class Revoke:
    """End the lease: `revoked`."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do before this instant, or the next event."""

    until: float | None


Step: TypeAlias = Look | Save | Claim | Write | Mark | Fetch | Offer | Withdraw | Forget | Grant | Revoke | Rest


@dataclass
class Member:
    """One process of one member."""

    terms: Terms
    memory: Memory
    """What is durable."""
    running: Version | None = None
    """The newest version that was offered."""

    place: Place = "unknown"
    why: str = ""
    """Why it is apart, or what it waits for."""
    head: Head | None = None
    at: int = 0
    """The store's revision as of which the head is known."""
    newest: Version | None = None
    """The newest version that was ever seen."""

    _ours: Report | None = None
    """The report as this process knows it to be in the store; None before it has one there."""
    _revision: int = 0
    """Of the record over which the next write goes."""
    _claimed: bool = False
    _alive_revision: int = 0
    _attempted: int = 0
    """The number of the last write that may have reached the store."""
    _directories: frozenset[tuple[str, int]] = frozenset()
    """Ids of this directory, with its inode."""
    _writers: frozenset[str] = frozenset()
    """Processes of this directory whose late writes may still arrive: this one, and the one before it."""
    _cause: Literal["store", "clone"] = "store"
    """Why it is apart."""
    _mark: Restored | None = None
    """What the store has of `Mark`."""
    _mark_revision: int = 0
    _looking: bool = True
    _look_at: float | None = None
    _paused: float = 0.0
    _contended: bool = False
    _gone: float | None = None
    """When the lease of another holder of the name was first seen to be over."""
    _forged: bool = False
    _base: Mapping[Stage, Version] = field(default_factory=dict)
    """The stages that an earlier process of this member reported."""
    _answers: Mapping[Stage, Version] = field(default_factory=dict)
    """Those that the sidecar has answered to this process."""
    _ledger: tuple[Version, Counts] | None = None
    """The newest drained version whose ledger is known."""
    _local: str = ""
    """The stage of the newest own rotation."""
    _refusal: Refusal | None = None
    _lost: tuple[Lost, ...] = ()
    _taken_over: Report | None = None
    """The report of a directory that is lost with the next write."""
    _since: float | None = None
    _begun: Version | None = None
    _due: float = 0.0
    _prompts: int = 0
    _renewed: float | None = None
    _until: float | None = None
    _expired: bool = False
    """Whether a look was demanded since the sidecar's lease was over."""
    _verified: bool = False
    """Whether nothing has lapsed since all that a lease needs was seen; a lapse and a claim also demand a look."""
    _unfenced: bool = False
    """Whether the store has a report without a fence, and the sidecar still needs leases."""
    _named: frozenset[str] = frozenset()
    """The ids that the head names."""
    _withdrawn: frozenset[str] = frozenset()
    _forgotten: frozenset[str] = frozenset()
    _fetched: Version | None = None
    _missing: Version | None = None
    _fetch_at: float = 0.0
    _pending: Memory | None = None
    """To be saved before anything else."""
    _leaving: bool = False

    def __post_init__(self) -> None:
        self._attempted = self.memory.write
        self._writers = frozenset({self.terms.instance, self.memory.instance})
        self._directories = frozenset({(self.memory.directory, self.memory.inode)})
        self.newest = _later(self.memory.newest, self.running)

    # -- what others ask -----------------------------------------------------------------------------------------------

    @property
    def holding(self) -> bool:
        """Whether the sidecar needs a lease to send: by its settings, or as long as the store may believe that."""
        return self.terms.hold or self.memory.fence

    @property
    def registered(self) -> bool:
        """Whether the store has the report of this member, not of one that still joins."""
        return self.place == "ours" and self._ours is not None and self._ours.state == "member"

    @property
    def left(self) -> bool:
        """Whether this process takes part no more, and has forgotten its lease."""
        return self.place == "out" and self._pending is None and not self._claimed

    @property
    def state(self) -> str:
        """Returns in a word how it takes part."""
        if self.place == "ours":
            return "member" if self.registered else "joining"
        return self.memory.state if self.place == "out" else {"unknown": "starting"}.get(self.place, self.place)

    @property
    def report(self) -> Report | None:
        """Returns the report in the store."""
        return self._ours

    @property
    def granted_until(self) -> float | None:
        return self._until

    # -- the next step -------------------------------------------------------------------------------------------------

    def next(self, now: float, facts: Facts) -> Step:
        """Returns the next step."""
        self._expire(now)
        if self._pending is not None:
            return Save(self._pending)
        if self.place == "out":
            return Revoke() if self._claimed else Rest(None)
        if now < self._paused:
            return Rest(self._paused)
        if self._looking or (self._look_at is not None and now >= self._look_at):
            return Look(self.at)
        if (mark := self._marking()) is not None:
            return mark
        if self.place != "ours":
            if self._leaving:
                return Save(replace(self.memory, state="left"))
            return Rest(self._look_at)
        return self._take_part(now, facts)

    def _take_part(self, now: float, facts: Facts) -> Step:
        if not self._claimed:
            alive = Alive(self.memory.directory, self.terms.boot, self.terms.instance)
            return Claim(alive, self._alive_revision)
        step = self._step_of_host(now, facts)
        if step is not None:
            return step
        if self._must_write(now):
            memory = self._remembered()
            return Save(memory) if memory != self.memory else Write(self._reported(facts), self._revision)
        if (version := self._wanted()) is not None and now >= self._fetch_at:
            if self._fetched != version:
                return Fetch(version)
            if self.memory.newest != self.newest:
                return Save(replace(self.memory, newest=self.newest))
            return Offer(version)
        return Rest(self._due if version is None else min(self._due, self._fetch_at))

    def _marking(self) -> Mark | None:
        """Returns the step by which the store says whether this member takes part; one of another directory stays."""
        known = self._mark
        if self.place == "apart":
            memory = self.memory
            what = Restored(
                *(self.terms.name, memory.directory, memory.inode, max(memory.epoch, _position(self.newest)[0])),
                *(self.newest, memory.revision, self._cause),
            )
            return Mark(what, self._mark_revision) if what != known else None
        if self.place != "ours" or not self._mark_revision:
            return None
        is_own = known is None or (known.directory, known.inode) in self._directories
        return Mark(None, self._mark_revision) if is_own else None

    def _step_of_host(self, now: float, facts: Facts) -> Step | None:
        released = self._released()
        if ids := facts.using & (released | self._unnamed(facts.using)) - self._withdrawn:
            return Withdraw(tuple(sorted(ids)))
        if ids := released - facts.using - self._forgotten:
            return Forget(tuple(sorted(ids)))
        if self._unfenced:
            return Grant(None)
        if self.holding and self.registered and self._renewed is not None:
            until = self._renewed + self.terms.lease
            if until > now and (self._until is None or until > self._until) and self._is_proven():
                return Grant(until)
        return None

    def _released(self) -> frozenset[str]:
        """Returns the ids that the fleet has released, and that its newest version does not name again."""
        if self.head is None:
            return frozenset()
        pinned = self.head.history[-1].secrets.values() if self.head.history else ()
        return frozenset(self.head.released) - frozenset(pinned)

    @property
    def held(self) -> str:
        """Returns why the sidecar gets no lease now although this member takes part; empty if it gets one."""
        if not self.holding or not self.registered or self._is_proven():
            return ""
        refusal = self._refusal
        if refusal is not None and refusal.version == self.newest:
            return f"it refused version {refusal.version}: {refusal.reason}"
        return f"the sidecar has not answered `active` for version {self.newest} since the last lapse"

    def _unnamed(self, using: frozenset[str]) -> frozenset[str]:
        """Returns those ids that the head no longer names: they were released before, while this host was away.

        The head of a restored store may lack newer ones, until an epoch has begun that names them.
        """
        head, ours = self.head, self._ours
        if head is None or ours is None or head.accepting is not None or ours.epoch != head.epoch:
            return frozenset()
        return using - self._named

    def _is_proven(self) -> bool:
        """Whether nothing lapsed since, or the sidecar runs the newest version as it was read after the lapse."""
        if self._verified:
            return True
        return self.newest is None or _at_least(self._answers.get("active"), self.newest)

    def _must_write(self, now: float) -> bool:
        ours = self._ours
        if ours is None or ours.instance != self.terms.instance or ours.state == "joining":
            return True
        if self._leaving or self._forged or now >= self._due or ours.epoch < self._epoch():
            return True
        if ours.fence is not None and not self.terms.hold:
            return True
        news = ours.stages != self._stages() or ours.refusal != self._refusal
        return news and self._prompts < PROMPT

    def _wanted(self) -> Version | None:
        """Returns the version to fetch and offer; None if there is none."""
        if self.head is None or not self.registered or self._leaving:
            return None
        version = self.head.newest
        return version if version is not None and _position(version) > _position(self.running) else None

    def _remembered(self) -> Memory:
        """Returns what must be durable before the next write."""
        state = self.memory.state
        if self._leaving:
            state = "left"
        elif self._next_state() == "member":
            state = "member"
        return replace(
            self.memory,
            state=state,
            newest=self.newest,
            epoch=self._epoch(),
            instance=self.terms.instance,
            write=self._attempted + 1,
            revision=self._revision,
            fence=self.memory.fence or self.terms.hold,
            released=self._known_released(),
        )

    def _known_released(self) -> tuple[str, ...]:
        """Returns the ids that are released for good, also those that a restored head does not know to be so."""
        if self.head is None:
            return self.memory.released
        begun = [id for id, release in self.head.released.items() if release.state != "released"]
        return tuple(dict.fromkeys([*self.memory.released, *begun]))[-RELEASED:]

    def _next_state(self) -> Literal["joining", "member", "left"]:
        """Returns the state of the next report: a member's only once the head was read after the joiner's."""
        if self._leaving:
            return "left"
        return "joining" if self._ours is None else "member"

    def _reported(self, facts: Facts) -> Report:
        state = self._next_state()
        if self._ours is not None and self._ours.state == "joining" and state == "member":
            begun = self.head.newest if self.head is not None else None
        else:
            begun = self._begun
        active = self._stages().get("active")
        has_begun = begun is not None and active is not None and active[:2] >= begun[:2]
        pins = self._pins(None if has_begun else begun, self.running)
        return Report(
            name=self.terms.name,
            directory=self.memory.directory,
            boot=self.terms.boot,
            instance=self.terms.instance,
            write=self.memory.write,
            epoch=self.memory.epoch,
            state=state,
            since=facts.wall if self._since is None else self._since,
            seen=facts.wall,
            lease=self.terms.lease,
            begun=begun,
            stages=dict(self._stages()),
            ledger=self._ledger_of(self._stages().get("drained")),
            refusal=self._refusal,
            using=sorted(facts.using | pins),
            released=list(self.memory.released),
            undelivered=facts.undelivered,
            local=self._local,
            fence=Fence(self.terms.lease, facts.request) if self.terms.hold else None,
            lost=list(self._losses(facts.wall)),
            releases=self.terms.releases,
            forget_after=self.terms.forget_after,
            http=self.terms.http,
        )

    def _pins(self, *versions: Version | None) -> frozenset[str]:
        """Returns the ids that these versions name, as far as the history has them: the sidecar may use them before
        the ledger names them."""
        history = self.head.history if self.head is not None else []
        return frozenset(id for line in history if line.version in versions for id in line.secrets.values())

    def _losses(self, wall: float) -> tuple[Lost, ...]:
        old = self._taken_over
        new = () if old is None else (Lost(old.directory, wall, old.stages, old.undelivered),)
        forgotten = self.head.forgotten if self.head is not None else {}
        return _bounded([one for one in (*self._lost, *new) if f"{self.terms.name}/{one.directory}" not in forgotten])

    def _stages(self) -> dict[Stage, Version]:
        """Returns the newest version that has reached each stage."""
        both = {stage: _later(self._base.get(stage), self._answers.get(stage)) for stage in STAGES}
        return {stage: version for stage, version in both.items() if version is not None}

    def _ledger_of(self, drained: Version | None) -> Counts | None:
        return self._ledger[1] if self._ledger is not None and self._ledger[0] == drained else None

    def _epoch(self) -> int:
        """Returns the newest epoch for which members register."""
        if self.head is None:
            return self.memory.epoch
        accepting = self.head.accepting.epoch if self.head.accepting is not None else 0
        return max(self.head.epoch, accepting)

    def _expire(self, now: float) -> None:
        """Notes that the sidecar's lease is over: it gets another one only after a new look at the head."""
        if self._until is not None and now >= self._until and not self._expired:
            self._expired = True
            self._lapse()

    def _lapse(self) -> None:
        """Demands a look. While the key of its lease is absent, answers may name this member as fenced: only a look
        that began after the claim has found every version of theirs."""
        self._verified, self._looking = False, True

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def failed(self, until: float) -> None:
        """The store did not answer, or refused: nothing more before this instant, and then a new look. Whether a write
        was done is unknown."""
        self._attempted = self.memory.write
        self._paused, self._looking = until, True

    def saved(self, memory: Memory) -> None:
        """The memory is durable."""
        if memory.directory != self.memory.directory:
            self._attempted, self._looking = 0, True
            self._directories |= {(memory.directory, memory.inode)}
            self.running = None
        self.memory, self._pending = memory, None
        if self._leaving and memory.state == "left" and self.place != "ours":
            self.place = "out"

    def looked(self, step: Look, seen: Seen, *, now: float) -> None:
        """A look has found this."""
        self._looking, self._look_at = False, None
        self._mark, self._mark_revision = seen.restored, seen.restored_revision
        if seen.at < step.since:
            self.at = seen.at
            self._apart(now, "its revisions went back, as after the restore of an older snapshot", "store")
            self.head = seen.head
            if not self._is_accepted():
                return
        self._take_head(seen.head, seen.at)
        if self.place == "out":
            return
        self._judge(seen, now)

    def saw_head(self, head: Head | None, at: int, since: int = 0) -> None:
        """The head is this as of revision `at`; it was asked for when it was known as of `since`."""
        if at < since:
            self._looking = True
        else:
            self._take_head(head, at)

    def _take_head(self, head: Head | None, at: int) -> None:
        if at < self.at:
            return
        if head is None or self.head is None or head.newest != self.head.newest:
            self._fetch_at = 0.0
        self.head, self.at = head, at
        self._named = _named(head)
        self._withdrawn &= self._released() | self._unnamed(self._withdrawn)
        self._forgotten &= self._released()
        if self._is_behind():
            self._looking = self._looking or self.place == "ours"
            return
        self.newest = _later(self.newest, head.newest if head is not None else None)
        if self.place == "apart" and self._is_accepted():
            self._looking = True

    def _is_accepted(self) -> bool:
        """Whether a person has begun an epoch for which this member has not registered."""
        return self._epoch() > self.memory.epoch

    def _is_behind(self) -> bool:
        """Whether the head lacks the newest version that this member has seen, as after the restore of a snapshot."""
        if self.newest is None:
            return False
        if self.head is None:
            return True
        if any(line.version == self.newest for line in self.head.history) or self._epoch() > self.newest.epoch:
            return False
        return not self.head.history or _position(self.head.history[0].version) <= _position(self.newest)

    def _judge(self, seen: Seen, now: float) -> None:
        """Decides from a look whether the record is that of this member."""
        reason = self._known(seen) if self._ours is not None else self._first(seen)
        if self.place == "out" or self._pending is not None:
            return
        if not reason and self._is_behind():
            reason = f"it lacks version {self.newest}, which this member has seen"
        if reason:
            self._apart(now, reason, self._cause_of(seen))
        else:
            self._judge_alive(seen, now)

    def _known(self, seen: Seen) -> str:
        """Judges the record after this process has seen its own; returns why it is apart, if it is."""
        found = seen.report
        if seen.revision == self._revision:
            return ""
        if found is not None and self._is_own_write(found, seen.revision):
            self._ours, self._revision = found, seen.revision
            later = {stage: _later(self._base.get(stage), version) for stage, version in found.stages.items()}
            self._base = {**self._base, **{stage: version for stage, version in later.items() if version}}
            self._remember(found)
            return ""
        if found is None and seen.revision:
            self._forged, self._revision = True, seen.revision
            return ""
        if found is not None and found.state == "forgotten" and found.directory == self.memory.directory:
            self._forget()
            return ""
        if self._is_accepted() and (found is None or found.epoch < self._epoch()):
            self._forged, self._revision = True, seen.revision
            return ""
        return "its record of this member is not the one that this host wrote last"

    def _remember(self, found: Report) -> None:
        """Takes from a write of an earlier process what the sidecar has not answered anew."""
        self._local = self._local or found.local
        self._count(found.stages.get("drained"), found.ledger)

    def _is_own_write(self, found: Report, revision: int) -> bool:
        """Whether a record is a write whose answer was lost."""
        if (
            found.directory != self.memory.directory
            or found.instance not in self._writers
            or found.state == "forgotten"
        ):
            return False
        return found.write <= self.memory.write and revision > self._revision

    def _forget(self) -> None:
        self.place, self.why = "out", "it was forgotten by `shipper fleet forget`"
        self._pending = replace(self.memory, state="forgotten")

    def _first(self, seen: Seen) -> str:
        """Judges the first record that this process finds; returns why it is apart, if it is."""
        found, memory = seen.report, self.memory
        self._revision, self._taken_over, self._lost = seen.revision, None, ()
        if found is None:
            was_there = memory.state == "member" and memory.revision and not seen.revision
            return "it has no record of this member" if was_there and not self._is_accepted() else ""
        self._lost = tuple(found.lost) if found.state != "forgotten" else ()
        if found.directory != memory.directory:
            self._taken_over = found if _counts_as_lost(found) else None
            return ""
        if found.instance == self.terms.instance:  # the answer to the first write was lost
            self._ours = found
            return ""
        if found.write > memory.write:
            self._pending = replace(
                memory, directory=self.terms.spare, state="new", instance="", write=0, revision=0, epoch=0
            )
            return ""
        if found.state in ("left", "forgotten") or memory.state != "member":
            return ""
        is_own = seen.revision >= memory.revision and found.instance in self._writers
        if not (is_own or seen.revision == memory.revision or self._is_accepted()):
            return "its record of this member is older than the one that this host wrote last"
        if found.state == "member":
            self._ours = found
            self._base, self._since, self._begun = found.stages, found.since, found.begun
            self._refusal = self._refusal or found.refusal
            self._remember(found)
        return ""

    def _judge_alive(self, seen: Seen, now: float) -> None:
        """Decides whether the name is free for this process."""
        alive, found, memory = seen.alive, seen.report, self.memory
        self._alive_revision = seen.alive_revision
        if alive is not None and alive.instance == self.terms.instance:
            self._enter()
            return
        self._claimed = False
        if alive is not None and (alive.directory, alive.boot) == (memory.directory, self.terms.boot):
            self._enter()
            return
        if alive is not None:
            self._contended, self._gone = True, None
            self._wait(now + self.terms.lease / 3, "another host runs under the name of this member, or did just now")
            return
        newcomer = found is not None and found.directory != memory.directory and found.state != "left"
        if newcomer or self._contended:
            self._gone = now if self._gone is None else self._gone
            until = self._gone + _longest_use(found, self.terms.lease)
            if now < until:
                self._wait(min(until, now + self.terms.lease / 3), "another host had the name of this member until now")
                return
        self._enter()

    def _enter(self) -> None:
        self.place, self.why = "ours", ""
        self._contended, self._gone = False, None

    def _wait(self, until: float, why: str) -> None:
        self.place, self.why, self._look_at = "taken", why, until
        self._verified = False

    def _cause_of(self, seen: Seen) -> Literal["store", "clone"]:
        """Returns who is to blame: only another process writes what this directory never wrote."""
        found = seen.report
        is_older = found is None or (found.directory == self.memory.directory and found.write <= self.memory.write)
        return "store" if is_older or self._is_behind() else "clone"

    def _apart(self, now: float, why: str, cause: Literal["store", "clone"]) -> None:
        self._cause = cause
        self.place, self.why, self._look_at = "apart", why, now + self.terms.lease
        self._verified = False

    def claimed(self, *, done: bool, now: float) -> None:
        """The lease's key is this process's, or somebody else has changed it."""
        self._claimed = done
        self._lapse()
        if not done:
            self._paused = now + _SOON

    def lapsed(self) -> None:
        """The store has ended the lease, or somebody has removed its key."""
        self._attempted = self.memory.write
        self._claimed = False
        self._lapse()

    def wrote(self, step: Write, revision: int | None, *, began: float, now: float) -> None:
        """A write that began at an instant was done as this revision; None: something else is in its place."""
        self._attempted = step.report.write
        if revision is None:
            self._looking = True
            if self._ours is None:
                self._paused = now + _SOON
            return
        prompt = self._ours is not None and began < self._due
        self._prompts = self._prompts + 1 if prompt else self._prompts
        self._ours, self._revision, self._forged = step.report, revision, False
        self._since, self._begun = step.report.since, step.report.begun
        self._lost, self._taken_over = tuple(step.report.lost), None
        self._renewed = began
        if not prompt:  # news move no renewal: members that answered together do not renew together from then on
            self._due = began + self.terms.lease / 3
        if step.report.state == "joining":
            self._looking = True
        if step.report.state == "left":
            self.place, self.why = "out", "it has left the fleet"
        elif self.memory.fence and step.report.fence is None:
            self._unfenced = True
            self._pending = replace(self.memory, fence=False)

    def marked(self, step: Mark, revision: int | None, *, now: float) -> None:
        """A mark was written as this revision, 0 if it was removed; None: something else is in its place."""
        if revision is None:
            self._paused, self._looking = now + _SOON, True
        else:
            self._mark, self._mark_revision = step.restored, revision

    def fetched(self, version: Version) -> None:
        """The text and the secrets of a version were read, and are authentic."""
        self._fetched, self._missing = version, None

    def missing(self, version: Version, problem: str, *, now: float, wall: float) -> None:
        """The store lacks a record of a version: a newer one may have replaced it; if not, it is refused."""
        if self._missing == version:
            self.unauthentic(version, problem, now=now, wall=wall)
        else:
            self._missing, self._looking = version, True

    def unauthentic(self, version: Version, problem: str, *, now: float, wall: float) -> None:
        """A record of a version is not sealed by the fleet; it is refused, and tried again a lease later."""
        self._refuse(Refusal(version, UNAUTHENTIC, [problem], wall))
        self._fetch_at = now + self.terms.lease

    def offered(self, version: Version) -> None:
        """A version was kept and offered."""
        self.running, self._fetched = version, None
        self._prompts = 0

    def withdrew(self, ids: Iterable[str]) -> None:
        self._withdrawn |= frozenset(ids)

    def forgot(self, ids: Iterable[str]) -> None:
        self._forgotten |= frozenset(ids)

    def granted(self, until: float | None) -> None:
        """The sidecar has its lease, or needs none any more."""
        self._until, self._expired = until, False
        self._verified = until is not None
        self._unfenced = False

    def revoked(self) -> None:
        self._claimed = False

    # -- events --------------------------------------------------------------------------------------------------------

    def answered(
        self,
        version: Version,
        stage: Stage | Literal["refused"],
        reason: str,
        problems: Sequence[str],
        ledger: Counts | None = None,
        local: str = "",
        *,
        wall: float,
    ) -> None:
        """The sidecar has answered to a version; the ledger and the own rotation wait for the next write."""
        self._local = local or self._local
        if stage == "refused":
            self._refuse(Refusal(version, reason, list(problems[:PROBLEMS]), wall))
            return
        reached = STAGES[: STAGES.index(stage) + 1]
        self._count(version, ledger)
        newer = {each: version for each in reached if _position(version) > _position(self._answers.get(each))}
        self._answers = {**self._answers, **newer}
        if self._refusal is not None and _at_least(version, self._refusal.version):
            self._refusal = None

    def _count(self, version: Version | None, ledger: Counts | None) -> None:
        """Takes the ledger of a drained version; the first one of each version counts."""
        known = self._ledger[0] if self._ledger is not None else None
        if version is not None and ledger is not None and _position(version) > _position(known):
            self._ledger = version, ledger

    def _refuse(self, refusal: Refusal) -> None:
        """Takes a refusal unless it is known, or something newer was accepted or refused."""
        known, accepted = self._refusal, self._answers.get("received")
        if known is not None and _position(known.version) > _position(refusal.version):
            return
        if _position(accepted) > _position(refusal.version) or (known and replace(known, at=refusal.at) == refusal):
            return
        self._refusal = refusal

    def leave(self) -> None:
        """This member leaves the fleet."""
        self._leaving = True


def _counts_as_lost(old: Report) -> bool:
    """Whether a directory may have left something undone: events, or credentials in use. Who forgot it knew that."""
    if old.state == "forgotten":
        return False
    if old.undelivered.events:
        return True
    return old.state != "left" and (old.state == "member" or old.begun is not None or bool(old.stages))


def _named(head: Head | None) -> frozenset[str]:
    """Returns the ids of secrets that a head names."""
    if head is None:
        return frozenset()
    pinned = (id for line in head.history for id in line.secrets.values())
    return frozenset({*head.secrets.values(), *head.fingerprints, *head.released, *pinned})


def _bounded(lost: Sequence[Lost]) -> tuple[Lost, ...]:
    """Returns as many as a report lists, without losing any events: the joined ones have reached what both had."""
    more = len(lost) - LOST
    return (functools.reduce(_joined, lost[: more + 1]), *lost[more + 1 :]) if more > 0 else tuple(lost)


def _joined(one: Lost, other: Lost) -> Lost:
    both = one.stages.keys() & other.stages.keys()
    a, b = one.undelivered, other.undelivered
    return Lost(
        other.directory,
        other.at,
        {stage: min(one.stages[stage], other.stages[stage]) for stage in both},
        Undelivered(a.events + b.events, a.bytes + b.bytes, max(a.oldest_seconds, b.oldest_seconds)),
    )


def _longest_use(old: Report | None, lease: float) -> float:
    """Returns the seconds after which the former holder of a name, gone now, has certainly noticed."""
    if old is None:
        return lease * (1 + DRIFT)
    return max(lease, old.lease) * (1 + DRIFT) + (old.fence.request if old.fence is not None else 0.0)


def _position(version: Version | None) -> tuple[int, int]:
    return (-1, -1) if version is None else (version.epoch, version.number)


def _at_least(version: Version | None, other: Version) -> bool:
    return version == other or _position(version) > _position(other)


def _later(one: Version | None, other: Version | None) -> Version | None:
    return other if _position(other) > _position(one) else one
