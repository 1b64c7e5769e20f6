"""Sockets to listen on: real ones, in a real file system."""

import os
import socket
import stat
import sys

import pytest

from shipper.sdk.endpoints import Endpoint
from shipper.sdk.errors import StartFailed
from shipper.sdk.sockets import bind, newly_lost, receive_buffer

STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


def opened(scheme, path, mode=None):
    return bind(Endpoint(scheme, path=str(path)), socket.AF_UNIX, str(path), mode=mode, receive_buffer=None)


def of_udp(receive_buffer=None):
    endpoint = Endpoint("udp", "127.0.0.1", 0)
    return bind(endpoint, socket.AF_INET, ("127.0.0.1", 0), mode=None, receive_buffer=receive_buffer)


def close(bound):
    bound.remove()
    bound.close()


@pytest.mark.parametrize(("scheme", "kind"), [("unix", STREAM), ("unixgram", DATAGRAM)])
def test_peers_reach_a_socket_in_the_file_system(scheme, kind, tmp_path):
    bound = opened(scheme, tmp_path / "in")
    with socket.socket(socket.AF_UNIX, kind) as peer:
        peer.connect(str(tmp_path / "in"))

    assert not bound.socket.getblocking()
    assert stat.S_IMODE((tmp_path / "in").stat().st_mode) == 0o600
    close(bound)
    assert not (tmp_path / "in").exists()


@pytest.mark.parametrize("scheme", ["unix", "unixgram"])
@pytest.mark.parametrize("of_dead", [STREAM, DATAGRAM])
def test_the_socket_of_a_dead_process_is_replaced(scheme, of_dead, tmp_path):
    with socket.socket(socket.AF_UNIX, of_dead) as dead:
        dead.bind(str(tmp_path / "in"))
    close(opened(scheme, tmp_path / "in"))


@pytest.mark.parametrize("scheme", ["unix", "unixgram"])
@pytest.mark.parametrize("of_other", [STREAM, DATAGRAM])
def test_a_socket_that_somebody_answers_on_is_not_replaced(scheme, of_other, tmp_path):
    with socket.socket(socket.AF_UNIX, of_other) as other:
        other.bind(str(tmp_path / "in"))
        if of_other == STREAM:
            other.listen(0)
        before = (tmp_path / "in").lstat()
        with pytest.raises(StartFailed, match=f"cannot listen on {tmp_path}/in: Address already in use") as refused:
            opened(scheme, tmp_path / "in")

        assert refused.value.code == "port_taken"
        assert (tmp_path / "in").lstat() == before


def test_a_socket_whose_backlog_is_full_is_not_replaced(tmp_path):
    with socket.socket(socket.AF_UNIX, STREAM) as busy, socket.socket(socket.AF_UNIX, STREAM) as peer:
        busy.bind(str(tmp_path / "in"))
        busy.listen(0)
        peer.connect(str(tmp_path / "in"))
        with pytest.raises(StartFailed) as refused:
            opened("unix", tmp_path / "in")

    assert refused.value.code == "port_taken"


@pytest.mark.parametrize("make", [lambda path: path.write_text("mine"), lambda path: path.mkdir()])
def test_a_file_that_is_no_socket_is_left_as_it_is(make, tmp_path):
    make(tmp_path / "in")
    with pytest.raises(StartFailed, match="not a socket"):
        opened("unix", tmp_path / "in")

    assert (tmp_path / "in").exists()


def test_a_link_to_a_socket_is_no_socket(tmp_path):
    (tmp_path / "in").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartFailed, match="not a socket"):
        opened("unix", tmp_path / "in")


def test_a_folder_that_is_missing_is_not_made(tmp_path):
    with pytest.raises(StartFailed, match="No such file or directory") as refused:
        opened("unix", tmp_path / "gone" / "in")

    assert refused.value.code == "file_missing"


def test_a_mode_is_that_of_the_file_whatever_the_umask_is(tmp_path):
    before = os.umask(0o077)
    try:
        bound = opened("unixgram", tmp_path / "in", mode=0o666)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "in").stat().st_mode) == 0o666
    close(bound)


def test_a_file_that_another_process_put_there_is_not_removed(tmp_path):
    bound = opened("unix", tmp_path / "in")
    (tmp_path / "in").rename(tmp_path / "ours")
    (tmp_path / "in").write_text("another's")
    close(bound)

    assert (tmp_path / "in").read_text() == "another's"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts them")
def test_lost_datagrams_are_counted_each_once():
    bound = of_udp(receive_buffer=8192)
    assert newly_lost(bound.socket) == 0
    with socket.socket(socket.AF_INET, DATAGRAM) as peer:
        for _ in range(100):
            peer.sendto(b"x" * 1000, bound.socket.getsockname())
    received = 0
    while True:
        try:
            bound.socket.recv(2000)
        except BlockingIOError:
            break
        received += 1

    assert 0 < received < 100
    assert newly_lost(bound.socket) == 100 - received
    assert newly_lost(bound.socket) == 0
    bound.close()


def test_nobody_says_what_is_lost_on_its_way_to_a_socket_in_the_file_system(tmp_path):
    bound = opened("unixgram", tmp_path / "in")

    assert newly_lost(bound.socket) is None
    close(bound)


def test_a_buffer_is_as_large_as_was_asked_for():
    bound = of_udp(receive_buffer=64 << 10)

    assert receive_buffer(bound.socket) == 64 << 10
    bound.change(mode=None, receive_buffer=32 << 10)
    assert receive_buffer(bound.socket) == 32 << 10
    bound.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a limit that a capability lifts")
@pytest.mark.parametrize("may", [True, False])
def test_a_buffer_is_larger_than_the_limit_of_the_system_where_the_process_may(may, monkeypatch):
    """The limit here is half of what is asked for; who may not gets that."""

    class Limited(socket.socket):
        def setsockopt(self, level, option, value):
            if option == 33 and not may:
                raise PermissionError
            super().setsockopt(level, socket.SO_RCVBUF, value if option == 33 else value // 2)

    monkeypatch.setattr(socket, "socket", Limited)
    bound = of_udp(receive_buffer=64 << 10)

    assert receive_buffer(bound.socket) == (64 << 10 if may else 32 << 10)
    bound.close()
