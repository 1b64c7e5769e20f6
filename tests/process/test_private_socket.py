"""The socket in a state directory, on a disk that does not answer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from shipper.process.private_socket import address, serve
from tests.hanging_files import hanging

NAME = "shipper.sock"
PATIENCE = 60
CONDITION_SECONDS = 0.01


async def echo(stream: trio.SocketStream) -> None:
    await stream.send_all(await stream.receive_some(100))


async def until_listening(directory: Path) -> None:
    with trio.fail_after(PATIENCE):
        while not answers(directory):  # noqa: ASYNC110
            await trio.sleep(CONDITION_SECONDS)


def answers(directory: Path) -> bool:
    with address(directory, NAME) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        try:
            peer.connect(path)
        except OSError:
            return False
    return True


@pytest.mark.parametrize("call", ["unlink", "chmod"])
async def test_a_socket_that_comes_too_late_is_closed_and_nobody_waits_for_it(tmp_path: Path, call: str) -> None:
    """`unlink` is before the socket is bound, `chmod` after it."""
    with hanging(tmp_path, call) as disk:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, tmp_path, NAME, echo, print)
                while not disk.under_way:  # noqa: ASYNC110
                    await trio.sleep(CONDITION_SECONDS)
                nursery.cancel_scope.cancel("the process ends")
            assert disk.under_way
            disk.go_on()
            while disk.under_way or descriptors() & sockets():  # noqa: ASYNC110
                await trio.sleep(CONDITION_SECONDS)

    assert not answers(tmp_path)
    assert disk.in_the_loop == []


def descriptors() -> set[str]:
    """The sockets that this process has open."""
    links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return {os.readlink(link) for link in links if link.is_symlink()}


def sockets() -> set[str]:
    """Those that are bound to a socket of this name."""
    rows = Path("/proc/net/unix").read_text().splitlines()
    return {f"socket:[{row.split()[6]}]" for row in rows if row.endswith(NAME)}


async def test_a_disk_that_falls_silent_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with hanging(tmp_path) as disk, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, tmp_path, NAME, echo, print)
            disk.hang = frozenset({"unlink"})
            nursery.cancel_scope.cancel("the process ends")

        assert disk.under_way == 1
    assert disk.in_the_loop == []


async def test_a_directory_with_a_long_name_has_a_socket_that_goes_with_its_process(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    (directory / NAME).touch()  # of an earlier process
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, directory, NAME, echo, print)
        await until_listening(directory)
        nursery.cancel_scope.cancel("the process ends")

    assert list(directory.iterdir()) == []


SILENT = """
import os, sys, threading
from pathlib import Path
unlink = os.unlink
def silent(path, *more, **options):
    if str(path).endswith("shipper.sock"):
        Path(os.environ["NOTES"]).touch()
        threading.Event().wait()
    unlink(path, *more, **options)
os.unlink = silent
from shipper.__main__ import main
sys.argv[1:] = ["run", "--state", os.environ["STATE"]]
main()
"""


def test_the_process_takes_policies_and_ends_though_the_disk_never_answers_for_its_socket(tmp_path: Path) -> None:
    environment = {**os.environ, "NOTES": str(tmp_path / "notes"), "STATE": str(tmp_path / "state")}
    hello, stop = '{"type":"hello","protocol":1}\n', '{"type":"stop","within_seconds":0}\n'
    policy = '{"type":"policy","revision":1,"policy":"version: 1"}\n'
    command = [sys.executable, "-c", SILENT]
    ended = subprocess.run(
        command, input=hello + policy + stop, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )

    assert (tmp_path / "notes").exists()
    assert ended.returncode == 0, ended.stderr
    assert '"stage":"received"' in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith('{"type":"stopped","clean":true')
