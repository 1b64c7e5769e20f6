"""The backend of `shipper demo relay`: takes bulk requests as Elasticsearch does, versions of keyed state too.

Who may write is known in the instant in which it is decided. Log events go to a record in a file, which can be counted;
of keyed state the last word about each key is kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from shipper.plugin import Credential, Fields
from shipper.sdk.aio import open_asyncio
from shipper.testing.destination import BulkDestination, Document, Request, open_destination
from shipper_demo.key import Key, answer_to


class Record:
    """What a backend took: log events in a file, and what keyed state is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: dict[tuple[str, str], tuple[int, Fields | None]] = {}
        self._file: BinaryIO

    def __enter__(self) -> Record:
        self._file = self.path.open("wb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def state(self, owner: str) -> dict[str, Fields | None]:
        """The documents of an owner, by their keys; None for one that is deleted."""
        return {key: document for (whose, key), (_, document) in list(self._state.items()) if whose == owner}

    def take(self, documents: Sequence[Document]) -> None:
        """Note what a bulk request holds; a request for documents changes nothing."""
        lines = []
        for each in [document for document in documents if document.op != "get"]:
            source = orjson.loads(each.source)
            if each.version is not None:
                self._keep(source, each.version)
            else:
                _, dataset, _ = each.index.split("-", 2)
                event = {"_id": each.id, "message": source.get("message"), "data_stream": {"dataset": dataset}}
                lines.append(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
        self._file.write(b"".join(lines))

    def _keep(self, document: dict[str, Any], version: int) -> None:
        """As a backend does that orders versions: an older one changes nothing."""
        said = document.pop("shipper")
        name = said["owner"], said["key"]
        if version > self._state.get(name, (-1, None))[0]:
            self._state[name] = version, None if said["deleted"] else document


class Backend:
    """A running backend; made by `opened`."""

    def __init__(self, destination: BulkDestination) -> None:
        self.port = int(destination.url.rpartition(":")[2])
        assert destination.keys is not None
        self._keys = destination.keys

    async def admit(self, key: Key) -> None:
        """From the return on, requests with this key are taken."""
        self._keys.add(_credential(key))

    async def revoke(self, key: Key) -> None:
        """From the return on, every request with this key is refused."""
        self._keys.discard(_credential(key))

    async def answer_to(self, key: Key) -> int:
        """The HTTP status of a request with this key, made just now."""
        return await answer_to(key, self.port)


def _credential(key: Key) -> Credential:
    return Credential.parse({"api_key": key.text})


@asynccontextmanager
async def opened(record: Record) -> AsyncIterator[Backend]:
    """A backend on a free port of loopback; nobody may write before a key is admitted."""

    def note(_: Request, documents: Sequence[Document]) -> None:
        """In the thread of the server, which takes all of them."""
        record.take(documents)

    async with open_asyncio() as aio, open_destination(aio, keys=(), keep="ids", script=note) as destination:
        with record:
            yield Backend(destination)
