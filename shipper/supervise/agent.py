"""The supervisor as a process: wires the files, the conversation, the sidecar and the people together.

All decisions fall in `Conversation`, one at a time under one lock, and their effects are performed in order before the
next thing that happened is looked at. So a `Save` that cannot be done (a full disk) holds everything that stands behind
it, and nothing is sent or revoked that the state does not know; the sidecar ships on meanwhile.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from shipper.policy.registry import Registry
from shipper.process import log
from shipper.protocol.messages import Error, Observed, Ready, Result
from shipper.sdk.codes import Code
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import PolicyError, Problem
from shipper.sdk.retry import backoff
from shipper.supervise import questions, standing
from shipper.supervise.answers import Answer
from shipper.supervise.child import Child, Said, told
from shipper.supervise.conversation import (
    HEARTBEAT,
    Again,
    Conversation,
    Effect,
    Effects,
    Finish,
    Revoke,
    Save,
    Say,
    Send,
    Serving,
)
from shipper.supervise.desired import Desired
from shipper.supervise.files import Files
from shipper.supervise.launcher import RETRY_SECONDS, Launcher
from shipper.supervise.ledger import Wanted
from shipper.supervise.notify import Notify
from shipper.supervise.once import lasting
from shipper.supervise.options import Options
from shipper.supervise.order_results import Orders, refused
from shipper.supervise.policy_source import PolicySource
from shipper.supervise.questions import Order, Question
from shipper.supervise.report import Report
from shipper.supervise.revocations import Revocations
from shipper.supervise.secrets import SecretsAbsent, hide
from shipper.supervise.standing import ABSENT, INVALID, UNABLE, UNSAVED, UNSERVED, Troubles
from shipper.supervise.vault import Vault
from shipper.supervise.watch import Watch

_STABLE_SECONDS = 60.0
_WRONGLY_CALLED = (2, 78)
_SILENCE_SECONDS = 4 * HEARTBEAT
_SAVE_SECONDS = (0.1, 10.0)
_OVERTIME_SECONDS = 5.0
_KILLED_SECONDS = 1.0
_ANSWER_SECONDS = 1.0


async def supervise(options: Options, environment: Mapping[str, str], report: Report) -> int:
    """Run until a signal or the end of `--once`; returns the exit status.

    Raises StateBusy, StateLocked and OptionError before anything runs. Policy files that are wrong at the first start,
    with `once` at any, are reported, and the status is 78; so it is if no sidecar ever started, for a lasting cause in
    its state directory. But a file of a secret that is absent at the first start is waited for.
    """
    with Vault(options.state, options.config.state_keys) as vault, Watch() as watch:
        return await _Agent(options, environment, report, vault, watch).run()


class _Agent:
    def __init__(
        self, options: Options, environment: Mapping[str, str], report: Report, vault: Vault, watch: Watch
    ) -> None:
        ledger, existed = vault.load()
        for kept in ledger.kept.values():
            hide(kept.credential)
        self._options, self._environment, self._report = options, environment, report
        self._vault = vault
        self._troubles = Troubles(self._pass_on)
        self._passed_on: Mapping[str, Any] | None = None
        """What this sidecar was told of how we stand."""
        self._warned: Sequence[Problem] = ()
        self._conversation = Conversation(
            ledger,
            fresh=not existed,
            state_keys=options.config.state_keys if vault.is_taken_over else (),
            revokes=options.config.on_release is not None,
            once=options.once,
        )
        desired = Desired(options.paths, environment, Registry.installed(), once=options.once)
        self._source: PolicySource = Files(desired, watch)
        self._lock = trio.Lock()
        self._notify = Notify(environment)
        self._child: Child | None = None
        self._orders = Orders()
        self._phase = "starting"
        self._stopping = trio.Event()
        command = options.config.launch(options.state)
        self._launcher = Launcher(command, self._for_the_sidecar, self._stopping, self._launch_failed)
        self._status, self._within = 0, 0.0
        self._observed = trio.Event()
        on_release = options.config.on_release
        self._revocations = (
            Revocations(on_release, self._without_secrets, self._troubles, self._say, self._revoked)
            if on_release is not None
            else None
        )

    async def run(self) -> int:
        first = await self._first()
        if first is None and not self._has_policy and ABSENT not in self._troubles:
            return 78
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._heed_signals)
            nursery.start_soon(self._notify.keep_alive)
            askers = standing.noting_askers(self._troubles, self._report.say)
            await nursery.start(questions.serve, self._options.state, self.answer, askers)
            self._say("watching", paths=self._source.watched, method=self._source.method)
            await self._perform(self._conversation.begin())
            if first is not None:
                self._warn(first)
                await self._perform(self._conversation.wants(first))
            nursery.start_soon(self._follow_files)
            if self._options.once_timeout < math.inf:
                nursery.start_soon(self._watch_time)
            await self._keep_sidecar()
            self._phase = "ended"
            await self._last_revocations()
            nursery.cancel_scope.cancel("the sidecar has stopped as asked")
        return self._status

    async def answer(self, question: Question) -> Mapping[str, Any]:
        """What a person is told who asks."""
        return await self._order(question) if isinstance(question, Order) else await self._told()

    async def _order(self, order: Order) -> dict[str, Any]:
        if self._child is None or not self._conversation.connected:
            result = refused(f"the sidecar takes no order now ({self._phase})", Code.NOT_RUNNING)
        else:
            self._say("ordered", name=order.name, params=order.params)
            result = await self._orders.give(self._child.send, order.name, order.params)
        return {name: getattr(result, name) for name in ("status", "message", "code", "result")}

    async def _told(self) -> dict[str, Any]:
        """What `shipper status` shows, of this moment if the sidecar answers soon; no secrets."""
        if self._child is not None:
            self._observe(self._child)
            with trio.move_on_after(_ANSWER_SECONDS):
                await self._observed.wait()
        pid = self._child.pid if self._child else None
        return standing.told(self._conversation, self._troubles, self._phase, pid, self._restarts)

    # -- effects -------------------------------------------------------------------------------------------------------

    async def _perform(self, effects: Effects) -> None:
        """Perform what one thing that happened leads to, before the next one is looked at."""
        async with self._lock:
            for effect in effects:
                await self._effect(effect)
        self._pass_on()

    async def _effect(self, effect: Effect) -> None:
        match effect:
            case Save():
                await self._save()
            case Send(message):
                for replaced in self._child.send(message) if self._child is not None else ():
                    for consequence in self._conversation.unsent(replaced):
                        await self._effect(consequence)
            case Say(what, fields):
                self._report.say(what, fields)
            case Answer():
                self._source.answered(str(self._options.state), effect)
            case Revoke(kept):
                assert self._revocations is not None
                self._revocations.begin(self._nursery, kept)
            case Again():
                self._nursery.start_soon(self._again, effect)
            case Serving():
                self._notify.send("READY=1", "STATUS=shipping")
            case Finish(status):
                self._stop(status)

    async def _save(self) -> None:
        for seconds in backoff(*_SAVE_SECONDS):
            try:
                await trio.to_thread.run_sync(self._vault.save, self._conversation.ledger)
                self._troubles.over(UNSAVED)
                return
            except OSError as error:
                self._troubles.begin(UNSAVED, [in_words(error)])
                self._say("save_failed", state="DEGRADED", message=in_words(error))
                await trio.sleep(seconds)

    async def _again(self, timer: Again) -> None:
        await trio.sleep(timer.seconds)
        await self._perform(self._conversation.due(timer))

    def _say(self, what: str, **fields: Any) -> None:
        self._report.say(what, fields)

    # -- files ---------------------------------------------------------------------------------------------------------

    @property
    def _has_policy(self) -> bool:
        """Whether there is a valid policy of an earlier process to run on; `--once` is about the files of now."""
        return bool(self._conversation.ledger.policy) and not self._options.once

    async def _first(self) -> Wanted | None:
        """What the files want at the start; None if that is not valid, or absent yet, which is told."""
        try:
            return await self._read()
        except PolicyError as error:
            if self._has_policy or (isinstance(error, SecretsAbsent) and not self._options.once):
                self._invalid(error)
            else:
                self._say("invalid", errors=error.problems, consequence="; there is nothing to run")
            return None

    async def _read(self) -> Wanted:
        return await self._source.read(lambda: self._conversation.ledger.known)

    def _invalid(self, error: PolicyError, *, known: bool = False) -> None:
        """The last valid policy runs on, if there is one; `known` problems are not told again."""
        runs = bool(self._conversation.ledger.policy)
        absent = isinstance(error, SecretsAbsent) and not runs
        self._troubles.over(INVALID if absent else ABSENT)
        self._troubles.begin(ABSENT if absent else INVALID, map(str, error.problems))
        if absent:
            self._notify.send("READY=1", f"STATUS={ABSENT}")
        if not known:
            consequence = "; the last valid policy runs on" if runs else "; there is nothing to run"
            fields = {} if absent else {"consequence": consequence}
            self._say("absent" if absent else "invalid", state="DEGRADED", errors=error.problems, **fields)

    async def _follow_files(self) -> None:
        """Every change becomes a revision; what is not valid is told once, and the last valid policy runs on."""
        while True:
            asked = await self._source.changed()
            before = self._source.problems
            try:
                while not await self._adopt(await self._read(), asked=asked):
                    pass
            except PolicyError as error:
                self._invalid(error, known=tuple(before) == tuple(error.problems) and not asked)
            else:
                if self._troubles.over(ABSENT):
                    self._say("present", revision=str(self._conversation.ledger.at))
                if self._troubles.over(INVALID):
                    self._say("valid", revision=str(self._conversation.ledger.at))
            if asked:
                self._notify.send("READY=1")

    def _warn(self, wanted: Wanted) -> None:
        """Tell what was not told of the reading before."""
        new = [problem for problem in wanted.warnings if problem not in self._warned]
        self._warned = wanted.warnings
        for problem in new:
            self._say("warning", problem=problem)

    async def _adopt(self, wanted: Wanted, *, asked: bool) -> bool:
        """Make it the policy, unless a credential that it refers to was released since it was read."""
        self._warn(wanted)
        async with self._lock:
            if self._conversation.ledger.outdates(wanted):
                return False
            for effect in self._conversation.wants(wanted, asked=asked):
                await self._effect(effect)
        return True

    # -- the sidecar ---------------------------------------------------------------------------------------------------

    async def _keep_sidecar(self) -> None:
        """Launch the sidecar, and again when it ends, until the supervisor stops."""
        waits = backoff(*RETRY_SECONDS)
        while not self._stopping.is_set():
            since = trio.current_time()
            reason = await self._one_sidecar()
            if self._stopping.is_set():
                return
            if self._conversation.failure is None and trio.current_time() - since > _STABLE_SECONDS:
                waits = backoff(*RETRY_SECONDS)
            seconds = next(waits)
            self._phase = f"restarting ({reason})"
            self._say("ended", reason=reason, seconds=seconds)
            with trio.move_on_after(seconds):
                await self._stopping.wait()

    async def _one_sidecar(self) -> str:
        """How one sidecar process ended."""
        child = self._child = await self._launcher.launch()
        if child is None:
            return ""
        self._say("launched", pid=child.pid)
        await self._perform(self._conversation.started())
        if self._stopping.is_set():
            self._ask_to_stop(child)
        else:
            self._phase = "running"
        try:
            code = await child.converse(self._hear, self._silence)
        finally:
            self._child = self._passed_on = None
        if child.silent:
            self._say("silent", seconds=_SILENCE_SECONDS)
        self._conversation.ended()
        self._orders.lost()
        if self._stopping.is_set():
            self._status = self._status or (1 if code else 0)
        elif code in _WRONGLY_CALLED or self._conversation.hopeless:
            self._stop(78)
        return told(code)

    @property
    def _restarts(self) -> int:
        return max(0, self._launcher.launches - 1)

    def _pass_on(self) -> None:
        """Tell the sidecar how we stand, if it has not heard it and has a status server to show it."""
        ready = self._conversation.ready
        if self._child is None or ready is None or ready.http is None:
            return
        if self._passed_on != self._supervision():
            self._observe(self._child)

    def _observe(self, child: Child) -> None:
        """Each time with all: it takes the place of one that was not written yet."""
        self._passed_on = self._supervision()
        child.send({"type": "observe", "supervisor": self._passed_on})

    def _supervision(self) -> dict[str, Any]:
        return standing.supervision(self._conversation, self._troubles, self._restarts)

    def _launch_failed(self, reason: str, seconds: float) -> None:
        self._troubles.begin(UNABLE, [reason])
        self._say("launch_failed", state="DEGRADED", message=reason, seconds=seconds)

    async def _hear(self, message: Said | None) -> None:
        if message is None:
            self._say("garbled")
        else:
            await self._perform(self._conversation.heard(message))
            if isinstance(message, Ready | Error):
                self._note_start()
            if isinstance(message, Result):
                self._orders.answered(message)
            if isinstance(message, Observed):
                self._observed.set()
                self._observed = trio.Event()

    def _note_start(self) -> None:
        """What the start of the sidecar, or its end, means for the whole."""
        address, ready = self._options.config.http, self._conversation.ready
        if self._conversation.failure:
            self._troubles.begin(UNABLE, [self._conversation.failure])
        elif ready is not None:
            self._troubles.over(UNABLE)
            self._troubles.over(UNSERVED)
            if address is not None and ready.http is None:
                self._troubles.begin(UNSERVED, [f"{address} cannot be used, perhaps since another process has it"])
                self._say("unserved", state="DEGRADED", address=address)

    def _silence(self) -> float:
        """Seconds without a line after which a sidecar is taken for dead; opening a large spool may take long."""
        return _SILENCE_SECONDS if self._conversation.connected else math.inf

    # -- revocation ----------------------------------------------------------------------------------------------------

    async def _revoked(self, id: str) -> None:
        await self._perform(self._conversation.revoked(id))

    def _without_secrets(self) -> dict[str, str]:
        """The environment of other programs: no variable that a policy ever named as a secret."""
        secret = {*self._conversation.ledger.secret_variables, *self._source.secret_variables}
        return {name: value for name, value in self._environment.items() if name not in secret}

    def _for_the_sidecar(self) -> dict[str, str]:
        return {**self._without_secrets(), log.FORMAT: self._report.format}

    async def _last_revocations(self) -> None:
        """What was released in the last moment is revoked now rather than at the next start."""
        if self._revocations is not None:
            with trio.move_on_after(self._options.grace):
                await self._revocations.ended()

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _heed_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    self._notify.reloading()
                    self._source.ask()
                elif not self._stopping.is_set():
                    self._stop(0)
                else:
                    self._kill("a second signal")

    def _stop(self, status: int, grace: float | None = None) -> None:
        """`grace` in seconds, if it is not the one of the options."""
        if self._stopping.is_set():
            return
        self._status = status
        self._phase = "stopping"
        self._stopping.set()
        self._notify.send("STOPPING=1")
        if self._child is not None or self._launcher.launching:
            self._within = self._options.grace if grace is None else grace
            self._say("stopping", seconds=self._within)
        if self._child is not None:
            self._ask_to_stop(self._child)
        self._nursery.start_soon(self._end_later, self._within)

    def _ask_to_stop(self, child: Child) -> None:
        """Asked again behind the hello, it is asked once: the newer `stop` takes the place of one before the hello."""
        child.send({"type": "stop", "within_seconds": self._within})

    async def _end_later(self, seconds: float) -> None:
        """End what does not end by itself: a sidecar, and then what waits for a state that cannot be saved."""
        await trio.sleep(seconds + _OVERTIME_SECONDS)
        if self._child is not None:
            self._child.kill()
            await trio.sleep(_KILLED_SECONDS)
        if self._phase != "ended":
            self._status = 1
            self._kill(UNSAVED if UNSAVED in self._troubles else "the sidecar does not end")

    def _kill(self, reason: str) -> None:
        self._say("killed", reason=reason)
        self._nursery.cancel_scope.cancel(reason)

    async def _watch_time(self) -> None:
        """`--once-timeout`: how long a destination may refuse, or no sidecar start."""
        await lasting(self._options.once_timeout, self._hindered)
        self._say("waits", reason=self._conversation.waits_for)
        self._stop(1, grace=0.0)

    def _hindered(self) -> bool:
        """A sidecar that has ended hinders until the next one tells of itself; the first may take long to start."""
        observed = self._conversation.observed
        return observed.state in ("DEGRADED", "FAILED") if observed else self._launcher.launches > 1
