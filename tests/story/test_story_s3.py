"""The sketch of an output for an object store, in a real process: answers are lost, and the process is killed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trio

from tests.story.driver import launched
from tests.test_docs import PREAMBLE, SKETCHES

PATIENCE = 60.0
KEY = {"k1": {"access_key_id": "AKIA-of-a-test", "secret_access_key": "a-key-nobody-may-see"}}


class ObjectStore(ThreadingHTTPServer):
    """Keeps objects by their keys, and loses as many answers as it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, list[int]] = {}
        self.puts: Counter[str] = Counter()
        self.losses = 0
        self.news = threading.Condition()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def put(self, key: str, numbers: list[int]) -> bool:
        """Returns whether it answers."""
        with self.news:
            assert self.objects.setdefault(key, numbers) == numbers
            self.puts[key] += 1
            self.losses -= 1
            self.news.notify_all()
            return self.losses < 0

    def until_puts(self, most: int) -> None:
        """Waits until one object was written so often."""
        with self.news:
            assert self.news.wait_for(lambda: max(self.puts.values(), default=0) >= most, PATIENCE)

    def handle_error(self, request: object, client_address: object) -> None:
        """A process that is killed aborts its connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectStore

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        numbers = [int(json.loads(line)["message"].split()[-1]) for line in body.splitlines()]
        if self.server.put(self.path, numbers):
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that finds the sketch as an installed plugin."""
    about = tmp_path / "site" / "sketch-1.dist-info"
    about.mkdir(parents=True)
    sketch = "\n\n".join(text for name, text in SKETCHES if name == "s3.py")
    (tmp_path / "site" / "sketch_of_s3.py").write_text(PREAMBLE + sketch)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sketch\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[shipper.outputs]\ns3 = sketch_of_s3:S3Output\n")
    return {"PYTHONPATH": str(tmp_path / "site")}


def write(log: Path, *numbers: int) -> None:
    with log.open("a") as file:
        file.writelines(f"canary-event {number}\n" for number in numbers)


async def test_each_event_is_in_one_object_whatever_is_lost(
    tmp_path: Path, installed: dict[str, str], store: ObjectStore
) -> None:
    log = tmp_path / "app.log"
    main = f"{{type: s3, url: {store.url}, bucket: logs, region: eu, credential: k1, every: 20ms}}"
    text = f'version: 1\ninputs:\n  app: {{type: file, paths: ["{log}"]}}\noutputs:\n  main: {main}\n'
    store.losses = 1_000_000
    write(log, *range(10))
    for run, puts in ((1, 2), (2, 4)):
        async with launched(tmp_path / "state", env=installed) as sidecar:
            await sidecar.hello()
            await sidecar.policy(1, text, KEY)
            write(log, *range(10 * run, 10 * run + 10))
            await trio.to_thread.run_sync(store.until_puts, puts)
            await sidecar.kill()
    store.losses = 1
    async with launched(tmp_path / "state", env=installed) as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, text, KEY)
        write(log, *range(30, 40))
        await sidecar.state(lambda seen: seen["queue"]["events"] == 0 and set(range(40)) == stored(store).keys())
        await sidecar.stop()

    assert set(stored(store).values()) == {1}
    assert max(store.puts.values()) > 4


def stored(store: ObjectStore) -> Counter[int]:
    """How often each event is in an object."""
    with store.news:
        return Counter(number for numbers in store.objects.values() for number in numbers)
