"""What a member remembers of its fleet, in its state directory, which another lock keeps to one process.

DIR/fleet.json           `Memory`: made durable before anything that depends on it
DIR/fleet.version.json   `Kept`: the newest version that was offered, with its secrets, as sealed as in the store;
                         with it a member follows rotations of its local secrets although the store is away
DIR/fleet.reserve        room for one more `Memory` on a full disk, so that a lease can be renewed and events leave

A copy of the directory has another inode, and begins as a new one, under an id of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace as replace_fields

from shipper.fleet.memory import FORMAT, Kept, Memory
from shipper.membership.ids import boot_id, new_id
from shipper.process.environment import REAL, Environment
from shipper.sdk.errors import OptionError, StateLocked
from shipper.supervise.durable import Reserve, content, replace

T = TypeVar("T", bound=msgspec.Struct)


class Home:
    """The files of one state directory."""

    def __init__(
        self, directory: Path, memory: Memory, kept: Kept | None, place: str, environment: Environment
    ) -> None:
        """Use `open`."""
        self.memory, self.kept = memory, kept
        self.place = place
        """Names the directory on this boot of the machine; no copy of it has the same. Devices get other numbers by a
        boot or a mount: it only proves that two directories are one, never that they are two."""
        self._directory = directory
        self._reserve = Reserve(directory / "fleet.reserve")
        self._in_thread = environment.in_thread

    @classmethod
    def open(
        cls, directory: Path, fleet: str, member: str, environment: Environment = REAL, *, boot: str | None = None
    ) -> Home:
        """Reads what the last process has left, and blocks for that; `boot` is by default the kernel's id.

        Raises StateLocked for a damaged file or one of a newer format, and OptionError if the directory has promised a
        fence under another name; nothing is changed then.
        """
        memory = _read(directory / "fleet.json", Memory)
        kept = _read(directory / "fleet.version.json", Kept)
        found = directory.stat()
        if memory is None or memory.inode not in (0, found.st_ino):
            memory, kept = _new(fleet, member), None
        if (memory.fleet, memory.member) != (fleet, member):
            if memory.fence and memory.state == "member":
                raise OptionError(
                    f"{directory} is the member {memory.member} of the fleet {memory.fleet}, which counts on that it "
                    "stops with its lease; run `shipper fleet leave` under that name first, or give another --state"
                )
            memory, kept = _new(fleet, member), None
        place = f"{boot_id() if boot is None else boot} {found.st_dev}:{found.st_ino}"
        return cls(directory, replace_fields(memory, inode=found.st_ino), kept, place, environment)

    async def save(self, memory: Memory) -> None:
        """Returns when it is durable; raises OSError, and keeps the old one then."""
        await self._in_thread(self._reserve.replace, self._directory / "fleet.json", msgspec.json.encode(memory))
        self.memory = memory

    async def keep(self, kept: Kept) -> None:
        """Returns when it is durable; raises OSError, and keeps the old one then."""
        await self._in_thread(lambda: replace(self._directory / "fleet.version.json", msgspec.json.encode(kept)))
        self.kept = kept


def _new(fleet: str, member: str) -> Memory:
    return Memory(fleet, member, new_id())


class _Versioned(msgspec.Struct):
    format: int


def _read(path: Path, type: type[T]) -> T | None:
    """Returns the content of a file; None if there is none."""
    try:
        raw = content(path)
        if (format := msgspec.json.decode(raw, type=_Versioned).format) > FORMAT:
            raise StateLocked(
                f"{path} has format {format}; this version knows formats up to {FORMAT}: run the version that wrote "
                "it, or give another --state"
            )
        return msgspec.json.decode(raw, type=type)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise StateLocked(f"{path} is damaged; restore it, or remove it to join the fleet anew") from None
