"""The fleet's secrets are released by whoever is elected, at least once each."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from shipper.fleet import operations, release, releasing
from shipper.fleet.observer import observing
from shipper.fleet.records import (
    ALIVE,
    HEAD,
    LEADER,
    MEMBERS,
    SECRETS,
    Accepting,
    Alive,
    Head,
    Leader,
    Line,
    Release,
    Report,
    Secret,
    Undelivered,
    Version,
)
from shipper.fleet.releasing import Releasing
from shipper.fleet.seal import Seals
from shipper.fleet.store import Found, StoreError, StoreUnreachable
from shipper.sdk.units import Duration
from shipper.supervise.config import OnRelease
from shipper.supervise.ledger import Kept
from tests.fleet.memory import Client, MemoryStore

SEALS = Seals("prod", [b"k" * 32])
LEASE = 15.0
ONE, TWO = Version(0, 1, "a"), Version(0, 2, "b")
LINES = [Line(ONE, 0.0, "p@h", {"es": "es-old"}, "n1"), Line(TWO, 0.0, "p@h", {"es": "es-new"}, "n2")]
START = Head("prod", number=2, history=LINES, secrets={"es": "es-new"}, fingerprints={"es-old": "1", "es-new": "2"})
DRAINED = Report("web-1", "dir", "boot", "i", 1, 0, state="member", begun=ONE, stages={"active": TWO}, using=["es-new"])
SECRET = Secret("es", b"VuaCfGcBCdbkQm-e5aOx:secret-part-of-it")


class Commands:
    """Commands in place of real ones: each runs until it is let go, and says which host ran it with which token."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, wait: bool = False) -> None:
        self.ran: list[tuple[str, str, str]] = []
        self.variables: list[Mapping[str, str]] = []
        self.go = trio.Event()
        self.kept: list[Kept] = []
        if not wait:
            self.go.set()
        commands = self

        class Fake:
            def __init__(self, config: object, environment: Callable[[], Mapping[str, str]], *_: object, **__: object):
                self._environment = environment

            async def revoke(self, kept: Kept) -> bool:
                seen = self._environment()
                commands.variables.append(seen)
                commands.kept.append(kept)
                commands.ran.append((seen["HOST"], kept.id, seen["SHIPPER_FENCING_TOKEN"]))
                await commands.go.wait()
                return True

        monkeypatch.setattr(releasing, "Revoker", Fake)


class Fleet:
    """A fleet of one member, and its candidates."""

    def __init__(self) -> None:
        self.server = MemoryStore()
        self.admin = self.server.client("admin")
        self.beat = LEASE / 3
        self.clients: dict[str, Client] = {}
        self.troubles: dict[str, str | None] = {}
        self.told: list[tuple[str, str, str, str]] = []
        self.lost: set[str] = set()
        """Ids whose content the store does not have."""

    async def put(self, key: str, record: Head | Report | Alive | Secret | None) -> None:
        entry = (await self.admin.read(key)).entry
        raw = None if record is None else SEALS.seal(key, record)
        lease = await self.admin.grant(1e6) if key.startswith(ALIVE) else None
        await self.admin.swap(key, raw, expected=entry.revision if entry else 0, lease=lease)

    async def member(self, report: Report, *, alive: bool = True) -> None:
        await self.put(MEMBERS + report.name, report)
        await self.put(ALIVE + report.name, Alive("dir", "boot", "i") if alive else None)

    async def live(self) -> None:
        """Renews the reports of live members."""
        while True:
            await trio.sleep(self.beat)
            with suppress(StoreError):
                alive = {entry.key.removeprefix(ALIVE) for entry in (await self.admin.list(ALIVE)).entries}
                for name in alive:
                    entry = (await self.admin.read(MEMBERS + name)).entry
                    assert entry is not None
                    report = SEALS.open(entry.key, entry.value, Report)
                    renewed = SEALS.seal(entry.key, replace(report, write=report.write + 1))
                    await self.admin.swap(entry.key, renewed, expected=entry.revision)

    async def head(self) -> Head:
        entry = (await self.admin.read(HEAD)).entry
        assert entry is not None
        return SEALS.open(HEAD, entry.value, Head)

    async def fill(self) -> None:
        for id in release.live_ids(await self.head()):
            if id not in self.lost and (await self.admin.read(SECRETS + id)).entry is None:
                await self.put(SECRETS + id, Secret("es", f"id-of-{id}:key".encode()))

    async def release(self) -> Release | None:
        return (await self.head()).released.get("es-old")

    def say(self, what: str, fields: Mapping[str, Any]) -> None:
        if what == "release_waits":
            self.told.append((fields["credential"], fields["name"], fields["used"], fields["until"]))

    def candidate(self, name: str, command: OnRelease | None = None) -> Releasing:
        client = self.clients.setdefault(name, self.server.client(name))
        return Releasing(
            client,
            SEALS,
            "prod",
            Leader(name, f"process of {name}"),
            LEASE,
            command or OnRelease(command=("true",)),
            observing=observing,
            environment=lambda: {"HOST": name, "PATH": "/usr/bin:/bin"},
            trouble=self.troubles.__setitem__,
            say=self.say,
            wall=lambda: 1_000_000.0 + trio.current_time(),
        )


@asynccontextmanager
async def running(fleet: Fleet, *names: str, command: OnRelease | None = None) -> AsyncIterator[None]:
    """Runs candidates, and the live members; the store has a content of each id, of a key unless a test put another."""
    await fleet.fill()
    candidates = [fleet.candidate(name, command) for name in names]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.live)
        for candidate in candidates:
            nursery.start_soon(candidate.run)
            await trio.sleep(1)
        yield
        nursery.cancel_scope.cancel()


async def test_a_secret_that_every_member_has_released_is_revoked_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, fleet = Commands(monkeypatch), Fleet()
    await fleet.put(HEAD, START)
    await fleet.put(SECRETS + "es-old", SECRET)
    await fleet.member(replace(DRAINED, using=["es-old"]))
    async with running(fleet, "a", "b"):
        await trio.sleep(100)
        assert (commands.ran, (await fleet.head()).released) == ([], {})
        await fleet.member(DRAINED)
        await trio.sleep(15)
        assert commands.ran == [("a", "es-old", "1")]
        await trio.sleep(1000)

    released = await fleet.release()
    assert released is not None
    assert (released.state, released.token, commands.ran) == ("done", 1, [("a", "es-old", "1")])
    assert commands.variables[0]["SHIPPER_FLEET"] == "prod"
    assert (commands.kept[0].name, commands.kept[0].sources) == ("VuaCfGcBCdbkQm-e5aOx", ["fleet:es"])


async def test_the_old_password_of_a_user_is_not_revoked_while_the_new_one_is_in_use(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next candidate neither. A backend ends a user by the name."""
    commands, fleet = Commands(monkeypatch), Fleet()
    await fleet.put(HEAD, START)
    await fleet.put(SECRETS + "es-old", Secret("es", b"username: ann\npassword: old"))
    await fleet.put(SECRETS + "es-new", Secret("es", b"username: ann\npassword: new"))
    await fleet.member(DRAINED)
    for name in ("a", "b"):
        async with running(fleet, name):
            await trio.sleep(200)
        waits = await fleet.release()
        assert waits is not None
        assert (waits.state, waits.failing, commands.ran) == ("begun", 0.0, [])
        assert fleet.told[-1] == ("es-old", "ann", "es-new", "released")
    three = Version(0, 3, "c")
    line = Line(three, 0.0, "p@h", {"es": "es-bob"}, "n3")
    head = await fleet.head()
    await fleet.put(HEAD, replace(head, number=3, history=[*LINES, line], secrets={"es": "es-bob"}))
    await fleet.member(replace(DRAINED, stages={"active": three}, using=["es-bob"]))
    async with running(fleet, "c"):
        await trio.sleep(200)

    assert sorted(id for _, id, _ in commands.ran) == ["es-new", "es-old"]


async def test_a_secret_whose_lost_content_is_given_up_is_done_without_a_command(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, fleet = Commands(monkeypatch), Fleet()
    fleet.lost.add("es-old")
    lost = {"es-old": "", "es-new": "2"}
    await fleet.put(HEAD, replace(START, fingerprints=lost))
    await fleet.member(DRAINED)
    async with running(fleet, "a"):
        await trio.sleep(100)
        assert await fleet.release() is None
        await operations.order_release(fleet.admin, SEALS, "es-old", release.THE_STORE)
        await trio.sleep(100)

    done = await fleet.release()
    assert done is not None
    assert (done.state, done.despite, commands.ran) == ("done", ["the store"], [])
    assert (await fleet.head()).lapses == {}


async def test_a_command_that_fails_is_in_the_head_until_it_succeeds(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def __init__(
            self, config: object, environment: object, failed: Callable[[str, str, float], None], *_: Any, **__: Any
        ):
            self._failed = failed

        async def revoke(self, kept: Kept) -> bool:
            for _ in range(3):
                self._failed(kept.id, "exit status 3", 60.0)
                await trio.sleep(60)
            return True

    fleet = Fleet()
    monkeypatch.setattr(releasing, "Revoker", Failing)
    await fleet.put(HEAD, START)
    await fleet.member(DRAINED)
    async with running(fleet, "a"):
        await trio.sleep(60)
        failing = await fleet.release()
        await trio.sleep(60)
        assert failing is not None
        assert failing.state == "begun"
        assert 1_000_000 < failing.failing < 1_000_060
        assert await fleet.release() == failing
        await trio.sleep(120)

    assert await fleet.release() == replace(failing, state="done", failing=0.0)


async def test_a_forged_key_of_the_leader_is_a_trouble_until_it_is_removed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, fleet = Commands(monkeypatch), Fleet()
    await fleet.put(HEAD, START)
    await fleet.member(DRAINED)
    forged = await fleet.admin.swap(LEADER, b"\0", expected=0, lease=await fleet.admin.grant(1e6))
    async with running(fleet, "a"):
        await trio.sleep(100)
        assert "the record leader is not sealed" in str(fleet.troubles["releases"])
        assert forged.entry is not None
        await fleet.admin.swap(LEADER, None, expected=forged.entry.revision)
        await trio.sleep(100)

    assert fleet.troubles["releases"] is None
    assert commands.ran == [("a", "es-old", "1")]


async def test_a_publish_that_names_the_id_in_time_withdraws_the_release(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, fleet = Commands(monkeypatch), Fleet()
    await fleet.put(HEAD, START)
    await fleet.member(DRAINED)
    async with running(fleet, "a"):
        await trio.sleep(2)
        assert (await fleet.release()) is not None
        await fleet.put(HEAD, replace(await fleet.head(), secrets={"es": "es-old"}, released={}))
        await trio.sleep(100)

    assert (commands.ran, (await fleet.head()).released) == ([], {})


async def test_no_command_runs_without_the_content_of_its_secret_or_while_a_member_uses_a_lost_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get no name, and what was lost by a restore may be what is in use."""
    for lost in ("es-old", "es-new"):
        commands, fleet = Commands(monkeypatch), Fleet()
        fleet.lost.add(lost)
        await fleet.put(HEAD, START)
        await fleet.member(DRAINED)
        async with running(fleet, "a"):
            await trio.sleep(200)
            assert commands.ran == []
            await fleet.put(SECRETS + lost, Secret("es", f"id-of-{lost}:key".encode()))
            await trio.sleep(200)

        assert [kept.name for kept in commands.kept] == ["id-of-es-old"]


async def test_a_command_waits_for_the_store_until_it_can_have_the_name_of_the_key(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(Client):
        away = True

        async def read(self, key: str, **more: float) -> Found:
            if key.startswith(SECRETS) and self.away:
                raise StoreUnreachable("no host of the store answers")
            return await super().read(key, **more)

    commands, fleet = Commands(monkeypatch), Fleet()
    client = fleet.clients["a"] = Away(fleet.server, "a", 1.0)
    await fleet.put(HEAD, START)
    await fleet.put(SECRETS + "es-old", SECRET)
    await fleet.member(DRAINED)
    async with running(fleet, "a"):
        await trio.sleep(60)
        failing, trouble = await fleet.release(), fleet.troubles["on_release es-old"]
        assert commands.ran == []
        client.away = False
        await trio.sleep(120)

    assert failing is not None
    assert failing.state == "begun"
    assert failing.failing > 0
    assert trouble is not None
    assert "no host of the store answers" in trouble
    assert [kept.name for kept in commands.kept] == ["VuaCfGcBCdbkQm-e5aOx"]
    assert await fleet.release() == replace(failing, state="done", failing=0.0)
    assert fleet.troubles["on_release es-old"] is None


async def test_t152_10_the_next_leader_runs_again_what_a_dead_one_had_begun(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, fleet = Commands(monkeypatch, wait=True), Fleet()
    await fleet.put(HEAD, START)
    await fleet.member(DRAINED)
    async with running(fleet, "b"):
        async with trio.open_nursery() as nursery:
            await trio.sleep(20)
            nursery.cancel_scope.cancel()
        assert commands.ran == [("b", "es-old", "1")]
        fleet.clients["b"].set(cut=True)  # it dies: nothing of it reaches the store again
        commands.go.set()
        async with running(fleet, "a"):
            await trio.sleep(100)
            assert commands.ran == [("b", "es-old", "1"), ("a", "es-old", "2")]

    released = await fleet.release()
    assert released is not None
    assert (released.state, released.token) == ("done", 2)


async def test_t152_6_a_leader_that_was_stopped_and_goes_on_changes_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, fleet = Commands(monkeypatch), Fleet()
    await fleet.put(HEAD, START)
    await fleet.member(replace(DRAINED, using=["es-old"]))
    async with running(fleet, "a", "b"):
        await trio.sleep(20)
        fleet.clients["a"].set(stopped=True)
        await trio.sleep(2 * LEASE)
        before = await fleet.head()
        assert (before.token, before.leader) == (2, "b")
        fleet.clients["b"].set(stopped=True)
        await fleet.member(DRAINED)  # there is something to release now
        fleet.clients["a"].set(stopped=False)
        await trio.sleep(1)
        assert (await fleet.head(), commands.ran) == (before, [])


async def test_reports_that_come_all_the_time_do_not_put_a_release_off(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, fleet = Commands(monkeypatch), Fleet()
    fleet.beat = 0.1
    await fleet.put(HEAD, START)
    await fleet.member(DRAINED)
    async with running(fleet, "a"):
        await trio.sleep(10)
        assert commands.ran == [("a", "es-old", "1")]


async def test_a_head_that_has_changed_since_the_view_is_not_written(autojump_clock: MockClock) -> None:
    fleet = Fleet()
    await fleet.put(HEAD, replace(START, token=9))

    await fleet.candidate("a")._write(START, replace(START, released={"es-old": Release("es", 0.0, "begun")}))

    assert await fleet.head() == replace(START, token=9)


async def test_while_members_register_for_another_epoch_nobody_is_elected_again_and_again(
    autojump_clock: MockClock,
) -> None:
    fleet = Fleet()
    await fleet.put(HEAD, replace(START, fingerprints={}, history=LINES[1:]))
    async with running(fleet, "a", "b"):
        accepting = Accepting(1, 0.0, "me@host")
        await fleet.put(HEAD, replace(await fleet.head(), accepting=accepting))
        before = await fleet.head()
        await trio.sleep(10 * LEASE)

        assert (await fleet.head()).token == before.token
        await fleet.put(HEAD, replace(before, accepting=None))
        await trio.sleep(LEASE)
        assert (await fleet.head()).token == before.token + 1


async def test_a_trouble_with_the_store_is_said_and_over(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, fleet = Commands(monkeypatch), Fleet()
    await fleet.put(HEAD, START)
    await fleet.member(replace(DRAINED, using=["es-old"]))
    async with running(fleet, "a"):
        await trio.sleep(5)
        fleet.server.stop()
        await trio.sleep(100)
        assert fleet.troubles["releases"] is not None
        fleet.server.start()
        await fleet.member(DRAINED)
        await trio.sleep(200)
        assert fleet.troubles["releases"] is None
    assert commands.ran == [("a", "es-old", "2")]


async def test_the_elected_candidate_forgets_members_after_their_own_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    Commands(monkeypatch)
    fleet = Fleet()
    await fleet.put(HEAD, START)
    await fleet.member(replace(DRAINED, name="web-2", forget_after=3600.0), alive=False)
    await fleet.member(
        replace(DRAINED, name="web-3", forget_after=3600.0, undelivered=Undelivered(events=1)), alive=False
    )

    async def states() -> list[str]:
        listing = await fleet.admin.list(MEMBERS)
        return [SEALS.open(entry.key, entry.value, Report).state for entry in listing.entries]

    async with running(fleet, "a"):
        await trio.sleep(3500)
        assert await states() == ["member", "member"]
    async with running(fleet, "b"):
        await trio.sleep(200)
        assert await states() == ["forgotten", "member"]


@pytest.mark.parametrize("mishap", ["before", "after", "late"])
@pytest.mark.parametrize("which", [1, 2, 3, 4])
async def test_whatever_answer_is_lost_a_release_ends_done(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, mishap: str, which: int
) -> None:
    """The head is swapped for the token, the mark, the begin and the end."""
    commands, fleet = Commands(monkeypatch), Fleet()
    await fleet.put(HEAD, START)
    await fleet.member(DRAINED)
    client = fleet.clients["a"] = fleet.server.client("a")
    swap, swaps = client.swap, 0

    async def counted(key: str, *args: object, **more: object) -> object:
        nonlocal swaps
        swaps += key == HEAD
        if key == HEAD and swaps == which:
            client.lose(mishap, HEAD)  # type: ignore[arg-type]
        return await swap(key, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "swap", counted)
    async with running(fleet, "a"):
        await trio.sleep(300)

    released = await fleet.release()
    assert released is not None
    assert released.state == "done"
    assert 1 <= len(commands.ran) <= 2


async def test_a_real_command_gets_names_and_the_token_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(release, "WITHDRAWABLE", 0.01)
    fleet, out = Fleet(), tmp_path / "environment"
    fleet.beat = 0.02
    script = f"import os; open({str(out)!r}, 'w').write('\\n'.join(f'{{k}}={{v}}' for k, v in os.environ.items()))"
    await fleet.put(HEAD, START)
    await fleet.put(SECRETS + "es-old", SECRET)
    await fleet.member(DRAINED)
    command = OnRelease(command=(sys.executable, "-c", script), timeout=Duration(30))
    async with running(fleet, "a", command=command):
        with trio.fail_after(60):
            while (released := await fleet.release()) is None or released.state != "done":  # noqa: ASYNC110 (a process acts)
                await trio.sleep(0.02)

    written = out.read_text()
    assert "secret-part-of-it" not in written
    assert {
        "SHIPPER_FLEET=prod",
        "SHIPPER_FENCING_TOKEN=1",
        "SHIPPER_CREDENTIAL_ID=es-old",
        "SHIPPER_CREDENTIAL_NAME=VuaCfGcBCdbkQm-e5aOx",
        "SHIPPER_CREDENTIAL_SOURCE=fleet:es",
    } <= set(written.splitlines())
