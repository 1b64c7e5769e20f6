"""Who writes keys in the campaign: documents in a directory, and a program that puts them at a door."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random

import trio

from shipper.plugin import Credential
from tests.campaign_relay.things import Thing, Things

KEYS = 40
"""Of each writer, at most."""
_SECONDS = 5.0
"""That a request may take."""


class Directory:
    """Documents of an edge, each a file of its own."""

    def __init__(self, things: Things, owner: str, path: Path) -> None:
        self.owner, self.collection, self.path = owner, "inventory", path
        self._things = things
        path.mkdir()

    @property
    def paths(self) -> str:
        return str(self.path / "*.json")

    def doubt(self) -> None:
        """The shipper does not remember what was here before; what is here, it reads again."""
        self._things.doubt(self.owner, self.collection, deletions_only=True)

    def change(self, random: Random) -> None:
        """Write or remove a document."""
        there = self._things.present(self.owner, self.collection)
        if there and random.random() < 0.2:
            self.remove(random.choice(sorted(there)))
        else:
            self.write(f"k{random.randrange(KEYS)}")

    def write(self, key: str) -> None:
        document = self._things.put(Thing(self.owner, self.collection, key))
        (self.path / "new").write_bytes(document)
        os.replace(self.path / "new", self.path / f"{key}.json")

    def remove(self, key: str) -> None:
        self._things.delete(Thing(self.owner, self.collection, key))
        (self.path / f"{key}.json").unlink()


class Program:
    """Puts and deletes keys at a door, one after the other."""

    def __init__(self, things: Things, owner: str, port: int, credential: Credential) -> None:
        self.owner, self.collection = owner, "things"
        self._things, self._port, self._credential = things, port, credential
        self._saying: Thing | None = None

    def standing(self) -> dict[Thing, int]:
        """What the door has taken: how much was said of each key."""
        standing = self._things.standing(self.owner, self.collection)
        return {thing: count for thing, count in standing.items() if thing != self._saying}

    def doubt(self, *, deletions_only: bool = False) -> None:
        """The shipper does not remember what was put; or its principal, which is sent again what there is."""
        self._things.doubt(self.owner, self.collection, deletions_only=deletions_only)

    async def change(self, random: Random) -> None:
        """Returns when the door has taken it."""
        key = f"k{random.randrange(KEYS)}"
        thing = Thing(self.owner, self.collection, key)
        self._saying = thing
        is_there = key in self._things.present(self.owner, self.collection)
        if is_there and random.random() < 0.2:
            self._things.delete(thing)
            await self._say("DELETE", key, b"")
        else:
            await self._say("PUT", key, self._things.put(thing))
        self._saying = None

    async def _say(self, method: str, key: str, document: bytes) -> None:
        """Again and again, until it is taken."""
        path = f"{self.collection}/{key}"
        while await put(self._port, self._credential, method, path, document) != 200:  # noqa: ASYNC110
            await trio.sleep(0.05)


async def put(port: int, credential: Credential, method: str, path: str, document: bytes) -> int:
    """The status that a door answers for a key; 0 if there is no answer."""
    head = (
        f"{method} /v1/state/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: {credential.authorization()}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(document)}\r\n\r\n"
    )
    answer = b""
    with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(_SECONDS):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(head.encode() + document)
            async for block in stream:
                answer += block
    return int(answer.split()[1]) if b"\r\n" in answer else 0
