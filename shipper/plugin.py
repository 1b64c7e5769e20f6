"""PUBLIC: all that a plugin may import, but for a few modules, which say PUBLIC too.

A plugin is one class in one file, found by an entry point of the group `shipper.inputs`, `shipper.processors` or
`shipper.outputs`; the entry point's name is the `type` that a policy writes. The class body *is* the configuration: a
frozen struct whose fields, types, defaults and docstrings become the JSON Schema and the reference. An input or output
is opened as an async context manager, so acquire and release stand together; leaving the block releases all.

    class ConsoleOutput(Output):
        '''Writes events to standard error.'''
        pretty: bool = False

        @asynccontextmanager
        async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
            yield Console(self)

Values of the types `Size`, `Duration` and `Material` are written as `1MiB`, `30s` and the path of a PEM file. A secret
is referred to by a setting of the type `CredentialId`, anywhere in the settings of an input or output: in nested ones,
optional, in lists, as a value of a mapping, in a tagged union. `Annotated[CredentialId, takes(API_KEY, BASIC)]` says
which shapes it takes. The context holds the secrets by their ids. A class
with a required field says `kw_only=True`. A field's docstring is the string literal below it. In `__post_init__`, raise
`BadOption("hosts[1] is named twice", "hosts", 1)` for an option that cannot be so, ValueError for options that do not
fit together: it becomes an error that names the place in the policy, of the option or of the plugin.

`Later`, `Held`, `TooLarge`, `StartFailed`, `Answer` and `report` take a `code`, by which programs decide what is wrong:
one of `Code`, or one of the plugin's own, in lower case. Each has a default.

The other public modules are `shipper.sdk.http`, a client whose connections are aborted when it is closed (it imports
aiohttp: see `Output.load`), with `shipper.sdk.http_answer`; `shipper.sdk.connection`, connections of that kind for an
output that speaks a protocol of its own; `shipper.sdk.server`, which serves a listening socket within bounds, with
`shipper.sdk.rooms` and `shipper.sdk.crowd`, which decide for it; `shipper.sdk.sockets`; `shipper.sdk.state`, keyed
state and its versions; and `shipper.policy.strict`, which reads YAML.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol

import msgspec

from shipper.sdk.aio import Asyncio
from shipper.sdk.answers import Answer, Answers, Outcome, Ranked
from shipper.sdk.codes import Code, of_os_error
from shipper.sdk.columns import Column, encoded, join
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
)
from shipper.sdk.event import Batch, Fields, Oversized, merged, nested, tagged
from shipper.sdk.feeding import MOST_LINGER, Feeding
from shipper.sdk.hosts import is_own_host
from shipper.sdk.inotify import Inotify, Mask
from shipper.sdk.lineage import Confirmed, Lineages
from shipper.sdk.meters import Counter, Gauge, Histogram, Meters, meters
from shipper.sdk.peers import Confirms, Edge, Principal, Waits
from shipper.sdk.resolve import AddressInfo, resolve
from shipper.sdk.retry import backoff
from shipper.sdk.secret_source import Absent, SecretSource, Unreadable, text_of
from shipper.sdk.sockets import newly_lost, receive_buffer
from shipper.sdk.stage import Ledger, Part, Stage, StageContext
from shipper.sdk.state import Change, Decided, Kept, Mark, Quota, RoutedState, Version, answers_key, compact, digest_of
from shipper.sdk.tallies import Failure, Requests
from shipper.sdk.tls import ClientTls, Material, client_context, server_context
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
    "TOKEN",
    "Absent",
    "AddressInfo",
    "Answer",
    "Answers",
    "Asyncio",
    "Backpressure",
    "BadOption",
    "Batch",
    "Change",
    "ClientTls",
    "Code",
    "Column",
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
    "Gauge",
    "Held",
    "Histogram",
    "Inotify",
    "Input",
    "InputContext",
    "Kept",
    "Later",
    "Ledger",
    "Lineages",
    "Mark",
    "Mask",
    "Material",
    "Meters",
    "NotBegun",
    "NotOrdered",
    "Outcome",
    "Outdated",
    "Output",
    "OutputContext",
    "Oversized",
    "Part",
    "PluginFault",
    "Principal",
    "Processor",
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
    "TooLarge",
    "Unreadable",
    "Version",
    "Waits",
    "answers_key",
    "backoff",
    "client_context",
    "compact",
    "digest_of",
    "encoded",
    "in_words",
    "is_own_host",
    "is_reserved",
    "is_short",
    "join",
    "merged",
    "meters",
    "nested",
    "newly_lost",
    "of_os_error",
    "receive_buffer",
    "resolve",
    "server_context",
    "shortage",
    "tagged",
    "takes",
    "text_of",
]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything that a policy configures."""


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


class Processor(Settings, frozen=True):
    """Changes the events of a batch, before they are stored.

    Most have `process` alone: a function of one batch. One that keeps something from one batch to the next, or needs
    what is to be opened and closed, has `open` instead: see `Stage`.
    """

    keeps: ClassVar[str] = ""
    """Of a stage that keeps something: what, how much of it at most, and what happens then. It is shown in the schema;
    all of it is lost when the process ends."""

    def process(self, batch: Batch) -> Batch | Sequence[Part]:
        """The batch as it goes on, perhaps with fewer events; keeps nothing beyond the call. Runs in any thread.

        Several parts go on each for themselves, to the outputs that they name, of those that the batch was for. An
        event that cannot be handled goes on, marked by `tagged`; if the call raises, or returns a batch that cannot
        be, all events of the batch are. What it counts of itself is in `meters()`, within the call.
        """
        raise NotImplementedError

    def open(self, context: StageContext) -> AbstractAsyncContextManager[Stage]:
        """Acquire what it needs (raise StartFailed: it refuses the revision), for one input.

        A stage stays open over revisions that have the same processor with the same settings at the same input.
        """
        raise NotImplementedError

    @property
    def is_stage(self) -> bool:
        """Whether it is to be opened."""
        return type(self).open is not Processor.open

    @property
    def is_slow(self) -> bool:
        """Whether a batch of few bytes may take some milliseconds too: then it is not processed in the main thread."""
        return False

    def named_outputs(self) -> Sequence[tuple[Sequence[str | int], str]]:
        """The outputs that its settings name, each with the path of that setting: the policy has to have them."""
        return ()


# -- inputs ------------------------------------------------------------------------------------------------------------


class InputContext(Protocol):
    """What the shipper offers to one input."""

    name: str
    aio: Asyncio
    credentials: Mapping[str, Credential]
    """By id, the secrets that its settings refer to and that are not withdrawn."""
    meters: Meters
    """What it counts of itself, by names of its own: shown in `observed` and metrics, and kept over revisions."""

    async def emit(
        self,
        *batches: Batch,
        positions: Mapping[str, bytes | None] | None = None,
        wait: bool = True,
        expect: Mapping[str, bytes | None] | None = None,
        awaited: Sequence[str | None] = (),
        forgotten: Collection[str] = (),
    ) -> None:
        """Store batches together with the input's new positions, in one transaction; returns when all is durable.

        That return is the acknowledgement for a peer; it waits for events that a stage holds (unless `Input.rereads`).
        `positions` are merged into the stored ones (None removes one);
        never put an event's text there, they are stored in the clear. While there is no room, on a full disk too,
        waits, or raises Backpressure at once if `wait` is false, and has stored nothing. If cancelled, the batches were
        either stored with their positions, or not at all. Raises PluginFault for a batch that cannot be, such as one
        with text that is not UTF-8 or without its last line feed: nothing is stored then.

        `expect` are positions, by key, that must be stored like this before (None: there is none); if one is not, it
        raises Outdated and has stored nothing. It is checked in the same transaction: whoever else stores positions of
        this input, such as the source that a newer revision has opened, cannot come in between.

        `awaited` has a key for each batch (None: for none) whose final answers are to be kept, from the same
        transaction on: see `answers`. An input that uses it says so by `Input.awaits`. `forgotten` are keys that need
        not be kept any longer; they are removed in this transaction.

        Below what the events have themselves, they get `@timestamp` (of `Batch.timestamps`, else of now), `host` and
        `agent` (unless `Input.forwards`), and `data_stream` of `Input.data_stream` (unless `Batch.route` is given).
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
        """Store new versions of keys (see `shipper.sdk.state`) together with the input's new positions, as `emit` does.

        The answers are in the order of the changes, of which several may be of one key. An own key whose document is
        the same as before gets no new version, and one that is not there is not deleted again. Of a change with a place
        the place decides: see `Kept`. State waits for no room in the queue, since no key has more than one version for
        a destination there; it is for the input to limit how many keys there are, and how large: what a `quota` has no
        room for is not stored, and its answer says so. `wait` is as in `emit`, for a disk that is full.

        If they are `awaited`, the final answers for these versions are kept, by `answers_key`, until their keys have
        other versions: see `answers`. `Kept` says whether some are missing. A version that comes again has the answers
        that it had, and is sent again if they are lost. An input that uses it says so by `Input.awaits`.

        `expect` are positions that have to be stored as they are said here (None: not there), or Outdated is raised and
        nothing is stored. Raises PluginFault for a change that cannot be, such as one whose document is not compact,
        and for more than 10,000 of them.
        An input that calls it says `Input.gives_state`.
        """
        ...

    async def marks(self, owner: str) -> list[Mark]:
        """The keys of an owner, and of all owners below it (`owner/…`); deleted ones too."""
        ...

    async def versions(self, keys: Sequence[tuple[str, int]]) -> list[Version]:
        """The current versions of keys that are not deleted, by owner and point (see `Mark`); some may be missing."""
        ...

    async def documents(self, keys: Sequence[tuple[str, int]], most: int) -> tuple[list[tuple[Version, bytes]], int]:
        """The same with their documents, and of how many of these keys that is all.

        The documents have `most` bytes together, unless those of the first key have more.
        """
        ...

    def complete(self, is_complete: bool) -> None:
        """Whether all keys that there are have been kept, since the start: said by an input that `is_source`."""
        ...

    async def answers(self, keys: Collection[str]) -> Mapping[str, bytes | None]:
        """What became of batches that are awaited, by key: one byte for each event, in their order, a `Ranked`; and of
        versions (see `keep`), one byte.

        It is the worst of the answers of all outputs that the batch went to; what processors dropped is delivered. None
        says that not every output has answered for all events yet. A key that is missing is not known: it was
        forgotten, or damage has made its answers unknown, and then the batch has to be emitted again to know them. They
        are kept until they are `forgotten` by an `emit`, over restarts.

        A source may have `def answered(self, keys: Sequence[str]) -> None`, which is called when batches have all their
        answers. It may be called for keys that another source of the same input has emitted, and is not called again
        after a restart: ask for what was awaited before.
        """
        ...

    @property
    def delivers(self) -> bool:
        """Whether the final answers of all its outputs are those of the end of the way, as far as is known now.

        Not so where an output relays to another shipper that answers when it has stored the events. From any thread.
        """
        ...

    @property
    def is_held(self) -> bool:
        """Whether processors may hold what is emitted for a while: `emit` returns late then, to keep its word.

        An input that waits for each emit before the next one may have several under way; they are stored in order.
        """
        ...

    @property
    def chunk_bytes(self) -> int:
        """How many bytes of text to read and emit at once, at most: a small queue fills up by small steps."""
        ...

    async def positions(self, prefix: str = "") -> dict[str, bytes]:
        """The positions of this input (by its name and type) whose keys have this prefix; the others are not loaded.

        They are those that are stored, and of an input that `rereads` those of what a stage holds. Call it in
        `Source.run`, not before.
        """
        ...

    async def position(self, key: str) -> bytes | None:
        """One of the `positions`, without the others; None if there is none."""
        ...

    def report(self, problem: str | None, *, code: str = Code.INPUT_DEGRADED) -> None:
        """Say what keeps the input from doing its job (DEGRADED), or None when nothing does (HEALTHY).

        Programs decide by the `code`, one of Code or the plugin's own; raises ValueError for what is none.
        """
        ...

    def turned_away(self, peers: int) -> None:
        """Count connections that were closed for lack of room before they sent anything: a metric shows how many."""
        ...

    async def listen(
        self, endpoint: Endpoint, *, mode: int | None = None, receive_buffer: int | None = None
    ) -> socket.socket:
        """The non-blocking socket of this endpoint, bound, and listening if it is of streams. Never close it.

        It belongs to the process: it stays open while inputs of several revisions take turns on it, and is closed, its
        file removed, when no input has it. The address of a name, or the file system of a path, is waited for some
        seconds at most, which holds up this input only. Port 0 is any free one, the same one for each call with the
        same name. `mode` is that of the file (default: 0o600), `receive_buffer` the size of the kernel's buffer in
        bytes; a socket that is open already takes those of the last call. Raises StartFailed.
        """
        ...


class Source(Protocol):
    """A running input, made by `Input.open`."""

    async def run(self) -> None:
        """Read and emit until cancelled; called once, when the revision is active. Returning means: read to the end."""
        ...

    def change(self, settings: Any, credentials: Mapping[str, Credential]) -> None:
        """From now on use these settings, of an input with the same `identity`; called in the instant of the cut.

        It is also called when a credential is withdrawn, with the others, and when it is there again. If it raises, the
        source is closed, and the input opened again after a while.

        A source may also have `async def changed(self)`, which is called then: credentials that the new settings do not
        name any more are not released before it returns. It may be under way several times.

        And it may have `def figures(self) -> Mapping[str, int]`, cheap and called often: `files` that it follows
        and their `unread_bytes`, as they are now; `connections` that are open; `lost_datagrams` and `refused_peers`
        since it was opened. They are shown, and become metrics.

        One that takes from other shippers may have `def edges(self) -> Sequence[Edge]`, as cheap: those that its
        settings name, each once. Their keys are counted for it, by the owner that has the edge's name.

        It may have `def adopted(self, owners: Collection[str]) -> None`, which is called when keys of these owners were
        taken from a destination (`RoutedState.adopt`): the edge that they belong to may have deleted them meanwhile.

        With these it may have `async def forget_edge(self, name: str, keys: Literal["keep", "delete"]) -> int`: give up
        all that is remembered of one of them, and delete its keys, by new versions, if that is wanted; returns how many
        were deleted. It is an order: durable before it changes anything else, in bounded steps, and completed by the
        next `run` after a crash. Raises NotOrdered while the edge is connected, unless the settings name it no more.

        One whose peers send nothing again, such as datagrams, has `async def quiesce(self)`: read nothing more, and
        return when all that was read is emitted. It is called once, before a cut that ends the input and before the
        process stops, and cancelled after some seconds; `run` may return then.
        """
        ...


class Input(Settings, frozen=True):
    """Where events come from."""

    forwards: ClassVar[bool] = False
    """Whether its events come from other programs, perhaps on other hosts: they do not get our `host` and `agent`."""
    relays: ClassVar[bool] = False
    """Whether it may emit batches that keep the identity that another shipper gave them (`Batch.identified`)."""
    ending: ClassVar[Mapping[str, bool | int | str]] = {}
    """Settings by which it ends at the end of what is there, for `shipper supervise --once`: they take the place of
    those that a policy has. Empty if it ends by itself anyway, or never does."""
    rereads: ClassVar[bool] = False
    """Whether it can read again from `InputContext.positions` what it has emitted. Then `emit` need not wait for events
    that a stage holds: it returns, and the positions become durable together with them. If they cannot be stored, the
    input is closed and opened again."""

    gives_events: ClassVar[bool] = True
    """Whether it calls `InputContext.emit`: then each output that it is routed to has to take events."""
    retracts: ClassVar[bool] = False
    """Whether its own keys are deleted once a policy does not have the input any more. As of the two before, a property
    may say it by the settings."""

    is_source: ClassVar[bool] = False
    """Whether it reads all its keys again at each start, so that it can say which of them there are: it calls
    `InputContext.complete`."""

    data_stream: DataStream = msgspec.field(default_factory=DataStream)
    """The data stream of the events."""

    def identity(self) -> Any:
        """What it reads from. Two revisions with equal identities of one name and type keep the input running."""
        return msgspec.to_builtins(self, enc_hook=str)

    @property
    def gives_state(self) -> bool:
        """Whether it calls `InputContext.keep`: then each output that it is routed to has to take state."""
        return False

    def has_keys(self, owner: str, collection: str) -> bool:
        """Whether keys of this owner and collection come by this input, if it gives keyed state."""
        return self.gives_state and not owner

    def awaits(self) -> bool:
        """Whether it asks for the final answers of what it emits. Then no processor on its way may be a stage, which
        makes new events of those of many batches."""
        return False

    def listens(self) -> Sequence[Endpoint]:
        """The endpoints for `InputContext.listen`, which no other input of its policy may have."""
        return ()

    def load(self) -> None:
        """Import what `open` needs and what is slow to import, or may be missing. See `Output.load`."""

    def open(self, context: InputContext) -> AbstractAsyncContextManager[Source]:
        """Prepare everything that can fail (raise StartFailed), but read nothing before `Source.run`."""
        raise NotImplementedError


# -- outputs -----------------------------------------------------------------------------------------------------------


def _nobody_asks() -> None:
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


@dataclass(frozen=True, slots=True)
class OutputContext:
    """What the shipper offers to one lane of an output."""

    name: str
    aio: Asyncio
    credentials: Mapping[str, Credential] = field(default_factory=dict)
    """By id, the secrets that its settings refer to; all of them are there when it is opened."""
    requests: Requests = field(default_factory=Requests, repr=False, kw_only=True)
    """Where an output with `counts_requests` says how each of its requests ended, and how long it took."""
    meters: Meters = field(default_factory=Meters, repr=False, compare=False, kw_only=True)
    """What it counts of itself, by names of its own: shown in `observed` and metrics, and kept over revisions."""
    answered: Callable[[], None] = field(default=_nobody_asks, repr=False, compare=False, kw_only=True)
    """Called in trio's thread at the first sign that the destination has read a request: an answer, of any status.

    See `Output.tells_of_answers`. It is called as soon as it is known, however the request ends; once or often.
    """
    may_begin: Callable[[], bool] = field(default=_always, repr=False, compare=False, kw_only=True)
    """Whether a request may begin now: not after a lease of the supervisor, nor with a secret that it withdrew.

    It is asked before each `send`. An output whose requests begin later than that asks it, from any thread, in the
    instant before each, and raises NotBegun where it says False.
    """
    lane: int = field(default=0, kw_only=True)
    """The number of this lane: the same after a restart, and never that of another lane of the state directory."""
    lowest: Callable[[], int] = field(default=_none_below, repr=False, compare=False, kw_only=True)
    """Below this place (`Batch.place`) every event of this lane has its final answer, durably. In trio's thread."""
    waits: Callable[[], Waits] = field(default=_nothing_waits, repr=False, compare=False, kw_only=True)
    """What waits on this lane, at no cost. In trio's thread."""
    state: RoutedState | None = field(default=None, repr=False, compare=False, kw_only=True)
    """The keyed state that this lane is fed, to compare it with what the destination has."""
    taken: Callable[[], None] = field(default=_nobody_asks, repr=False, compare=False, kw_only=True)
    """Called in trio's thread when the destination has taken what a `send` gave it, and answers for it later, perhaps
    after hours: so the lane knows that it answers, and goes on with others. See `Sender.send`."""
    delivers: Callable[[bool], None] = field(default=_of_no_use, repr=False, compare=False, kw_only=True)
    """An output that `relays` says here whether the final answers of its destination are those of the end of the
    way, each time that it learns of it."""
    lineages: Lineages | None = field(default=None, repr=False, compare=False, kw_only=True)
    """What the state directories of a destination that is a shipper have confirmed."""
    beside: Callable[[], Sequence[Principal]] = field(default=_nobody_beside, repr=False, compare=False, kw_only=True)
    """What the open senders of other lanes of the same destination say (`Sender.principal`), as while a credential is
    changed: so an output of several hosts can use the one that they use. In trio's thread."""
    notice: Callable[[str | None, str], None] = field(default=_unheard, repr=False, compare=False, kw_only=True)
    """Have the output be DEGRADED, with a text and a code, though events are delivered; None ends it. It is shown while
    nothing else is wrong."""


class Sender(Protocol):
    """An open output, made by `Output.open`."""

    async def send(self, batch: Batch) -> Answers:
        """Deliver a batch and say what became of each event.

        Called by as many tasks at once as `Feeding.in_flight` says, and by more of them if it takes both log events and
        keyed state. Raises Later, Held or TooLarge where the request as a whole got no answer for its events. On
        cancel the connection in use is aborted, never used again.

        Any other error is shown as one of the output, and the events are sent again; so is an answer for another number
        of events. If it is not an OSError, nor raised from one, and comes again and again, they are sent in halves; an
        event on which `send` fails alone becomes a dead letter, if it delivers others.

        One whose destination answers later (`OutputContext.taken`) has `def ending(self) -> None`, which is called when
        the lane hands out no more for a while, as after trouble: every `send` that waits for such an answer ends with
        Later then, and the events are sent again.

        One that relays to another shipper may have `def principal(self) -> Principal`, cheap and called often.
        """
        ...


MOST_FLUSH = Duration(MOST_LINGER)


class Output(Settings, frozen=True):
    """Where events go. All settings but those named in `live` say where, or as whom: changing one puts a barrier."""

    live: ClassVar[frozenset[str]] = frozenset({"workers", "flush"})
    """Settings that do not matter to an event already queued; they are changed without a barrier."""
    counts_requests: ClassVar[bool] = False
    """Whether its senders tell `OutputContext.requests` of each request, so that metrics show status codes. Else each
    `send` counts as one request, which was answered, or failed by what it raised."""
    relays: ClassVar[bool] = False
    """Whether its destination is another shipper, which may answer when it has stored the events: see
    `OutputContext.delivers`."""
    tells_of_answers: ClassVar[bool] = False
    """Whether it calls `OutputContext.answered`. Then it is known whether anybody can have had events of a destination
    that was never heard of, as by a typo; of an output that does not tell, that is always thought possible."""

    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """Requests under way at once; one more where log events and keyed state wait together."""
    flush: Duration = Duration(0.05)
    """How long events wait at most, after a request, for more to go with them in the next one: `0ms` not at all. An
    event after a pause goes at once, and a drain, a barrier or a stop never waits."""

    def __post_init__(self) -> None:
        """Who has checks of its own calls this one, too."""
        if not 0 <= self.flush <= MOST_FLUSH:
            raise BadOption(f"flush is at most {MOST_FLUSH}", "flush")

    def takes_state(self) -> bool:
        """Whether it sends batches with `Batch.versions`. The same each time, as it depends on the settings alone.

        Batches with and without them never come together. `send` may answer for a version that it is SUPERSEDED.
        """
        return False

    def takes_events(self) -> bool:
        """Whether it sends batches without them. The same each time, as it depends on the settings alone."""
        return True

    def feeding(self) -> Feeding:
        """How it wants to be fed; the same each time, as it depends on the settings alone."""
        return Feeding(linger=self.flush, in_flight=self.workers)

    def targets(self, batch: Batch) -> Sequence[str]:
        """Where each event goes within the destination, such as the name of an index or a topic. Runs in any thread.

        A target that refuses events (`Answer.of_target`) holds up its own ones only.
        """
        return [""] * batch.count

    def warnings(self) -> Sequence[str]:
        """What is valid and yet hardly meant, a sentence each: told by `validate`, and when a policy becomes active."""
        return ()

    def load(self) -> None:
        """Import what `open` needs and what is slow to import, or may be missing: it does nothing else.

        Called in a worker thread, before each revision with such an output becomes active, and before `open` after a
        restart. An ImportError, or StartFailed, refuses the revision with the name of the library.
        """

    def open(self, context: OutputContext) -> AbstractAsyncContextManager[Sender]:
        """Acquire what sending needs, without contacting the destination: a dead one is no reason to fail.

        Leaving the block closes every connection, and with it every use of its credentials.
        """
        raise NotImplementedError
