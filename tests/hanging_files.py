"""File systems whose calls do not come back: a fake between the shipper and the calls of `os`.

It knows who calls, too: what may hang has no business in the thread of the event loop. To the shipper it is no local
file system, of which an open file's inode is in memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from shipper.sdk.inotify import Inotify
from shipper_plugins.tail import content

CALLS = ("open", "stat", "lstat", "fstat", "pread", "close", "listdir", "scandir", "readlink", "unlink", "chmod")
CALLS += ("add_watch", "statfs")
_SECONDS = 60


class Hanging:
    """Calls about a directory, and what is in it, while the block runs."""

    def __init__(self, directory: Path, hang: frozenset[str]) -> None:
        self.under_way = 0
        """Calls that hang."""
        self.most = 0
        self.in_the_loop: list[str] = []
        """Calls in the thread that made this."""
        self.hang = hang
        self._directory = str(directory)
        self._loop = threading.get_ident()
        self._go_on = threading.Event()
        self._lock = threading.Lock()

    def go_on(self) -> None:
        """From now on each call comes back."""
        self._go_on.set()

    def called(self, name: str, about: object) -> None:
        """Before the call itself."""
        if not self._concerns(about):
            return
        if threading.get_ident() == self._loop:
            self.in_the_loop.append(name)
        elif name in self.hang:
            with self._lock:
                self.under_way += 1
                self.most = max(self.most, self.under_way)
            self._go_on.wait(_SECONDS)
            with self._lock:
                self.under_way -= 1

    def _concerns(self, about: object) -> bool:
        if isinstance(about, int):
            try:
                about = _readlink(f"/proc/self/fd/{about}")
            except OSError:
                return False
        return str(about).startswith(self._directory)


_readlink = os.readlink


@contextmanager
def hanging(directory: Path, *calls: str) -> Iterator[Hanging]:
    """Within the block, these calls about a directory and what is in it hang, until `go_on` or the end of the block."""
    fake = Hanging(directory, frozenset(calls))
    of_inotify = {
        "add": _slowed(fake, "add_watch", Inotify.add, argument=1),
        "hears_all": _slowed(fake, "statfs", Inotify.hears_all, argument=1),
    }
    of_os = {name: _slowed(fake, name, getattr(os, name)) for name in CALLS if name not in ("add_watch", "statfs")}
    is_local = _slowed(fake, "statfs", lambda file: False)
    with (
        mock.patch.multiple(os, **of_os),
        mock.patch.multiple(Inotify, **of_inotify),
        mock.patch.object(content, "is_local", is_local),
    ):
        try:
            yield fake
        finally:
            fake.go_on()


def _slowed(fake: Hanging, name: str, call: Callable[..., Any], argument: int = 0) -> Callable[..., Any]:
    def slowed(*args: Any, **options: Any) -> Any:
        fake.called(name, args[argument] if len(args) > argument else ".")
        return call(*args, **options)

    return slowed
