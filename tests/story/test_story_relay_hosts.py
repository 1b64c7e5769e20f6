"""An edge and its principal on two hosts: mTLS says who the edge is, wires are cut, and `drained` crosses them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trustme

from tests.canary import EVENT
from tests.namespaces import Namespace, Wire, namespace
from tests.story.driver import Message, Sidecar, launched

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("ip", "nsenter", "unshare"),
]

PORT = 6789
NEAR, FAR = "10.117.{}.1", "10.117.{}.2"
NAME = "berlin.edge.example"


class Hosts:
    """Two hosts with two wires between them, and what their policies say."""

    def __init__(self, directory: Path, edge: Namespace, principal: Namespace) -> None:
        self.edge, self.principal = edge, principal
        self.wires = [self._wire(number) for number in (1, 2)]
        self.addresses = [FAR.format(number) for number in (1, 2)]
        self.log, self.archive = directory / "access.log", directory / "archive.ndjson"
        self.log.touch()
        self.lines = 0
        self._directory = directory
        self._of_edges = trustme.CA()
        self._make_certificates()

    def _wire(self, number: int) -> Wire:
        return self.edge.wire(f"w{number}", self.principal, *(end.format(number) + "/24" for end in (NEAR, FAR)))

    def _make_certificates(self) -> None:
        authority = trustme.CA()
        own = authority.issue_cert(*self.addresses)
        authority.cert_pem.write_to_path(self._directory / "authority.pem")
        self._of_edges.cert_pem.write_to_path(self._directory / "edges.pem")
        own.private_key_pem.write_to_path(self._directory / "principal.key")
        for part in own.cert_chain_pems:
            part.write_to_path(self._directory / "principal.crt", append=True)

    def write(self, count: int) -> None:
        with self.log.open("a") as file:
            file.writelines(f"{EVENT} {n}\n" for n in range(self.lines, self.lines + count))
        self.lines += count

    def arrived(self) -> list[int]:
        """The numbers of the whole lines that the principal has written to its archive."""
        *events, _ = self.archive.read_text().split("\n") if self.archive.exists() else [""]
        return sorted(int(json.loads(event)["message"].split()[1]) for event in events)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Sidecar, Sidecar]]:
        """Both processes; the edge is yielded first."""
        async with (
            launched(self._directory / "edge", tracer=self.edge.inside) as edge,
            launched(self._directory / "principal", tracer=self.principal.inside) as principal,
        ):
            for sidecar in (edge, principal):
                await sidecar.hello()
            await principal.policy(1, self._of_principal())
            await principal.ack(1, "active")
            yield edge, principal

    def _of_principal(self) -> str:
        files = {"certificate": "principal.crt", "key": "principal.key", "client_ca": "edges.pem"}
        tls = {option: str(self._directory / name) for option, name in files.items()}
        edges = {"berlin": {"san": [NAME]}}
        door = {"type": "relay", "address": f"0.0.0.0:{PORT}", "tls": tls, "edges": edges, "acknowledge": "delivered"}
        output = {"type": "file", "path": str(self.archive)}
        return json.dumps({"version": 1, "inputs": {"edges": door}, "outputs": {"archive": output}})

    async def offer_edge(self, sidecar: Sidecar, revision: int, name: str = NAME) -> None:
        """A revision that shows another certificate, with the same name in it."""
        up = {
            "type": "relay",
            "name": "berlin",
            "hosts": [f"https://{address}:{PORT}" for address in self.addresses],
            "credential": f"k{revision}",
            "tls": {"ca": str(self._directory / "authority.pem")},
            "timeout": "2s",
            "backoff": {"first": "50ms", "longest": "200ms"},
        }
        log = {"type": "file", "paths": [str(self.log)]}
        leaf = self._of_edges.issue_cert(name)
        chain = b"".join(part.bytes() for part in leaf.cert_chain_pems).decode()
        secret = {"certificate": chain, "key": leaf.private_key_pem.bytes().decode()}
        text = json.dumps({"version": 1, "inputs": {"log": log}, "outputs": {"up": up}})
        await sidecar.policy(revision, text, {f"k{revision}": secret})
        await sidecar.ack(revision, "active")


@contextmanager
def hosts(directory: Path) -> Iterator[Hosts]:
    with namespace() as edge, namespace() as principal:
        yield Hosts(directory, edge, principal)


def has(events: int) -> Callable[[Message], bool]:
    """Whether so many events wait."""
    return lambda observed: bool(observed["queue"]["events"] == events)


async def test_drained_crosses_a_wire_that_was_cut_once_it_is_whole_again(tmp_path: Path) -> None:
    with hosts(tmp_path) as on:
        on.wires[1].cut()
        async with on.running() as (edge, _):
            await on.offer_edge(edge, 1)
            on.write(200)
            await edge.state(lambda observed: len(on.arrived()) == 200 and has(0)(observed))
            on.wires[0].cut()
            on.write(300)
            await edge.state(has(300))
            await on.offer_edge(edge, 2)
            on.write(100)
            await edge.state(has(400))
            before = edge.acks("drained")
            on.wires[0].mend()
            drained = await edge.ack(2, "drained", seconds=60)
            await edge.state(has(0))

            assert before == [1]
            assert drained["credentials"] == {"in_use": ["k2"], "released": ["k1"]}
            assert drained["ledger"]["delivered"] == drained["ledger"]["accepted"]
            assert on.arrived() == list(range(600))


async def test_the_other_address_of_a_principal_takes_the_place_of_one_that_is_cut_off(tmp_path: Path) -> None:
    with hosts(tmp_path) as on:
        async with on.running() as (edge, _):
            await on.offer_edge(edge, 1)
            on.write(100)
            await edge.state(lambda observed: len(on.arrived()) == 100 and has(0)(observed))
            for cut, revision in ((0, 2), (1, 3)):
                on.wires[1 - cut].mend()
                on.wires[cut].cut()
                on.write(100)
                await on.offer_edge(edge, revision)
                await edge.ack(revision, "drained", seconds=60)
                await edge.state(lambda observed, all=100 * revision: len(on.arrived()) >= all and has(0)(observed))

            assert on.arrived() == list(range(300))


async def test_a_certificate_with_another_name_is_not_let_in(tmp_path: Path) -> None:
    with hosts(tmp_path) as on:
        async with on.running() as (edge, _):
            await on.offer_edge(edge, 1, "rome.edge.example")
            on.write(10)
            observed = await edge.state(lambda observed: "403" in json.dumps(observed["units"]))

            assert observed["queue"]["events"] == 10
            assert on.arrived() == []
