"""A destination that revokes keys, a growing file of numbered lines, and policies that ship the file to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from shipper.plugin import Asyncio, Credential
from shipper.sdk.aio import open_asyncio
from shipper.testing import BulkDestination, Document, Reply, Request, open_destination
from tests.canary import EVENT
from tests.story.driver import Sidecar, launched, policy

Secrets = dict[str, dict[str, str]]


def secret(name: str) -> dict[str, str]:
    """Returns the secret of a credential id for a message."""
    return {"api_key": f"{name}:secret-of-{name}"}


def key(name: str) -> Credential:
    """Returns the secret of a credential id for the destination."""
    return Credential.parse(secret(name))


def rejecting(request: Request, documents: list[Document]) -> Reply:
    """A script of a destination whose mapping refuses every event."""
    return Reply(items=dict.fromkeys(range(len(documents)), (400, "mapper_parsing_exception")))


class World:
    """Made by `open_world`. Credential ids are the names of keys."""

    def __init__(self, directory: Path, aio: Asyncio, destination: BulkDestination) -> None:
        self.directory, self.aio, self.destination = directory, aio, destination
        self.state = directory / "state"
        self.log = directory / "access.log"
        self.log.touch()
        self.lines = 0

    def write(self, count: int = 1) -> None:
        """Append numbered lines to the file."""
        with self.log.open("a") as file:
            file.write("".join(f"{EVENT} {n}\n" for n in range(self.lines, self.lines + count)))
        self.lines += count

    def grant(self, *names: str) -> None:
        assert self.destination.keys is not None
        self.destination.keys |= {key(name) for name in names}

    def revoke(self, *names: str) -> None:
        assert self.destination.keys is not None
        self.destination.keys -= {key(name) for name in names}

    def text(self, credential: str | None, **parts: Any) -> str:
        """Returns a policy that ships the file to the destination with a credential."""
        return policy(url=self.destination.url, paths=str(self.log), credential=credential, **parts)

    async def offer(self, sidecar: Sidecar, revision: int, credential: str, **parts: Any) -> None:
        """Send such a policy with its secret."""
        await sidecar.policy(revision, self.text(credential, **parts), {credential: secret(credential)})

    async def settled(self, sidecar: Sidecar, revision: int, credential: str, **parts: Any) -> dict[str, Any]:
        """Send it, and wait until it is drained."""
        self.grant(credential)
        since = len(sidecar.said)
        await self.offer(sidecar, revision, credential, **parts)
        return await sidecar.ack(revision, "drained", since=since)

    @asynccontextmanager
    async def shipping(self, credential: str, *, http: str = "", **parts: Any) -> AsyncIterator[Sidecar]:
        """Runs a process, at an address if one is given, that has drained such a policy as its first revision."""
        async with launched(self.state, *(["--http", http] if http else [])) as sidecar:
            await sidecar.hello()
            await self.settled(sidecar, 1, credential, **parts)
            yield sidecar

    async def delivered(self, seconds: float = 60) -> None:
        """Waits until every written line has arrived, each once."""
        with trio.fail_after(seconds):
            await self.destination.wait_until(lambda: self.destination.total >= self.lines)
        self.check()

    def numbers(self) -> list[int]:
        """Returns the numbers of the lines at the destination, sorted."""
        indices = list(self.destination.documents.values())  # the server may be adding to them
        documents = [document for index in indices for document in list(index.values())]
        return sorted(int(json.loads(document)["message"].split()[1]) for document in documents)

    def check(self) -> None:
        """Checks that no line is lost or duplicated."""
        assert self.numbers() == list(range(self.lines))


@asynccontextmanager
async def open_world(directory: Path, *keys: str, port: int = 0) -> AsyncIterator[World]:
    """A world in which these keys are granted."""
    granted = {key(name) for name in keys}
    async with open_asyncio() as aio, open_destination(aio, keys=granted, port=port) as destination:
        yield World(directory, aio, destination)


@asynccontextmanager
async def shipping(directory: Path, *keys: str, **parts: Any) -> AsyncIterator[tuple[World, Sidecar]]:
    """A world in which these keys are granted, and a process that ships with the first of them."""
    async with open_world(directory, *keys) as world, world.shipping(keys[0], **parts) as sidecar:
        yield world, sidecar
