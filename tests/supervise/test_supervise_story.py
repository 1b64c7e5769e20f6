"""The supervisor with the real sidecar and a real destination, whose keys die in the instant that `on_release` runs."""

from __future__ import annotations

import gzip
import signal
from pathlib import Path

import pytest
import trio

from shipper.aio import open_asyncio
from shipper.credentials import Credential
from shipper.supervise.questions import Status, ask
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


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, fake_sidecar=False)


async def test_keys_are_rotated_under_load_each_revoked_when_drained_and_no_event_is_lost(site: Site) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2), key(3), key(4)}) as destination:
        assert destination.keys is not None
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, f"{{type: generate, rate: 1000, count: {COUNT}}}"))
        async with site.supervisor() as process:
            for number in (1, 2, 3):
                seen = destination.total
                await site.when(lambda seen=seen: destination.total > seen)
                destination.script = lambda request, documents: Reply(hang=True)
                await site.when(lambda: destination.under_way)
                site.replace(site.secret, f"id{number + 1}:hunter{number + 1}\n")
                await site.until("ack", revision=str(number + 1), stage="active")
                assert len(site.revoked) == number - 1
                destination.script = None
                await destination.release()
                await site.when(lambda number=number: len(site.revoked) == number)
                destination.keys.discard(key(number))
            with trio.fail_after(20):
                await destination.wait_for(COUNT)
            process.send_signal(signal.SIGTERM)
            assert await site.ended(process) == 0

        assert destination.total == COUNT
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
            await site.until("ack", revision="2", stage="drained")
            await site.until("revoked", name="id1")
            listed = await site.order("dead-letters")

    (drained,) = site.happened("ack", revision="2", stage="drained")
    assert (wrong.returncode, done.returncode) == (1, 0)
    assert b"there is: es-" in wrong.stderr
    assert drained["ledger"]["dead_letter"] == drained["ledger"]["accepted"] > 0
    assert b"revision 1  main  given up by an order" in listed.stdout


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
