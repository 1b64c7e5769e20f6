"""Questions of people to the running supervisor: a unix socket in its state directory, `DIR/supervise.sock`.

Each connection carries one question, a JSON object in one line, and one answer, a JSON object up to the end:

    {"ask":"status"}                                                      the status for `shipper status`
    {"ask":"order","name":"rebind","params":{"from":"es-1","to":"es-2"}}  the sidecar's `result` of that action

    {"ask":"leave"}                                                       as an order: the host leaves its fleet

The socket has mode 0600, and the peer must be this user or root. An order may take long; it is answered when it is
done, and carried out even if its client has gone. The last descriptors are kept for the supervisor: a client beyond
that gets no answer.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import trio

from shipper.sdk.descriptors import in_words, is_reserved, is_short, shortage
from shipper.sdk.errors import OptionError, ShipperError

NAME = "supervise.sock"
_LONGEST_QUESTION = 64 << 10
_LONGEST_ANSWER = 16 << 20
_SECONDS = 5.0
_PAUSE_SECONDS = 0.5


class Status(msgspec.Struct, frozen=True, tag_field="ask", tag="status"):
    """Asks for the status."""


class Order(msgspec.Struct, frozen=True, tag_field="ask", tag="order"):
    """Orders an action of the protocol from the sidecar."""

    name: str
    params: dict[str, Any] = {}


class Leave(msgspec.Struct, frozen=True, tag_field="ask", tag="leave"):
    """Asks the host to stop, and to leave those with whom it shares its policy."""


Question: TypeAlias = Status | Order | Leave
Answer: TypeAlias = Callable[[Question], Awaitable[Mapping[str, Any]]]
Tell: TypeAlias = Callable[[str | None], object]
"""Called with the reason while clients get no answer, in words, and with None at its end."""
_DECODER: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Status | Order | Leave)
_NO_QUESTION = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class NotRunning(ShipperError):
    """No supervisor answers for this state directory."""


class Silent(NotRunning):
    """The supervisor listens, but does not answer."""


class Unanswered(Silent):
    """The supervisor closed the connection without an answer, perhaps because it ended."""


# -- the supervisor's side ---------------------------------------------------------------------------------------------


async def serve(
    directory: Path, answer: Answer, tell: Tell, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answers until cancelled; the caller owns the directory, so a socket in it is left from an earlier process.

    Has started when the socket listens. `tell` is called when descriptors run out, and with None when there are some.
    """
    with _address(directory) as path, trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        _remove(path)
        await listener.bind(path)
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
        listener.listen(16)
        task_status.started()
        try:
            await _accept(listener, answer, tell)
        finally:
            _remove(path)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


async def _accept(listener: trio.socket.SocketType, answer: Answer, tell: Tell) -> None:
    async with trio.open_nursery() as nursery:
        while True:
            try:
                peer, _ = await listener.accept()
            except OSError as error:  # no descriptors left, or the peer has disconnected
                if is_short(error):
                    tell(in_words(error))
                await trio.sleep(_PAUSE_SECONDS)
                continue
            if is_reserved(peer.fileno()):
                peer.close()
                tell(shortage())
            else:
                tell(None)
                nursery.start_soon(_converse, trio.SocketStream(peer), answer)


async def _converse(stream: trio.SocketStream, answer: Answer) -> None:
    async with stream:
        question = await _question(stream) if _allowed(stream) else None
        if question is None:
            return
        raw = msgspec.json.encode(await answer(question))
        with trio.move_on_after(_SECONDS, shield=True), suppress(trio.BrokenResourceError):
            await stream.send_all(raw)  # though the answer is the last act of the supervisor


async def _question(stream: trio.SocketStream) -> Question | None:
    raw = b""
    with trio.move_on_after(_SECONDS), suppress(trio.BrokenResourceError, *_NO_QUESTION):
        while not raw.endswith(b"\n") and len(raw) < _LONGEST_QUESTION:
            if not (chunk := await stream.receive_some(_LONGEST_QUESTION)):
                break
            raw += chunk
        return _DECODER.decode(raw)
    return None


def _allowed(stream: trio.SocketStream) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    raw = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", raw)
    return uid in (0, os.geteuid())


# -- the client's side -------------------------------------------------------------------------------------------------


def ask(directory: Path, question: Question) -> dict[str, Any]:
    """Returns the answer of the supervisor of this directory; raises NotRunning, or OptionError for an unusable
    directory.

    Waits some seconds for a status, and without limit for the others.
    """
    try:
        with _address(directory) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(_SECONDS)
            peer.connect(path)
            peer.sendall(msgspec.json.encode(question) + b"\n")
            peer.settimeout(_SECONDS if isinstance(question, Status) else None)
            raw = _all(peer)
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotRunning(f"no `shipper supervise` runs with the state directory {directory}") from None
    except ConnectionError:
        raw = b""
    except NotADirectoryError:
        raise OptionError(f"--state {directory}: not a directory") from None
    except PermissionError:
        raise OptionError(f"--state {directory}: permission denied: it belongs to another user") from None
    except TimeoutError:
        raise Silent(f"the supervisor of {directory} does not answer") from None
    if not raw:
        causes = "it has ended, belongs to another user, or has too many questions at once"
        raise Unanswered(f"the supervisor of {directory} gave no answer: {causes}")
    answer: dict[str, Any] = msgspec.json.decode(raw)
    return answer


def _all(peer: socket.socket) -> bytes:
    raw = bytearray()
    while (chunk := peer.recv(65536)) and len(raw) < _LONGEST_ANSWER:
        raw += chunk
    return bytes(raw)


@contextmanager
def _address(directory: Path) -> Iterator[str]:
    """Yields the socket's path, or a shorter alias where it would be longer than the 107 bytes of an address."""
    path = directory.absolute() / NAME
    if len(os.fsencode(path)) <= 107:
        yield str(path)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)
