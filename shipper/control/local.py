"""Questions of people to this process: a unix socket in the state directory of `shipper run`, `DIR/shipper.sock`.

Each connection carries one question, a JSON object in one line, and its answer, a JSON object a line:

    {"ask":"status"}                                                   {"status":{…}}: what `/status` of --http says
    {"ask":"points"}                                                   {"points":["inputs.access","outputs.main"]}
    {"ask":"watch","point":"outputs.main","limit":20,"seconds":60,"rate":20}       the events (`tapping`)
    anything else                                                      {"refused":"no such point; there are: …"}

Only this user and root are heard (`private_socket`), as by a supervisor for its status. Where there can be no socket,
there are no answers, which is no reason not to ship.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import orjson
import trio

from shipper.control.tapping import Tapping, Watch
from shipper.process import log, private_socket
from shipper.process.environment import InThread
from shipper.process.private_socket import OF_SHIPPER
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import raised_at

_LONGEST_QUESTION = 4096
_SECONDS = 5.0

_log = log.get(__name__)


class Status(msgspec.Struct, frozen=True, tag_field="ask", tag="status"):
    """Asks for the status."""


class Points(msgspec.Struct, frozen=True, tag_field="ask", tag="points"):
    """Asks for the points that can be watched."""


_Question = Status | Points | Watch
_DECODER: msgspec.json.Decoder[_Question] = msgspec.json.Decoder(_Question)


class Local:
    """Serves the socket."""

    def __init__(self, status: Callable[[], Mapping[str, Any]], tapping: Tapping, in_thread: InThread) -> None:
        self._status, self._tapping, self._in_thread = status, tapping, in_thread
        self._is_short = False

    async def serve(self, directory: Path) -> None:
        """Serves until cancelled. If there can be no socket, logs that and returns.

        A disk that does not answer delays the socket, and nothing else: nothing waits for it.
        """
        serve = partial(private_socket.serve, in_thread=self._in_thread)
        try:
            await serve(directory, OF_SHIPPER, self._converse, self._tell)
        except OSError as error:
            _log.warning("`shipper top` cannot ask this process", file=OF_SHIPPER, error=in_words(error))

    def _tell(self, reason: str | None) -> None:
        if reason is not None and not self._is_short:
            _log.warning("`shipper top` is not answered", error=reason)
        self._is_short = reason is not None

    async def _converse(self, stream: trio.SocketStream) -> None:
        try:
            question = await _question(stream)
            if isinstance(question, Watch):
                await self._tapping.watch(stream, question)
                return
            with trio.move_on_after(_SECONDS):
                await stream.send_all(orjson.dumps(self._answer(question)) + b"\n")
        except trio.BrokenResourceError:
            pass
        except Exception as error:  # it shows what plugins made, and must not end the shipper
            _log.error("a question was not answered", error=raised_at(error))

    def _answer(self, question: Status | Points | None) -> dict[str, Any]:
        match question:
            case Status():
                return {"status": self._status()}
            case Points():
                return {"points": self._tapping.points()}
            case None:
                return {"refused": 'a question is one line, such as {"ask":"status"}'}


async def _question(stream: trio.SocketStream) -> _Question | None:
    raw = b""
    with trio.move_on_after(_SECONDS), suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        while not raw.endswith(b"\n") and len(raw) < _LONGEST_QUESTION:
            if not (chunk := await stream.receive_some(_LONGEST_QUESTION)):
                break
            raw += chunk
        return _DECODER.decode(raw)
    return None
