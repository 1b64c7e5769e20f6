"""Draws a shipper on a terminal: the whole screen, again after each look and each key.

The looks run in a thread, so that keys act while a shipper does not answer. Whatever ends the program, a bug too, the
terminal is as it was before.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from shipper.commands.top.drawing import lines
from shipper.commands.top.looking import Look, Looking
from shipper.status.words import span

_ENTER, _LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
_PLAIN_WIDTH = 120
_STALE = 3
"""Looks that are due and did not come, after which the screen says how old it is."""
_KEYS = {
    **dict.fromkeys((b"\033[A", b"\033OA", b"k"), "up"),
    **dict.fromkeys((b"\033[B", b"\033OB", b"j", b"\n", b"\r"), "down"),
    **dict.fromkeys((b"\033[5~", b"b"), "page up"),
    **dict.fromkeys((b"\033[6~", b" "), "page down"),
    **dict.fromkeys((b"\033[H", b"\033OH", b"\033[1~", b"g"), "top"),
    **dict.fromkeys((b"q", b"Q", b"\x04"), "quit"),
}
_KEY = re.compile(rb"\033\[[0-9;]*[@-~]|\033O.|.", re.DOTALL)


def draw_once(looking: Looking, every: float) -> int:
    """Prints one picture, with the rates of a moment; returns the exit status."""
    looking.look()
    time.sleep(max(1.0, every))  # rates are over a second at least
    look = looking.look()
    stream = sys.stdout if sys.stdout is not None else open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    console = Console(file=stream, width=None if stream.isatty() else _PLAIN_WIDTH)
    for line in lines(look.view, console.width, look.fleet):
        console.print(line, soft_wrap=True)
    return looking.status


def follow(looking: Looking, every: float) -> int:
    """Draws until a key or a signal ends it; returns the exit status of the last look."""
    first = looking.look()
    with _wakeups() as (wake, woken), _Screen(wake) as screen, _Looks(looking, every, first, wake) as looks:
        with contextlib.suppress(KeyboardInterrupt):
            while looks.error is None:
                screen.draw(looks.latest, looks.age if looks.age > _STALE * max(1.0, every) else None)
                ready, _, _ = select.select([0, woken], [], [], 1.0)
                if woken in ready:
                    os.read(woken, 4096)
                    screen.suspend_if_asked()
                if 0 in ready and not screen.heed(os.read(0, 64)):
                    break
        if looks.error is not None:
            raise looks.error
    return looking.status


@contextlib.contextmanager
def _wakeups() -> Iterator[tuple[int, int]]:
    """Yields the ends of a pipe into which looks and signals write."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    try:
        yield wake, woken
    finally:
        os.close(wake)
        os.close(woken)


class _Looks:
    """Looks again and again in a thread, which ends with the process if the shipper does not answer it."""

    def __init__(self, looking: Looking, every: float, first: Look, wake: int) -> None:
        self.latest, self.error = first, None
        self._looking, self._every, self._wake = looking, every, wake
        self._at, self._ended = time.monotonic(), threading.Event()

    error: Exception | None
    """Why there will be no further look."""

    @property
    def age(self) -> float:
        """Seconds since the last look."""
        return time.monotonic() - self._at

    def __enter__(self) -> _Looks:
        threading.Thread(target=self._run, name="looks", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._every) and self.error is None:
            try:
                self.latest = self._looking.look()
                self._at = time.monotonic()
            except Exception as error:
                self.error = error
            with contextlib.suppress(OSError):  # closed, at the end
                os.write(self._wake, b".")


@dataclass(slots=True)
class _Place:
    """Where the screen stands in the lines."""

    top: int = 0
    page: int = 1
    count: int = 0

    def move(self, key: str) -> None:
        by = {"up": -1, "down": 1, "page up": -self.page, "page down": self.page, "top": -self.count}.get(key, 0)
        self.top = max(0, min(self.top + by, self.count - self.page))


class _Screen:
    """The terminal while it is ours: keys come one by one, the cursor is hidden, what was on it comes back."""

    def __init__(self, wake: int) -> None:
        self._console = Console(file=sys.stdout)
        self._place = _Place()
        self._before = termios.tcgetattr(0)
        self._wake, self._is_stopped = wake, False
        self._signals = {signal.SIGWINCH: self._woken, signal.SIGTSTP: self._stopped, signal.SIGTERM: _terminated}

    def __enter__(self) -> _Screen:
        self._handlers = {number: signal.signal(number, handler) for number, handler in self._signals.items()}
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _enter(self) -> None:
        tty.setcbreak(0)
        self._write(_ENTER)

    def _leave(self) -> None:
        self._write(_LEAVE)
        termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def _woken(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b".")  # not to draw in the middle of drawing

    def _stopped(self, number: int, frame: FrameType | None) -> None:
        self._is_stopped = True
        self._woken(number, frame)

    def suspend_if_asked(self) -> None:
        """Gives the terminal back while a shell has stopped this program by Ctrl-Z."""
        if self._is_stopped:
            self._is_stopped = False
            self._leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._enter()

    def heed(self, raw: bytes) -> bool:
        """Moves the screen as keys say; returns whether to go on, which ends with the terminal."""
        keys = [_KEYS.get(key, "") for key in _KEY.findall(raw)]
        for key in keys:
            self._place.move(key)
        return bool(raw) and "quit" not in keys

    def draw(self, look: Look, age: float | None) -> None:
        """Draws the lines that fit, from the place of the screen on; with its age, if it is an old look."""
        width, height = _size()
        found, place = lines(look.view, width, look.fleet), self._place
        place.count, place.page = len(found), max(1, height - 1)
        place.move("")
        shown = _fitting(found[place.top :], width, height - 1)
        place.page = max(1, len(shown))
        foot = _foot(place, age)
        rows = sum(_rows(line, width) for line in shown)
        parts = [f"\033[K{self._rendered(line, width)}\r\n" for line in shown]
        parts += ["\033[K\r\n"] * (height - 1 - rows)
        self._write("".join(["\033[H", *parts, "\033[K", self._rendered(_one_row(foot, width - 1), width)]))

    def _rendered(self, line: Text, width: int) -> str:
        """Returns a line for the terminal; the last row of one that it wraps is filled, since it is not cleared."""
        if (rows := _rows(line, width)) > 1:
            line = line.copy()
            line.pad_right(rows * width - cell_len(line.plain))
        with self._console.capture() as captured:
            self._console.print(line, soft_wrap=True, end="")
        return captured.get()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _size() -> tuple[int, int]:
    """Returns the columns and rows of the terminal now; a shell that exports COLUMNS and LINES keeps its first size."""
    columns, rows = os.get_terminal_size(0)
    return columns or 80, rows or 24


def _rows(line: Text, width: int) -> int:
    return max(1, -(-cell_len(line.plain) // max(1, width)))


def _fitting(found: Sequence[Text], width: int, height: int) -> list[Text]:
    """Returns the first lines, as many as so many rows show."""
    shown: list[Text] = []
    for line in found:
        height -= _rows(line, width)
        if height < 0:
            break
        shown.append(line)
    return shown


def _foot(place: _Place, age: float | None) -> Text:
    last = place.top + place.page
    where = f"lines {place.top + 1}–{min(last, place.count)} of {place.count}, " if place.page < place.count else ""
    foot = Text(f"{where}↑↓ scroll, q ends", "dim")
    return foot if age is None else Text.assemble((f"no answer for {span(age)}; ", "bold yellow"), foot)


def _one_row(line: Text, width: int) -> Text:
    line.truncate(max(1, width), overflow="ellipsis")
    return line


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
