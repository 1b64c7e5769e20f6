"""The conversation with the supervisor, over standard input and standard output: the first `Door`.

Lines are answered in their order. This module never touches the data path: it passes policies on, and its messages wait
in the `Outbox`. The end of standard input means that the supervisor is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, assert_type

import trio

from shipper.control.actions import Actions
from shipper.control.door import Core
from shipper.control.outbox import Outbox
from shipper.control.pipes import Stdin
from shipper.control.statements import messages
from shipper.process import log
from shipper.process.signal import Signal
from shipper.protocol.bounds import cut
from shipper.protocol.lines import Line, LineSplitter
from shipper.protocol.messages import (
    MAX_LINE_BYTES,
    Action,
    Credentials,
    Error,
    Hello,
    Lease,
    Message,
    NotUnderstood,
    Observe,
    Observed,
    Policy,
    Result,
    State,
    Stop,
    Supervision,
    parse,
)
from shipper.revisions.offer import Offer
from shipper.revisions.statements import Statement
from shipper.sdk.codes import Code
from shipper.sdk.errors import CredentialError

_log = log.get(__name__)

ACTIONS_AT_ONCE = 16
ACTIONS_WAITING = 64
LOCKED = "the state directory is locked"
STOPPING = "the shipper is stopping"
STOPPED = "the shipper stopped before the action ended; if it is a durable order, the next process resumes it"
QUIET_SECONDS = 0.02
LEAST_HEARTBEAT = 0.1
GONE_SECONDS = 0.2
"""The interval of checks for the end of standard input while nothing is read, since answers or policies have no
room."""
RESTS = 4
"""The rest after a look, as a multiple of its duration, so that looks take a fifth of the time at most."""
LONGEST_REST = 0.25
LOOK_SECONDS = 5.0
"""The longest time between looks, to find changes without a signal, such as a disk that hangs."""


class Conversation:
    """Reads lines and answers them; `shipper.protocol.messages` has the messages."""

    def __init__(self, stdin: Stdin, outbox: Outbox) -> None:
        self.outbox = outbox
        self.serving = trio.CancelScope()
        """The scope of shipping; cancel it to stop at once."""
        self._reading = trio.CancelScope()
        self._interrupted = False
        self._stdin = stdin
        self._lines = _Lines(stdin)
        self._waits_for: list[Outbox | Core] = [outbox]
        """All must have room before a line is read."""

    def interrupt(self) -> None:
        """Ends the conversation, as the end of standard input does."""
        self._interrupted = True
        self._reading.cancel("stopped by a signal")

    async def hello(self) -> tuple[int, Hello] | None:
        """Waits for `hello`; returns its line and itself, or None at the end of standard input.

        Answers any line before it with `error`.
        """
        async with aclosing(self._messages()) as messages:
            async for line, message in messages:
                if isinstance(message, Hello):
                    return line, message
                self.error(line, "`hello` comes first", Code.HELLO_FIRST)
        return None

    def say(self, statement: Statement, delivered: Callable[[], None]) -> None:
        """Queues a statement; calls `delivered` once all of it is written."""
        *first, last = messages(statement)
        for message in first:
            self.outbox.say(message)
        self.outbox.say(last, delivered)

    def result(self, result: Result) -> None:
        self.outbox.say(result)

    def observed(self, observed: Observed) -> None:
        self.outbox.say(observed)

    async def locked(self, refuse: Callable[[Offer], None], observe: Callable[[Any], None]) -> None:
        """Nacks every policy and fails every action until `stop`, since the state directory cannot be opened."""
        async with aclosing(self._messages()) as messages:
            async for line, message in messages:
                match message:
                    case Policy():
                        refuse(_offer(message))
                    case Stop():
                        return
                    case Observe():
                        observe(message.supervisor)
                    case Action():
                        self.result(Result(id=message.id, status="FAILED", message=LOCKED, code=Code.LOCKED))
                    case _:
                        self.error(line, LOCKED, Code.LOCKED)

    async def run(self, core: Core) -> Stop:
        """Answers lines until `stop`, or until the end of standard input."""
        self._waits_for = [self.outbox, core]
        try:
            return await self._answer(core)
        finally:
            self._waits_for = [self.outbox]

    async def _answer(self, core: Core) -> Stop:
        async with aclosing(self._messages()) as messages:
            async for line, message in messages:
                match message:
                    case Stop():
                        return message
                    case Policy():
                        await core.offer(_offer(message))
                    case Credentials():
                        try:
                            await core.supply(message.credentials)
                        except CredentialError as error:
                            self.error(line, str(error), error.code)
                    case Lease():
                        core.renew_lease(message.until)
                    case Observe():
                        _observe(core, message)
                    case Action():
                        core.act(message)
                    case _:
                        assert_type(message, Hello)
                        self.error(line, "a second `hello`; it has no effect", Code.SECOND_HELLO)
        return Stop()

    async def stopping(self, grace: trio.CancelScope, core: Core) -> None:
        """Answers lines during the stop; another `stop`, or the end of standard input, may shorten the grace."""
        async with aclosing(self._messages()) as messages:
            async for line, message in messages:
                match message:
                    case Stop():
                        _shorten(grace, message)
                    case Lease():
                        core.renew_lease(message.until)
                    case Observe():
                        _observe(core, message)
                    case Action():
                        self.result(Result(id=message.id, status="FAILED", message=STOPPING, code=Code.STOPPING))
                    case _:
                        self.error(line, f"{STOPPING}; the message has no effect", Code.STOPPING)
        _shorten(grace, Stop())

    async def _messages(self) -> AsyncGenerator[tuple[int, Message], None]:
        """Yields messages with the numbers of their lines, until the end; answers invalid lines with `error`."""
        while (line := await self._next_line()) is not None:
            if line.text is None:
                text = f"the line is longer than {MAX_LINE_BYTES} bytes; it was skipped"
                self.error(line.number, text, Code.LINE_TOO_LONG)
                continue
            try:
                message = parse(line.text)
            except NotUnderstood as error:
                self.error(line.number, str(error), error.code)
                continue
            yield line.number, message

    async def _next_line(self) -> Line | None:
        with trio.CancelScope() as self._reading:
            if not self._interrupted:
                await self._room()
                return await self._lines.next()
        return None

    async def _room(self) -> None:
        """Waits until all have room. The few last lines of a supervisor that is gone do not wait.

        Meanwhile no `stop` is read either: only the end of standard input, or a signal, ends the conversation.
        """
        while any(each.is_full for each in self._waits_for) and not self._stdin.is_hung_up():
            with trio.move_on_after(GONE_SECONDS):
                for each in self._waits_for:
                    await each.has_room()

    def error(self, line: int, message: str, code: str) -> None:
        """Answers an invalid line."""
        self.outbox.say(Error(line_number=line, message=cut(message), code=code))


def _observe(core: Core, message: Observe) -> None:
    if message.asked:
        core.ask(message.asked)
    core.observe(message.supervisor)


def _offer(message: Policy) -> Offer:
    return Offer(message.at, message.policy, message.credentials, message.sha256)


def _shorten(grace: trio.CancelScope, stop: Stop) -> None:
    grace.deadline = min(grace.deadline, trio.current_time() + stop.within_seconds)


class Performing:
    """Performs actions concurrently with the conversation; each has one result, even if it is cancelled.

    A tap may take a minute; other actions, above all orders, do not wait for taps.
    """

    def __init__(self, nursery: trio.Nursery, actions: Actions, say: Callable[[Result], None]) -> None:
        self._nursery, self._actions, self._say = nursery, actions, say
        self._taps = trio.CapacityLimiter(ACTIONS_AT_ONCE)
        self._others = trio.CapacityLimiter(ACTIONS_AT_ONCE)
        self._unfinished: list[Action] = []
        self._finished = Signal()

    def begin(self, action: Action) -> None:
        """Starts an action, when there is room for it; its result is sent at its end."""
        is_tap = action.name == "tap"
        limit = self._taps if is_tap else self._others
        unfinished = sum((other.name == "tap") == is_tap for other in self._unfinished)
        if unfinished >= ACTIONS_AT_ONCE + ACTIONS_WAITING:
            self._say(
                Result(id=action.id, status="FAILED", message="too many actions wait", code=Code.TOO_MANY_ACTIONS)
            )
            return
        self._unfinished.append(action)
        self._nursery.start_soon(self._perform, action, limit)

    async def finished(self) -> None:
        """Waits for all actions but taps."""
        while any(action.name != "tap" for action in self._unfinished):
            await self._finished.wait()

    async def _perform(self, action: Action, limit: trio.CapacityLimiter) -> None:
        result = Result(id=action.id, status="FAILED", message=STOPPED, code=Code.STOPPING)
        try:
            async with limit:
                result = await self._actions.perform(action)
        finally:
            self._unfinished.remove(action)
            self._say(result)
            self._finished.set()


class Observing:
    """Sends `observed` after changes, on request, and every `heartbeat` seconds (at least LEAST_HEARTBEAT)."""

    def __init__(self, say: Callable[[Observed], None], heartbeat: float) -> None:
        self.heartbeat = max(heartbeat, LEAST_HEARTBEAT)
        self.stopping: State | None = None
        self._say = say
        self._signal = Signal()
        self._asked = False
        self._last: tuple[object, ...] | None = None
        self.latest: Observed | None = None
        self.supervision: Supervision | None = None
        """The status of the supervisor, if it sent one."""

    def changed(self) -> None:
        """Reports that something may have changed."""
        self._signal.set()

    def ask(self) -> None:
        """Requests one `observed` now."""
        self._asked = True
        self._signal.set()

    def heed(self, supervisor: Any) -> None:
        """Answers an `observe` of a supervisor, which may have its status."""
        self.supervision = Supervision.understood(supervisor) or self.supervision
        self.ask()

    async def run(self, look: Callable[[State | None], Awaitable[Observed]]) -> None:
        """Looks and sends for ever; `look` takes the state of a shipper that stops."""
        due = trio.current_time()
        while True:
            with trio.move_on_at(min(due, trio.current_time() + LOOK_SECONDS)):
                await self._signal.wait()
            began = trio.current_time()
            observed = self.latest = await look(self.stopping)
            rest = min(RESTS * (trio.current_time() - began), LONGEST_REST)
            essence = _essence(observed)
            if trio.current_time() >= due or self._asked or essence != self._last:
                self._asked, self._last = False, essence
                self._say(observed)
                due = trio.current_time() + self.heartbeat
                await trio.sleep(rest)
            else:
                await trio.sleep(max(QUIET_SECONDS, rest))


def _essence(observed: Observed) -> tuple[object, ...]:
    """Returns the fields whose change is sent at once; other figures wait for the heartbeat."""
    return (
        observed.state,
        observed.message,
        observed.revisions,
        tuple((unit.id, unit.state, unit.message, unit.code) for unit in observed.units),
        tuple((d.epoch, d.revision, tuple(d.outputs)) for d in observed.draining),
        observed.draining_left_out.revisions,
        tuple(observed.credentials_in_use),
        tuple(observed.credentials_wanted),
        tuple(observed.credentials_accepted),
        observed.queue.limit_bytes,
        observed.queue.events == 0,
        observed.dead_letters.events,
        tuple((edge.input, edge.name, edge.connected_seconds is None) for edge in observed.edges),
        tuple((one.output, one.host, one.reason, one.confirms) for one in observed.principals),
        observed.confirms,
        observed.lease_seconds and 1,  # whether a lease is needed, and whether it lapsed
    )


class _Lines:
    """Lines of standard input."""

    def __init__(self, stdin: Stdin) -> None:
        self._stdin = stdin
        self._splitter = LineSplitter(MAX_LINE_BYTES)
        self._ready: deque[Line] = deque()

    async def next(self) -> Line | None:
        """Returns the next line, or None at the end."""
        while not self._ready:
            try:
                data = await self._stdin.read()
            except OSError:
                data = b""
            if not data:
                return None
            self._ready.extend(self._splitter.feed(data))
        return self._ready.popleft()
