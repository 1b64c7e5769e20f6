"""The membership of one process: it performs what `member` decides, and is what the agent sees. See the package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import trio

from shipper.fleet.home import Home
from shipper.fleet.member.machine import Member
from shipper.fleet.member.steps import Claim, Facts, Fetch, Look, Mark, Offer, Revoke, Save, Step, Terms, Write
from shipper.fleet.membership.fetching import Fetching, Missing
from shipper.fleet.membership.host import Host
from shipper.fleet.membership.offered import Offered, parse
from shipper.fleet.membership.offers import Offers
from shipper.fleet.membership.pace import Pace
from shipper.fleet.membership.sealed import Sealed
from shipper.fleet.membership.session import Lapsed, MemberSession
from shipper.fleet.membership.troubles import Troubles
from shipper.fleet.membership.watching import Watching
from shipper.fleet.records import Version
from shipper.fleet.seal import Seals, Unauthentic
from shipper.fleet.settings import FleetSettings
from shipper.fleet.store import Store, StoreError
from shipper.membership.ids import new_id
from shipper.membership.offers import HASTE
from shipper.membership.steps import Forget, Grant, Rest, Withdraw
from shipper.process.environment import REAL, Environment
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import ShipperError
from shipper.sdk.retry import backoff
from shipper.supervise.answers import Stage
from shipper.values import Counts, Revision

_SHORTEST_REST = 0.001  # seconds; less may be lost in the rounding of a clock, and be no rest


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
        self._settings, self._home, self._host = settings, home, host
        self._environment, self._clock = environment, environment.boottime
        self._fetching = Fetching(store, seals, float(settings.lease))
        self._offers = Offers(home, self._fetching.authentic)
        self._member = Member(_terms(settings, home), home.memory, self._offers.kept)
        self._seals, self._contents = seals, dict[str, Sequence[str]]()
        self._sealed, self._troubles = Sealed(seals), Troubles(host.trouble)
        self._pace = Pace(float(settings.lease))
        self._session = MemberSession(store, seals, self._sealed, settings.member, settings.lease)
        self._watching = Watching(
            store, self._sealed, self._member, self._troubles, wake=self._wake, waits=self._backoff
        )
        self._waits = self._backoff()
        self._woken, self._ended = trio.Event(), trio.Event()
        self._joined = False
        self._http = ""

    # -- for the agent -------------------------------------------------------------------------------------------------

    @property
    def offered(self) -> Offered | None:
        """What to run. If the store has nothing newer at once, it is what an earlier process of this member ran; None
        before the store has a version for a joiner. It never goes back."""
        return self._offers.newest

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
        await self._offers.changed()

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
        """Returns the part of `shipper status` about the fleet, as the store has it, without secrets.

        `ledger` has the events for which the newest drained version waited here, None if that is unknown; `local` is
        the stage of the newest rotation of this host's own secrets, and its revision.
        """
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
            "ledger": msgspec.to_builtins(report.ledger) if report is not None else None,
            "local": report.local if report is not None else "",
            "http": self._http,
            "held": member.held,
            "on_lapse": "hold" if self.holding else "continue",
            "lease_seconds": None if member.granted_until is None else max(0.0, member.granted_until - self._clock()),
            "store_revision": member.known.at,
            "troubles": self._troubles.all(),
        }

    # -- the tasks -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Takes part for ever, also while the store is away; never raises StoreError."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._act)
            nursery.start_soon(self._watching.run)
            nursery.start_soon(self._hurry)

    async def _hurry(self) -> None:
        await trio.sleep(HASTE)
        self._offers.wait_no_longer()
        self._offers.offer_kept(self._member)

    async def _act(self) -> None:
        """Performs the steps of the member."""
        while True:
            self._offers.offer_kept(self._member)
            step = self._member.next(self._clock(), self._facts())
            self._troubles.look_at(self._member, self._sealed.forged.values())
            if self._member.left:
                self._ended.set()
            began = self._clock()
            try:
                is_whole = await self._perform(step)
            except StoreError as error:
                self._troubles.failed("act", error)
                self._offers.wait_no_longer()
                self._member.failed(self._clock() + next(self._waits))
            except OSError as error:
                self._troubles.unsaved(in_words(error))
                await trio.sleep(next(self._waits))
            else:
                if not isinstance(step, Rest):
                    self._succeeded(step, self._clock() - began if is_whole else None)

    def _succeeded(self, step: Step, seconds: float | None) -> None:
        """`seconds` is None for a step that ended before all of its calls were made."""
        if seconds is not None:
            self._pace.took(step, seconds)
        self._troubles.slow(self._pace.problem)
        if isinstance(step, Save | Offer):
            self._troubles.unsaved(None)
        if isinstance(step, Look | Write):
            self._troubles.failed("act", None)
            self._waits = self._backoff()
        if self.registered and not self._joined:
            self._joined = True
            self._host.joined(self._member.known.current)

    async def _perform(self, step: Step) -> bool:
        """Returns whether all calls of the step were made."""
        match step:
            case Rest():
                await self._rest(step.until)
            case Look():
                await self._look(step)
            case Save(memory):
                await self._home.save(memory)
                self._member.saved(memory)
            case Claim():
                done = await self._session.claim(step)
                self._member.claimed(done=done, now=self._clock())
            case Write():
                return await self._write(step)
            case Mark():
                revision = await self._session.mark(step)
                self._member.marked(step, revision, now=self._clock())
            case Fetch(version):
                await self._fetch(version)
            case Offer():
                self._member.offered(await self._offers.offer())
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
                await self._session.revoke()
                self._member.revoked()
        return True

    async def _rest(self, until: float | None) -> None:
        seconds = float("inf") if until is None else max(_SHORTEST_REST, until - self._clock())
        with trio.move_on_after(seconds):
            await self._woken.wait()
        self._woken = trio.Event()

    def _wake(self) -> None:
        self._woken.set()

    def _facts(self) -> Facts:
        host, wall = self._host, self._environment.wall()
        accepted = host.accepted()
        return Facts(
            frozenset(host.using()),
            None if accepted is None else frozenset(accepted),
            {id: self._digests(id, forms) for id, forms in host.contents().items()},
            host.undelivered(),
            host.longest_request(),
            wall,
            self._http,
        )

    def _digests(self, id: str, forms: Sequence[bytes]) -> Sequence[str]:
        """Returns the keyed digests of a content; an id never gets another one."""
        if id not in self._contents:
            self._contents[id] = [self._seals.fingerprints(form)[0] for form in forms]
        return self._contents[id]

    async def _look(self, step: Look) -> None:
        seen = await self._session.look()
        self._member.looked(step, seen, now=self._clock())
        if seen.at < step.since:
            self._watching.begin_anew()

    async def _write(self, step: Write) -> bool:
        began = self._clock()
        try:
            revision = await self._session.write(step)
        except Lapsed:
            self._member.lapsed(self._clock())
            return False
        self._member.wrote(step, revision, began=began, now=self._clock())
        return True

    async def _fetch(self, version: Version) -> None:
        try:
            found = await self._fetching.fetch(version)
        except Missing as missing:
            self._member.missing(version, str(missing), now=self._clock(), wall=self._environment.wall())
        except Unauthentic as error:
            self._member.unauthentic(version, str(error), now=self._clock(), wall=self._environment.wall())
        else:
            if found is None:
                self._member.read_in_part()
            else:
                self._offers.fetched(*found)
                self._member.fetched(version)

    def _backoff(self) -> Iterator[float]:
        return backoff(0.1, float(self._settings.lease) / 3, draw=self._environment.draw)


def _terms(settings: FleetSettings, home: Home) -> Terms:
    return Terms(
        settings.member,
        home.place,
        new_id(),
        new_id(),
        lease=float(settings.lease),
        hold=settings.on_lapse == "hold",
        releases=settings.on_release is not None,
        forget_after=None if settings.forget_after is None else float(settings.forget_after),
    )


def _written(version: Version | None) -> str | None:
    return None if version is None else str(version)
