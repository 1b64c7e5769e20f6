"""What the supervisor is asked on its socket: nothing that is no question disturbs it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.supervise.questions import NAME, NotRunning, Question, Status, ask, serve

RUBBISH = [b"\n", b"{}\n", b'{"ask":"order","name":"\xff"}\n', b'{"ask":"status","x":' + b"[" * 5000 + b"\n"]


async def answer(question: Question) -> Mapping[str, Any]:
    await trio.lowlevel.checkpoint()
    return {"asked": type(question).__name__}


@pytest.mark.parametrize("rubbish", RUBBISH)
async def test_what_is_no_question_is_not_answered_and_the_next_one_is(
    nursery: trio.Nursery, tmp_path: Path, rubbish: bytes
) -> None:
    nursery.start_soon(serve, tmp_path, answer)
    await _asked(tmp_path)

    assert await trio.to_thread.run_sync(_said_to, tmp_path, rubbish) == b""
    assert await _asked(tmp_path) == {"asked": "Status"}


async def _asked(directory: Path) -> dict[str, Any]:
    """The answer, as soon as somebody listens."""
    with trio.fail_after(30):
        while True:
            try:
                return await trio.to_thread.run_sync(ask, directory, Status())
            except NotRunning:
                await trio.sleep(0.01)


def _said_to(directory: Path, raw: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(directory / NAME))
        peer.sendall(raw)
        return peer.recv(100)
