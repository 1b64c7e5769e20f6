"""What an edge and its principal spend to find out, after a reconnect, in what their keyed state differs."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from shipper.plugin import Batch, Credential
from shipper.plugin.state import Version, digest_of
from shipper_demo.ports import free_port
from shipper_plugins.relay import state
from shipper_plugins.relay.frames import PROTOCOL, Generation
from tests.benchmarks.child import Shipper
from tests.benchmarks.doors import Clock, Link, door, linked, relay_output, secret
from tests.benchmarks.figures import Table, progress, spread
from tests.benchmarks.pipeline import IMPATIENT, Progress, bulk_output, queued, running, workplace
from tests.benchmarks.sink import Sink

AIM_BYTES = 64 << 10
AIM_CPU = 1.0
CHANGED = 10
QUIET = 2.0
"""Seconds without a byte, after which both sides agree."""
COLLECTION = "things"
PROGRAM, EDGE = "program", "berlin"
LARGEST = 1 << 20


@dataclass(frozen=True)
class Resync:
    """Of one reconnect."""

    there: int
    """Bytes, of HTTP, from the edge to the principal."""
    back: int
    requests: int
    cpu: float
    """Of both processes."""
    seconds: float


class Program:
    """Puts keys at the door of the edge, as an edge of that one."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._authorization = Credential.parse(secret(PROGRAM)).authorization()
        self._place = 0
        hello = {"protocol": PROTOCOL, "instance": os.urandom(16).hex(), "link": 1}
        said = self._ask("session", "application/json", json.dumps(hello).encode())
        self._generation = Generation(*said["generation"])

    def put(self, numbers: Sequence[int]) -> None:
        """New versions of these keys; they are stored when this returns."""
        for at in range(0, len(numbers), state.MOST_VERSIONS):
            versions, documents = [], []
            for number in numbers[at : at + state.MOST_VERSIONS]:
                self._place += 1
                document = b'{"rack":%d,"version":%d,"serial":"a-number-of-a-device"}' % (number, self._place)
                documents.append(document)
                key = f"host-{number}"
                versions.append(Version("", COLLECTION, key, self._place, digest_of(document), deleted=False))
            batch = Batch.documents(documents).with_columns(versions=versions)
            body = state.encode(state.StateHead(self._generation, 1, 0), batch, LARGEST)
            if self._ask("versions", state.MEDIA_TYPE, b"".join(body))["others"]:
                raise SystemExit("the edge has refused versions")

    def close(self) -> None:
        self._connection.close()

    def _ask(self, what: str, kind: str, body: bytes) -> Any:
        headers = {"Authorization": self._authorization, "Content-Type": kind}
        self._connection.request("POST", f"/v1/relay/{what}", body, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{what} was answered {answer.status}: {text!r}")
        return json.loads(text)


def resyncs(target: Sink, keys: int, runs: int) -> dict[str, list[Resync]]:
    """Reconnects with so many keys, of which none has changed, or a few."""
    target.reset()
    found: dict[str, list[Resync]] = {"unchanged": [], f"{CHANGED} changed": []}
    with workplace() as place, running(place / "principal") as principal, running(place / "edge") as edge:
        own, far = free_port(), free_port()
        limits = {"collections": [COLLECTION], "max_keys": keys}
        door(principal, far, {EDGE: {"credentials": [EDGE], **limits}}, {"main": bulk_output(target.port)})
        with linked(far) as link:
            up = relay_output(link.port, EDGE, backoff=IMPATIENT)
            door(edge, own, {PROGRAM: {"credentials": [PROGRAM], **limits}}, {"main": up})
            with closing(Program(own)) as program:
                progress(f"{keys:,} keys are put")
                program.put(range(keys))
                _until_there(edge, principal, target, keys)
                for run in range(runs):
                    for at, (name, costs) in enumerate(found.items()):
                        progress(f"a reconnect, {name}: {run + 1} of {runs}")
                        costs.append(_reconnect(link, edge, principal, program, range(keys)[: at * CHANGED]))
    return found


def _until_there(edge: Shipper, principal: Shipper, target: Sink, keys: int) -> None:
    patience = Progress(principal, f"{keys} keys arrived")
    while (items := target.counts()["items"]) < keys or queued(edge) or queued(principal):
        patience.check(items)
        time.sleep(0.05)


def _reconnect(link: Link, edge: Shipper, principal: Shipper, program: Program, changed: Sequence[int]) -> Resync:
    """The link was down, and is up again; these keys have changed meanwhile."""
    link.take_down()
    program.put(changed)
    link.until_noticed()
    clocks, begun = [Clock(child) for child in (edge, principal)], time.monotonic()
    link.bring_up()
    patience = Progress(edge, "both sides agree")
    while not _is_quiet(link):
        patience.check(link.there + link.back)
        time.sleep(0.05)
    cpu = sum(clock.stop().cpu for clock in clocks)
    return Resync(link.there, link.back, len(link.asked), cpu, link.moved - begun)


def _is_quiet(link: Link) -> bool:
    has_compared = any(path.endswith(b"/compare") for path in link.asked)
    return has_compared and link.answered == len(link.asked) and time.monotonic() > link.moved + QUIET


def table(found: dict[str, list[Resync]], keys: int) -> Table:
    rows = []
    for name, runs in found.items():
        cells = [spread([each.there for each in runs]), spread([each.back for each in runs])]
        cells += [spread([each.requests for each in runs]), spread([each.cpu for each in runs], ".2f")]
        rows.append([f"{keys:,} keys, {name}", *cells, spread([each.seconds for each in runs], ".2f")])
    aims = f"bytes to the principal (aim, both ways: {AIM_BYTES:,})"
    return Table(["a reconnect", aims, "bytes back", "requests", f"CPU s of both (aim {AIM_CPU:g})", "s"], rows)
