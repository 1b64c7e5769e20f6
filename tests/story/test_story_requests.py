"""Small requests of many clients: each that was answered is there, though the process is killed again and again."""

from __future__ import annotations

import http.client
import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from shipper_demo.ports import free_port
from tests.canary import EVENT
from tests.story.driver import PATIENCE
from tests.story.world import World, open_world

KILLS, CLIENTS, ANSWERS = 3, 6, 40


def _hook(text: str) -> bytes:
    return json.dumps({"message": text}).encode()


def _logs(text: str) -> bytes:
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": text}}]}]}]}).encode()


def _bulk(text: str) -> bytes:
    return b'{"create":{"_index":"logs-bulk-default"}}\n' + _hook(text) + b"\n"


INPUTS = {
    "http": ("type: http, address", "/", _hook),
    "otlp": ("type: otlp, grpc: null, http", "/v1/logs", _logs),
    "bulk": ("type: elasticsearch, address", "/_bulk", _bulk),
}


def sending(port: int, path: str, written: Callable[[str], bytes], numbers: Iterator[int], answered: list[int]) -> None:
    """Sends an event after the other, until the connection ends; notes those that were answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with suppress(OSError, http.client.HTTPException):
        for number in numbers:
            connection.request("POST", path, written(f"{EVENT} {number}"), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status == 200 and b'"errors":true' not in text:
                answered.append(number)
    connection.close()


def there(world: World) -> set[int]:
    """The numbers of the events at the destination."""
    documents = [document for index in world.destination.documents.values() for document in index.values()]
    return {int(found[1]) for document in documents if (found := re.search(EVENT + r" (\d+)", str(document)))}


@pytest.mark.parametrize(("type", "path", "written"), INPUTS.values(), ids=INPUTS)
async def test_every_answered_event_is_delivered_after_kills(
    tmp_path: Path, type: str, path: str, written: Callable[[str], bytes]
) -> None:
    answered: list[int] = []
    numbers, port = itertools.count(), free_port()
    inputs = f'  in: {{{type}: "127.0.0.1:{port}"}}\n'
    async with open_world(tmp_path, "a") as world:
        for kill in range(1, KILLS + 1):
            async with world.shipping("a", inputs=inputs) as sidecar, trio.open_nursery() as nursery:
                for _ in range(CLIENTS):
                    nursery.start_soon(trio.to_thread.run_sync, sending, port, path, written, numbers, answered)
                with trio.fail_after(PATIENCE):
                    while len(answered) < kill * ANSWERS:  # noqa: ASYNC110 - threads append
                        await trio.sleep(0.005)
                await sidecar.kill()
        async with world.shipping("a", inputs=inputs) as sidecar:
            await sidecar.holds(0)
            await sidecar.stop()

        assert len(answered) >= KILLS * ANSWERS
        assert set(answered) <= there(world)
