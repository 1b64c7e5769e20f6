"""One member of a fleet: performs on the store what `member` decides, and offers the newest version to the agent.

Two tasks run side by side. One performs the steps of the state machine, one after the other; each call of the store has
a bound. The other watches the head; after each break of the watch it reads the head again. Whatever fails is a trouble
of the host, and tried again after a backoff of at most a third of the lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import msgspec
import trio

from shipper.fleet.home import Home, new_id
from shipper.fleet.member.machine import Member
from shipper.fleet.member.steps import (
    Claim,
    Facts,
    Fetch,
    Forget,
    Grant,
    Look,
    Mark,
    Offer,
    Rest,
    Revoke,
    Save,
    Seen,
    Step,
    Terms,
    Withdraw,
    Write,
)
from shipper.fleet.memory import Kept
from shipper.fleet.records import (
    ALIVE,
    HEAD,
    MEMBERS,
    RESTORED,
    SECRETS,
    VERSIONS,
    Alive,
    Head,
    Report,
    Restored,
    Secret,
    Text,
    Undelivered,
    Version,
)
from shipper.fleet.seal import Seals, Unauthentic, digest
from shipper.fleet.settings import FleetSettings
from shipper.fleet.store import ABSENT, SECONDS, Entry, Lease, Store, StoreError, StoreRefused, StoreUnreachable
from shipper.process.environment import REAL, Environment
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import ShipperError
from shipper.sdk.retry import backoff
from shipper.supervise.answers import Stage
from shipper.values import Counts, Revision

UNREACHABLE, REFUSED, UNSAVED = "store_unreachable", "store_refused", "fleet_unsaved"
APART, TAKEN, OUT, FORGED, HELD = "store_restored", "name_taken", "fleet_left", "unauthentic", "fleet_held"
"""Causes of troubles."""
_REMEDY = {
    APART: "this host runs on and acknowledges nothing; if the store was restored: `shipper fleet accept-restore`; "
    "if this directory is a copy of another host's: give it another member name",
    TAKEN: "nothing of the fleet is taken over before its lease is over; stop it, or give one of them another `member`",
    OUT: "restart this supervisor to join the fleet again",
}

READERS = 8
"""Records that are read at the same time."""
HASTE = 1.0
"""Seconds from the start of a process for which the store may offer a newer version than the one that is kept."""
_SHORTEST_REST = 0.001  # seconds; less may be lost in the rounding of a clock, and be no rest

T = TypeVar("T", bound=msgspec.Struct)


class Host(Protocol):
    """What a member needs of its supervisor. No method blocks, and none raises."""

    def undelivered(self) -> Undelivered:
        """Returns the events that the sidecar holds, as it last reported."""
        ...

    def using(self) -> Sequence[str]:
        """Returns the ids of the fleet's secrets that the sidecar uses or may use: those of the ledger that are not
        released."""
        ...

    def lease(self, until: float | None) -> None:
        """Lets the sidecar begin requests until an instant of CLOCK_BOOTTIME; None: it needs no lease any more."""
        ...

    def withdraw(self, ids: Sequence[str]) -> None:
        """Withdraws secrets from the sidecar, or rebinds what needs them; before any later `lease`."""
        ...

    def longest_request(self) -> float:
        """Returns the seconds of the longest request that the outputs make."""
        ...

    def trouble(self, cause: str, message: str | None) -> None:
        """Shows a trouble under its cause, in place of an earlier one; None: it is over."""
        ...

    def joined(self, newest: Version | None) -> None:
        """Says that this process takes part now, and which version is the newest."""
        ...

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from the ledger what the fleet has released and the sidecar no longer uses."""
        ...


@dataclass(frozen=True, slots=True)
class Offered:
    """A version to run, authentic and complete."""

    version: Version
    text: Text
    secrets: Mapping[str, bytes] = field(repr=False)
    """Contents by name; their ids are `text.secrets`."""

    @property
    def name(self) -> str:
        """`Wanted.version`: the name of the version in answers."""
        return f"{self.version.epoch}.{self.version.number}.{self.version.sha256}"


class NotLeft(ShipperError):
    """The store cannot have the last report; the text has the remedy."""


class Membership:
    """`run` it once."""

    def __init__(
        self,
        store: Store,
        seals: Seals,
        settings: FleetSettings,
        home: Home,
        host: Host,
        *,
        environment: Environment = REAL,
    ) -> None:
        """`home` is open."""
        self.offered: Offered | None = None
        """What to run. If the store has nothing newer at once, it is what an earlier process of this member ran; None
        before the store has a version for a joiner. It never goes back."""
        self._store, self._seals, self._settings, self._home, self._host = store, seals, settings, home, host
        self._environment, self._clock = environment, environment.boottime
        terms = Terms(
            settings.member,
            home.place,
            new_id(),
            new_id(),
            lease=float(settings.lease),
            hold=settings.on_lapse == "hold",
            releases=settings.on_release is not None,
            forget_after=None if settings.forget_after is None else float(settings.forget_after),
        )
        self._kept = self._opened_kept()
        running = self._kept.version if self._kept is not None else None
        self._member = Member(terms, home.memory, running)
        self._http = ""
        self._fetched: tuple[Kept, Offered] | None = None
        self._reading: Version | None = None
        self._read: dict[str, bytes] = {}
        """The records of the version that is being read, by key."""
        self._lease: Lease | None = None
        self._claimed = ABSENT
        """The revision of the lease's key as this process wrote it."""
        self._waits = self._backoff()
        self._changed, self._woken, self._ended = trio.Event(), trio.Event(), trio.Event()
        self._watching: trio.CancelScope | None = None
        self._failures: dict[str, StoreError] = {}
        self._troubles: dict[str, str] = {}
        self._forged: dict[str, str] = {}
        self._joined = False
        self._late = False
        """Whether the store had its chance to offer something newer than `_kept`."""

    # -- for the agent -------------------------------------------------------------------------------------------------

    @property
    def holding(self) -> bool:
        """Whether the sidecar needs a lease to send; if so it must start without one (`hello.lease`)."""
        return self._member.holding

    @property
    def registered(self) -> bool:
        """Whether this host takes part, as far as it knows; not while it doubts the store, or the store doubts it."""
        return self._member.registered

    @property
    def apart(self) -> bool:
        """Whether the store is not as this host knows it: restored, or written by another process in its name."""
        return self._member.place == "apart"

    def answers_at(self, address: str) -> None:
        """Receives the address of this host's answers over HTTP, for its reports; before `run`."""
        self._http = address

    async def changed(self) -> None:
        """Waits for the next change of `offered`."""
        await self._changed.wait()

    def answered(
        self,
        version: str,
        revision: Revision,
        stage: Stage | Literal["refused"],
        reason: str = "",
        problems: Sequence[str] = (),
        ledger: Counts | None = None,
        local: str = "",
    ) -> None:
        """Receives the answer of the sidecar to a version (`Offered.name`), as `answers.Answer`; it is kept until it is
        stored.

        Other names are not of the fleet, and are ignored.
        """
        if (named := parse(version)) is not None:
            self._member.answered(named, stage, reason, problems, ledger, local, wall=self._environment.wall())
            self._wake()

    async def leave(self) -> None:
        """Ends the membership; returns when the store has the last report and `home` remembers it.

        It goes on in the background if it is cancelled. Raises NotLeft if the record in the store is not this member's.
        """
        self._member.leave()
        self._wake()
        await self._ended.wait()
        report = self._member.report
        if self._member.place == "out" and (report is None or report.state != "left"):
            name = self._settings.member
            raise NotLeft(f"the store has no last report of this host; when it is gone: shipper fleet forget {name}")

    def status(self) -> dict[str, Any]:
        """Returns the part of `shipper status` about the fleet, without secrets."""
        member = self._member
        report = member.report
        return {
            "fleet": self._settings.name,
            "member": self._settings.member,
            "directory": member.memory.directory,
            "state": member.state,
            "reason": member.why,
            "newest": _written(member.known.current),
            "running": _written(self.offered.version if self.offered is not None else None),
            "stages": {stage: str(version) for stage, version in report.stages.items()} if report is not None else {},
            "refused": _written(report.refusal.version) if report is not None and report.refusal else None,
            "http": self._http,
            "held": member.held,
            "on_lapse": "hold" if self.holding else "continue",
            "lease_seconds": None if member.granted_until is None else max(0.0, member.granted_until - self._clock()),
            "store_revision": member.known.at,
            "troubles": dict(self._troubles),
        }

    # -- the tasks -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Takes part for ever, also while the store is away; never raises StoreError."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._act)
            nursery.start_soon(self._follow)
            nursery.start_soon(self._hurry)

    async def _act(self) -> None:
        """Performs the steps of the member."""
        while True:
            self._offer_kept()
            step = self._member.next(self._clock(), self._facts())
            self._report_troubles()
            if self._member.left:
                self._ended.set()
            try:
                await self._perform(step)
            except StoreError as error:
                self._failed("act", error)
                self._late = True
                self._member.failed(self._clock() + next(self._waits))
            except OSError as error:
                self._trouble(UNSAVED, in_words(error))
                await trio.sleep(next(self._waits))
            else:
                if not isinstance(step, Rest):
                    self._succeeded(step)

    def _succeeded(self, step: Step) -> None:
        if isinstance(step, Save | Offer):
            self._trouble(UNSAVED, None)
        if isinstance(step, Look | Write):
            self._failed("act", None)
            self._waits = self._backoff()
        if self.registered and not self._joined:
            self._joined = True
            self._host.joined(self._member.known.current)

    async def _perform(self, step: Step) -> None:
        match step:
            case Rest():
                await self._rest(step.until)
            case Look():
                await self._look(step)
            case Save(memory):
                await self._home.save(memory)
                self._member.saved(memory)
            case Claim():
                await self._claim(step)
            case Write():
                await self._write(step)
            case Mark():
                await self._mark(step)
            case Fetch(version):
                await self._fetch(version)
            case Offer():
                await self._offer()
            case Withdraw(ids):
                self._host.withdraw(ids)
                self._member.withdrew(ids)
            case Forget(ids):
                self._host.forget(ids)
                self._member.forgot(ids)
            case Grant(until):
                self._host.lease(until)
                self._member.granted(until)
            case Revoke():
                await self._revoke()

    async def _rest(self, until: float | None) -> None:
        seconds = float("inf") if until is None else max(_SHORTEST_REST, until - self._clock())
        with trio.move_on_after(seconds):
            await self._woken.wait()
        self._woken = trio.Event()

    def _wake(self) -> None:
        self._woken.set()

    def _facts(self) -> Facts:
        host = self._host
        return Facts(
            frozenset(host.using()), host.undelivered(), host.longest_request(), self._environment.wall(), self._http
        )

    async def _look(self, step: Look) -> None:
        name = self._settings.member
        alive = await self._store.read(ALIVE + name)
        report = await self._store.read(MEMBERS + name)
        restored = await self._store.read(RESTORED + name)
        head = await self._store.read(HEAD)
        seen = Seen(
            self._opened(report.entry, Report),
            _revision(report.entry),
            self._opened(alive.entry, Alive),
            _revision(alive.entry),
            self._opened_head(head.entry),
            head.at,
            self._opened(restored.entry, Restored),
            _revision(restored.entry),
        )
        self._member.looked(step, seen, now=self._clock())
        if head.at < step.since and self._watching is not None:
            self._watching.cancel("the store was restored, and its revisions went back")

    async def _claim(self, step: Claim) -> None:
        lease = await self._store.grant(self._settings.lease)
        key = ALIVE + self._settings.member
        swapped = await self._store.swap(key, self._seals.seal(key, step.alive), expected=step.expected, lease=lease)
        if swapped.done:
            self._lease, self._claimed = lease, _revision(swapped.entry)
        self._member.claimed(done=swapped.done, now=self._clock())

    async def _write(self, step: Write) -> None:
        began = self._clock()
        if not await self._renewed():
            self._lease = None
            self._member.lapsed()
            return
        key = MEMBERS + self._settings.member
        swapped = await self._store.swap(key, self._seals.seal(key, step.report), expected=step.expected)
        revision = swapped.entry.revision if swapped.done and swapped.entry is not None else None
        self._member.wrote(step, revision, began=began, now=self._clock())

    async def _renewed(self) -> bool:
        """Renews the lease; returns whether its key is there, for only that proves to others that this host is alive.

        The key is read after the renewal has begun: whoever sees it gone later counts a whole lease from then.
        """
        if self._lease is None or not await self._store.renew(self._lease):
            return False
        found = await self._store.read(ALIVE + self._settings.member)
        return _revision(found.entry) == self._claimed

    async def _mark(self, step: Mark) -> None:
        key = RESTORED + self._settings.member
        raw = None if step.restored is None else self._seals.seal(key, step.restored)
        swapped = await self._store.swap(key, raw, expected=step.expected)
        self._member.marked(step, _revision(swapped.entry) if swapped.done else None, now=self._clock())

    async def _revoke(self) -> None:
        if self._lease is not None:
            await self._store.revoke(self._lease)
            self._lease = None
        self._member.revoked()

    # -- versions ------------------------------------------------------------------------------------------------------

    async def _fetch(self, version: Version) -> None:
        """Reads a version and its secrets, for at most a third of the lease, so that the renewal comes in time.

        What was read until then is not read again.
        """
        if self._reading != version:
            self._reading = version
            self._read.clear()
        before = len(self._read)
        seconds = min(SECONDS, float(self._settings.lease) / 3)
        with trio.move_on_after(seconds) as scope:
            try:
                kept = await self._read_version(version)
                self._fetched = kept, self._authentic(kept)
            except _Missing as missing:
                self._member.missing(version, str(missing), now=self._clock(), wall=self._environment.wall())
            except Unauthentic as error:
                self._member.unauthentic(version, str(error), now=self._clock(), wall=self._environment.wall())
            else:
                self._member.fetched(version)
            self._reading = None
        if scope.cancelled_caught and len(self._read) == before:
            raise StoreUnreachable(f"version {version} and its secrets were not read within {seconds:g} s")

    async def _read_version(self, version: Version) -> Kept:
        await self._read_all([VERSIONS + version.sha256])
        text = self._read[VERSIONS + version.sha256]
        ids = sorted({*self._text(version, text).secrets.values()})
        await self._read_all([SECRETS + id for id in ids])
        return Kept(version, text, {id: self._read[SECRETS + id] for id in ids})

    async def _read_all(self, keys: Sequence[str]) -> None:
        """Reads records into `_read`, a few at a time; raises the first failure."""
        failures: list[_Missing | StoreError] = []
        waiting = iter([key for key in keys if key not in self._read])

        async def read() -> None:
            try:
                for key in waiting:
                    self._read[key] = await self._read_raw(key)
            except (_Missing, StoreError) as error:
                failures.append(error)
                nursery.cancel_scope.cancel("a record was not read")

        async with trio.open_nursery() as nursery:
            for _ in range(READERS):
                nursery.start_soon(read)
        if failures:
            raise failures[0]

    async def _read_raw(self, key: str) -> bytes:
        found = await self._store.read(key)
        if found.entry is None:
            raise _Missing(f"the store has no record {key}")
        return found.entry.value

    def _text(self, version: Version, raw: bytes) -> Text:
        text = self._seals.open(VERSIONS + version.sha256, raw, Text)
        if digest(text) != version.sha256:
            raise Unauthentic(f"the record {VERSIONS}{version.sha256} is the text of another version")
        return text

    def _authentic(self, kept: Kept) -> Offered:
        """Returns a version as it can be run; raises Unauthentic."""
        text = self._text(kept.version, kept.text)
        opened = {id: self._seals.open(SECRETS + id, raw, Secret) for id, raw in kept.secrets.items()}
        contents = {name: opened[id].content for name, id in text.secrets.items()}
        return Offered(kept.version, text, contents)

    async def _offer(self) -> None:
        assert self._fetched is not None
        kept, offered = self._fetched
        await self._home.keep(kept)
        self._member.offered(kept.version)
        self._fetched = None
        self._give(offered)

    def _give(self, offered: Offered) -> None:
        self.offered, self._kept = offered, None
        self._changed.set()
        self._changed = trio.Event()

    def _opened_kept(self) -> Offered | None:
        """Returns the version of an earlier process, if this is still a member's directory."""
        kept = self._home.kept
        if kept is None or self._home.memory.state != "member":
            return None
        try:
            return self._authentic(kept)
        except (Unauthentic, KeyError):
            return None

    async def _hurry(self) -> None:
        await trio.sleep(HASTE)
        self._late = True
        self._offer_kept()

    def _offer_kept(self) -> None:
        """Offers the version of an earlier process, unless this host turned out to be a joiner, or its name is taken:
        with it the sidecar gets the newest local secrets, whatever the store does."""
        member = self._member
        is_member = member.memory.state == "member" and member.place in ("unknown", "apart", "ours")
        if self._late and self._kept is not None and is_member:
            self._give(self._kept)

    # -- the head ------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Follows the head, and reads it again after each break of the watch."""
        waits = self._backoff()
        while True:
            try:
                with trio.CancelScope() as self._watching:
                    at = await self._read_head()
                    self._failed("watch", None)
                    waits = self._backoff()
                    await self._watch_head(at)
            except StoreError as error:
                self._failed("watch", error)
            await trio.sleep(next(waits))

    async def _read_head(self) -> int:
        since = self._member.known.at
        found = await self._store.read(HEAD)
        self._member.saw_head(self._opened_head(found.entry), found.at, since)
        self._wake()
        return found.at

    async def _watch_head(self, after: int) -> None:
        async with self._store.watch(HEAD, after) as batches:
            async for changes in batches:
                for change in changes:
                    if change.key == HEAD:
                        self._member.saw_head(self._opened_head(change.entry), change.at)
                self._wake()

    def _opened_head(self, entry: Entry | None) -> Head | None:
        """Returns the head; raises StoreRefused for a forged one: nothing tells which version is the newest then."""
        head = self._opened(entry, Head)
        if head is None and entry is not None:
            raise StoreRefused(self._forged[HEAD])
        return head

    def _opened(self, entry: Entry | None, type: type[T]) -> T | None:
        """Returns the record of an entry; None if there is none, or a forged one, which is a trouble."""
        if entry is None:
            return None
        try:
            record = self._seals.open(entry.key, entry.value, type)
        except Unauthentic as error:
            self._forged[entry.key] = str(error)
            return None
        self._forged.pop(entry.key, None)
        return record

    # -- troubles ------------------------------------------------------------------------------------------------------

    def _backoff(self) -> Iterator[float]:
        return backoff(0.1, float(self._settings.lease) / 3, draw=self._environment.draw)

    def _failed(self, task: str, error: StoreError | None) -> None:
        """Notes the trouble of a task with the store; None: it is over."""
        self._failures.pop(task, None)
        if error is not None:
            self._failures[task] = error
        for cause, is_it in ((REFUSED, True), (UNREACHABLE, False)):
            of_it = [str(one) for one in self._failures.values() if isinstance(one, StoreRefused) is is_it]
            self._trouble(cause, of_it[0] if of_it else None)

    def _report_troubles(self) -> None:
        member = self._member
        causes = {"apart": APART, "taken": TAKEN, "out": OUT}
        for place, cause in causes.items():
            is_so = member.place == place
            what = f"the store is not as this host knows it: {member.why}" if place == "apart" else member.why
            self._trouble(cause, f"{what}; {_REMEDY[cause]}" if is_so else None)
        self._trouble(HELD, f"nothing is sent without a lease: {member.held}" if member.held else None)
        self._trouble(FORGED, "; ".join(self._forged.values()) or None)

    def _trouble(self, cause: str, message: str | None) -> None:
        """Passes a trouble on if it is new, or over."""
        if self._troubles.get(cause) == message:
            return
        if message is None:
            del self._troubles[cause]
        else:
            self._troubles[cause] = message
        self._host.trouble(cause, message)


class _Missing(Exception):
    """The store lacks a record."""


def parse(name: str) -> Version | None:
    """Returns the version of an `Offered.name`; None for any other text."""
    parts = name.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts[:2]):
        return None
    return Version(int(parts[0]), int(parts[1]), parts[2])


def _written(version: Version | None) -> str | None:
    return None if version is None else str(version)


def _revision(entry: Entry | None) -> int:
    return 0 if entry is None else entry.revision
