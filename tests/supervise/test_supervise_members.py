"""An agent with two members, each a real sidecar with a state directory of its own, and one source."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from shipper.policy.registry import Registry
from shipper.sdk.aio import open_asyncio
from shipper.sdk.credentials import Credential
from shipper.supervise.agent import Agent
from shipper.supervise.answers import Answer
from shipper.supervise.config import Config, OnRelease
from shipper.supervise.desired import Desired
from shipper.supervise.files import Files
from shipper.supervise.ledger import Ledger, Wanted
from shipper.supervise.options import Options
from shipper.supervise.policy_source import Known
from shipper.supervise.questions import Status, ask
from shipper.supervise.report import Report
from shipper.supervise.sources import PolicyFiles
from shipper.supervise.vault import Vault
from shipper.supervise.watch import Watch
from shipper.testing import open_destination
from tests.supervise.driver import told


class Numbered(Files):
    """Files whose every reading is a version, with somebody who hears the answers."""

    def __init__(self, desired: Desired, watch: Watch) -> None:
        super().__init__(desired, watch)
        self.readings = 0
        self.answers: list[tuple[str, Answer]] = []

    async def read(self, known: Known) -> Wanted:
        wanted = await super().read(known)
        self.readings += 1
        return replace(wanted, version=f"v{self.readings}")

    def answered(self, member: str, answer: Answer) -> None:
        self.answers.append((Path(member).name, answer))

    def stages(self, member: str, version: str) -> list[str]:
        return [one.stage for name, one in self.answers if (name, one.version) == (member, version)]


class Place:
    """What the two members run by, and what they tell."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.policy, self.secret, self.out = directory / "policy.yaml", directory / "es", directory / "out"
        self.source: Numbered
        self._lines: list[dict[str, Any]] = []
        self._read = 0

    def write(self, url: str) -> None:
        self.policy.write_text(
            "version: 1\ninputs: {source: {type: generate, rate: 100}}\n"
            f"outputs: {{main: {{type: elasticsearch, hosts: ['{url}'], credential: {{file: es}}}}}}\n"
        )

    def rotate(self, number: int) -> None:
        new = self.directory / "new"
        new.write_text(f"id{number}:hunter{number}")
        new.chmod(0o600)
        new.rename(self.secret)

    @property
    def revoked(self) -> list[str]:
        file = self.directory / "revoked"
        return file.read_text().splitlines() if file.exists() else []

    def happened(self, what: str, member: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        *new, _ = self.out.read_bytes()[self._read :].split(b"\n")
        self._read += sum(len(line) + 1 for line in new)
        self._lines += map(told, new)
        mine = [one for one in self._lines if member is None or Path(one.get("member", "")).name == member]
        return [one for one in mine if one["event"] == what and fields.items() <= one.items()]

    async def until(self, what: str, member: str | None = None, **fields: Any) -> dict[str, Any]:
        return (await self.when(lambda: self.happened(what, member, **fields)))[-1]

    async def when(self, condition: Callable[[], Any]) -> Any:
        with trio.fail_after(60):
            while not (found := condition()):  # noqa: ASYNC110 (other processes act)
                await trio.sleep(0.01)
            return found

    @asynccontextmanager
    async def agent(self, *, revokes: bool = True, **settings: Any) -> AsyncIterator[None]:
        """Both members, ended in order afterwards."""
        script = f"echo $SHIPPER_CREDENTIAL_NAME >> {self.directory}/revoked"
        config = Config(on_release=OnRelease(command=("sh", "-c", script)) if revokes else None, **settings)
        options = Options([self.policy], self.directory, config, grace=10.0)
        states = [self.directory / "a", self.directory / "b"]
        ended: list[int] = []
        with self.out.open("a") as out, Vault(states[0]) as one, Vault(states[1]) as other, Watch() as watch:
            self.source = Numbered(Desired(PolicyFiles((self.policy,)), {}, Registry.installed()), watch)
            report = Report(out.fileno(), json=True)
            agent = Agent(options, os.environ, report, self.source, dict(zip(states, (one, other), strict=True)))

            async def run() -> None:
                ended.append(await agent.run())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                try:
                    yield
                    os.kill(os.getpid(), signal.SIGTERM)
                    await self.when(lambda: ended)
                finally:
                    nursery.cancel_scope.cancel()
            report.flush()
        assert ended == [0]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def key(number: int) -> Credential:
    return Credential.parse({"api_key": f"id{number}:hunter{number}"})


async def test_each_member_drains_by_itself_and_what_both_released_is_revoked_once(place: Place) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2)}) as destination:
        place.write(destination.url)
        place.rotate(1)
        async with place.agent():
            for member in ("a", "b"):
                await place.until("ack", member, revision="1", stage="drained")
            pid = (await place.until("launched", "b"))["pid"]
            os.kill(pid, signal.SIGSTOP)
            place.rotate(2)
            await place.until("ack", "a", revision="2", stage="drained")
            standing = await trio.to_thread.run_sync(ask, place.directory / "a", Status())
            assert not place.happened("ack", "b", revision="2")
            assert not place.happened("released")
            os.kill(pid, signal.SIGCONT)
            await place.until("ack", "b", revision="2", stage="drained")
            await place.until("revoked")

        assert place.revoked == ["id1"]
        assert len(place.happened("released")) == 1
        assert destination.refused == 0
    assert [one["released"] for one in standing["credentials"]] == [True, False]
    assert place.source.stages("a", "v2") == place.source.stages("b", "v2") == ["received", "active", "drained"]
    assert "hunter" not in json.dumps(place.out.read_text())


class Disk:
    """Of member b; it may be `full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.accepted = False
        """Whether it is saved that the destination accepted its credential: the last that a revision saves."""
        self._save = Vault.save
        monkeypatch.setattr(Vault, "save", lambda vault, ledger: self.save(vault, ledger))

    def save(self, vault: Vault, ledger: Ledger) -> None:
        if self.full and vault._directory.name == "b":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._save(vault, ledger)
        if vault._directory.name == "b":
            self.accepted = any(kept.accepted for kept in ledger.kept.values())


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_a_release_counts_when_the_member_would_know_of_it_after_a_crash(place: Place, disk: Disk) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys=set(map(key, range(1, 5)))) as destination:
        place.write(destination.url)
        place.rotate(1)
        async with place.agent(release_when="at_once"):
            for member in ("a", "b"):
                await place.until("ack", member, revision="1", stage="drained")
            await place.when(lambda: disk.accepted)
            pid = (await place.until("launched", "b"))["pid"]
            os.kill(pid, signal.SIGSTOP)
            place.rotate(2)
            await place.until("ack", "a", revision="2", stage="drained")
            await place.until("sent", "b", revision="2")
            disk.full = True
            os.kill(pid, signal.SIGCONT)
            await place.until("save_failed", "b")
            for number in (3, 4):
                place.rotate(number)
                await place.until("ack", "a", revision=str(number), stage="drained")
            await place.when(lambda: place.revoked)
            assert place.revoked == ["id3"]  # which b has never taken
            disk.full = False
            await place.when(lambda: sorted(place.revoked) == ["id1", "id2", "id3"])


async def test_a_member_that_cannot_save_its_state_holds_up_nobody_else(place: Place, disk: Disk) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2), key(3)}) as destination:
        place.write(destination.url)
        place.rotate(1)
        async with place.agent():
            for member in ("a", "b"):
                await place.until("ack", member, revision="1", stage="drained")
            await place.when(lambda: disk.accepted)
            disk.full = True
            for number in (2, 3):
                place.rotate(number)
                await place.until("ack", "a", revision=str(number), stage="drained")
            await place.until("save_failed", "b")
            healthy = await trio.to_thread.run_sync(ask, place.directory / "a", Status())
            assert not place.happened("sent", "b", revision="2")
            assert place.revoked == []
            disk.full = False
            await place.when(lambda: sorted(place.revoked) == ["id1", "id2"])

    assert healthy["troubles"] == []
    assert place.source.stages("b", "v3")[-1] == "drained"


async def test_without_a_command_a_credential_is_told_and_forgotten_when_both_released_it(place: Place) -> None:
    async with open_asyncio() as aio, open_destination(aio, keys={key(1), key(2)}) as destination:
        place.write(destination.url)
        place.rotate(1)
        async with place.agent(revokes=False):
            await place.until("ack", "a", revision="1", stage="drained")
            await place.until("ack", "b", revision="1", stage="drained")
            place.rotate(2)
            await place.until("released")

        for state in ("a", "b"):
            with Vault(place.directory / state) as vault:
                ledger, _ = vault.load()
            assert [kept.fields for kept in ledger.kept.values()] == [{"api_key": "id2:hunter2"}]
        assert place.happened("revoked") == []
        assert len(place.happened("released")) == 1
