"""Waits for the file of a state key, if the supervisor starts before the file exists.

Nothing can be opened without that key. Meanwhile the directory is locked, `shipper status` is answered, and the service
manager is informed; there is no sidecar, so there is no status server either.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import trio

from shipper.sdk.codes import Code
from shipper.sdk.errors import OptionError
from shipper.supervise import questions, standing
from shipper.supervise.config import KeyAbsent
from shipper.supervise.conversation import Conversation
from shipper.supervise.ledger import Ledger
from shipper.supervise.notify import Notify
from shipper.supervise.options import Options
from shipper.supervise.order_results import outcome, refused
from shipper.supervise.questions import Question, Status
from shipper.supervise.report import Report
from shipper.supervise.standing import KEYLESS, Troubles
from shipper.supervise.vault import Vault
from shipper.supervise.watch import Watch

T = TypeVar("T")


async def configured(
    read: Callable[[], T], options: Options, environment: Mapping[str, str], report: Report
) -> T | None:
    """Returns the result of `read` once every file of a state key exists; None if a signal stops it before.

    Raises StateBusy, and OptionError for a configuration that is invalid at the start; with `once` also for an absent
    file.
    """
    try:
        return read()
    except KeyAbsent as error:
        if options.once:
            raise
        paths = error.paths
    with Vault(options.state), Watch() as watch:
        watch.follow(paths)
        return await _Waiting(read, options, environment, report, watch).run()


class _Waiting(Generic[T]):
    def __init__(
        self,
        read: Callable[[], T],
        options: Options,
        environment: Mapping[str, str],
        report: Report,
        watch: Watch,
    ) -> None:
        self._read, self._options, self._report, self._watch = read, options, report, watch
        self._notify = Notify(environment)
        self._troubles = Troubles()
        self._config: T | None = None

    async def run(self) -> T | None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notify.keep_alive)
            askers = standing.noting_askers(self._troubles, self._report.say)
            await nursery.start(questions.serve, self._options.state, self._answer, askers)
            nursery.start_soon(self._heed_signals, nursery.cancel_scope)
            self._notify.send("READY=1", f"STATUS={KEYLESS}")
            self._config = await self._present()
            nursery.cancel_scope.cancel("the key is there")
        return self._config

    async def _present(self) -> T:
        """Returns the configuration once it is valid; reports other mistakes meanwhile: a key may be half written."""
        told = ""
        while True:
            try:
                return await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            except OptionError as error:
                self._troubles.begin(KEYLESS, [str(error)])
                if str(error) != told:
                    told = str(error)
                    self._report.say("key_absent", {"state": "DEGRADED", "message": told})
                if not (isinstance(error, KeyAbsent) and self._watch.follow(error.paths)):
                    await self._watch.changed()

    async def _answer(self, question: Question) -> Mapping[str, Any]:
        if not isinstance(question, Status):
            return outcome(refused(f"the sidecar takes no order now ({KEYLESS})", Code.NOT_RUNNING))
        return standing.status(Conversation(Ledger(), fresh=True), self._troubles, "waiting", None)

    async def _heed_signals(self, scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            await anext(signals)
        scope.cancel("a signal to stop")
