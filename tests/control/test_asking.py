"""What clients of a running shipper, and of a supervisor, say where nobody answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from shipper.control import asking
from shipper.process.private_socket import OF_SHIPPER
from shipper.supervise import questions


@contextmanager
def hung(path: Path) -> Iterator[None]:
    """A socket that nobody accepts from, with as many waiting as may."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(path))
        listener.listen(0)
        while True:
            peer = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            peer.setblocking(False)
            try:
                peer.connect(str(path))
            except BlockingIOError:
                break
        yield


def test_a_shipper_for_which_too_many_wait_gives_no_answer(tmp_path: Path) -> None:
    with hung(tmp_path / OF_SHIPPER):
        assert asking.status(tmp_path) is None
        with pytest.raises(asking.NoAnswer, match="does not answer"), asking.connected(tmp_path):
            pass


def test_a_supervisor_for_which_too_many_wait_is_silent(tmp_path: Path) -> None:
    with hung(tmp_path / questions.NAME), pytest.raises(questions.Silent):
        questions.ask(tmp_path, questions.Status())
