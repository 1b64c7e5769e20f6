"""The bulk receiver over real sockets, and the account of what it stored and said."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio

from shipper.plugin import Batch, Endpoint, Size
from shipper.sdk.aio import open_asyncio
from shipper.testing import RecordingInputContext
from shipper_plugins.elasticsearch.input import ElasticsearchInput
from tests.hostile.requests import Case, token

STATUSES = frozenset({200, 400, 401, 404, 405, 406, 408, 413, 415, 429})
QUIET_SECONDS = 0.5
"""A server that waits for the rest of a request says nothing; so long it is listened to."""
PATIENCE = 60.0


class Ledger(RecordingInputContext):
    """Counts what is stored, by the token of its case, and forgets it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.stored_by: Counter[str] = Counter()
        self.smuggled = 0

    async def emit(
        self, *batches: Batch, positions: Mapping[str, bytes | None] | None = None, wait: bool = True
    ) -> None:
        await trio.lowlevel.checkpoint()
        for batch in batches:
            for document in batch.own():
                self.stored_by[str(document.get("case"))] += 1
                self.smuggled += document.get("note") == "smuggled"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def created(self) -> int:
        if self.status != 200 or not self.body.startswith(b'{"errors"'):
            return 0
        return sum(item["status"] == 201 for entry in json.loads(self.body)["items"] for item in entry.values())


class Receiver:
    """A running receiver; made by `receiving`."""

    def __init__(self, ledger: Ledger, port: int) -> None:
        self.ledger, self.port = ledger, port
        self.answered: Counter[int] = Counter()
        """By status; 0 is a connection that was closed without an answer, -1 one that waits for more."""

    async def judge(self, number: int, case: Case, patience: float = QUIET_SECONDS) -> list[Answer]:
        """Send a case; raises AssertionError if it is not answered as it deserves."""
        said, ended = await self.exchange(case.raw, PATIENCE if case.exact else patience, case.drip)
        answers = list(parsed(said, ended))
        stored, created = self.ledger.stored_by[token(number)], sum(answer.created for answer in answers)
        self.answered.update([answer.status for answer in answers] or [0 if ended else -1])
        assert self.ledger.smuggled == 0, case
        assert all(answer.status in STATUSES for answer in answers), (answers, case)
        assert len(answers) <= case.requests, (answers, case)
        assert stored <= case.documents, (answers, stored, case)
        if case.exact:
            assert [answer.status for answer in answers] == [200] * case.requests, (answers, case)
            assert stored == created == case.documents, (answers, case)
        if ended and case.raw.count(b'"case": "%b",' % token(number).encode()) == case.raw.count(b'"case"'):
            assert stored <= created, (answers, stored, case)
        return answers

    async def exchange(
        self, raw: bytes, patience: float = QUIET_SECONDS, drip: int | None = None
    ) -> tuple[bytes, bool]:
        """All that is said to it, and whether the connection was closed then, or silent for so long."""
        said = bytearray()
        with trio.fail_after(PATIENCE):
            stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(_send, stream, raw, drip)
            ended = False
            while not ended:
                with trio.move_on_after(patience) as quiet:
                    try:
                        chunk = await stream.receive_some(65536)
                    except trio.BrokenResourceError:
                        chunk = b""
                if quiet.cancelled_caught:
                    break
                said += chunk
                ended = not chunk
            nursery.cancel_scope.cancel()
        return bytes(said), ended


async def _send(stream: trio.SocketStream, raw: bytes, drip: int | None) -> None:
    """All at once, or so many bytes each millisecond."""
    size = drip or len(raw) or 1
    try:
        for at in range(0, len(raw), size):
            await stream.send_all(raw[at : at + size])
            await trio.sleep(0.001 if drip else 0)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


def parsed(said: bytes, ended: bool) -> list[Answer]:
    """The answers in what was said: HTTP to its last byte, each with its length, each body JSON."""
    answers = []
    while said:
        head, mark, rest = said.partition(b"\r\n\r\n")
        if not mark and not ended:
            break
        first, *lines = head.decode("ascii").split("\r\n")
        version, status = first.split(" ")[:2]
        assert re.fullmatch(r"HTTP/[0-9]\.[0-9]", version), said[:200]
        headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
        length = int(headers.get("content-length", 0))
        said = rest[length:]
        if int(status) == 100:
            continue
        body = rest[:length]
        assert len(body) == length or ended, said[:200]
        if len(body) == length and body:
            json.loads(body)
            assert headers["x-elastic-product"] == "Elasticsearch"
        answers.append(Answer(int(status), body if len(body) == length else b""))
    return answers


@asynccontextmanager
async def receiving(**settings: Any) -> AsyncIterator[Receiver]:
    """An `elasticsearch` input on a free port, with small limits."""
    limits = {"max_body_bytes": Size(4 << 20), "max_decompressed_bytes": Size(8 << 20)}
    config = ElasticsearchInput(address="127.0.0.1:0", **{**limits, **settings})
    async with open_asyncio() as aio:
        ledger = Ledger(aio=aio)
        async with config.open(ledger) as source, trio.open_nursery() as nursery:
            nursery.start_soon(source.run)
            port = (await ledger.listen(Endpoint("tcp", "127.0.0.1"))).getsockname()[1]
            yield Receiver(ledger, port)
            nursery.cancel_scope.cancel()
