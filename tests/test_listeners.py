"""Listening sockets belong to the process and stay open while inputs take turns."""

from __future__ import annotations

import socket

import pytest

from shipper.errors import StartFailed
from shipper.listeners import Listeners

HOST = "127.0.0.1"


def connects(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, 1).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_socket_stays_open_while_inputs_take_turns() -> None:
    listeners, old, new = Listeners(), object(), object()
    listener = listeners.get(old, "in", HOST, 0)
    port = listener.getsockname()[1]

    assert listeners.get(new, "in", HOST, 0) is listener
    listeners.release(old)
    assert connects((HOST, port))
    listeners.release(new)
    assert not connects((HOST, port))


def test_an_address_that_holds_another_one_within_is_taken() -> None:
    listeners, user = Listeners(), object()
    port = listeners.get(user, "a", HOST, 0).getsockname()[1]

    with pytest.raises(StartFailed, match="cannot listen"):
        listeners.get(user, "b", "0.0.0.0", port)
    listeners.release(user)


def test_port_0_is_another_port_for_each_name() -> None:
    listeners, user = Listeners(), object()

    assert listeners.get(user, "a", HOST, 0) is not listeners.get(user, "b", HOST, 0)
    listeners.release(user)


def test_a_taken_port_cannot_start_and_leaves_nothing_open() -> None:
    listeners, user = Listeners(), object()
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match=f"cannot listen on {HOST}:{port}"):
            listeners.get(user, "in", HOST, port)
    listener = listeners.get(user, "in", HOST, port)

    assert not listener.getblocking()
    listeners.release(user)
    listeners.release(user)


def test_an_unknown_host_cannot_start() -> None:
    with pytest.raises(StartFailed):
        Listeners().get(object(), "in", "256.0.0.1", 1)
