"""What an input is, what the shipper offers to it, and what it opens: a source."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from shipper.sdk import hooks
from shipper.sdk.aio import Asyncio
from shipper.sdk.codes import Code
from shipper.sdk.credentials import Credential
from shipper.sdk.endpoints import Endpoint
from shipper.sdk.errors import NotOrdered
from shipper.sdk.event import Batch
from shipper.sdk.forms import Form
from shipper.sdk.meters import Meters
from shipper.sdk.peers import Edge
from shipper.sdk.settings import Settings
from shipper.sdk.state import Change, Kept, Mark, Quota, Version

_LONGEST_PART = 100
_Type = Annotated[
    str,  # `$` alone would let a line feed behind it pass
    msgspec.Meta(pattern=r"^[a-z]+(?!\n)$", max_length=_LONGEST_PART, description="small letters, such as logs"),
]
_Part = Annotated[
    str,
    msgspec.Meta(
        pattern=r'^[^-A-Z\\/*?"<>| ,#:\x00-\x1f\x7f]+(?!\n)$',
        max_length=_LONGEST_PART,
        description='a text without capital letters, spaces, control characters and any of - \\ / * ? " < > | , # :',
    ),
]


class DataStream(Settings, frozen=True):
    """The data stream of events: `type-dataset-namespace`."""

    type: _Type = "logs"
    dataset: _Part = "generic"
    namespace: _Part = "default"


class InputContext(Protocol):
    """What the shipper offers to one input."""

    name: str
    aio: Asyncio
    credentials: Mapping[str, Credential]
    """By id, the secrets that the settings refer to, without withdrawn ones."""
    meters: Meters
    """The input's own counters, by names of its own; shown in `observed` and in the metrics, kept over revisions."""

    async def emit(
        self,
        *batches: Batch,
        positions: Mapping[str, bytes | None] | None = None,
        wait: bool = True,
        expect: Mapping[str, bytes | None] | None = None,
        awaited: Sequence[str | None] = (),
        forgotten: Collection[str] = (),
    ) -> None:
        """Stores batches and the input's new positions in one transaction; returns when both are durable.

        An input may acknowledge its peer when this returns. Where a stage holds events, it returns after they are
        stored (unless `Input.rereads`). Without room, or on a full disk, it waits; with `wait=False` it raises
        Backpressure at once. If it raises, nothing is stored. If it is cancelled, either everything is stored or
        nothing. Raises PluginFault for an invalid batch: text that is not UTF-8, a missing last line feed.

        `positions` are merged into the stored ones; None removes one. They are stored in the clear: never put the text
        of an event there.

        `expect` has the positions, by key, that must be stored now (None: no such position); otherwise it raises
        Outdated. The same transaction checks them, so no other writer of this input's positions, such as the source of
        a newer revision, comes in between.

        `awaited` has a key for each batch, or None: the final answers of a batch with a key are kept, see `answers`.
        The input must declare `Input.awaits`. `forgotten` are keys whose answers this transaction removes.

        Events get what they lack: `@timestamp` (from `Batch.timestamps`, else now), `host` and `agent` (unless
        `Input.forwards`), and `data_stream` from `Input.data_stream` (unless `Batch.route` is given).
        """
        ...

    async def keep(
        self,
        changes: Sequence[Change],
        positions: Mapping[str, bytes | None] | None = None,
        expect: Mapping[str, bytes | None] | None = None,
        *,
        wait: bool = True,
        quota: Quota | None = None,
        awaited: bool = False,
    ) -> tuple[Kept, ...]:
        """Stores new versions of keys (see `shipper.sdk.state`) and the input's new positions in one transaction.

        Returns one answer for each change, in order; several changes may concern one key. An own key whose document is
        unchanged gets no new version; deleting an absent key does nothing. For a change with a place, the place
        decides: see `Kept`. State does not wait for room in the queue, where each key has at most one version for a
        destination; so the input must limit the number and size of its keys. A change beyond the `quota` is not stored,
        and its answer says so. On a full disk, `wait` has its meaning of `emit`.

        With `awaited`, the final answers of these versions are kept, by `answers_key`, until their keys have newer
        versions: see `answers`. `Kept` says whether some are missing. A repeated version keeps its answers; if they are
        lost, it is sent again. The input must declare `Input.awaits`.

        `expect` is as in `emit`. Raises PluginFault for an invalid change, such as a document that is not compact, and
        for more than 10,000 changes. The input must declare `Input.gives_state`.
        """
        ...

    async def marks(self, owner: str) -> list[Mark]:
        """Returns the keys of an owner and of all owners below it (`owner/…`), with deleted ones."""
        ...

    async def versions(self, keys: Sequence[tuple[str, int]]) -> list[Version]:
        """Returns the current versions of keys, by owner and point (see `Mark`), without absent and deleted ones."""
        ...

    async def documents(self, keys: Sequence[tuple[str, int]], most: int) -> tuple[list[tuple[Version, bytes]], int]:
        """Returns current versions with their documents, and how many of the given keys they cover.

        The documents together have at most `most` bytes; the first one may be larger.
        """
        ...

    def complete(self, is_complete: bool) -> None:
        """Declares whether the input has kept every existing key since its start; for an input that `is_source`."""
        ...

    async def answers(self, keys: Collection[str]) -> Mapping[str, bytes | None]:
        """Returns the final answers of awaited batches, by key: one byte (a `Ranked`) for each event, in order; for a
        version (see `keep`) one byte.

        With several outputs, it is the worst of their answers; an event that a processor dropped counts as delivered.
        None: some output has not answered for all events yet. An absent key is unknown: it was forgotten, or damage
        lost its answers; emit the batch again to get them. Answers are kept over restarts, until an `emit` names them
        in `forgotten`.

        `Source.answered` is called when batches have all their answers.
        """
        ...

    @property
    def delivers(self) -> bool:
        """Whether every output's final answer comes from the end of the way, as far as is known now; from any thread.

        False where an output relays to another shipper that answers when it has stored the events.
        """
        ...

    @property
    def is_held(self) -> bool:
        """Whether stages may hold events for a while, so that `emit` returns late.

        Then have several emits under way; they are stored in order.
        """
        ...

    @property
    def chunk_bytes(self) -> int:
        """The most bytes of text to read and emit at once; small for a small queue."""
        ...

    def no_room(self, size: int = 0) -> str | None:
        """Returns why an `emit` with `wait=False` would raise Backpressure now, in words for any peer; None: it would
        not.

        It is one of `size` bytes, at least `chunk_bytes`; of more than half the queue, half the queue counts.
        """
        ...

    async def positions(self, prefix: str = "") -> dict[str, bytes]:
        """Returns the positions of this input (of its name and type) whose keys begin with `prefix`.

        These are the stored ones; for an input that `rereads` also those of events that a stage holds. Call it in
        `Source.run`, not before.
        """
        ...

    async def position(self, key: str) -> bytes | None:
        """Returns one of the `positions`, without loading the others; None if it does not exist."""
        ...

    def report(self, problem: str | None, *, code: str = Code.INPUT_DEGRADED) -> None:
        """Shows a problem of the input (DEGRADED), or its end (None: HEALTHY).

        `code` is for programs: one of Code, or the plugin's own; raises ValueError for an invalid one.
        """
        ...

    def turned_away(self, peers: int) -> None:
        """Counts connections, for a metric, that were closed for lack of room before they sent anything."""
        ...

    async def listen(
        self, endpoint: Endpoint, *, mode: int | None = None, receive_buffer: int | None = None
    ) -> socket.socket:
        """Returns the non-blocking socket of this endpoint, bound, and listening if it is a stream. Never close it.

        The socket belongs to the process: it stays open while inputs of several revisions take turns on it. When no
        input has it, it is closed and its file removed. Resolving a name, or a slow file system, delays this input
        only, and for some seconds at most. Port 0 means any free port, the same one for each call with the same name.
        `mode` is that of the socket's file (default: 0o600), `receive_buffer` the kernel's buffer in bytes; an open
        socket takes those of the last call. Raises StartFailed.
        """
        ...


class Source:
    """A running input, yielded by `Input.open`. Its class defines `run`, and the other methods if it needs them."""

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, Source)

    async def run(self) -> None:
        """Reads and emits until cancelled; called once, when the revision is active. A return means the end of the
        input."""
        raise NotImplementedError

    def change(self, settings: Any, credentials: Mapping[str, Credential]) -> None:
        """Uses new settings of an input with the same `identity`, from the instant of the cut on.

        Also called when a credential is withdrawn (with the remaining ones), and when it is back. If it raises, the
        source is closed, and the input opened again after a while.
        """

    async def changed(self) -> None:
        """Returns when nothing uses the settings before the last `change` any more: the credentials that only they
        named are released then. Several calls may be under way."""

    def figures(self) -> Mapping[str, int]:
        """Returns figures for the status and the metrics; cheap, called often.

        Now: `files` that it follows, their `unread_bytes`, open `connections`. Since it was opened: `lost_files`,
        `lost_datagrams`, `refused_peers`.
        """
        return {}

    async def quiesce(self) -> None:
        """Stops reading, and returns when everything that was read is emitted; for peers that send nothing again, such
        as datagrams.

        Called once, before a cut that ends the input and before the process stops; cancelled after some seconds. `run`
        may return then. If there is no cut after all, the input is opened again.
        """

    def answered(self, keys: Sequence[str]) -> None:
        """Awaited batches have all their answers (`InputContext.answers`), also those that another source of the same
        input has emitted. After a restart it is not called for earlier batches: ask for them."""

    def edges(self) -> Sequence[Edge]:
        """Returns the shippers that the settings name and that it takes events from, each once; cheap, called often.
        The keys of each are counted, by the owner with its name."""
        return ()

    def adopted(self, owners: Collection[str]) -> None:
        """Keys of these owners were taken from a destination (`RoutedState.adopt`); their edge may have deleted them
        meanwhile."""

    async def forget_edge(self, name: str, keys: Literal["keep", "delete"]) -> int:
        """Removes all memory of an edge, and with `delete` its keys, by new versions; returns the number of deleted
        keys. Called for an input that `relays`.

        It makes the order durable first, works in bounded steps, and the next `run` completes it after a crash. Raises
        NotOrdered while the edge is connected, unless the settings no longer name it.
        """
        raise NotOrdered(f"it keeps nothing of edge {name}")


class Input(Settings, frozen=True):
    """Where events come from."""

    forwards: ClassVar[bool] = False
    """Whether its events come from other programs, perhaps on other hosts: they do not get our `host` and `agent`."""
    relays: ClassVar[bool] = False
    """Whether it may emit batches that keep the identity that another shipper gave them (`Batch.identified`)."""
    ending: ClassVar[Mapping[str, bool | int | str]] = {}
    """Settings that make it end when it has read what exists, for `shipper supervise --once`; they replace those of the
    policy. Empty for an input that always ends, or never does."""
    rereads: ClassVar[bool] = False
    """Whether it can read emitted events again, from `InputContext.positions`. Then `emit` does not wait for events
    that a stage holds; positions become durable together with their events. If those cannot be stored, the input is
    closed and opened again."""

    gives_events: ClassVar[bool] = True
    """Whether it calls `InputContext.emit`: each output on its routes must take events then."""
    retracts: ClassVar[bool] = False
    """Whether its own keys are deleted when a policy no longer has the input. This and the two above may be properties
    that depend on the settings."""

    is_source: ClassVar[bool] = False
    """Whether it reads all its keys again at each start, and then calls `InputContext.complete`."""

    data_stream: DataStream = msgspec.field(default_factory=DataStream)
    """The data stream of the events."""

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, Input)

    def identity(self) -> Any:
        """Returns what it reads from. An input runs on while a revision has one of the same name, type and identity."""
        return msgspec.to_builtins(self, enc_hook=str)

    @property
    def gives_state(self) -> bool:
        """Whether it calls `InputContext.keep`: each output on its routes must take state then."""
        return False

    def has_keys(self, owner: str, collection: str) -> bool:
        """Whether this input gives keys of this owner and collection."""
        return self.gives_state and not owner

    def awaits(self) -> bool:
        """Whether it asks for the final answers of what it emits. Then no processor on its routes may be a stage: a
        stage makes new events from those of many batches."""
        return False

    def listens(self) -> Sequence[Endpoint]:
        """Returns the endpoints for `InputContext.listen`; no two inputs of a policy may share one."""
        return ()

    @classmethod
    def form(cls) -> Form | None:
        """Returns how the messages are read of the batches that it makes by `Batch.formed`, under its own type."""
        return None

    def load(self) -> None:
        """Imports what `open` needs and what is slow to import or may be missing. See `Output.load`."""

    def open(self, context: InputContext) -> AbstractAsyncContextManager[Source]:
        """Prepares everything that can fail (StartFailed), and reads nothing before `Source.run`."""
        raise NotImplementedError
