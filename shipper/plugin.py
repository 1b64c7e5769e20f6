"""PUBLIC: what a plugin may import, beside the few modules named below.

A plugin is one class in one file, found by an entry point of the group `shipper.inputs`, `shipper.processors` or
`shipper.outputs`; the entry point's name is the `type` that a policy writes. The class body *is* the configuration: a
frozen struct whose fields, types, defaults and docstrings become the JSON Schema and the reference. An input or output
is opened as an async context manager: entering it acquires what the plugin needs, leaving it releases everything.

    class ConsoleOutput(Output):
        '''Writes events to standard error.'''
        pretty: bool = False

        @asynccontextmanager
        async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
            yield Console(self)

Values of the types `Size`, `Duration` and `Material` are written as `1MiB`, `30s` and the path of a PEM file. A setting
of the type `CredentialId` refers to a secret. It may be anywhere in the settings of an input or output: nested,
optional, in a list, as a value of a mapping, in a tagged union. `Annotated[CredentialId, takes(API_KEY, BASIC)]` names
the shapes that it accepts. The context holds the secrets, by id.

A class with a required field sets `kw_only=True`. The docstring of a field is the string literal below it. In
`__post_init__`, raise `BadOption("hosts[1] is named twice", "hosts", 1)` for an invalid option, and ValueError for
options that contradict each other. Either becomes an error with the place in the policy: that of the option, or that of
the plugin.

`Later`, `Held`, `TooLarge`, `StartFailed`, `Answer` and `report` take a `code` for programs: one of `Code`, or one of
the plugin's own, in lower case. Each has a default.

The other public modules:

    shipper.sdk.http, http_answer   an HTTP client that aborts its connections when it is closed; imports aiohttp, so
                                    import it in `Output.load`
    shipper.sdk.proxies             the proxy of a request, by a setting or by the environment
    shipper.sdk.connection          such connections for an output with a protocol of its own
    shipper.sdk.bodies              the bodies of requests, within bounds
    shipper.sdk.server              serves a listening socket within bounds; `rooms` and `crowd` decide for it
    shipper.sdk.sockets             options and counters of sockets
    shipper.sdk.state               keyed state and its versions
    shipper.sdk.fields              finds and changes single fields of events
    shipper.sdk.table               documents by columns: how a processor spares the events of a batch an object each
    shipper.sdk.joining             one batch of several, as an output gets it
    shipper.sdk.conditions          conditions on events
    shipper.sdk.patterns            regular expressions of a policy, searched for in linear time
    shipper.policy.strict           reads YAML
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from shipper.sdk import hooks
from shipper.sdk.aio import Asyncio
from shipper.sdk.answers import Answer, Answers, Outcome, Ranked
from shipper.sdk.asking import (
    Asked,
    Finding,
    Prepared,
    Question,
    State,
    Tell,
    TellPrepared,
    Verdict,
    in_time,
    of_no_answer,
    reached,
)
from shipper.sdk.codes import Code, of_os_error
from shipper.sdk.columns import Column, encoded, escaped, join, numerals
from shipper.sdk.conditions import Condition
from shipper.sdk.credentials import (
    API_KEY,
    AWS,
    BASIC,
    BEARER_TOKEN,
    CERTIFICATE,
    NATS,
    OAUTH2_CLIENT,
    PASSWORD,
    TOKEN,
    Credential,
    CredentialId,
    Shape,
    takes,
)
from shipper.sdk.descriptors import in_words, is_reserved, is_short, shortage
from shipper.sdk.editing import attempt, edited, tagged
from shipper.sdk.endpoints import Endpoint, Scheme
from shipper.sdk.errors import (
    Backpressure,
    BadOption,
    Held,
    Later,
    NotBegun,
    NotOrdered,
    Outdated,
    PluginFault,
    StartFailed,
    TooLarge,
    anew,
    forget_frames,
    raised_at,
)
from shipper.sdk.event import Batch, Way
from shipper.sdk.feeding import MOST_LINGER, Feeding
from shipper.sdk.fields import Fields, merged, nested
from shipper.sdk.forms import Form
from shipper.sdk.hosts import is_own_host
from shipper.sdk.inotify import Inotify, Mask, is_local
from shipper.sdk.lineage import Confirmed, Lineages
from shipper.sdk.meters import Counter, Gauge, Histogram, Meters, meters
from shipper.sdk.origins import PROOF_BYTES, is_proven
from shipper.sdk.packing import Oversized
from shipper.sdk.peers import Confirms, Edge, Principal, Waits
from shipper.sdk.resolve import AddressInfo, resolve
from shipper.sdk.retry import backoff
from shipper.sdk.secret_source import Absent, SecretSource, Unreadable, text_of
from shipper.sdk.settings import Settings
from shipper.sdk.sockets import newly_lost, receive_buffer
from shipper.sdk.stage import Ledger, Part, Stage, StageContext
from shipper.sdk.state import Change, Decided, Kept, Mark, Quota, RoutedState, Version, answers_key, compact, digest_of
from shipper.sdk.table import Cells, Group, Lines, Node, Table, Unfit, constant, is_full
from shipper.sdk.tallies import Failure, Requests
from shipper.sdk.threads import in_thread
from shipper.sdk.tls import ClientTls, Material, client_context, server_context
from shipper.sdk.typed import as_json
from shipper.sdk.units import Duration, Size

__all__ = [
    "API_KEY",
    "AWS",
    "BASIC",
    "BEARER_TOKEN",
    "CERTIFICATE",
    "NATS",
    "OAUTH2_CLIENT",
    "PASSWORD",
    "PROOF_BYTES",
    "TOKEN",
    "Absent",
    "AddressInfo",
    "Answer",
    "Answers",
    "Asked",
    "Asyncio",
    "Backpressure",
    "BadOption",
    "Batch",
    "Cells",
    "Change",
    "ClientTls",
    "Code",
    "Column",
    "Condition",
    "Confirmed",
    "Confirms",
    "Counter",
    "Credential",
    "CredentialId",
    "DataStream",
    "Decided",
    "Duration",
    "Edge",
    "Endpoint",
    "Failure",
    "Feeding",
    "Fields",
    "Finding",
    "Form",
    "Gauge",
    "Group",
    "Held",
    "Histogram",
    "Inotify",
    "Input",
    "InputContext",
    "Kept",
    "Later",
    "Ledger",
    "Lineages",
    "Lines",
    "Mark",
    "Mask",
    "Material",
    "Meters",
    "Node",
    "NotBegun",
    "NotOrdered",
    "Outcome",
    "Outdated",
    "Output",
    "OutputContext",
    "Oversized",
    "Part",
    "PluginFault",
    "Prepared",
    "Principal",
    "Processor",
    "Question",
    "Quota",
    "Ranked",
    "Requests",
    "RoutedState",
    "Scheme",
    "SecretSource",
    "Sender",
    "Settings",
    "Shape",
    "Size",
    "Source",
    "Stage",
    "StageContext",
    "StartFailed",
    "State",
    "Table",
    "Tell",
    "TellPrepared",
    "TooLarge",
    "Unfit",
    "Unreadable",
    "Verdict",
    "Version",
    "Waits",
    "Way",
    "anew",
    "answers_key",
    "as_json",
    "attempt",
    "backoff",
    "client_context",
    "compact",
    "constant",
    "digest_of",
    "edited",
    "encoded",
    "escaped",
    "forget_frames",
    "in_thread",
    "in_time",
    "in_words",
    "is_full",
    "is_local",
    "is_own_host",
    "is_proven",
    "is_reserved",
    "is_short",
    "join",
    "merged",
    "meters",
    "nested",
    "newly_lost",
    "numerals",
    "of_no_answer",
    "of_os_error",
    "raised_at",
    "reached",
    "receive_buffer",
    "resolve",
    "server_context",
    "shortage",
    "tagged",
    "takes",
    "text_of",
]


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


# -- processors --------------------------------------------------------------------------------------------------------


class Processor(Settings, frozen=True, kw_only=True):
    """Changes the events of a batch, before they are stored.

    Most define `process`, a function of one batch. A processor that keeps something between batches, or holds something
    that must be closed, defines `open` instead: see `Stage`. Either gets only the events that meet `when`; the others
    pass it by, and keep their place in the batch.
    """

    when: Condition | None = None
    """Only events that meet this condition are processed; the others go on unchanged (default: all are)."""

    keeps: ClassVar[str] = ""
    """What a stage keeps in memory, its limit, and what happens at the limit; shown in the schema. The end of the
    process loses it."""

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, Processor)

    def process(self, batch: Batch) -> Batch | Sequence[Part]:
        """Returns the batch, changed, perhaps with fewer events; keeps nothing after the call. Runs in any thread.

        It may return several parts instead: each part goes to the outputs that it names, among those of the batch. It
        passes on an event that it cannot handle, marked by `tagged`. If the call raises, or returns an invalid batch,
        it is called again with parts of the batch, and the events on which it fails go on unchanged and marked.
        `meters()` returns its own counters, within the call.
        """
        raise NotImplementedError

    def open(self, context: StageContext) -> AbstractAsyncContextManager[Stage]:
        """Acquires what the stage needs, for one input; StartFailed refuses the revision.

        The stage stays open over revisions with the same processor and settings at the same input.
        """
        raise NotImplementedError

    @property
    def is_stage(self) -> bool:
        """Whether the class defines `open`."""
        return type(self).open is not Processor.open

    @property
    def is_slow(self) -> bool:
        """Whether even a small batch may take milliseconds; it is never processed in the main thread then."""
        return False

    def named_outputs(self) -> Sequence[tuple[Sequence[str | int], str]]:
        """Returns the outputs that the settings name, each with the path of its setting; the policy must have them."""
        return ()


# -- inputs ------------------------------------------------------------------------------------------------------------


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


# -- outputs -----------------------------------------------------------------------------------------------------------


def _nobody_asks() -> None:
    """Of a context that is made by hand."""


async def _nothing_to_store() -> None:
    """Of a context that is made by hand."""


def _always() -> bool:
    return True


def _of_no_use(said: bool) -> None:
    """Of a context that is made by hand."""


def _unheard(text: str | None, code: str) -> None:
    """Of a context that is made by hand."""


def _none_below() -> int:
    return 0


def _nothing_waits() -> Waits:
    return Waits()


def _nobody_beside() -> Sequence[Principal]:
    return ()


def _nothing_known(origin: bytes, name: str) -> bytes | None:
    return None


@dataclass(frozen=True, slots=True)
class OutputContext:
    """What the shipper offers to one lane of an output."""

    name: str
    aio: Asyncio
    credentials: Mapping[str, Credential] = field(default_factory=dict)
    """By id, the secrets that the settings refer to; complete when the output is opened."""
    requests: Requests = field(default_factory=Requests, repr=False, kw_only=True)
    """Takes the result and the duration of each request of an output with `counts_requests`."""
    meters: Meters = field(default_factory=Meters, repr=False, compare=False, kw_only=True)
    """The output's own counters, by names of its own; shown in `observed` and in the metrics, kept over revisions."""
    begins: Callable[[], Awaitable[None]] = field(default=_nothing_to_store, repr=False, compare=False, kw_only=True)
    """To await in trio's thread once a connection stands, before the first byte of a request: when it returns, it is
    durable that events may be on their way. Once or often, cheap from the second time on. Raises NotBegun where that
    cannot be stored. See `Output.contacts`.
    """
    may_begin: Callable[[], bool] = field(default=_always, repr=False, compare=False, kw_only=True)
    """Whether a request may begin now: not after the supervisor's lease has ended, nor with a withdrawn secret.

    The lane checks it before each `send`. An output whose requests begin later checks it again, from any thread, right
    before each request, and raises NotBegun if it is False.
    """
    lane: int = field(default=0, kw_only=True)
    """The number of this lane, unique in the state directory and the same after a restart."""
    lowest: Callable[[], int] = field(default=_none_below, repr=False, compare=False, kw_only=True)
    """Below this place (`Batch.place`) every event of this lane has its final answer, durably. In trio's thread."""
    waits: Callable[[], Waits] = field(default=_nothing_waits, repr=False, compare=False, kw_only=True)
    """Returns what waits on this lane; cheap, in trio's thread."""
    state: RoutedState | None = field(default=None, repr=False, compare=False, kw_only=True)
    """The keyed state that goes to this lane, to compare it with that of the destination."""
    taken: Callable[[], None] = field(default=_nobody_asks, repr=False, compare=False, kw_only=True)
    """To call in trio's thread when the destination has taken the events of a `send` and will answer later, perhaps
    after hours. The lane goes on with other events then. See `Sender.send`."""
    delivers: Callable[[bool], None] = field(default=_of_no_use, repr=False, compare=False, kw_only=True)
    """To call, by an output that `relays`, each time that it learns whether the destination's final answers come from
    the end of the way."""
    lineages: Lineages | None = field(default=None, repr=False, compare=False, kw_only=True)
    """What each state directory of a destination that is a shipper has confirmed."""
    prove: Callable[[bytes, str], bytes | None] = field(default=_nothing_known, repr=False, compare=False, kw_only=True)
    """Returns the proof (`is_proven`) that the events of an origin are those of the edge of this name; None for an
    origin that was not drawn in this state directory, or whose secret is lost. In trio's thread."""
    beside: Callable[[], Sequence[Principal]] = field(default=_nobody_beside, repr=False, compare=False, kw_only=True)
    """Returns the principals (`Sender.principal`) of the senders of all lanes of the same destination, also of closed
    ones: an output of several hosts can begin at the host that they use, for example while a credential changes. In
    trio's thread."""
    notice: Callable[[str | None, str], None] = field(default=_unheard, repr=False, compare=False, kw_only=True)
    """Makes the output DEGRADED, by a text and a code, though it delivers events; None ends that. Shown while nothing
    else is wrong."""


class Sender:
    """An open output, yielded by `Output.open`. Its class defines `send`, and the other methods if it needs them."""

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, Sender)

    async def send(self, batch: Batch) -> Answers:
        """Delivers a batch; returns an answer for each event.

        At most `Feeding.in_flight` calls are under way at once. An output that takes both log events and keyed state
        is opened once for each. Raises Later, Held or TooLarge if the request as a whole got no answer for its events.
        When it is cancelled, it aborts its connection and never uses it again.

        Any other error, or a wrong number of answers, is shown as a fault of the output, and the events are sent again.
        If that repeats, and the cause is not an OSError, the batch is sent in halves. An event with which `send` fails
        alone becomes a dead letter, provided that others are delivered.
        """
        raise NotImplementedError

    def ending(self) -> None:
        """No more events are handed out for a while, for example after a failure; for a destination that answers later
        (`OutputContext.taken`). Every `send` that waits for such an answer then raises Later, and its events are sent
        again."""

    def principal(self) -> Principal | None:
        """Returns the shipper that it relays to; None if it relays to none. Cheap, called often."""
        return None


MOST_FLUSH = Duration(MOST_LINGER)


class Output(Settings, frozen=True):
    """Where events go. A change of a setting puts a barrier into the queue, except for the settings in `live`."""

    live: ClassVar[frozenset[str]] = frozenset({"workers", "flush"})
    """Settings that do not matter to queued events; they change without a barrier."""
    paths: ClassVar[frozenset[str]] = frozenset()
    """Settings that are paths of files on the host. One policy of many hosts has no relative ones: the directory of who
    publishes it means nothing there."""
    counts_requests: ClassVar[bool] = False
    """Whether its senders report each request to `OutputContext.requests`, so that metrics show status codes. Otherwise
    each `send` counts as one request, answered, or failed with what it raised."""
    relays: ClassVar[bool] = False
    """Whether its destination is another shipper, which may answer when it has stored the events: see
    `OutputContext.delivers`."""

    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """Requests under way at once, for log events and for keyed state each."""
    flush: Duration = Duration(0.25)
    """How long events wait at most, after a request, for more to go with them in the next one: `0ms` not at all. An
    event after a pause goes at once, and a drain, a barrier or a stop never waits."""

    def __post_init__(self) -> None:
        """A subclass with checks of its own calls this one too."""
        if not 0 <= self.flush <= MOST_FLUSH:
            raise BadOption(f"must be at most {MOST_FLUSH}, not {self.flush}", "flush")

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, Output)

    def takes_state(self) -> bool:
        """Whether it sends batches with `Batch.versions`; depends on the settings alone.

        A batch has versions for all of its events or for none. `send` may answer SUPERSEDED for a version.
        """
        return False

    def takes_events(self) -> bool:
        """Whether it sends batches without `Batch.versions`; depends on the settings alone."""
        return True

    def contacts(self) -> Sequence[str]:
        """Returns the hosts that it asks, as URLs or `host:port`, if it awaits `OutputContext.begins` before it does.

        Then the shipper knows that hosts to which no request ever began, for example after a typo, have received no
        event. Otherwise it must assume that events arrived. Depends on the settings alone.
        """
        return ()

    def feeding(self) -> Feeding:
        """Returns how the lane hands out batches; depends on the settings alone."""
        return Feeding(linger=self.flush, in_flight=self.workers)

    def targets(self, batch: Batch) -> Sequence[str]:
        """Returns the place of each event within the destination, such as an index or a topic. Runs in any thread.

        A target that refuses events (`Answer.of_target`) holds up only its own events.
        """
        return [""] * batch.count

    def warnings(self) -> Sequence[str]:
        """Returns a sentence for each valid but dubious setting, for `validate` and the start of a policy."""
        return ()

    def load(self) -> None:
        """Imports what `open` needs and what is slow to import or may be missing, and does nothing else.

        Called in a worker thread, before a revision with such an output becomes active, and before `open` after a
        restart. An ImportError or StartFailed refuses the revision, with the name of the library.
        """

    def open(self, context: OutputContext) -> AbstractAsyncContextManager[Sender]:
        """Acquires what sending needs, without contacting the destination, which may be down.

        Leaving the block closes every connection; no credential is used after that.
        """
        raise NotImplementedError

    async def ask(self, context: OutputContext, question: Question, tell: Tell) -> None:
        """Asks the destination whether it would take the events of a policy, for a person who waits; sends no event.

        Calls `tell` with each finding as soon as it is known. It may be cancelled at any wait, and then leaves no
        connection open. Raises StartFailed, as `open` does. An output without it says nothing before events are sent.
        """
        raise NotImplementedError

    async def set_up(self, context: OutputContext, question: Question, tell: TellPrepared, *, write: bool) -> None:
        """Tells what the destination should have for the events of a policy, such as index templates, and what it has;
        with `write`, writes what is missing or an older form of its own. Never overwrites what is somebody else's.

        Called again, it writes nothing. Raises as `ask` does. An output without it needs nothing.
        """
        raise NotImplementedError

    @property
    def can_ask(self) -> bool:
        """Whether the class defines `ask`."""
        return type(self).ask is not Output.ask

    @property
    def can_set_up(self) -> bool:
        """Whether the class defines `set_up`."""
        return type(self).set_up is not Output.set_up
