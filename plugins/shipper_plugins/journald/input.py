"""The `journald` input: follows the journal of systemd.

    {type: journald}
    {type: journald, units: [nginx.service, "app@*.service"], priority: info, from: end}
    {type: journald, matches: [_TRANSPORT=kernel]}

The journal is read by `journalctl`, which knows every version and compression of its files; so it must be installed,
and the shipper's user a member of the group `systemd-journal`, or it sees its own entries only. What becomes of the
fields is told in `journald.fields`.

The position is the cursor of the last entry, stored with the events: after a restart or a crash it goes on behind it,
and after a reboot, with what earlier boots have left. journalctl begins at that entry, or at the next one if it is
gone, and the entry is left out here: an older journalctl leaves out the first one behind a cursor, whichever it is.
While entries keep coming they are read in turns (`pace`), and wait in the pipe; without room journalctl waits. Entries
that the journal removed before they were read (`SystemMaxUse`) are lost, and journald alone knows of it.

If journalctl ends, the input is DEGRADED, and starts it again after a while.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Literal

import msgspec
import trio

from shipper.plugin import (
    BadOption,
    Batch,
    Code,
    Input,
    InputContext,
    Source,
    StartFailed,
    backoff,
)
from shipper_plugins.journald import block
from shipper_plugins.journald.block import Cut, cut
from shipper_plugins.journald.export import Entry, Exported
from shipper_plugins.journald.pace import Pace

_CURSOR = "cursor"
_PIPE = 1 << 20
"""Bytes between journalctl and this process: so many are a batch, at most."""
_IN_THREAD = 32 << 10
"""Bytes of entries that are read in a thread, since they take more than a millisecond."""
_RETRY_SECONDS = (1.0, 30.0)
_SOUND = 5.0
"""Seconds without an entry after which journalctl is believed to run well."""
_LAST_SECONDS = 60.0
"""For journalctl to tell where the journal ends, which is one entry."""
_LONGEST_WORDS = 200
_MATCH = re.compile(r"[A-Z_][A-Z0-9_]{0,63}=[^\0\n]*", re.DOTALL)
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024, pattern=r"^[^\x00]*$")]
_Priority = Literal["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"]


class JournaldInput(Input, frozen=True, kw_only=True):
    """Follows the journal of systemd."""

    rereads: ClassVar[bool] = True
    ending: ClassVar[Mapping[str, bool | int | str]] = {"stop_at_end": True}

    units: tuple[_Text, ...] = ()
    """Units, or patterns of them (`app@*.service`), whose entries are read, with those that systemd logs of them
    (default: all entries)."""
    identifiers: tuple[_Text, ...] = ()
    """Values of `SYSLOG_IDENTIFIER`, such as `sudo`."""
    priority: _Priority | None = None
    """The least important entries to read; with `warning` those of `emerg` to `warning`."""
    matches: tuple[_Text, ...] = ()
    """Matches of fields, such as `_TRANSPORT=kernel`. Of several with one field one must hold, and those of each
    field."""
    namespace: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:+*-]+$", max_length=255)] | None = None
    """A namespace of the journal; `*` is all of them, `+NAME` one and the default one (default: the default one)."""
    directory: _Text | None = None
    """An absolute path of a directory with journal files, for example of other hosts (default: those of this host)."""
    from_: Literal["beginning", "end"] = msgspec.field(default="beginning", name="from")
    """Where to begin if the input reads the journal for the first time."""
    stop_at_end: bool = False
    """Stop at the end of the journal, for one-shot use."""

    def __post_init__(self) -> None:
        for number, match in enumerate(self.matches):
            if not _MATCH.fullmatch(match):
                raise BadOption("a match is a field and its value, such as _TRANSPORT=kernel", "matches", number)
        if self.directory is not None and not self.directory.startswith("/"):
            raise BadOption("not an absolute path, such as /var/log/journal/remote", "directory")
        if self.directory is not None and self.namespace is not None:
            raise BadOption("the files of a directory have no namespace: leave one of them out", "namespace")

    def arguments(self, cursor: str) -> list[str]:
        """Returns what journalctl is to read from a cursor on (empty: everything)."""
        begin = [f"--cursor={cursor}"] if cursor else []
        following = [] if self.stop_at_end else ["--follow", "--no-tail", "--boot=all"]
        return ["--output=export", "--all", "--quiet", "--no-pager", *following, *begin, *self._chosen()]

    def last(self) -> list[str]:
        """Returns how journalctl tells the last of the entries to read."""
        of_one = ["--output-fields=_BOOT_ID", "--lines=1"]
        return ["--output=export", *of_one, "--quiet", "--no-pager", *self._chosen()]

    def _chosen(self) -> list[str]:
        of_place = [f"--directory={self.directory}"] if self.directory else []
        of_place += [f"--namespace={self.namespace}"] if self.namespace else []
        chosen = [f"--unit={unit}" for unit in self.units] + [f"--identifier={one}" for one in self.identifiers]
        chosen += [f"--priority={self.priority}"] if self.priority else []
        return [*of_place, *chosen, *self.matches]

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        """Finds journalctl; StartFailed if it is not installed."""
        program = await trio.to_thread.run_sync(shutil.which, "journalctl")
        if program is None:
            raise StartFailed("journalctl is not installed: install systemd, or remove this input")
        yield _Journal(self, program, context)


class _Journal(Source):
    """A source of entries."""

    def __init__(self, settings: JournaldInput, program: str, context: InputContext) -> None:
        self._settings, self._program, self._context = settings, program, context
        self._dataset = settings.data_stream.dataset

    async def run(self) -> None:
        """See `Source.run`."""
        waits = backoff(*_RETRY_SECONDS)
        while True:
            problem, was_sound = await self._begin(), False
            if problem is None:
                problem, was_sound = await self._follow()
            if problem is None and self._settings.stop_at_end:
                return
            self._context.report(problem or "journalctl has ended", code=Code.FILE_UNREADABLE)
            waits = backoff(*_RETRY_SECONDS) if was_sound else waits
            await trio.sleep(next(waits))

    async def _begin(self) -> str | None:
        """Stores where the journal ends now, if reading begins there; returns why it cannot."""
        if self._settings.from_ == "beginning" or await self._context.position(_CURSOR) is not None:
            return None
        command = [self._program, *self._settings.last()]
        with trio.move_on_after(_LAST_SECONDS) as waiting:
            told = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        if waiting.cancelled_caught:
            return f"journalctl does not tell where the journal ends within {_LAST_SECONDS:g}s"
        if told.returncode:
            return _ended(told.returncode, told.stderr)
        await self._context.emit(positions={_CURSOR: _cursor(Exported(cut).feed(told.stdout))})
        return None

    async def _follow(self) -> tuple[str | None, bool]:
        """Runs journalctl to its end; returns why it ended, None if all is read, and whether it ran well before."""
        cursor = (await self._context.position(_CURSOR) or b"").decode()
        command = [self._program, *self._settings.arguments(cursor)]
        words = bytearray()
        async with trio.open_nursery() as nursery:
            run = partial(trio.run_process, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            process: trio.Process = await nursery.start(run)
            assert process.stdout is not None
            assert process.stderr is not None
            nursery.start_soon(_listen, process.stderr, words)
            async with process.stdout:
                was_sound = await self._take_all(process.stdout, cursor)
        return _ended(process.returncode, words) if process.returncode else None, was_sound

    async def _take_all(self, pipe: trio.abc.ReceiveStream, cursor: str) -> bool:
        """Stores all entries behind a cursor; returns whether there was one, or nothing happened for a while."""
        with suppress(OSError, AttributeError):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)  # type: ignore[attr-defined]
        unread, was_sound, most = _Unread(cursor.encode()), False, max(4096, min(_PIPE, self._context.chunk_bytes))
        pace = Pace()
        while True:
            if not self._settings.stop_at_end and (left := pace.left(trio.current_time())):
                await trio.sleep(left)
            chunk: bytes | None = None
            with trio.move_on_after(float("inf") if was_sound else _SOUND):
                chunk = bytes(await pipe.receive_some(most))
            if chunk == b"":
                return was_sound
            if not was_sound:
                was_sound = True
                self._context.report(None)
            if chunk:
                pace.count(trio.current_time(), len(chunk))
                await self._store(await _batch_of(unread, chunk, self._dataset))

    async def _store(self, made: tuple[Batch, bytes] | None) -> None:
        if made is not None:
            batch, cursor = made
            await self._context.emit(batch, positions={_CURSOR: cursor})


@dataclass(slots=True)
class _Unread:
    """Entries behind a cursor, out of bytes that may begin with its entry."""

    _cursor: bytes
    """Empty once an entry has come."""
    _exported: Exported = field(default_factory=lambda: Exported(cut))

    @property
    def held(self) -> int:
        return self._exported.held

    def feed(self, chunk: bytes) -> list[Cut | Entry]:
        """Returns the entries that are complete now."""
        entries: list[Cut | Entry] = self._exported.feed(chunk)
        if entries and self._cursor:
            is_stored = block.cursor(entries[0]) == self._cursor
            self._cursor = b""
            return entries[1:] if is_stored else entries
        return entries


async def _batch_of(unread: _Unread, chunk: bytes, dataset: str) -> tuple[Batch, bytes] | None:
    make = partial(_batch, unread, chunk, dataset)
    return await trio.to_thread.run_sync(make) if unread.held + len(chunk) > _IN_THREAD else make()


def _batch(unread: _Unread, chunk: bytes, dataset: str) -> tuple[Batch, bytes] | None:
    """Returns the events of the entries that this chunk completes, and the cursor of the last one."""
    entries = unread.feed(chunk)
    if not entries:
        return None
    return block.batch(entries, dataset), _cursor(entries)


def _cursor(entries: Sequence[Cut | Entry]) -> bytes:
    return block.cursor(entries[-1]) if entries else b""


async def _listen(pipe: trio.abc.ReceiveStream, words: bytearray) -> None:
    """Keeps the beginning of what journalctl says of an error."""
    async with pipe:
        async for chunk in pipe:
            words += chunk[: max(0, _LONGEST_WORDS - len(words))]


def _ended(status: int | None, words: bytes | bytearray) -> str:
    text = " ".join(bytes(words[:_LONGEST_WORDS]).decode(errors="replace").split())
    return f"journalctl ended with status {status}{f': {text}' if text and text.isprintable() else ''}"
