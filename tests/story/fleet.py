"""Hosts of a fleet as real processes, on a real etcd or API server, with a destination that revokes keys."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from datetime import datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from shipper.fleet.judge import Verdict
from shipper.fleet.observer import observing, wait
from shipper.fleet.opening import Opened, opened
from shipper.fleet.publisher import Publisher
from shipper.fleet.records import MEMBERS, Head, Report, Version
from shipper.fleet.settings import Cluster, FleetSettings
from shipper.plugin import Credential
from shipper.sdk.aio import open_asyncio
from shipper.supervise import questions
from shipper.supervise.answers import Stage
from shipper.testing import BulkDestination, Reply, open_destination
from shipper_demo.wire import Wire
from tests import canary
from tests.backends import etcd as server
from tests.backends.etcd import Etcd, coded
from tests.backends.kubernetes import Kubernetes
from tests.canary import EVENT
from tests.supervise.driver import told

PATIENCE = 60.0
KEY = b"a-key-of-the-fleet--canary-3f9c!"
POLICY_CANARY = "canary-of-the-policy-text"
GRACE = 10.0
Place = dict[str, Any]


def key(name: str) -> Credential:
    """Returns the key of this name, as the destination knows it."""
    return Credential.parse({"api_key": content(name).decode()})


def content(name: str) -> bytes:
    """Returns the key of this name, as a file of a person."""
    return f"{name}:secret-of-{name}".encode()


class Run(NamedTuple):
    """A run of `on_release`."""

    at: float
    """Unix seconds."""
    host: str
    token: int
    name: str
    """Of the key."""


class Host:
    """A host with `shipper supervise`, and a log file that it ships."""

    def __init__(self, directory: Path, name: str, member: str, config: dict[str, Any]) -> None:
        self.directory, self.name, self.member = directory, name, member
        self.log, self.out, self.state = directory / "app.log", directory / "out", directory / "state"
        directory.mkdir()
        self.log.touch()
        self.out.touch()
        self.variables: dict[str, str] = {}
        (directory / "supervise.yaml").write_text(json.dumps(config))
        self.lines = 0
        self.is_busy = True
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "shipper", "supervise", "--state", str(self.state)]
        command += ["--config", str(self.directory / "supervise.yaml"), "--grace", "10s"]
        environment = {**os.environ, "PYTHONPATH": "", "LOG": str(self.log), **self.variables}
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)

    def write(self, count: int = 1) -> None:
        """Writes numbered lines that name the host."""
        with self.log.open("a") as file:
            file.write("".join(f"{EVENT} {self.name} {n}\n" for n in range(self.lines, self.lines + count)))
        self.lines += count

    def said(self, what: str, **fields: Any) -> list[dict[str, Any]]:
        """The reports of the supervisor of this kind, each with `at`, in Unix seconds."""
        return [one for one in self._reports() if one["event"] == what and fields.items() <= one.items()]

    def _reports(self) -> Iterator[dict[str, Any]]:
        for line in self.out.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n") and b'"shipper.supervise"' in line:
                at = datetime.fromisoformat(json.loads(line)["@timestamp"])
                yield {**told(line), "at": at.timestamp()}

    def status(self) -> dict[str, Any]:
        """What its `shipper status` says of the fleet."""
        found: dict[str, Any] = questions.ask(self.state, questions.Status())["fleet"]
        return found

    def copy_of_state(self, to: Path) -> Path:
        """Copies the state directory, as a backup or an image of the disk does; nothing changes meanwhile."""
        if self.process is not None:
            self.pause()
        subprocess.run(["cp", "-a", self.state, to], check=True)
        if self.process is not None:
            self.go_on()
        return to

    def replace_state(self, by: Path | None = None) -> None:
        """Loses the state directory, or has a copy in its place; it must not run."""
        assert self.process is None
        self.state.rename(self.directory / f"state.{time.monotonic_ns()}")
        if by is not None:
            by.rename(self.state)

    # -- what happens to it --------------------------------------------------------------------------------------------

    def pause_sidecar(self) -> None:
        """As SIGSTOP of the sidecar alone; `go_on` ends it."""
        os.kill(self.said("launched")[-1]["pid"], signal.SIGSTOP)

    def kill(self) -> None:
        """As kill -9 of all its processes."""
        self._signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()
        self.process = None

    def pause(self) -> None:
        """As SIGSTOP of all its processes; `go_on` ends it."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        launched = self.said("launched")
        assert self.process is not None
        os.kill(self.process.pid, number)
        if launched:
            with suppress(ProcessLookupError):
                os.kill(launched[-1]["pid"], number)

    def end(self) -> None:
        """Ends it in order; `ended` waits for that."""
        if self.process is not None:
            self.go_on()
            self.process.terminate()

    def ended(self) -> int | None:
        return None if self.process is None else self.process.wait(PATIENCE)


class Fleet:
    """Made by `open_fleet`."""

    def __init__(
        self, directory: Path, etcd: Etcd | Kubernetes, destination: BulkDestination, opened: Opened, place: Place
    ) -> None:
        """`place` is what a section says of the store."""
        self.directory, self.etcd, self.destination, self.place = directory, etcd, destination, place
        self.settings, self.store, self.seals = opened.settings, opened.store, opened.seals
        self.hosts: dict[str, Host] = {}
        self.begun, self.released = directory / "begun", directory / "released"
        self._publisher = Publisher(self.store, self.seals, "tests@here")
        self._names: set[str] = set()

    # -- hosts ---------------------------------------------------------------------------------------------------------

    def host(
        self,
        name: str,
        *,
        releases: bool = False,
        variables: dict[str, str] | None = None,
        member: str = "",
        state: Path | None = None,
        **more: Any,
    ) -> Host:
        """Starts a host; `more` is what its section of the fleet has beside the least. It can be asked over HTTP.

        `member` is its name in the fleet, by default the host's own; with `state` it begins with that state directory.
        `releases`: its `on_release` writes the time, the host, the token and the name of the key to `begun`, waits
        while the file NAME.waits exists, and writes to `released`.
        """
        section = self.section(name, member=member or name, releases=releases)
        host = Host(self.directory / name, name, member or name, {"fleet": section | more})
        if state is not None:
            state.rename(host.state)
        host.variables |= variables or {}
        self.hosts[name] = host
        host.start()
        return host

    def section(self, name: str, *, member: str = "", releases: bool = False) -> dict[str, Any]:
        """Returns the least section of a host; see `host`."""
        line = f"$(date +%s.%N) {name} $SHIPPER_FENCING_TOKEN $SHIPPER_CREDENTIAL_NAME"
        wait = f"while [ -e {self.directory}/{name}.waits ]; do sleep 0.02; done"
        script = f"echo {line} >> {self.begun}; {wait}; echo {line} >> {self.released}"
        section: dict[str, Any] = {"name": self.settings.name, "lease": "2s"} | self.place
        section |= {"member": member or name}
        section |= {"keys": [{"file": str(self.directory / "fleet.key")}], "http": "127.0.0.1:0"}
        return section | ({"on_release": {"command": ["sh", "-c", script]}} if releases else {})

    # -- versions ------------------------------------------------------------------------------------------------------

    def policy(self, *, timeout: str = "2s", **more: Any) -> str:
        """Returns a policy that ships each host's log with the fleet's secret `es`."""
        output = {"type": "elasticsearch", "hosts": [self.destination.url], "credential": {"fleet": "es"}}
        parts = {"inputs": {"app": {"type": "file", "paths": ["${LOG}"]}}} | more
        parts["outputs"] = {"main": output | {"timeout": timeout}}
        return f"# {POLICY_CANARY}\n" + json.dumps({"version": 1} | parts)

    async def publish(self, policy: str) -> Version:
        return await self._publisher.publish(policy)

    async def rotate(self, name: str) -> Version | None:
        """Sets the secret to the key of this name, which the destination takes from now on."""
        self._names.add(name)
        assert self.destination.keys is not None
        self.destination.keys |= {key(name)}
        return (await self._publisher.set_secret("es", content(name)))[1]

    async def begin(self, **more: Any) -> Version:
        """Publishes the first version, with the key `k1`."""
        await self.rotate("k1")
        return await self.publish(self.policy(**more))

    # -- what somebody does to the store -------------------------------------------------------------------------------

    def raw(self, key: str) -> bytes:
        """The record of this key, as anybody reads it who can read etcd."""
        (found,) = self._call("range", key=self._key(key))["kvs"]
        return base64.b64decode(found["value"])

    def is_there(self, key: str) -> bool:
        return "kvs" in self._call("range", key=self._key(key))

    def forge(self, key: str, raw: bytes | None) -> None:
        """Writes a record, or removes it, as anybody does who can write etcd."""
        if raw is None:
            self._call("deleterange", key=self._key(key))
        else:
            self._call("put", key=self._key(key), value=base64.b64encode(raw).decode())

    def _key(self, key: str) -> str:
        return coded(f"{self.settings.prefix}{self.settings.name}/{key}")

    def _call(self, method: str, **message: str) -> Any:
        assert isinstance(self.etcd, Etcd)
        return server.ask(f"{self.etcd.urls[0]}/v3/kv/{method}", message)

    async def head(self) -> Head:
        return (await self._publisher.head())[0]

    async def order(self, *words: str) -> tuple[int, str]:
        """Runs `shipper fleet …` with the configuration of a host; returns the exit status, and what it said."""
        config = next(iter(self.hosts.values())).directory / "supervise.yaml"
        command = [sys.executable, "-m", "shipper", "fleet", *words, "--config", str(config)]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        return done.returncode, (done.stdout + done.stderr).decode()

    async def report(self, name: str) -> Report | None:
        found = (await self.store.read(MEMBERS + name)).entry
        return None if found is None else self.seals.open(MEMBERS + name, found.value, Report)

    async def writes(self, name: str) -> int:
        """How many reports a member has written."""
        report = await self.report(name)
        assert report is not None
        return report.write

    async def wait(
        self, version: Version | None, stage: Stage = "drained", seconds: float = PATIENCE, grace: float = GRACE
    ) -> Verdict:
        assert version is not None
        async with observing(self.store, self.seals) as observer:
            return await wait(observer, version, stage, seconds, grace)

    async def opens(self, version: Version | None, *names: str) -> Verdict:
        """Waits until the answer is open, with all these members."""
        verdict = await self.wait(version)
        assert verdict.state == "open", verdict
        if names:
            assert verdict.counts == {"reached": len(names)}, verdict
        return verdict

    async def started(self, version: Version, *names: str) -> None:
        """Waits until these hosts have drained a version."""
        for name in names:
            await self.until(lambda name=name: self._reached(name, version))

    async def _reached(self, name: str, version: Version) -> bool:
        report = await self.report(name)
        return report is not None and report.stages.get("drained") == version

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Returns what the condition returns, once that is true."""
        with trio.fail_after(PATIENCE):
            while True:
                found = condition()
                if hasattr(found, "__await__"):
                    found = await found
                if found:
                    return found
                await trio.sleep(0.1)

    # -- what others see -----------------------------------------------------------------------------------------------

    async def ask(self, name: str, path: str) -> tuple[int, dict[str, Any]]:
        """Asks a host over HTTP, at the address that it has reported."""
        report = await self.report(name)
        assert report is not None
        return await ask(report.http, path)

    async def ask_host(self, host: Host, path: str) -> tuple[int, dict[str, Any]]:
        """Asks a host over HTTP, at the address that its status has."""
        return await ask((await trio.to_thread.run_sync(host.status))["http"], path)

    def runs(self, file: Path | None = None) -> list[Run]:
        """Each run of `on_release` that has ended; those that have begun of another file."""
        found = file or self.released
        lines = found.read_text().splitlines() if found.exists() else []
        return [Run(float(at), host, int(token), name) for at, host, token, name in map(str.split, lines)]

    def uses(self, name: str, since: float) -> int:
        """How many requests with a key have arrived since an instant of Unix time."""
        offset = time.time() - time.monotonic()
        return sum(one.arrived + offset > since for one in self.destination.requests_with(key(name)))

    async def revoke_what_is_released(self) -> None:
        """Revokes each key as soon as an `on_release` has run for it; for ever."""
        while True:
            for run in self.runs():
                assert self.destination.keys is not None
                self.destination.keys.discard(key(run.name))
            await trio.sleep(0.01)

    async def keep_writing(self) -> None:
        """Has all busy hosts write lines, for ever."""
        while True:
            for host in [*self.hosts.values()]:
                if host.is_busy:
                    host.write(5)
            await trio.sleep(0.1)

    def arrived(self, name: str) -> int:
        """How many lines of a host have arrived."""
        found = [line for lines in [*self.destination.documents.values()] for line in [*lines.values()]]
        return sum(f" {name} ".encode() in line for line in found)

    async def ships(self, *names: str, lines: int = 20) -> None:
        """Waits until so many more lines of each of these hosts have arrived."""
        before = {name: self.arrived(name) for name in names}
        await self.until(lambda: all(self.arrived(name) >= before[name] + lines for name in names))

    def hold_back(self, *names: str) -> list[str]:
        """Has the destination refuse what these hosts send, for now; returns the list of refusals, by host."""
        refused: list[str] = []

        def script(request: Any, documents: Any) -> Reply | None:
            found = [name for name in names if any(f" {name} ".encode() in one.source for one in documents)]
            refused.extend(found)
            return Reply(status=503) if found else None

        self.destination.script = script
        return refused

    async def delivered(self, *, once: bool = True) -> None:
        """Ends the writing, and waits until each line of each host has arrived; fails where one is there twice, unless
        `once` is false: a host that has lost its state reads its file again."""
        for host in self.hosts.values():
            host.is_busy = False
        wanted = sorted(f"{EVENT} {host.name} {n}" for host in self.hosts.values() for n in range(host.lines))
        await self.until(lambda: {*wanted} <= {one["message"] for one in self.destination.events})
        if once:
            assert sorted(one["message"] for one in self.destination.events) == wanted

    # -- what nobody sees ----------------------------------------------------------------------------------------------

    async def check_secrets(self) -> None:
        """Fails where a secret, the fleet's key or the text of a policy can be read."""
        secrets = {form for name in self._names for form in canary.of_secret(content(name).decode())}
        secrets |= {KEY, *canary.forms(base64.b64encode(KEY).decode())}
        unseen = {*secrets, *canary.forms(POLICY_CANARY)}
        assert canary.left_in(self.etcd.directory, unseen) == {}
        for host in self.hosts.values():
            assert canary.left_in(host.out, unseen) == {}
            assert canary.left_in(host.state, secrets) == {}
        for host in self.hosts.values():
            if host.process is None:
                continue
            for path in ("/fleet/members", "/fleet/versions", "/fleet/versions/1"):
                assert canary.found(json.dumps(await self.ask_host(host, path)).encode(), unseen) == []
            status = await trio.to_thread.run_sync(questions.ask, host.state, questions.Status())
            assert status["fleet"]["member"] == host.member
            assert canary.found(json.dumps(status).encode(), unseen) == []


async def ask(address: str, path: str) -> tuple[int, dict[str, Any]]:
    """The status and the value of an answer over HTTP."""
    status, body = await trio.to_thread.run_sync(_got, address, path)
    return status, json.loads(body)


async def read(address: str, path: str) -> bytes:
    """The body of an answer over HTTP."""
    return (await trio.to_thread.run_sync(_got, address, path))[1]


def _got(address: str, path: str) -> tuple[int, bytes]:
    with closing(HTTPConnection(address, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


async def renewed(fleet: Fleet, *names: str, times: int = 2) -> None:
    """Waits until each of these members has written so many reports more; it writes one in each third of its lease."""
    for name in names:
        before = await fleet.writes(name)
        await fleet.until(lambda name=name, before=before: _has_written(fleet, name, before + times))


async def _has_written(fleet: Fleet, name: str, count: int) -> bool:
    return await fleet.writes(name) >= count


def started_etcd(nodes: int) -> Iterator[Etcd]:
    """What a fixture yields: a running etcd; skips where there is none."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(server.cluster(nodes))
        except server.Unavailable as why:
            pytest.skip(str(why))
        yield found


@asynccontextmanager
async def open_fleet(directory: Path, etcd: Etcd | Kubernetes, name: str) -> AsyncIterator[Fleet]:
    """A fleet without hosts; those that a test starts end in order with it, and nothing of theirs shows a secret."""
    file = directory / "fleet.key"
    file.write_text(base64.b64encode(KEY).decode())
    file.chmod(0o600)
    if isinstance(etcd, Etcd):
        place: Place = {"etcd": etcd.urls}
        settings = FleetSettings(name=name, member="tests", etcd=tuple(etcd.urls), keys=(KEY,))
    else:
        kubeconfig = str(etcd.kubeconfig(directory / "kubeconfig"))
        place = {"kubernetes": {"kubeconfig": kubeconfig}}
        settings = FleetSettings(name=name, member="tests", kubernetes=Cluster(kubeconfig=kubeconfig), keys=(KEY,))
    async with (
        open_asyncio() as aio,
        open_destination(aio, keys=set()) as destination,
        opened(settings) as fleet,
    ):
        made = Fleet(directory, etcd, destination, fleet, place)
        try:
            yield made
            await made.check_secrets()
            for host in made.hosts.values():
                host.end()
            assert [await trio.to_thread.run_sync(host.ended) or 0 for host in made.hosts.values()] == [0] * len(
                made.hosts
            )
        finally:
            for host in made.hosts.values():
                if host.process is not None and host.process.poll() is None:
                    host.kill()


@asynccontextmanager
async def busy(directory: Path, etcd: Etcd | Kubernetes) -> AsyncIterator[Fleet]:
    """A fleet whose hosts write all the time, and whose keys are revoked once the fleet has released them."""
    async with open_fleet(directory, etcd, directory.name) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.revoke_what_is_released)
        nursery.start_soon(fleet.keep_writing)
        yield fleet
        nursery.cancel_scope.cancel("the test has ended")


@asynccontextmanager
async def wired(port: int) -> AsyncIterator[Wire]:
    """A wire to a node of the store, which can be cut."""
    wire = Wire()
    async with trio.open_nursery() as nursery:
        await nursery.start(wire.serve, port)
        yield wire
        nursery.cancel_scope.cancel("the test has ended")
