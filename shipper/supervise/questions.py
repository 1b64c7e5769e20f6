"""Questions of people to the running supervisor: a unix socket in its state directory, `DIR/supervise.sock`.

Each connection carries one question, a JSON object in one line, and one answer, a JSON object up to the end:

    {"ask":"status"}                                                      the status for `shipper status`
    {"ask":"order","name":"rebind","params":{"from":"es-1","to":"es-2"}}  the sidecar's `result` of that action

    {"ask":"leave"}                                                       as an order: the host leaves its fleet

Only this user and root are answered (`private_socket`). An order may take long; it is answered when it is done, and
carried out even if its client has gone. The last descriptors are kept for the supervisor: a client beyond that gets no
answer.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import trio

from shipper.process import private_socket
from shipper.process.private_socket import Tell
from shipper.sdk.errors import OptionError, ShipperError

NAME = "supervise.sock"
_LONGEST_QUESTION = 64 << 10
_LONGEST_ANSWER = 16 << 20
_SECONDS = 5.0


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
    """Answers until cancelled; the caller owns the directory. Has started when the socket listens.

    `tell` is called when descriptors run out, and with None when there are some.
    """
    await private_socket.serve(directory, NAME, partial(_converse, answer), tell, task_status)


async def _converse(answer: Answer, stream: trio.SocketStream) -> None:
    question = await _question(stream)
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


# -- the client's side -------------------------------------------------------------------------------------------------


def ask(directory: Path, question: Question) -> dict[str, Any]:
    """Returns the answer of the supervisor of this directory; raises NotRunning, or OptionError for an unusable
    directory.

    Waits some seconds for a status, and without limit for the others.
    """
    try:
        with private_socket.address(directory, NAME) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
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
    except (TimeoutError, BlockingIOError):  # BlockingIOError: so many wait that no other may
        raise Silent(f"the supervisor of {directory} does not answer") from None
    if not raw:
        foreign = "belongs to another user, " if os.geteuid() else ""
        causes = f"it has ended, {foreign}or has too many questions at once"
        raise Unanswered(f"the supervisor of {directory} gave no answer: {causes}")
    answer: dict[str, Any] = msgspec.json.decode(raw)
    return answer


def _all(peer: socket.socket) -> bytes:
    raw = bytearray()
    while (chunk := peer.recv(65536)) and len(raw) < _LONGEST_ANSWER:
        raw += chunk
    return bytes(raw)
