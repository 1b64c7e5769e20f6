"""OTLP over gRPC: one connection of the input `otlp`, with up to `MOST_STREAMS` requests at once. Imports h2.

    receive ──> frames ──┬─ whole calls ─┬──> admit ──> a task for each: wait for the body, take, answer ──> send
                         └─ h2 ──────────┘

A small call comes whole, and takes the way without h2 (`calls`). `frames` limits the frames: a peer that sends too many
is told ENHANCE_YOUR_CALM, and closed. Answers are small: one that does not fit the client's window, which may be empty,
ends its stream.
"""

from __future__ import annotations

import base64
import logging
from contextlib import ExitStack, suppress

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, Event, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from shipper.plugin import forget_frames, raised_at
from shipper.sdk.bodies import Body, BodyRefused, Share, too_slow
from shipper.sdk.server import Peer
from shipper_plugins.otlp import grpc, protobuf, status
from shipper_plugins.otlp.model import Unfit
from shipper_plugins.otlp.server.calls import Calls, Headers, Invalid
from shipper_plugins.otlp.server.frames import PER_BYTE, PER_REQUEST, Call, Frames, Part, Reset, TooMany
from shipper_plugins.otlp.server.intake import Door, Intake, Refused, of_body
from shipper_plugins.otlp.status import Grpc

MOST_STREAMS = 32
COMPRESSIONS = ("gzip", "identity")
_WINDOW = 1 << 20
_END_SECONDS = 1.0
_OF_ANSWER = (":status", "200"), ("content-type", grpc.CONTENT_TYPE), ("grpc-accept-encoding", ",".join(COMPRESSIONS))
_OF_NO_GRPC = (":status", "415"), ("content-type", grpc.CONTENT_TYPE)
_OK = (("grpc-status", "0"),)
_LARGEST_HEADER = 16 << 10
_GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)

_log = logging.getLogger(__name__)


async def talk(intake: Intake, peer: Peer) -> None:
    """Answers the requests of a connection, until it ends."""
    connection = _Connection(intake, peer)
    async with trio.open_nursery() as nursery:
        await connection.run(nursery)
        nursery.cancel_scope.cancel()


class _Stream:
    """A request while it arrives."""

    def __init__(self, id: int, headers: dict[str, str], door: Door, share: Share) -> None:
        self.id, self.headers, self.door, self.share = id, headers, door, share
        self.body = Body(door.max_body_bytes, share, begun=trio.current_time(), framing=grpc.PREFIX.size)
        self.is_admitted = True
        self.is_whole = False
        self.refusal: Refused | BodyRefused | None = None
        """Why nothing more of it is kept."""
        self.ended = trio.Event()
        self.scope = trio.CancelScope()

    def add(self, data: bytes) -> None:
        if self.refusal is not None:
            return
        try:
            self.body.add(data, trio.current_time())
        except BodyRefused as why:
            self.refuse(why)

    def refuse(self, why: Refused | BodyRefused) -> None:
        self.body.clear()
        self.refusal = why
        self.ended.set()

    def end(self) -> None:
        self.is_whole = True
        self.ended.set()

    def cancel(self) -> None:
        self.scope.cancel("the client has cancelled the request")

    async def whole(self) -> bytes:
        """Waits for the whole body, and returns it; raises BodyRefused."""
        while not self.ended.is_set():
            with trio.move_on_at(self.body.deadline) as late:
                await self.ended.wait()
            if late.cancelled_caught and trio.current_time() >= self.body.deadline:
                raise too_slow()
        if self.refusal is not None:
            raise self.refusal
        return self.body.whole()


class _Connection:
    def __init__(self, intake: Intake, peer: Peer) -> None:
        self._intake, self._peer = intake, peer
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        self._h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: _LARGEST_HEADER,
            },
        )
        self._calls = Calls(self._h2)
        self._streams: dict[int, _Stream] = {}
        self._served: set[int] = set()
        """The streams whose tasks have begun."""
        self._frames = Frames(trio.current_time())
        self._sending = trio.Lock()
        self._busy = ExitStack()

    async def run(self, nursery: trio.Nursery) -> None:
        """Reads until the connection ends."""
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW)
        try:
            await self._flush()
            while block := await self._peer.receive():
                for number, part in enumerate(self._frames.parts(block, trio.current_time())):
                    if number:
                        await trio.lowlevel.checkpoint()
                    if not self._took(part, nursery):
                        return
                await self._flush()
        except TooMany:
            await self._end(ErrorCodes.ENHANCE_YOUR_CALM)
        except (*_GONE, Invalid):
            return

    def _took(self, part: Part, nursery: trio.Nursery) -> bool:
        """Returns False at the end of the connection; raises Invalid."""
        match part:
            case Call():
                return self._call(part, nursery)
            case Reset(stream=id) if id in self._calls.open:
                self._streams[id].cancel()
                return True
            case Reset():
                return self._read(part.raw, nursery)
            case _:
                return self._read(part, nursery)

    def _call(self, call: Call, nursery: trio.Nursery) -> bool:
        headers = call.raw if self._peer.leaves else self._calls.begin(call, MOST_STREAMS)
        if isinstance(headers, bytes):
            return self._read(headers, nursery)
        stream = self._begin(call.stream, headers, nursery)
        self._add(stream, call.body)
        stream.end()
        return True

    def _read(self, piece: bytes, nursery: trio.Nursery) -> bool:
        """Returns False at the end of the connection."""
        try:
            events = self._h2.receive_data(piece)
        except ProtocolError:
            return False
        if any(isinstance(event, ConnectionTerminated) for event in events):
            return False
        for event in events:
            self._note(event, nursery)
        return True

    async def _end(self, code: ErrorCodes) -> None:
        """Says why the connection ends, if the peer reads that."""
        self._h2.close_connection(code)
        with trio.move_on_after(_END_SECONDS), suppress(*_GONE):
            await self._flush()

    def _note(self, event: Event, nursery: trio.Nursery) -> None:
        match event:
            case RequestReceived(stream_id=int(id)) if self._peer.leaves:
                self._h2.reset_stream(id, ErrorCodes.REFUSED_STREAM)
            case RequestReceived(stream_id=int(id), headers=headers):
                if len(self._calls.open) + self._h2.open_inbound_streams > MOST_STREAMS:
                    raise Invalid
                self._begin(id, dict(headers or ()), nursery)  # type: ignore[arg-type]
            case DataReceived(stream_id=int(id), data=data, flow_controlled_length=int(length)):
                if length:
                    self._h2.acknowledge_received_data(length, id)
                if (found := self._streams.get(id)) is not None:
                    self._add(found, data or b"")
            case StreamEnded(stream_id=int(id)):
                if (found := self._streams.get(id)) is not None:
                    found.end()
            case StreamReset(stream_id=int(id)):
                if (found := self._streams.get(id)) is not None:
                    found.cancel()

    def _begin(self, id: int, headers: dict[str, str], nursery: trio.Nursery) -> _Stream:
        stream = self._streams[id] = self._begun(id, headers)
        nursery.start_soon(self._serve, stream, nursery)
        return stream

    def _add(self, stream: _Stream, data: bytes) -> None:
        if stream.refusal is None:
            self._frames.earn(len(data) * PER_BYTE)
        stream.add(data)

    def _begun(self, id: int, headers: dict[str, str]) -> _Stream:
        """Returns a request, which is admitted or refused before any of its body is kept."""
        refusal = None
        try:
            door, owner = self._intake.admit(headers.get("authorization", ""), self._peer)
        except Refused as why:
            door, owner, refusal = self._intake.door, self._peer.address, why
        stream = _Stream(id, headers, door, self._intake.memory.share(owner))
        if refusal is not None:
            stream.is_admitted = False
            stream.refuse(refusal)
        return stream

    async def _serve(self, stream: _Stream, nursery: trio.Nursery) -> None:
        with stream.share:  # from `_begun` on: a task that was started always begins
            try:
                self._enter(stream)
                with stream.scope:
                    await self._answer(stream)
            except _GONE:
                nursery.cancel_scope.cancel()
            finally:
                self._leave(stream)

    def _enter(self, stream: _Stream) -> None:
        """Marks the peer as busy from the first of its streams to the last."""
        if not self._served:
            self._busy.enter_context(self._peer.busy())
        self._served.add(stream.id)

    def _leave(self, stream: _Stream) -> None:
        del self._streams[stream.id]
        self._calls.open.discard(stream.id)
        self._served.discard(stream.id)
        if not self._served:
            self._busy.close()

    async def _answer(self, stream: _Stream) -> None:
        refusal = await self._taken(stream)
        self._finish(stream, refusal)
        await self._flush()
        if stream.is_admitted:
            self._frames.earn(PER_REQUEST)

    async def _taken(self, stream: _Stream) -> Refused | tuple[int, str]:
        try:
            return await self._take(stream)
        except Refused as refusal:
            forget_frames(refusal)
            return refusal
        except BodyRefused as why:
            return of_body(why)
        except Exception as error:
            _log.error("a request could not be answered: %s", raised_at(error))
            return Refused(Grpc.INTERNAL, "internal error")

    async def _take(self, stream: _Stream) -> tuple[int, str]:
        headers, door = stream.headers, stream.door
        if stream.refusal is not None:
            raise stream.refusal
        path = headers.get(":path", "")
        if path != grpc.PATH:
            text = "only logs are supported" if path.startswith(grpc.SERVICES) else "this method is unknown"
            raise Refused(Grpc.UNIMPLEMENTED, text)
        if not _is_grpc(headers):
            raise Refused(Grpc.INVALID_ARGUMENT, "the content-type is application/grpc")
        compression = headers.get("grpc-encoding", "identity").strip().lower()
        if compression not in COMPRESSIONS:
            raise Refused(Grpc.UNIMPLEMENTED, "a message is compressed by gzip, or not at all")
        try:
            message, is_compressed = grpc.message_of(await stream.whole())
        except Unfit as why:
            raise Refused(Grpc.INVALID_ARGUMENT, str(why)) from None
        return await self._intake.take(
            door, message, compression if is_compressed else "identity", protobuf, stream.share
        )

    def _finish(self, stream: _Stream, result: Refused | tuple[int, str]) -> None:
        """Writes the answer, unless the stream or the connection has ended."""
        head: Headers = _OF_ANSWER if _is_grpc(stream.headers) else _OF_NO_GRPC
        if isinstance(result, Refused):
            message, trailers = b"", _trailers(result)
        else:
            message, trailers = grpc.framed(protobuf.answer(*result)), _OK
        if stream.id in self._calls.open:
            self._calls.answer(stream.id, head, message, trailers)
            return
        try:
            if message:
                self._h2.send_headers(stream.id, head)
                self._h2.send_data(stream.id, message)
                self._h2.send_headers(stream.id, trailers, end_stream=True)
            else:
                self._h2.send_headers(stream.id, head + trailers, end_stream=True)
            if not stream.is_whole:
                self._h2.reset_stream(stream.id, ErrorCodes.NO_ERROR)
        except ProtocolError:
            self._abandon(stream)

    def _abandon(self, stream: _Stream) -> None:
        try:
            self._h2.reset_stream(stream.id, ErrorCodes.ENHANCE_YOUR_CALM)
        except ProtocolError:
            return  # it has ended already

    async def _flush(self) -> None:
        if self._sending.locked():
            await self._sending.acquire()
        else:
            self._sending.acquire_nowait()
        try:
            if data := self._calls.data_to_send():
                await self._peer.send(data)
        finally:
            self._sending.release()


def _is_grpc(headers: dict[str, str]) -> bool:
    return headers.get("content-type", "").partition(";")[0] in (grpc.CONTENT_TYPE, f"{grpc.CONTENT_TYPE}+proto")


def _trailers(refusal: Refused) -> Headers:
    details = status.written(refusal.code, refusal.message, refusal.retry_after)
    return (
        ("grpc-status", str(int(refusal.code))),
        ("grpc-message", grpc.quoted(refusal.message)),
        ("grpc-status-details-bin", base64.b64encode(details).rstrip(b"=").decode()),
    )
