"""The supervisor as a process: connects a source of policies, the members, revocation and the report.

Each member has a sidecar and a state of its own (`member`), and none waits for another. One source supplies the policy
for all of them; a credential is revoked when all of them have released it (`collected`). `shipper supervise` has one
member.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from shipper.policy.registry import Registry
from shipper.process import collector, log
from shipper.protocol.messages import Result
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem
from shipper.sdk.units import events_in_words
from shipper.supervise import questions, standing
from shipper.supervise.alive import Alive
from shipper.supervise.answers import Answer
from shipper.supervise.collected import collected
from shipper.supervise.desired import Desired
from shipper.supervise.files import Files
from shipper.supervise.ledger import Kept, Wait, Wanted
from shipper.supervise.member import Member
from shipper.supervise.notify import Notify
from shipper.supervise.options import Options
from shipper.supervise.order_results import refused
from shipper.supervise.policy_source import PolicySource
from shipper.supervise.report import Report
from shipper.supervise.revocations import Revocations
from shipper.supervise.secrets import SecretsAbsent
from shipper.supervise.sources import PolicyFiles
from shipper.supervise.standing import ABSENT, HUNG, Everywhere
from shipper.supervise.vault import Vault
from shipper.supervise.watch import Watch


async def supervise(options: Options, environment: Mapping[str, str], report: Report) -> int:
    """Runs until a signal or the end of `--once`; returns the exit status.

    Raises StateBusy, StateLocked and OptionError before anything runs. The status is 78 in two cases: the policy files
    are invalid at the first start (with `once`: at any start), or no sidecar ever started, for a lasting cause in its
    state directory. Invalid files are reported. But it waits for a secret's file that is absent at the first start.
    """
    with Vault(options.state, options.config.state_keys) as vault, Watch() as watch:
        origin = PolicyFiles(tuple(options.paths))
        desired = Desired(origin, environment, Registry.installed(), once=options.once)
        files = Files(desired, watch, options.paths)
        return await Agent(options, environment, report, files, {options.state: vault}).run()


class Agent:
    """Members, and the one source of their policy."""

    def __init__(
        self,
        options: Options,
        environment: Mapping[str, str],
        report: Report,
        source: PolicySource,
        vaults: Mapping[Path, Vault],
        *,
        is_leased: bool = False,
    ) -> None:
        """Makes one member for each state directory with its vault. Raises StateLocked.

        `is_leased`: sidecars send nothing without a lease (`Member.lease`).
        """
        self._options, self._environment, self._report, self._source = options, environment, report, source
        self._wrong = standing.invalid(source.name)
        self._notify = Notify(environment)
        self._warned: Sequence[Problem] = ()
        kind = {"is_shared": source.is_shared, "is_leased": is_leased}
        self.members = [
            Member(msgspec.structs.replace(options, state=state), vault, self, **kind)
            for state, vault in vaults.items()
        ]
        self.troubles = Everywhere([member.troubles for member in self.members])
        self.is_leaving, self._has_ended, self._status = False, False, 0
        self._left = trio.Event()
        self._revocations = Revocations(
            options.config.on_release,
            self.without_secrets,
            self.troubles,
            self._say,
            self._revoked,
            waits_for=self._waits_for,
            covered=self._covered,
        )

    async def run(self) -> int:
        """Runs until every member has ended; returns the exit status."""
        try:
            first = None if self._source.is_shared else await self._first()
        except PolicyError:
            return 78
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._heed_signals)
            nursery.start_soon(self._notify.keep_alive, Alive(self.members, self._hung).check)
            nursery.start_soon(self._notify.extend, self._takes_time)
            for member in self.members:
                askers = standing.noting_askers(member.troubles, self._report.say)
                await nursery.start(questions.serve, member.state, member.answer, askers)
            self._say("watching", paths=self._source.watched, method=self._source.method)
            if self._source.is_shared:
                self._notify.send("READY=1", "STATUS=waiting for a version")
            if first is not None:
                self._offer(first, asked=False, over={})
            nursery.start_soon(self._follow_source)
            async with trio.open_nursery() as running:
                for member in self.members:
                    running.start_soon(self._run, member)
            await self._last_revocations()
            if self.is_leaving:
                await self._left.wait()
            self._has_ended = True
            nursery.cancel_scope.cancel("every sidecar has stopped as asked")
        return max(self._status, *(member.status for member in self.members))

    async def _run(self, member: Member) -> None:
        """Runs a member from when its last policy may run, or from when it stops."""
        async with trio.open_nursery() as nursery:

            async def stopped() -> None:
                await member.stopped()
                nursery.cancel_scope.cancel("the member stops")

            nursery.start_soon(stopped)
            await self._source.may_run()
            nursery.cancel_scope.cancel("it may run")
        await member.run()

    # -- the source ----------------------------------------------------------------------------------------------------

    @property
    def _has_policy(self) -> bool:
        """Whether there is a valid policy of an earlier process to run; with `--once` only the present files count."""
        return self._runs and not self._options.once

    @property
    def _runs(self) -> bool:
        return any(member.ledger.policy for member in self.members)

    async def _first(self) -> Wanted | None:
        """Returns the policy at the start; None if it is not valid, or secrets are absent, which is reported.

        Raises PolicyError, reported as well, if there is nothing to run.
        """
        try:
            return await self._read()
        except PolicyError as error:
            if self._has_policy or (isinstance(error, SecretsAbsent) and not self._options.once):
                self._invalid(error)
                return None
            fields = {"source": self._source.name, "consequence": "; there is nothing to run"}
            self._say("invalid", errors=error.problems, **fields)
            raise

    async def _read(self) -> Wanted:
        """Reads the policy, again if a credential that it refers to was released meanwhile."""
        while True:
            wanted = await self._source.read(self._known)
            if wanted.reused <= set(self._known().values()):
                return wanted

    def _known(self) -> dict[bytes, str]:
        """Returns the ids that every member may still be given."""
        released = {kept.id for member in self.members for kept in member.ledger.pending}
        known = [pair for member in self.members for pair in member.ledger.known.items()]
        return {content: id for content, id in known if id not in released}

    def _offer(self, wanted: Wanted, *, asked: bool, over: Mapping[str, Mapping[str, Any]]) -> None:
        """Reports new warnings, and offers the policy to all members, without a checkpoint after `_read`."""
        new = [problem for problem in wanted.warnings if problem not in self._warned]
        self._warned = wanted.warnings
        for problem in new:
            self._say("warning", problem=problem)
        for member in self.members:
            member.offer(wanted, asked=asked, over=over)

    async def _follow_source(self) -> None:
        """Offers every change; reports an invalid one once, and keeps the last valid policy running."""
        while True:
            asked = await self._source.changed()
            before = self._source.problems
            try:
                wanted = await self._read()
            except PolicyError as error:
                self._invalid(error, known=tuple(before) == tuple(error.problems) and not asked)
            else:
                self._offer(wanted, asked=asked, over=self._over())
            if asked:
                self._notify.send("READY=1")

    def _over(self) -> dict[str, Mapping[str, Any]]:
        """Returns the reports for a policy that is valid again."""
        over: dict[str, Mapping[str, Any]] = {}
        if self.troubles.over(ABSENT):
            over["present"] = {}
        if self.troubles.over(self._wrong):
            over["valid"] = {"source": self._source.name}
        return over

    def _invalid(self, error: PolicyError, *, known: bool = False) -> None:
        """Reports an invalid policy, except `known` problems; the last valid policy, if any, keeps running."""
        absent = isinstance(error, SecretsAbsent) and not self._runs
        self.troubles.over(self._wrong if absent else ABSENT)
        self.troubles.begin(
            ABSENT if absent else self._wrong, map(str, error.problems), kind=None if absent else "policy"
        )
        if absent:
            self._notify.send("READY=1", f"STATUS={ABSENT}")
        if not known:
            consequence = "; the last valid policy runs on" if self._runs else "; there is nothing to run"
            fields = {} if absent else {"source": self._source.name, "consequence": consequence}
            self._say("absent" if absent else "invalid", state="DEGRADED", errors=error.problems, **fields)

    # -- for members ---------------------------------------------------------------------------------------------------

    def say(self, member: Member, what: str, fields: Mapping[str, Any]) -> None:
        """Reports an event, with the name of the member if there are several."""
        self._report.say(what, fields if len(self.members) == 1 else {**fields, "member": member.name})

    def environment(self) -> Mapping[str, str]:
        """Returns the environment of a sidecar."""
        return {**self.without_secrets(), log.FORMAT: self._report.format}

    def released(self, *, again: bool) -> None:
        """Revokes the credentials that every member has released."""
        released = {kept.id: kept for member in self.members for kept in member.released}
        shared = {kept.canonical for member in self.members for kept in member.ledger.kept.values() if kept.shared}
        for id in sorted(collected([member.holding for member in self.members])):
            kept = released[id]
            if kept.shared:
                self._source.released(kept)
            elif kept.canonical in shared:
                self._nursery.start_soon(self._revoked, id)  # the source releases the same secret under its own id
            else:
                self._revocations.begin(self._nursery, kept, again=again)

    def _used_as(self, kept: Kept) -> str:
        """Returns the id of a credential that a member may use, and that ends with this one; empty without any."""
        mark = kept.known_as
        same = (one.id for member in self.members for one in member.live if one.known_as == mark and one.id != kept.id)
        return next(same, "")

    def _waits_for(self, kept: Kept) -> Wait | None:
        """Returns what a released credential waits for, unless a person has ordered its revocation."""
        if any(id == kept.id and one.ordered for member in self.members for id, one in member.ledger.kept.items()):
            return None
        if used := self._used_as(kept):
            return Wait(used, "released")
        if self._options.config.release_when == "at_once":
            return None
        newer = next(filter(None, (member.ledger.unaccepted(kept) for member in self.members)), "")
        return Wait(newer, "accepted") if newer else None

    def waiting(self) -> Mapping[str, Wait]:
        """Returns the released credentials that wait, each with what it waits for."""
        delayed = [pair for member in self.members for pair in member.ledger.delayed().items()] if self.delays else []
        return {**self._revocations.waiting, **{id: Wait(newer, "accepted") for id, newer in delayed}}

    @property
    def delays(self) -> bool:
        """Whether a credential of the source counts as used until its successor was accepted."""
        return self._source.delays and self._options.config.release_when == "accepted"

    async def revoke(self, id: str) -> Result:
        """Has a released credential revoked, whatever it waits for; returns the outcome for a person."""
        if id not in self.waiting():
            waiting = ", ".join(self.waiting()) or "there are none"
            return refused(f"{id} is none of the released credentials that wait: {waiting}", Code.NOTHING_TO_ORDER)
        for member in self.members:
            await member.order_revocation(id)
        self.released(again=False)
        return Result(id="", status="SUCCESS", message=f"{id} waits no more", code=Code.OK)

    def forget(self, ids: Iterable[str]) -> None:
        """Removes credentials of the source that it has released; those that a member may use again stay.

        After the agent has ended, nothing is removed: the next process passes them to the source again.
        """
        if self._has_ended:
            return
        for id in ids:
            if all(id not in member.ledger.kept or member.ledger.kept[id].released for member in self.members):
                self._nursery.start_soon(self._revoked, id)

    def answered(self, member: Member, answer: Answer) -> None:
        """Passes an answer to the source."""
        self._source.answered(member.name, answer)

    def serving(self) -> None:
        """Tells the service manager that the service is ready."""
        collector.started()
        self._notify.send("READY=1", "STATUS=shipping")

    def stopping(self) -> None:
        """Tells the service manager that the service stops, with the last member."""
        if all(member.is_stopping for member in self.members):
            self._notify.stopping()

    def _takes_time(self) -> bool:
        """Whether a start or a stop goes on that is bounded otherwise, or that a large spool makes long."""
        return all(member.is_stopping for member in self.members) or any(member.is_opening for member in self.members)

    def _hung(self, what: str | None) -> None:
        """Reports what does not answer, so that the watchdog is not fed; None when all answers again."""
        if what is not None:
            self.troubles.begin(HUNG, [what])
            self._say("hung", state="DEGRADED", message=what)
        else:
            self.troubles.over(HUNG)
            self._say("answers", state="HEALTHY")

    def status(self) -> Mapping[str, Any]:
        """Returns what the source adds to the status."""
        return self._source.status()

    async def leave(self) -> Result:
        """Stops every member, and has the source tell the others; then `run` ends."""
        if not self._source.is_shared:
            return await self._source.leave()
        if self.is_leaving:
            return refused("this host is leaving already", Code.STOPPING)
        self.is_leaving = True
        try:
            for member in self.members:
                member.stop(0)
            for member in self.members:
                await member.ended.wait()
            result = await self._source.leave()
            self._status = 0 if result.status == "SUCCESS" else 1
            return self._with_undelivered(result)
        finally:
            self._left.set()

    def _with_undelivered(self, result: Result) -> Result:
        """Adds what stays open, if there are undelivered events, to the outcome of a host that has left."""
        events = sum(member.held.events for member in self.members)
        if not events or result.status != "SUCCESS":
            return result
        text = (
            f"{result.message}; {events_in_words(events)} undelivered: they stay in the state directory, and what "
            "waits for this host, such as a `wait` or the release of a secret, stays open until it is started again, "
            "or forgotten"
        )
        return msgspec.structs.replace(result, message=text)

    def _say(self, what: str, **fields: Any) -> None:
        self._report.say(what, fields)

    def without_secrets(self) -> dict[str, str]:
        """Returns the environment for other programs, without variables that a policy ever named as secrets."""
        secret = {name for member in self.members for name in member.ledger.secret_variables}
        secret |= {*self._source.secret_variables}
        return {name: value for name, value in self._environment.items() if name not in secret}

    async def _revoked(self, id: str) -> None:
        """Returns when every member has forgotten the credential, so that no later process revokes it again."""
        async with trio.open_nursery() as nursery:
            for member in self.members:
                nursery.start_soon(member.forget, id)

    def _covered(self, id: str) -> None:
        """Has every member forget a credential that the revocation of another one ends."""
        for member in self.members:
            self._nursery.start_soon(partial(member.forget, id, is_told=False))

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _heed_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    self._notify.reloading()
                    self._source.ask()
                elif not all(member.is_stopping for member in self.members):
                    for member in self.members:
                        member.stop(0)
                else:
                    self._say("killed", reason="a second signal")
                    self._nursery.cancel_scope.cancel("a second signal")

    async def _last_revocations(self) -> None:
        """Revokes credentials that were released in the last moment, before the next start does."""
        if not any(member.killed for member in self.members):
            with trio.move_on_after(self._options.grace):
                await self._revocations.ended()
