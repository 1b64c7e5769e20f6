"""The real process, all day: no call to a file system that may hang is made in the thread of an event loop.

What is touched for a policy (followed files, certificates, files that are written) may lie on a network. Its own state
directory is another matter: while that hangs nothing can be accepted.
"""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import trio
import trustme

from tests.story.driver import Sidecar, launched
from tests.story.world import World, open_world

WATCHED = Path(__file__).parent / "watched"


async def test_files_of_a_policy_are_never_touched_in_the_thread_of_a_loop(tmp_path: Path) -> None:
    far, notes = tmp_path / "far", tmp_path / "notes"
    far.mkdir()
    async with open_world(far, "a", "b") as world:
        world.state = tmp_path / "state"
        environment = {"PYTHONPATH": str(WATCHED), "WATCHED_DIRECTORY": str(far), "WATCHED_NOTES": str(notes)}
        async with launched(world.state, env=environment) as sidecar:
            await sidecar.hello()
            await a_day(world, sidecar)
            await sidecar.stop()

    assert notes.read_text().splitlines() == []


async def test_a_call_in_the_thread_of_a_loop_would_be_noted(tmp_path: Path) -> None:
    """The state directory is opened in that thread; so this checks that calls are recorded at all."""
    notes = tmp_path / "notes"
    environment = {"PYTHONPATH": str(WATCHED), "WATCHED_DIRECTORY": str(tmp_path), "WATCHED_NOTES": str(notes)}
    async with launched(tmp_path / "state", env=environment) as sidecar:
        await sidecar.hello()
        await sidecar.stop()

    assert notes.read_text().splitlines() != []


async def a_day(world: World, sidecar: Sidecar) -> None:
    """Files that grow, rotate, are compressed, truncated and removed; certificates; a file that is written."""
    far = world.directory
    certificates(far)
    identity = f"{{certificate: {far}/tls.crt, key: {far}/tls.key}}"
    inputs = (
        f'  access: {{type: file, paths: ["{far}/access.log*", "{far}/*/deep.log"], outputs: [main, copy]}}\n'
        f'  bulk: {{type: elasticsearch, address: "127.0.0.1:0", tls: {identity}}}\n'
    )
    url = world.destination.url
    for revision, key in enumerate(("a", "b", "a"), start=1):
        main = f'  main: {{type: elasticsearch, hosts: ["{url}"], credential: {key}, tls: {{ca: {far}/ca.crt}}}}'
        outputs = f"{main}\n  copy: {{type: file, path: {far}/copy-{revision}.ndjson, rotate_bytes: 64KiB}}\n"
        await world.settled(sidecar, revision, key, inputs=inputs, outputs=outputs)
        for change in (rotated, compressed, truncated, removed):
            world.write(2000)
            await world.delivered()
            await trio.to_thread.run_sync(change, world)
        certificates(far)


def certificates(directory: Path) -> None:
    """Writes new certificates for the receiver, and the authority of the destination."""
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(directory / "ca.crt"))
    own.private_key_pem.write_to_path(str(directory / "tls.key"))
    own.cert_chain_pems[0].write_to_path(str(directory / "tls.crt"))


def rotated(world: World) -> None:
    world.log.rename(world.log.with_suffix(".log.1"))
    world.log.touch()


def compressed(world: World) -> None:
    old = world.log.with_suffix(".log.1")
    with gzip.open(world.log.with_suffix(".log.2.gz"), "wb") as file:
        file.write(old.read_bytes())
    old.unlink()


def truncated(world: World) -> None:
    os.truncate(world.log, 0)


def removed(world: World) -> None:
    world.log.with_suffix(".log.2.gz").unlink()
    deep = world.directory / "deep"
    shutil.rmtree(deep, ignore_errors=True)
    deep.mkdir()
    (deep / "deep.log").touch()
