"""What one shipper posts to another: parts of log events, each with its identity and its digest. No I/O.

The body of `POST /v1/relay/parts`, of the type `application/vnd.shipper.relay`; numbers are big-endian:

    4 bytes   SHR1
    4 bytes   the length of the head
    head      a JSON object: `Head`
    parts     as many as the head says, and nothing behind them; each is
        4 bytes    the length of all that follows of this part
        8 bytes    place: its entry in the sender's queue; it rises from part to part of a link, and never comes twice
        16 bytes   origin ┐ with the items in the batch, the identity of its events: that of their first acceptance,
        8 bytes    seq    ┘ which is the id at the backend too
        32 bytes   digest: SHA-256 of the events, `digest`
        96 bytes   proof that the origin is one of the sending edge (`shipper.sdk.origins`); zeros: it is another's,
                   and only an edge that relays, as the receiver's policy says, may send such a part
        the rest   the batch: its header and its events, compressed by deflate, as `Batch.pack` makes it

A part is one batch of the sender's queue or what is left of one: it was durable before it was sent, and it comes again
with the same digest. The digest does not depend on how the batch was compressed.

The answer is JSON: `Answered` for status 200, else `{"error": {"code": …, "reason": …}}`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from shipper.plugin import Batch
from shipper.plugin.relay import PROOF_BYTES, Oversized, Ranked, is_proven

PROTOCOL: Final = 1
MEDIA_TYPE: Final = "application/vnd.shipper.relay"
MOST_PARTS: Final = 64
"""The most parts of one request."""
MOST_EVENTS: Final = 16384
"""The most bytes of one part."""
MOST_HEAD: Final = 4096
LEAST_PART_BYTES: Final = 1 << 16
HEARTBEAT_SECONDS: Final = 25.0
NO_EVENTS: Final = "no_events"
"""The code of a refusal: the receiver takes keyed state alone."""
FOREIGN: Final = "foreign_origin"
"""The code of a refusal: an edge that may not relay for others has sent their events, or cannot prove that they are
its own."""
MOST_WAIT: Final = 20.0
"""The longest wait of a request for answers, in seconds."""

_MAGIC: Final = b"SHR1"
_LENGTH: Final = struct.Struct(">I")
_IDENTITY: Final = struct.Struct(f">Q16sQ32s{PROOF_BYTES}s")
_MOST: Final = (1 << 63) - 1

Number = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Instance = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}(?!\n)$")]


class FrameError(ValueError):
    """An invalid request. `code` is for programs; the text quotes nothing of the request."""

    def __init__(self, reason: str, code: str = "bad_request") -> None:
        super().__init__(reason)
        self.code = code


class TooLong(FrameError):
    """A part is larger than the receiver permits."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "too_large")


# -- messages ----------------------------------------------------------------------------------------------------------


class Generation(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Names one session: a process of the receiver, and the number of sessions that it had begun."""

    instance: Instance
    counter: Number


class Hello(msgspec.Struct, frozen=True):
    """The body of `POST /v1/relay/session`, by which a sender begins a session for one of its links."""

    protocol: int
    instance: Instance
    """The id of the sender's process, drawn at its start."""
    link: Number
    """The queue from which it sends; the same after a restart."""


class Welcome(msgspec.Struct, frozen=True):
    """The answer to `Hello`."""

    protocol: int
    generation: Generation
    edge: str
    """The sender's name at the receiver."""
    acknowledge: str
    """What a confirmation is worth: `delivered` at the end of the way, or `stored` by the receiver, or by the last
    shipper on the way that is known to confirm so."""
    heartbeat: Annotated[float, msgspec.Meta(gt=0)]
    """Seconds after which a sender without events sends a heartbeat."""
    max_part_bytes: Annotated[int, msgspec.Meta(ge=LEAST_PART_BYTES)]
    """The most bytes of the events of a request, by what they become (`Batch.size`)."""
    lineage: Instance
    """The id of what the receiver's state directory knows of the edge. It is drawn with that, so only copies have the
    same; a forgotten edge gets another one."""
    highest: Number = 0
    """The highest place of a part of this link that was ever confirmed; lower in an older directory."""
    max_document_bytes: Number = 0
    """The largest document of keyed state; a larger one is withheld."""
    told: Number = 0
    """The `Poll.versions_after` of the first request for answers of this session."""


class Head(msgspec.Struct, frozen=True):
    """What a request has beside its parts; a heartbeat is this alone, as JSON."""

    generation: Generation
    link: Number
    low: Number
    """The sender has the answers for all parts of this link below this place, durably."""
    parts: Annotated[int, msgspec.Meta(ge=0, le=MOST_PARTS)] = 0
    waiting: Number = 0
    """Log events that wait at the sender for this receiver, on this link."""
    versions: Number = 0
    """Versions of keys that wait there."""


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results for the parts of a request, by place."""

    confirmed: list[Number]
    """Parts with all their events confirmed."""
    awaited: list[Number] = []
    """Parts that are stored, and whose final answers follow: the sender asks for them by `Poll`."""


class Poll(msgspec.Struct, frozen=True):
    """The body of `POST /v1/relay/answers`: it is answered as soon as there are answers, or after `wait` seconds."""

    head: Head
    after: Number
    """The `upto` of the last `Told` of this session, or 0."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=MOST_WAIT)]
    versions_after: Number = 0
    """Its `versions_upto`, or `Welcome.told`."""


class Outcomes(msgspec.Struct, frozen=True, array_like=True):
    """The final answers for the events that were taken of one part: a `Ranked` for each item, as one byte."""

    origin: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}(?!\n)$")]
    seq: Number
    spans: tuple[tuple[Number, Number], ...]
    """The items, as rising runs."""
    answers: bytes

    def by_item(self) -> dict[int, Ranked]:
        """Raises FrameError if the answers do not fit these items."""
        if sum(last - first + 1 for first, last in self.spans if first <= last) != len(self.answers):
            raise FrameError("the answers are not those of the items")
        if any(answer > max(Ranked) for answer in self.answers):
            raise FrameError("an answer is invalid")
        items = [item for first, last in self.spans for item in range(first, last + 1)]
        return {item: Ranked(answer) for item, answer in zip(items, self.answers, strict=True)}


class VersionOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The final answer for a version of keyed state; `name` is the digest of the key as the receiver names it."""

    name: Instance
    place: Number
    answer: Ranked


class Told(msgspec.Struct, frozen=True):
    """The answer to `Poll`. It has everything for the edge, whichever link the parts and the versions came by; the
    sender knows what it waits for. The next request goes on from `upto` and `versions_upto`."""

    upto: Number
    answers: list[Outcomes]
    versions: list[VersionOutcome] = []
    versions_upto: Number = 0


# -- parts -------------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """One part of a request."""

    place: int
    origin: bytes
    seq: int
    digest: bytes
    packed: bytes
    proof: bytes = bytes(PROOF_BYTES)

    def batch(self, limit: int) -> Batch:
        """Returns its events, with their identity. Raises FrameError if they do not have the digest, or are none.

        Raises TooLong if they take more than `limit` bytes (`Batch.size`); no more memory than that was used.
        """
        try:
            batch = Batch.unpack(self.packed, origin=self.origin, seq=self.seq, limit=limit, is_relayed=True)
            if not 0 < batch.count <= MOST_EVENTS:
                raise FrameError(f"a part has 1 to {MOST_EVENTS} events")
            _check(batch)
            is_same = digest(batch) == self.digest
        except FrameError:
            raise
        except Oversized:
            raise TooLong(f"a part is larger than {limit} bytes") from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise FrameError("a part holds no batch") from None
        if not is_same:
            raise FrameError("the events of a part are not those of its digest")
        return batch


def _check(batch: Batch) -> None:
    """Raises FrameError unless its parts have as many events as it says, so that some of them can be picked."""
    columns = (batch.ids, batch.items, batch.sizes, batch.timestamps, batch.keys, batch.severities)
    if any(column is not None and len(column) != batch.count for column in columns):
        raise FrameError("a part has columns of another number of events")
    if batch.form is not None:
        raise FrameError("a part is in a form, and a relay takes none")
    items = batch.items or ()
    if any(one >= other for one, other in pairwise(items)) or not all(0 <= item <= _MOST for item in items):
        raise FrameError("a part has items that are invalid or do not rise")
    if batch.sizes is not None:
        is_whole = min(batch.sizes) > 0 and sum(batch.sizes) == len(batch.body)
    else:
        is_whole = batch.body.endswith(b"\n") and batch.body.count(b"\n") == batch.count
    if not is_whole:
        raise FrameError("a part has another number of events than it says")


class Request(NamedTuple):
    """A body, as it was read."""

    head: Head
    parts: Sequence[Part]

    def check_origins(self, edge: str) -> None:
        """Raises FrameError if the origin of a part is not proven to be one of this edge."""
        if not all(is_proven(part.origin, edge, part.proof) for part in self.parts):
            raise FrameError("a part has the origin of another shipper", FOREIGN)

    def batches(self, limit: int) -> list[Batch]:
        """Returns the events of its parts. Raises FrameError, or TooLong above `limit` bytes together."""
        found: list[Batch] = []
        for part in self.parts:
            found.append(part.batch(limit))
            limit -= found[-1].size
        return found


def part_of(batch: Batch, proof: bytes | None = None) -> Part:
    """Returns a batch of the sender's queue as a part; without a proof, as one of another shipper."""
    batch, shown = batch.unformed(), bytes(PROOF_BYTES) if proof is None else proof
    return Part(batch.place, batch.origin, batch.seq, digest(batch), batch.pack(), shown)


def digest(batch: Batch) -> bytes:
    """Returns the digest of the events and their items: the same for equal batches, however they are held."""
    items = range(batch.count) if batch.items is None else batch.items
    beside = (
        batch.count,
        batch.offset,
        batch.gap,
        batch.route,
        batch.ids,
        list(items),
        batch.shared,
        batch.sizes,
        batch.timestamps,
        batch.keys,
        batch.severities,
    )
    header = msgspec.json.encode(beside, order="sorted")
    return hashlib.sha256(_LENGTH.pack(len(header)) + header + batch.body).digest()


# -- bodies ------------------------------------------------------------------------------------------------------------


def encode(head: Head, parts: Sequence[Part]) -> list[bytes]:
    """Returns the pieces of a body; `head.parts` is their number."""
    said = msgspec.json.encode(head)
    pieces = [_MAGIC, _LENGTH.pack(len(said)), said]
    for part in parts:
        identity = _IDENTITY.pack(part.place, part.origin, part.seq, part.digest, part.proof)
        pieces += [_LENGTH.pack(len(identity) + len(part.packed)), identity, part.packed]
    return pieces


def decode(body: bytes) -> Request:
    """Reads the request of a body; raises FrameError."""
    if not body.startswith(_MAGIC):
        raise FrameError("the body is no request of this protocol")
    said, at = framed(body, len(_MAGIC))
    if len(said) > MOST_HEAD:
        raise FrameError("the head is too long")
    head = read(said, Head)
    parts = []
    for _ in range(head.parts):
        said, at = framed(body, at)
        parts.append(_part(said))
    if at != len(body):
        raise FrameError("there is something behind the last part")
    if any(one.place >= other.place for one, other in pairwise(parts)):
        raise FrameError("the places of the parts do not rise")
    return Request(head, parts)


M = TypeVar("M", bound=msgspec.Struct)


def read(text: bytes, kind: type[M]) -> M:
    """Reads a JSON message; raises FrameError."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise FrameError("a message is invalid") from None


def framed(body: bytes, at: int) -> tuple[bytes, int]:
    """Returns the bytes whose length is given at this place, and the place after them."""
    begin = at + _LENGTH.size
    if begin > len(body):
        raise FrameError("the body ends too early")
    end = begin + _LENGTH.unpack_from(body, at)[0]
    if end > len(body):
        raise FrameError("the body ends too early")
    return body[begin:end], end


def _part(framed: bytes) -> Part:
    if len(framed) <= _IDENTITY.size:
        raise FrameError("a part is too short")
    place, origin, seq, digest, proof = _IDENTITY.unpack_from(framed)
    if max(place, seq) > _MOST:
        raise FrameError("a part has an invalid number")
    return Part(place, origin, seq, digest, framed[_IDENTITY.size :], proof)
