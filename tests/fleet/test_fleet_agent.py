"""A member of a fleet: a whole supervisor with a real sidecar, on a store in memory."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from shipper.fleet.agent import follow, on
from shipper.fleet.observer import observing, wait
from shipper.fleet.records import SECRETS, Head, Release, Report, Secret
from shipper.fleet.settings import FleetSettings, Http
from shipper.sdk.aio import open_asyncio
from shipper.sdk.credentials import Credential
from shipper.sdk.units import Duration
from shipper.supervise.config import Config, OnRelease
from shipper.supervise.options import Options
from shipper.supervise.questions import Leave, Question, Status, ask
from shipper.supervise.report import Report as Lines
from shipper.testing import BulkDestination, open_destination
from tests.fleet.hosts import KEY, Fleet
from tests.supervise.driver import told


class Stuck:
    """A store of which no call ever returns, once it is `stuck`."""

    def __init__(self, store: Any, *, stuck: bool) -> None:
        self._store, self.stuck = store, stuck

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any, **options: Any) -> Any:
            if self.stuck:
                await trio.sleep_forever()
            return await getattr(self._store, name)(*arguments, **options)

        return call

    @asynccontextmanager
    async def watch(self, prefix: str, after: int) -> AsyncIterator[Any]:
        if self.stuck:
            await trio.sleep_forever()
        async with self._store.watch(prefix, after) as changes:
            yield changes


class Site:
    """A host, its fleet, and what both say."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state, self.out, self.revoked = directory / "state", directory / "out", directory / "revoked"
        self.own = directory / "own"
        self.out.touch()
        self.fleet = Fleet()
        self.ended: list[int] = []
        self.address: str | None = None

    def publish(self, url: str, number: int, credential: str = "{fleet: es}") -> None:
        """Publishes a policy whose secret is the key of this number."""
        id = f"es-{number}"
        if self.fleet.server.read(SECRETS + id).entry is None:
            self.fleet.put(SECRETS + id, Secret("es", f"id{number}:hunter{number}".encode()))
        text = (
            "version: 1\ninputs: {source: {type: generate, rate: 200}}\n"
            f"outputs: {{main: {{type: elasticsearch, hosts: ['{url}'], credential: {credential}}}}}\n"
        )
        self.fleet.publish(text, {"es": id} if "fleet" in credential else {})

    @property
    def report(self) -> Report:
        return self.fleet.report()

    def reached(self, number: int, stage: Any = "drained") -> bool:
        at = self.report.stages.get(stage) if self.report is not None else None
        return at is not None and at.number >= number

    def happened(self, what: str, **fields: Any) -> list[dict[str, Any]]:
        lines = [told(line) for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [one for one in lines if one["event"] == what and fields.items() <= one.items()]

    async def when(self, condition: Callable[[], Any]) -> Any:
        with trio.fail_after(60):
            while not (found := condition()):  # noqa: ASYNC110 (other processes act)
                await trio.sleep(0.01)
            return found

    async def ask(self, question: Question) -> dict[str, Any]:
        return await trio.to_thread.run_sync(ask, self.state, question)

    async def until_held(self, ids: list[str]) -> None:
        """Waits until the ledger has these credentials and no other."""
        held: list[str] = []
        with trio.fail_after(60):
            while held != ids:
                await trio.sleep(0.05)
                held = [one["id"] for one in (await self.ask(Status()))["credentials"]]

    async def http(self, path: str) -> tuple[int, str]:
        """Asks the address that the host has reported."""
        connection = HTTPConnection(self.report.http, timeout=60)

        def get() -> tuple[int, str]:
            with closing(connection):
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        return await trio.to_thread.run_sync(get)

    @asynccontextmanager
    async def member(self, store: Any = None, **changes: Any) -> AsyncIterator[None]:
        """The member, ended in order afterwards, unless it has ended."""
        script = f"echo $SHIPPER_CREDENTIAL_NAME >> {self.revoked}"
        config = Config(on_release=OnRelease(command=("sh", "-c", script)), http=self.address)
        fixed: dict[str, Any] = {"name": "prod", "member": "web-1", "etcd": ("http://127.0.0.1:1",), "keys": (KEY,)}
        settings = FleetSettings(**{**fixed, "lease": Duration(2), **changes})
        options = Options([], self.state, config, grace=10.0)
        self.ended = []
        with self.out.open("a") as out:
            lines = Lines(out.fileno(), json=True)

            async def run() -> None:
                client = store or self.fleet.server.client("web-1")
                self.ended.append(await follow(options, on(settings, client), os.environ, lines))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                try:
                    yield
                    if not self.ended:
                        os.kill(os.getpid(), signal.SIGTERM)
                    await self.when(lambda: self.ended)
                finally:
                    nursery.cancel_scope.cancel()
            lines.flush()
        assert "hunter" not in self.out.read_text()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def count(destination: BulkDestination) -> int:
    return sum(map(len, destination.documents.values()))


def key(number: int) -> Credential:
    return Credential.parse({"api_key": f"id{number}:hunter{number}"})


async def test_a_member_ships_by_the_newest_version_and_forgets_a_secret_that_the_fleet_has_released(
    site: Site,
) -> None:
    """A version that changes nothing is drained like any other. No `on_release` of this host runs."""
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2)}) as destination:
        site.publish(destination.url, 1)
        async with site.member():
            await site.when(lambda: site.reached(1))
            assert site.report.using == ["es-1"]
            site.publish(destination.url, 2)
            await site.when(lambda: site.reached(2) and site.report.using == ["es-2"])
            site.publish(destination.url, 2)
            await site.when(lambda: site.reached(3))
            assert {version.number for version in site.report.stages.values()} == {3}
            status = await site.ask(Status())
            site.fleet.change(released={"es-1": Release("es", 0.0, "done")})
            await site.until_held(["es-2"])

    assert [(one["name"], one["version"]) for one in site.happened("fleet_joined")] == [("web-1", "1")]
    assert {one["version"] for one in site.happened("fleet_version")} == {"1", "2", "3"}
    assert (status["fleet"]["fleet"], status["fleet"]["running"]) == ("prod", "3")
    assert [one["released"] for one in status["credentials"] if one["id"] == "es-1"] == [True]
    assert site.happened("released") == []
    assert [(one["credential"], one["sources"]) for one in site.happened("fleet_released")] == [("es-1", ["fleet:es"])]
    assert destination.refused == 0
    assert not site.revoked.exists()
    assert site.ended == [0]


async def test_the_elected_host_revokes_what_the_fleet_has_released_and_says_so(site: Site) -> None:
    command = ("sh", "-c", f"echo $SHIPPER_FLEET $SHIPPER_FENCING_TOKEN $SHIPPER_CREDENTIAL_ID > {site.revoked}")
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2)}) as destination:
        site.publish(destination.url, 1)
        async with site.member(on_release=OnRelease(command=command)):
            await site.when(lambda: site.reached(1))
            site.fleet.change(secrets={"es": "es-1"}, fingerprints={"es-1": "1", "es-2": "2"})
            site.publish(destination.url, 2)
            site.fleet.change(secrets={"es": "es-2"})
            await site.when(lambda: site.fleet.head.released.get("es-1", Release("", 0)).state == "done")
            await site.until_held(["es-2"])

    (elected,) = site.happened("fleet_elected")
    assert site.revoked.read_text() == f"prod {elected['token']} es-1\n"
    assert [(one["credential"], one["name"]) for one in site.happened("revoked")] == [("es-1", "id1")]


async def test_a_host_in_a_fleet_answers_about_the_fleet_and_passes_on_questions_about_its_sidecar(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        site.publish(destination.url, 1)
        async with site.member(http=Http(address="127.0.0.1:0")):
            await site.when(lambda: site.reached(1))
            address = site.report.http
            fleet = await site.http("/fleet/versions/1")
            metrics = await site.http("/livez")
            said = (await site.ask(Status()))["fleet"]["http"]

    assert (fleet[0], json.loads(fleet[1])["state"]) == (200, "open")
    assert metrics[0] == 503, "the sidecar has no address of its own here"
    assert address == said
    assert not address.endswith(":0")


async def test_the_address_of_the_configuration_is_that_of_the_supervisor(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        site.publish(destination.url, 1)
        site.address = "127.0.0.1:0"
        async with site.member():
            await site.when(lambda: site.reached(1))
            (ready,) = site.happened("ready")
            fleet, alive = await site.http("/fleet/members"), await site.http("/livez")

    assert (fleet[0], alive[0]) == (200, 200)
    assert ready["http"] not in ("", site.report.http)


async def test_an_address_that_is_in_use_is_a_trouble(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with site.member(http=Http(address=f"127.0.0.1:{taken.getsockname()[1]}")):
            await site.when(lambda: site.happened("fleet_trouble", code="http_unserved"))
            await site.when(lambda: site.report is not None)
            assert site.report.http == ""


async def test_t152_13_traffic_continues_while_the_store_is_gone(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2)}) as destination:
        site.publish(destination.url, 1)
        async with site.member():
            await site.when(lambda: site.reached(1))
            site.fleet.server.stop()
            await site.when(lambda: site.happened("fleet_trouble", code="store_unreachable"))
            before = count(destination)
            await site.when(lambda: count(destination) > before + 200)
            status = await site.ask(Status())
            site.fleet.server.start()
            site.publish(destination.url, 2)
            await site.when(lambda: site.reached(2))
            await site.when(lambda: site.happened("fleet_well", code="store_unreachable"))

    assert status["state"] == "DEGRADED"
    assert status["troubles"][0]["kind"] == "fleet"
    assert len(site.happened("launched")) == 1


async def test_no_path_of_data_or_of_a_revision_waits_for_a_store_that_never_answers(site: Site) -> None:
    site.own.write_text("id1:hunter1")
    site.own.chmod(0o600)
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2)}) as destination:
        site.publish(destination.url, 1, f"{{file: {site.own}}}")
        store = Stuck(site.fleet.server.client("web-1"), stuck=False)
        async with site.member(store):
            await site.when(lambda: site.reached(1))
            store.stuck = True
            new = site.directory / "new"
            new.write_text("id2:hunter2")
            new.chmod(0o600)
            new.rename(site.own)
            await site.when(lambda: site.happened("ack", revision="2", stage="drained"))
            await site.when(lambda: site.revoked.exists() and site.revoked.read_text() == "id1\n")
            assert (await site.ask(Status()))["running"]
        before = count(destination)
        async with site.member(store):
            await site.when(lambda: count(destination) > before + 100)
        assert site.ended == [0]


async def test_a_version_that_this_host_cannot_use_is_refused_and_the_last_one_runs_on(site: Site) -> None:
    """If it is the first one, the host waits for another."""
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        site.publish(destination.url, 1, "{env: NO_SUCH_SECRET}")
        async with site.member():
            await site.when(lambda: site.report is not None and site.report.refusal)
            site.publish(destination.url, 1)
            await site.when(lambda: site.reached(2))
            site.publish(destination.url, 1, "{env: NO_SUCH_SECRET}")
            await site.when(lambda: site.report.refusal)
            before = count(destination)
            await site.when(lambda: count(destination) > before + 100)
            refusal = site.report.refusal

    assert refusal is not None
    assert (refusal.version.number, refusal.reason) == (3, "credential_missing")
    assert refusal.problems[0].startswith("version 3:3:")


@pytest.mark.parametrize("number", [1, 2], ids=["the key that it has", "another key"])
async def test_the_answer_opens_once_a_secret_appears_for_which_a_host_had_refused_the_version(
    site: Site, number: int
) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2)}) as destination:
        site.publish(destination.url, 1)
        async with (
            site.member(),
            observing(site.fleet.server.client("asker"), site.fleet.seals) as observer,
        ):
            await site.when(lambda: site.reached(1))
            site.publish(destination.url, 1, f"{{file: {site.own}}}")
            await site.when(lambda: site.report.refusal)
            refused = await wait(observer, 2, "drained", 0.5, 0.1)
            new = site.directory / "new"
            new.write_text(f"id{number}:hunter{number}")
            new.chmod(0o600)
            new.rename(site.own)
            opened = await wait(observer, 2, "drained", 20.0, 10.0)
            refusal, status = site.report.refusal, await site.ask(Status())

    assert (refused.state, [each.kind for each in refused.members]) == ("refused", ["refused"])
    assert (opened.state, refusal) == ("open", None)
    assert (status["fleet"]["refused"], status["state"]) == (None, "HEALTHY")


async def test_under_hold_nothing_is_sent_after_the_lease_and_again_with_the_next_one(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        site.publish(destination.url, 1)
        async with site.member(on_lapse="hold"):
            await site.when(lambda: site.reached(1) and count(destination) > 100)
            lapsed: dict[str, Any] = {"unit": "outputs.main", "code": "lease_lapsed"}
            known = len(site.happened("unit", **lapsed))
            site.fleet.server.stop()
            await site.when(lambda: len(site.happened("unit", **lapsed)) > known)
            before = count(destination)
            await trio.sleep(0.5)
            held = count(destination) - before
            site.fleet.server.start()
            await site.when(lambda: count(destination) > before + 200)

    assert held == 0


async def test_a_member_that_leaves_delivers_reports_what_it_keeps_and_ships_nothing_before_the_store_answers_again(
    site: Site,
) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        site.publish(destination.url, 1)
        async with site.member():
            await site.when(lambda: site.reached(1))
            answer = await site.ask(Leave())
            await site.when(lambda: site.ended)
        left, ended, before = site.report, site.ended, len(site.happened("launched"))
        site.fleet.server.stop()
        async with site.member():
            await site.when(lambda: site.happened("fleet_trouble", code="store_unreachable"))
            assert len(site.happened("launched")) == before
            assert (await site.ask(Status()))["running"]
            site.fleet.server.start()
            await site.when(lambda: len(site.happened("launched")) > before)

    assert answer["status"] == "SUCCESS"
    assert ended == [0]
    assert (left.state, left.undelivered.events) == ("left", 0)
    assert site.happened("fleet_left")
    assert isinstance(site.fleet.head, Head)
    assert "hunter" not in json.dumps(site.happened("fleet_trouble"))


async def test_a_host_that_leaves_with_undelivered_events_says_what_stays_open(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys=set()) as destination:
        site.publish(destination.url, 1)
        async with site.member():
            await site.when(lambda: destination.refused)
            answer = await site.ask(Leave())
            await site.when(lambda: site.ended)

    assert re.search(r"; [\d,]+ events? undelivered: they stay in the state directory, and what", answer["message"])
    assert site.report.undelivered.events > 0


async def test_a_report_has_the_ledger_of_the_version_and_apart_from_it_the_rotation_of_a_secret_of_the_host(
    site: Site,
) -> None:
    site.own.write_text("id1:hunter1")
    site.own.chmod(0o600)
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2)}) as destination:
        site.publish(destination.url, 1, f"{{file: {site.own}}}")
        async with site.member():
            await site.when(lambda: site.reached(1))
            await site.when(lambda: count(destination) > 0)
            first = site.report.ledger
            site.own.write_text("id2:hunter2")
            await site.when(lambda: site.report.local == "drained 2")
            fleet = (await site.ask(Status()))["fleet"]

    assert first is not None
    assert (fleet["ledger"], fleet["local"]) == (msgspec.to_builtins(first), "drained 2")
    assert (first.accepted, site.report.ledger) == (first.answered, first)
    assert site.report.stages["drained"].number == 1
