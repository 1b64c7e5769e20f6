"""The disks that a power cut may make of what a process did to the files of one directory.

    disk = TornDisk()
    for step in steps[:k]:                # of `tests.journal`
        disk.do(step)
    disk.cut(random.Random(7))            # {name: content}: one of the disks that a cut before step k may leave

    for place, left in cuts(steps, {}, 100, random.Random(7)):
        lay_out(directory, left)          # to be opened, and compared with what others were told in steps[:place]

- Content is durable from the return of an fsync or fdatasync of its file; names (made, moved, removed) from that of an
  fsync of the directory. A file that was synced may be gone if its name was not.
- All else may be there or not, in any order: each sector of each write for itself, each size, each name.
- Where a size is there and its bytes are not, there are zeros, or what stood in the file that gave up its room last.

No file system is as bad as the worst of these disks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.journal import Change, Create, Rename, Resize, Step, Sync, Unlink, Write

SECTOR = 512


class TornDisk:
    """One directory: what is durable, and what was done since."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        """`files` are durable, and numbered in their order, from 0."""
        self._durable = _Files()
        self._durable.names = {name: number for number, name in enumerate(files or {})}
        self._durable.content = dict(enumerate((files or {}).values()))
        self._pending: list[Change] = []

    def do(self, step: Step) -> None:
        if isinstance(step, Change):
            self._pending.append(step)
        elif isinstance(step, Sync):
            synced = [change for change in self._pending if _file(change) == step.file]
            self._pending = [change for change in self._pending if _file(change) != step.file]
            self._durable.apply(synced)

    def cut(self, draw: random.Random) -> dict[str, bytes]:
        """The disk after a power cut now."""
        left = _Files()
        left.names, left.content = dict(self._durable.names), dict(self._durable.content)
        left.apply(list(_survivors(self._pending, draw)), fill=draw.choice((b"", self._durable.freed)))
        return left.by_name()

    def cut_with_removals(self) -> dict[str, bytes] | None:
        """The disk after a power cut now, if of the new names none came to it, and all else did.

        None if nothing is removed while a new name is not durable.
        """
        kept = [change for change in self._pending if not isinstance(change, Create | Rename)]
        if len(kept) == len(self._pending) or not any(isinstance(change, Unlink) for change in kept):
            return None
        left = _Files()
        left.names, left.content = dict(self._durable.names), dict(self._durable.content)
        left.apply(kept)
        return left.by_name()

    def sync(self) -> dict[str, bytes]:
        """Make all of it durable; this is the disk then."""
        self._durable.apply(self._pending)
        self._pending = []
        return self._durable.by_name()


def cuts(
    steps: list[Step], files: Mapping[str, bytes], count: int, draw: random.Random
) -> Iterator[tuple[int, dict[str, bytes]]]:
    """So many cuts of the power, first to last: before which step, and what is left.

    Only steps that change or sync something are such places, and the end: between two of them the disk stays the same,
    and the latest place is that where most was told.

    Beside those that are drawn there is one before each sync of the directory, where a removed file may have a
    successor without a name: these are few of some hundred places, and few of their disks have lost just that.
    """
    places = [place for place, step in enumerate(steps) if isinstance(step, Change | Sync)]
    chosen = Counter(draw.choices([*places, len(steps)], k=count))
    named = {place for place in places if steps[place] == Sync(None)}
    disk = TornDisk(files)
    done = 0
    for place in sorted(chosen.keys() | named):
        for step in steps[done:place]:
            disk.do(step)
        done = place
        for _ in range(chosen[place]):
            yield place, disk.cut(draw)
        if place in named and (left := disk.cut_with_removals()) is not None:
            yield place, left


def lay_out(directory: Path, files: Mapping[str, bytes]) -> None:
    """Let a directory hold just these files."""
    for path in directory.iterdir():
        path.unlink()
    for name, content in files.items():
        with (directory / name).open("wb") as file:
            file.truncate(len(content))
            if content != bytes(len(content)):
                file.write(content)


class _Files:
    """Names and contents, by the numbers of files."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.content: dict[int, bytes] = {}
        self.freed = b""
        """What was cut off or removed last."""

    def by_name(self) -> dict[str, bytes]:
        return {name: self.content.get(number, b"") for name, number in self.names.items()}

    def apply(self, changes: Iterable[Change], fill: bytes = b"") -> None:
        """Make changes; `fill` stands where a file grew without being written."""
        images: dict[int, bytearray] = {}
        for change in changes:
            if isinstance(change, Write | Resize):
                if change.file not in images:
                    images[change.file] = bytearray(self.content.get(change.file, b""))
                self._change_content(change, images[change.file], fill)
            else:
                self._change_names(change)
        self.content.update({file: bytes(image) for file, image in images.items()})

    def _change_content(self, change: Write | Resize, image: bytearray, fill: bytes) -> None:
        if isinstance(change, Resize):
            if change.size < len(image):
                self.freed = bytes(image)
            del image[change.size :]
            _grow(image, change.size, fill)
        else:
            end = change.at + len(change.content)
            _grow(image, end, fill)
            image[change.at : end] = change.content

    def _change_names(self, change: Create | Rename | Unlink) -> None:
        gone = self.names.pop(change.name, None)
        match change:
            case Create(name, file):
                self.names[name] = file
            case Rename(_, to, file):
                self.names[to] = file
            case Unlink(_) if gone is not None:
                self.freed = self.content.get(gone, b"")


def _grow(image: bytearray, size: int, fill: bytes) -> None:
    if size > len(image):
        image += fill[len(image) : size].ljust(size - len(image), b"\0")


def _file(change: Change) -> int | None:
    return change.file if isinstance(change, Write | Resize) else None


def _survivors(pending: list[Change], draw: random.Random) -> Iterator[Change]:
    """What came to the disk: all up to some place, which is torn; or each change with some chance, torn or whole."""
    in_order, torn = draw.random() < 0.3, draw.random() < 0.6
    upto = draw.randint(0, len(pending))
    share = draw.choice((0.1, 0.5, 0.9, 1.0))
    for number, change in enumerate(pending):
        if in_order and number != upto:
            if number < upto:
                yield change
        elif isinstance(change, Write) and (torn or in_order):
            yield from (piece for piece in _pieces(change) if draw.random() < share)
        elif draw.random() < share:
            yield change


def _pieces(write: Write) -> Iterator[Write]:
    """Its size, and each of its sectors."""
    end = write.at + len(write.content)
    yield Write(write.file, end, b"")
    for at in range(write.at - write.at % SECTOR, end, SECTOR):
        low, high = max(at, write.at), min(at + SECTOR, end)
        yield Write(write.file, low, write.content[low - write.at : high - write.at])
