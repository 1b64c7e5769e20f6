"""What a server is made from, and where the result is kept: in the user's cache, under a name made of all that it is
made from. It is made once, by whoever comes first; tests only start what is there.

Standard library only: continuous integration makes all of them before there is a .venv.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import needs
from tests.backends.go import Unavailable

__all__ = ["COMMAND", "Recipe", "Unavailable"]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shipper-tests"
COMMAND = "python3 -m tests.backends"


@dataclass(frozen=True)
class Recipe:
    """How a server is made."""

    name: str
    needs: tuple[str, ...]
    """Of tests/needs.py."""
    parts: Callable[[], list[bytes]]
    """All that the result depends on; raises Unavailable."""
    make: Callable[[Path], None]
    """Makes a directory of that name, which is not there; raises Unavailable."""

    def place(self) -> Path:
        """Where the result is, or will be; raises Unavailable."""
        if missing := needs.absence(*self.needs):
            raise Unavailable(f"{self.name} {missing}")
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in self.parts())).hexdigest()
        return CACHE / f"{self.name}-{digest[:16]}"

    def made(self) -> Path:
        """The result; makes nothing; raises Unavailable."""
        place = self.place()
        if not place.is_dir():
            raise Unavailable(f"{self.name} is not made: run `{COMMAND}` once; it takes some minutes")
        return place

    def prepare(self) -> Path:
        """As `made`, and makes what is not there. Of several makers at a time one works and the others wait for it."""
        place = self.place()
        if place.is_dir():
            return place
        CACHE.mkdir(parents=True, exist_ok=True)
        with self._lock():
            if not place.is_dir():
                self._make(place)
        return place

    def say(self, text: str) -> None:
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (CACHE / f"{self.name}.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say("another maker is at work; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            for left in CACHE.glob(f"unfinished-{self.name}-*"):  # by a maker that was killed
                shutil.rmtree(left, ignore_errors=True)
            yield

    def _make(self, place: Path) -> None:
        prefix = f"unfinished-{self.name}-"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=CACHE, ignore_cleanup_errors=True) as scratch:
            self.say("is being made")
            made = Path(scratch) / "made"
            self.make(made)
            made.rename(place)
        self.say(f"made: {place}")
