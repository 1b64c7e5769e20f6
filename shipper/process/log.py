"""The log: one ECS JSON object a line on standard error, text for people on a terminal.

`SHIPPER_LOG_FORMAT` overrides this with `json` or `text`. A supervisor sets it, so that both write in one format.

- Logging never blocks: a line is put into a queue, and a daemon thread writes it. A reader that stops costs lines,
  never time: at most 1,024 lines of at most 16 KiB wait; others are dropped, and their number is logged when there is
  room again. (A blocking write would let a full pipe stop the shipping of events.)
- All of standard error has this format: the `logging` module, warnings and uncaught exceptions of threads and
  destructors are routed here too. Of libraries, only warnings and errors are shown unless the level is `debug`.
- Where the descriptor is a stream of systemd's journal (`JOURNAL_STREAM`), each line begins with its level as the
  journal reads it, such as `<3>`; the journal takes that off (sd-daemon(3)).
- Callers pass no secrets; as a second safeguard, every text that was given to `hide` is replaced in every line,
  tracebacks included. Tracebacks never show values of variables.
- No logging library: structlog took 40 ms and 5 MB of each start.
- A plain keyword of a call is a field `shipper.<keyword>`; one with a dot (`**{"file.path": …}`) is a field of ECS.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

import orjson

from shipper import __version__
from shipper.sdk.errors import OptionError

FORMAT = "SHIPPER_LOG_FORMAT"
"""The variable that chooses `json` or `text`."""
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""The levels as syslog and the journal number them."""

_QUEUED_LINES = 1024
_LINE_BYTES = 16384
_KEPT_CHARACTERS = 2000
_SECRETS = 1000
_SHORTEST_SECRET = 4
_FLUSH_SECONDS = 1.0
_ECS = {"ecs.version": "8.17.0", "service.name": "shipper", "service.version": __version__}

Event = dict[str, Any]


# -- writing -----------------------------------------------------------------------------------------------------------


def is_journal(descriptor: int) -> bool:
    """Whether a descriptor is the stream to systemd's journal that the environment names."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def marked(text: bytes, level: str) -> bytes:
    """Returns the text with the level of each of its lines, as the journal reads it."""
    mark = b"<%d>" % _PRIORITIES[level]
    return b"\n".join(mark + line for line in text.split(b"\n"))


class Writer:
    """Writes lines to a file descriptor from a thread of its own; `write` never waits."""

    def __init__(self, descriptor: int, loss: Callable[[int], bytes]) -> None:
        """`loss` makes the line that reports the number of dropped lines."""
        self.dropped = 0
        self._descriptor, self._loss = descriptor, loss
        self._is_journal = is_journal(descriptor)
        # Not queue.Queue: its lock is not reentrant, and a destructor may log in the middle of a put.
        self._lines: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        self._started = False
        self._starting = threading.RLock()

    def write(self, line: bytes, level: str = "info") -> None:
        """Queues a line of a level, without its end; if too many wait, counts it as dropped."""
        if self._lines.qsize() >= _QUEUED_LINES:
            self.dropped += 1
            return
        self._start()
        self._lines.put(self._marked(line, level) + b"\n")

    def flush(self, seconds: float = _FLUSH_SECONDS) -> bool:
        """Waits at most `seconds` until every queued line is written; returns whether it is."""
        if not self._started:
            return True
        written = threading.Event()
        self._lines.put(written)
        return written.wait(seconds)

    def _marked(self, line: bytes, level: str) -> bytes:
        return marked(line, level) if self._is_journal else line

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="log", daemon=True).start()
                atexit.register(self.flush)

    def _run(self) -> None:
        told = 0
        while True:
            line = self._lines.get()
            with contextlib.suppress(OSError):  # a full disk, or a closed pipe: there is no other place to report it
                if isinstance(line, bytes):
                    _write_all(self._descriptor, line)
                if self.dropped > told and self._lines.empty():
                    loss = self._marked(self._loss(self.dropped - told), "warning")
                    _write_all(self._descriptor, loss + b"\n")
                    told = self.dropped
            if isinstance(line, threading.Event):
                line.set()


def _write_all(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another process that shares the pipe made it non-blocking
            time.sleep(0.01)


# -- the steps of an event ---------------------------------------------------------------------------------------------


class Logger:
    """The log of one module. Positional arguments are formatted into the message by `%`; `exc_info` is as in
    `logging`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, message: str, *args: object, **fields: Any) -> None:
        self._write("debug", message, args, fields)

    def info(self, message: str, *args: object, **fields: Any) -> None:
        self._write("info", message, args, fields)

    def warning(self, message: str, *args: object, **fields: Any) -> None:
        self._write("warning", message, args, fields)

    def error(self, message: str, *args: object, **fields: Any) -> None:
        self._write("error", message, args, fields)

    def critical(self, message: str, *args: object, **fields: Any) -> None:
        self._write("critical", message, args, fields)

    def _write(self, level: str, message: str, args: tuple[object, ...], fields: Event) -> None:
        if LEVELS[level] >= _log.level:
            if error := _exception(fields.pop("exc_info", None)):
                fields["error.type"] = type(error).__qualname__
                fields["error.message"] = str(error)
                fields["error.stack_trace"] = "".join(traceback.format_exception(error))
            event = {"event": message % args if args else message, "logger": self._name, **fields, "level": level}
            line = _log.render(event)
            _log.writer.write(line, level)
            if _log.follow is not None:
                pass_on(line if _log.render is as_json else as_json(event))


def _plain(value: Any, depth: int = 0) -> Any:
    """Returns the value in types of JSON, without the hidden texts."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, Mapping) and depth < 4:
        return {redacted(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < 4:
        return [_plain(item, depth + 1) for item in value]
    return redacted(value if isinstance(value, str) else str(value))


def redacted(text: str) -> str:
    """Returns the text without hidden texts, and encodable as UTF-8."""
    # The longest first, else the end of one that begins with another would stay.
    for secret in sorted(_log.secrets, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, "[hidden]")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()  # file names can hold surrogates


def redacted_beginning(text: str) -> str:
    """Returns a truncated text without hidden texts, and without a possible beginning of one at its end."""
    text = redacted(text)
    ends = (_where_it_may_begin(text, secret) for secret in tuple(_log.secrets))
    return text[: min(ends, default=len(text))]


def _where_it_may_begin(text: str, secret: str) -> int:
    """Returns where the text ends in the beginning of a secret, of 4 characters or more; otherwise its length."""
    head = secret[:_SHORTEST_SECRET]
    at = text.find(head, max(0, len(text) - len(secret) + 1))
    while at >= 0 and not secret.startswith(text[at:]):
        at = text.find(head, at + 1)
    return at if at >= 0 else len(text)


def _exception(given: Any) -> BaseException | None:
    if given is True:
        given = sys.exc_info()
    if isinstance(given, tuple):
        given = given[1]
    return given if isinstance(given, BaseException) else None


def printable(text: str) -> str:
    """Returns the text with a mark for every unprintable character, so that it cannot control a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def as_json(event: Event) -> bytes:
    """Returns the line of an event without hidden texts; its keys are `event` (the message), `level`, `logger` and
    fields."""
    event = _plain(event)
    head = {
        "@timestamp": _timestamp(),
        "log.level": event.pop("level"),
        "message": event.pop("event"),
        **_ECS,
        "log.logger": event.pop("logger", "shipper"),
    }
    fields = {key if "." in key else f"shipper.{key}": value for key, value in event.items()}
    line = orjson.dumps(head | fields)
    if len(line) > _LINE_BYTES:
        cut = {key: str(fields[key])[-_KEPT_CHARACTERS:] for key in fields if key.startswith("error.")}
        head["message"] = str(head["message"])[:_KEPT_CHARACTERS]
        line = orjson.dumps(head | cut | {"shipper.cut_bytes": len(line)})
    return line


def _loss(lines: int) -> bytes:
    message = "standard error was not read, log lines were dropped"
    return _log.render({"level": "warning", "event": message, "logger": __name__, "dropped": lines})


def _timestamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


_COLOURS = {"debug": "32", "info": "32", "warning": "33", "error": "31", "critical": "31"}


def _for_people(event: Event, *, colours: bool) -> bytes:
    def painted(code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if colours else text

    event = _plain(event)
    event.pop("logger", None)
    level, message = event.pop("level"), printable(event.pop("event"))
    trace = event.pop("error.stack_trace", "")
    head = f"{painted('2', time.strftime('%H:%M:%S'))} {painted(_COLOURS[level], f'{level:8}')} {painted('1', message)}"
    fields = [f"{painted('36', printable(key))}={printable(str(value))}" for key, value in sorted(event.items())]
    return "\n".join([" ".join((head, *fields)), *map(printable, trace.splitlines())]).encode(errors="replace")


# -- the one log of the process ----------------------------------------------------------------------------------------


class _Log:
    def __init__(self) -> None:
        self.level = LEVELS["info"]
        self.secrets: dict[str, None] = {}
        self.render: Callable[[Event], bytes] = as_json
        self.is_configured = False
        self.follow: Callable[[bytes], None] | None = None
        self.writer = Writer(2, _loss)


_log = _Log()


def configure(level: str = "info", format: str | None = None) -> None:
    """Sets up the log of this process: level, format, and the routing of libraries.

    Without a `format` the environment decides. Raises OptionError for an unknown format.
    """
    chosen = format or os.environ.get(FORMAT) or ("text" if os.isatty(2) else "json")
    if chosen not in ("json", "text"):
        raise OptionError(f"${FORMAT} is `{printable(chosen)}`; write json or text")
    _log.render = as_json if chosen == "json" else partial(_for_people, colours=coloured(2))
    _log.is_configured = True
    logging.raiseExceptions = False
    logging.getLogger().handlers[:] = [_FromLogging()]
    logging.captureWarnings(True)
    threading.excepthook = lambda args: _uncaught(args.exc_value, "a thread ended by an exception")
    sys.unraisablehook = lambda args: _uncaught(args.exc_value, "an exception that could not be raised")
    sys.excepthook = _ended
    set_level(level)


def is_json() -> bool:
    """Whether the log is configured, and each line of standard error is a JSON object."""
    return _log.is_configured and _log.render is as_json


def coloured(descriptor: int) -> bool:
    """Whether text for people has colours: on a terminal, unless NO_COLOR is set."""
    return os.isatty(descriptor) and not os.environ.get("NO_COLOR")


def set_level(level: str) -> None:
    """Changes the level; raises ValueError for an unknown one."""
    if level not in LEVELS:
        raise ValueError(f"log_level: one of {', '.join(LEVELS)} is expected")
    _log.level = LEVELS[level]
    logging.getLogger().setLevel(_log.level if level == "debug" else max(_log.level, logging.WARNING))


def get(name: str) -> Logger:
    """Returns the log of a module, by its name; it works before `configure` too."""
    return Logger(name)


def hide(secret: str) -> None:
    """Replaces this text, and each of its lines, by `[hidden]` in every later line of the log, also as JSON.

    Texts of less than 4 characters are ignored. The newest 1,000 are kept.
    """
    escaped = orjson.dumps(secret.encode("utf-8", "replace").decode())[1:-1].decode()
    for text in {secret, repr(secret)[1:-1], escaped, *secret.splitlines()}:
        if len(text) >= _SHORTEST_SECRET and not text.startswith("-----"):
            _log.secrets.pop(text, None)
            _log.secrets[text] = None
    while len(_log.secrets) > _SECRETS:
        del _log.secrets[next(iter(_log.secrets))]


@contextmanager
def followed(follow: Callable[[bytes], None]) -> Iterator[None]:
    """Gives each line of the log as JSON, whatever its format is, to `follow` too, while the block runs.

    It is called from any thread, and must neither block nor raise nor log.
    """
    _log.follow, former = follow, _log.follow
    try:
        yield
    finally:
        _log.follow = former


def is_followed() -> bool:
    """Whether lines that are written elsewhere are wanted."""
    return _log.follow is not None


def pass_on(line: bytes) -> None:
    """Gives a line that was written elsewhere, and is as one of `as_json`, to who follows the log."""
    if (follow := _log.follow) is not None:
        follow(line)


def flush(seconds: float = _FLUSH_SECONDS) -> bool:
    """Waits at most `seconds` until the log is written; returns whether it is. Runs at exit too."""
    return _log.writer.flush(seconds)


# -- from libraries ----------------------------------------------------------------------------------------------------


class _FromLogging(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for name, number in reversed(LEVELS.items()) if record.levelno >= number), "debug")
        try:
            message = record.getMessage()
        except Exception:  # a library's mistake in its arguments
            message = str(record.msg)
        getattr(get(record.name), level)("%s", message, exc_info=record.exc_info)


def _uncaught(error: BaseException | None, message: str) -> None:
    get(__name__).error(message, exc_info=error)


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    get(__name__).critical("the program ended by an exception", exc_info=error)
