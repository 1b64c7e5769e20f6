"""The supervisor with the real sidecar and a real destination, whose keys die in the instant that `on_release` runs."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from shipper.sdk.aio import open_asyncio
from shipper.sdk.credentials import Credential
from shipper.supervise.questions import Status, ask
from shipper.supervise.show import of_status
from shipper.testing import BulkDestination, Reply, open_destination
from tests.supervise.driver import Site

COUNT = 3000


def policy(destination: BulkDestination, inputs: str) -> str:
    return (
        f"version: 1\ninputs:\n  source: {inputs}\n"
        f"outputs:\n  main: {{type: elasticsearch, hosts: ['{destination.url}'], credential: {{file: es}}}}\n"
    )


def key(number: int) -> Credential:
    return Credential.parse({"api_key": f"id{number}:hunter{number}"})


def in_words(status: Mapping[str, Any]) -> str:
    return "\n".join(" ".join(row) for _, rows in of_status(status) for row in rows)


class Log:
    """A file that grows until `is_growing` is false."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.is_growing = path, 0, True

    async def keep_writing(self) -> None:
        while self.is_growing:
            self._append(10)
            await trio.sleep(0.01)

    def _append(self, count: int) -> None:
        with self.path.open("a") as file:
            file.write("".join(f"line {n}\n" for n in range(self.lines, self.lines + count)))
        self.lines += count


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, fake_sidecar=False)


async def test_keys_are_rotated_under_load_each_revoked_when_drained_and_no_event_is_lost(site: Site) -> None:
    log = Log(site.directory / "app.log")
    async with (
        open_asyncio() as aio,
        open_destination(aio, keys={key(1), key(2), key(3), key(4)}) as destination,
        trio.open_nursery() as nursery,
    ):
        assert destination.keys is not None
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, f"{{type: file, paths: ['{log.path}']}}"))
        async with site.supervisor() as process:
            nursery.start_soon(log.keep_writing)
            for number in (1, 2, 3):
                seen = destination.total
                await site.when(lambda seen=seen: destination.total > seen)
                destination.script = lambda request, documents: Reply(hang=True)
                await site.when(lambda: destination.hanging)
                site.replace(site.secret, f"id{number + 1}:hunter{number + 1}\n")
                await site.until("ack", revision=str(number + 1), stage="active")
                assert len(site.revoked) == number - 1
                destination.script = None
                await destination.release()
                await site.when(lambda number=number: len(site.revoked) == number)
                destination.keys.discard(key(number))
            log.is_growing = False
            with trio.fail_after(60):
                await destination.wait_for(log.lines)
            process.send_signal(signal.SIGTERM)
            assert await site.ended(process) == 0

        assert destination.total == log.lines
        assert destination.refused == 0
        assert len(set(site.revoked)) == 3


async def test_once_ships_a_file_to_its_end_and_exits(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        (site.directory / "app.log").write_text("".join(f"line {n}\n" for n in range(500)) + "no newline")
        site.policy.write_text(policy(destination, f"{{type: file, paths: ['{site.directory}/app.log']}}"))
        site.arguments = ["--once"]
        async with site.supervisor() as process:
            assert await site.ended(process) == 0

        assert destination.total == 501


@pytest.mark.parametrize("option", ["--json", "--text"])
async def test_supervisor_and_sidecar_write_in_one_format(site: Site, option: str) -> None:
    (site.directory / "app.log").write_text("one\n")
    source = f"{{app: {{type: file, paths: ['{site.directory}/app.log']}}}}"
    target = f"{{main: {{type: file, path: '{site.directory}/out'}}}}"
    site.policy.write_text(f"version: 1\ninputs: {source}\noutputs: {target}\n")
    with socket.create_server(("127.0.0.1", 0)) as busy, trio.fail_after(60):
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        (site.directory / "config.yaml").write_text(f"http: {address}\n")
        ended = await trio.run_process(
            [*site.command(), "--once", option], capture_stdout=True, capture_stderr=True, env=site.environment
        )
    supervisor, sidecar = ended.stdout.splitlines(), ended.stderr.splitlines()

    assert supervisor
    assert sidecar
    assert {line.startswith(b'{"@timestamp":') for line in supervisor + sidecar} == {option == "--json"}


async def test_once_gives_up_when_it_is_refused_for_longer_than_asked(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys=set()) as destination:
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, "{type: generate, count: 10}"))
        site.arguments = ["--once", "--once-timeout", "200ms", "--grace", "0s"]
        async with site.supervisor() as process:
            assert await site.ended(process) == 1
            line = await site.until("waits")

    assert line["reason"].startswith("10 events to be delivered; outputs.main: ")


async def test_a_new_key_that_is_wrong_holds_its_events_visibly_and_is_not_revoked(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(3)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, "{type: generate, rate: 200}"))
        site.arguments = ["--grace", "0s"]
        async with site.supervisor() as process:
            await site.when(lambda: destination.total > 10)
            site.replace(site.secret, "id2:hunter2\n")
            await site.until("unit", unit="outputs.main", state="DEGRADED")
            site.replace(site.secret, "id3:hunter3\n")
            await site.when(lambda: destination.requests_with(key(3)))
            await site.when(lambda: site.revoked)
            answer = await trio.to_thread.run_sync(ask, site.state, Status())
            process.send_signal(signal.SIGTERM)
            assert await site.ended(process) == 0

    (draining,) = answer["observed"]["draining"]
    assert draining["revision"] == 2
    assert "401" in draining["outputs"]["main"]["reason"]
    assert [line["credential"] for line in site.happened("revoked")] == [site.revoked[0].split()[0]]
    assert len(answer["credentials"]) == 2


async def wait_with_a_wrong_key(site: Site, destination: BulkDestination) -> str:
    """Begins a rotation to a wrong key, and returns the id of the old one, which is released and waits."""
    await site.when(lambda: destination.total > 10)
    site.replace(site.secret, "id2:hunter2\n")
    return str((await site.until("release_waits", name="id1", until="accepted"))["credential"])


async def test_a_wrong_key_leaves_the_old_one_as_the_way_back_until_a_right_one_is_accepted(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(3)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, "{type: generate, rate: 200}"))
        site.arguments = ["--grace", "0s"]
        async with site.supervisor():
            old = await wait_with_a_wrong_key(site, destination)
            await site.when(lambda: destination.refused)
            shown = in_words(await trio.to_thread.run_sync(ask, site.state, Status()))
            assert site.revoked == []
        async with site.supervisor():
            await site.until("release_waits", credential=old)
            site.replace(site.secret, "id3:hunter3\n")
            await site.when(lambda: site.revoked)

    assert "released, waits for its successor to be accepted (es-" in shown
    assert site.revoked[0].split()[:2] == [old, "id1"]


async def test_an_output_without_events_asks_whether_the_new_key_is_accepted(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, "{type: generate, count: 3}"))
        async with site.supervisor():
            await site.when(lambda: destination.total == 3)
            site.replace(site.secret, "id2:hunter2\n")
            await site.when(lambda: site.revoked)

    assert site.revoked[0].split()[1] == "id1"


async def test_a_person_has_a_key_revoked_before_its_successor_is_accepted(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, "{type: generate, rate: 200}"))
        site.arguments = ["--grace", "0s"]
        async with site.supervisor():
            old = await wait_with_a_wrong_key(site, destination)
            wrong = await site.order("revoke", "--credential", "es-0")
            done = await site.order("revoke", "--credential", old)
            await site.when(lambda: site.revoked)

    assert f"es-0 is none of the released credentials that wait: {old}".encode() in wrong.stderr
    assert done.stdout.decode() == f"{old} waits no more before it is revoked\n"
    assert site.revoked[0].split()[:2] == [old, "id1"]


async def test_a_key_is_revoked_at_once_where_that_is_configured(site: Site) -> None:
    config = json.loads((site.directory / "config.yaml").read_text())
    (site.directory / "config.yaml").write_text(json.dumps(config | {"release_when": "at_once"}))
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, "{type: generate, rate: 200}"))
        site.arguments = ["--grace", "0s"]
        async with site.supervisor():
            await site.when(lambda: destination.total > 10)
            site.replace(site.secret, "id2:hunter2\n")
            await site.when(lambda: site.revoked)

    assert site.happened("release_waits") == []


async def test_a_person_ends_a_drain_that_cannot_end_by_an_order(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(2)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, "{type: generate, rate: 200}"))
        site.arguments = ["--grace", "0s"]
        async with site.supervisor():
            await site.until("unit", unit="outputs.main", state="DEGRADED")
            site.replace(site.secret, "id2:hunter2\n")
            await site.until("ack", revision="2", stage="active")
            wrong = await site.order("rebind", "--from", "es-0", "--to", "es-1")
            done = await site.order("dead-letter", "--revision", "1")
            assert (wrong.returncode, done.returncode) == (1, 0), done.stderr
            await site.until("ack", revision="2", stage="drained")
            await site.until("revoked", name="id1")
            listed = await site.order("dead-letters")

    (drained,) = site.happened("ack", revision="2", stage="drained")
    assert b"credentials of drains: es-" in wrong.stderr
    assert drained["ledger"]["dead_letter"] == drained["ledger"]["accepted"] > 0
    assert b"revision 1  main  given up by an order" in listed.stdout


AUTHORITY = trustme.CA()


def server() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    return context


def to(site: Site, url: str, ca: str = "") -> str:
    """A policy whose few lines go to this URL."""
    tls = f", tls: {{ca: {site.directory}/{ca}}}" if ca else ""
    return (
        f"version: 1\ninputs:\n  source: {{type: file, paths: ['{site.directory}/app.log']}}\n"
        f"outputs:\n  main: {{type: elasticsearch, hosts: ['{url}'], credential: {{file: es}}{tls},"
        " backoff: {first: 100ms, longest: 1s}}\n"
    )


async def test_what_a_wrong_host_and_a_wrong_authority_held_up_arrives_when_they_are_corrected(site: Site) -> None:
    """By itself: no answer of any kind has ever come, and the key is the same."""
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}, tls=server()) as destination:
        site.secret.write_text("id1:hunter1\n")
        for name, authority in (("wrong.pem", trustme.CA()), ("right.pem", AUTHORITY)):
            authority.cert_pem.write_to_path(str(site.directory / name))
        (site.directory / "app.log").write_text("".join(f"line {n}\n" for n in range(COUNT)))
        site.policy.write_text(to(site, destination.url.replace("127.0.0.1", "no-such-host.invalid"), "right.pem"))
        async with site.supervisor():
            await site.until("unit", unit="outputs.main", state="DEGRADED")
            site.replace(site.policy, to(site, destination.url, "wrong.pem"))
            await site.until("ack", revision="2", stage="active")
            await site.when(lambda: any("certificate" in line["message"] for line in site.happened("unit")))
            assert destination.total == 0
            site.replace(site.policy, to(site, destination.url, "right.pem"))
            drained = await site.until("ack", revision="3", stage="drained")

        assert destination.total == COUNT
        assert drained["ledger"]["accepted"] == drained["ledger"]["delivered"]
        assert destination.refused == 0


async def test_with_another_key_what_a_wrong_host_held_up_arrives_by_an_order(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(2)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        (site.directory / "app.log").write_text("".join(f"line {n}\n" for n in range(COUNT)))
        site.policy.write_text(to(site, "http://127.0.0.1:1"))
        async with site.supervisor():
            await site.until("unit", unit="outputs.main", state="DEGRADED")
            await site.when(lambda: _waiting(site) == COUNT)
            site.replace(site.secret, "id2:hunter2\n")
            site.replace(site.policy, to(site, destination.url))
            await site.when(lambda: _active(site) and _active(site) == _wanted(site))
            (draining, *_) = ask(site.state, Status())["observed"]["draining"]
            wrong = await site.order("forward", "--revision", "9", "--output", "main")
            done = await site.order("forward", "--revision", "1", "--output", "main")
            await site.until("revoked", name="id1")

        assert draining["outputs"]["main"]["forward"]
        assert (wrong.returncode, done.returncode) == (1, 0)
        assert b"draining: revision 1 of output main" in wrong.stderr
        forwarded = f"revision 1: {COUNT:,} events forwarded to the current destination of output main"
        assert forwarded in done.stdout.decode()
        assert destination.total == COUNT


def _observed(site: Site) -> dict[str, Any]:
    observed: dict[str, Any] = ask(site.state, Status())["observed"]
    return observed


def _waiting(site: Site) -> int:
    return int(_observed(site)["queue"]["events"])


def _active(site: Site) -> list[int] | None:
    return _observed(site)["revisions"]["active"]


def _wanted(site: Site) -> list[int] | None:
    return ask(site.state, Status())["wanted"]


async def test_once_fails_when_what_it_read_became_dead_letters(site: Site) -> None:
    """A nightly import must not believe that all is well."""
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        destination.script = lambda request, documents: Reply(items={0: (400, "document_parsing_exception")})
        site.secret.write_text("id1:hunter1\n")
        (site.directory / "app.log").write_text("one\ntwo\n")
        site.policy.write_text(policy(destination, f"{{type: file, paths: ['{site.directory}/app.log']}}"))
        site.arguments = ["--once"]
        async with site.supervisor() as process:
            assert await site.ended(process) == 1

        assert destination.total == 1


async def test_once_fails_when_a_file_could_not_be_read(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        packed = bytearray(gzip.compress("".join(f"line {n}\n" for n in range(1000)).encode()))
        packed[100:200] = b"x" * 100
        (site.directory / "broken.gz").write_bytes(packed)
        site.policy.write_text(policy(destination, f"{{type: file, paths: ['{site.directory}/*.gz']}}"))
        site.arguments = ["--once"]
        async with site.supervisor() as process:
            assert await site.ended(process) == 1
