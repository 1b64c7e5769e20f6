"""What a member remembers, in its state directory, which another lock keeps to one process.

    DIR/kubernetes.sealed    `Kept`: made durable before anything that depends on it

It is sealed by the keys of the vault, since it has contents of Secrets and the text of policies. A copy of the
directory has another inode, and begins as a new one under an id of its own; so does a directory whose member has got
another name or namespace. Both keep the contents that they may use: events that wait in the queue need them still.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from shipper.kubernetes.member.memory import FORMAT, Memory
from shipper.membership.ids import boot_id, new_id
from shipper.process.environment import REAL, Environment
from shipper.sdk.errors import OptionError, StateLocked
from shipper.supervise.vault import Vault

FILE = "kubernetes"


class Kept(msgspec.Struct, frozen=True):
    """The content of the file."""

    namespace: str
    member: str
    inode: int
    """Of the directory in which this was saved."""
    memory: Memory


class _Format(msgspec.Struct):
    format: int


class _Versioned(msgspec.Struct):
    memory: _Format


class Home:
    """The memory of one state directory."""

    def __init__(self, vault: Vault, kept: Kept, place: str, environment: Environment) -> None:
        """Use `open`."""
        self.place = place
        """Names the directory on this boot of the machine, without a slash; no copy of it has the same. It only proves
        that two directories are one, never that they are two."""
        self._vault, self._kept = vault, kept
        self._in_thread = environment.in_thread

    @property
    def memory(self) -> Memory:
        """What is durable."""
        return self._kept.memory

    @classmethod
    def open(
        cls,
        directory: Path,
        vault: Vault,
        namespace: str,
        member: str,
        environment: Environment = REAL,
        *,
        boot: str | None = None,
    ) -> Home:
        """Reads what the last process has left, and blocks for that; `boot` is by default the kernel's id.

        `vault` owns the directory, and was loaded. Raises StateLocked for a damaged file or one of a newer format, and
        OptionError if the directory has promised a fence under another name; nothing is changed then.
        """
        found = directory.stat()
        kept = _read(vault)
        if kept is None:
            memory = Memory(new_id())
        elif (kept.namespace, kept.member) != (namespace, member):
            if kept.memory.fence and not kept.memory.left:
                raise OptionError(
                    f"{directory} is the member {kept.member} of namespace {kept.namespace}, which counts on that it "
                    "stops with its lease; let it leave under that name first (`shipper fleet leave`), or give another "
                    "--state"
                )
            memory = _anew(kept.memory)
        else:
            memory = kept.memory if kept.inode == found.st_ino else _anew(kept.memory)
        place = f"{boot_id() if boot is None else boot}-{found.st_dev:x}-{found.st_ino:x}"
        return cls(vault, Kept(namespace, member, found.st_ino, memory), place, environment)

    async def save(self, memory: Memory) -> None:
        """Returns when it is durable; raises OSError, and keeps the old one then."""
        kept = replace(self._kept, memory=memory)
        await self._in_thread(self._vault.write, FILE, msgspec.json.encode(kept))
        self._kept = kept


def _anew(memory: Memory) -> Memory:
    """Returns the memory of another directory that has the same queue."""
    return Memory(new_id(), drawn=memory.drawn, contents=memory.contents, withdrawn=memory.withdrawn)


def _read(vault: Vault) -> Kept | None:
    """Returns the content of the file; None if there is none."""
    raw = vault.read(FILE)
    if raw is None:
        return None
    try:
        if (format := msgspec.json.decode(raw, type=_Versioned).memory.format) > FORMAT:
            raise StateLocked(
                f"the memory of Kubernetes has format {format}; this version knows formats up to {FORMAT}: run the "
                "version that wrote it, or give another --state"
            )
        return msgspec.json.decode(raw, type=Kept)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise StateLocked("the memory of Kubernetes is damaged; remove kubernetes.sealed to register anew") from None
