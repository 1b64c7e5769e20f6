"""What the supervisor is asked on its socket: nothing that is no question disturbs it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.process import private_socket
from shipper.supervise.questions import NAME, NotRunning, Question, Status, ask, serve
from tests.limits import descriptors_at_most

RUBBISH = [
    *(b"\n", b"{}\n", b'{"ask":"order"}\n', b'{"ask":"order","name":"\xff"}\n'),
    *(b'{"ask":"status","x":' + b"[" * 5000 + b"\n", b"x" * (1 << 17)),
]


async def answer(question: Question) -> Mapping[str, Any]:
    await trio.lowlevel.checkpoint()
    return {"asked": type(question).__name__}


@pytest.mark.parametrize("rubbish", RUBBISH)
async def test_what_is_no_question_is_not_answered_and_the_next_one_is(
    nursery: trio.Nursery, tmp_path: Path, rubbish: bytes
) -> None:
    told: list[str | None] = []
    nursery.start_soon(serve, tmp_path, answer, told.append)
    await _asked(tmp_path)

    assert await trio.to_thread.run_sync(_said_to, tmp_path, rubbish) == b""
    assert await _asked(tmp_path) == {"asked": "Status"}


async def test_without_a_descriptor_askers_wait_until_there_is_one_and_that_is_told(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    told: list[str | None] = []
    nursery.start_soon(serve, tmp_path, answer, told.append)
    await _asked(tmp_path)
    with socket.socket(socket.AF_UNIX) as peer:
        with descriptors_at_most(0):
            peer.connect(str(tmp_path / NAME))
            peer.sendall(b'{"ask":"status"}\n')
            await _until(lambda: told[-1] is not None)
            assert "Too many open files: the limit is 0" in str(told[-1])
        assert await trio.to_thread.run_sync(peer.recv, 100) == b'{"asked":"Status"}'
    assert told[-1] is None


async def test_askers_leave_the_last_descriptors_to_others(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []
    nursery.start_soon(serve, tmp_path, answer, told.append)
    await _asked(tmp_path)
    monkeypatch.setattr(private_socket, "is_reserved", lambda descriptor: True)

    with pytest.raises(NotRunning, match="gave no answer"):
        await trio.to_thread.run_sync(ask, tmp_path, Status())
    assert "Too many open files" in str(told[-1])
    monkeypatch.undo()
    assert await _asked(tmp_path) == {"asked": "Status"}
    assert told[-1] is None


async def _until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - a list tells nobody
            await trio.sleep(0.01)


async def _asked(directory: Path) -> dict[str, Any]:
    """The answer, as soon as somebody listens."""
    with trio.fail_after(60):
        while True:
            try:
                return await trio.to_thread.run_sync(ask, directory, Status())
            except NotRunning:
                await trio.sleep(0.01)


def _said_to(directory: Path, raw: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(directory / NAME))
        try:
            peer.sendall(raw)
            return peer.recv(100)
        except (BrokenPipeError, ConnectionResetError):  # it was not read to its end
            return b""
