"""Members of Kubernetes as real processes, with the rights of a DaemonSet, on a real API server, with a destination
that revokes keys.

Nothing of a member's is a fake: `shipper supervise --kubernetes`, its sidecar, the CRDs, roles and admission policies
of packaging/kubernetes. The destination is the judge: which key each request carried, and which lines there are.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio

from shipper.plugin import Credential
from shipper.sdk.aio import open_asyncio
from shipper.supervise import questions
from shipper.testing import BulkDestination, open_destination
from tests import canary
from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import Api, Object, Refused, path, until
from tests.canary import EVENT
from tests.supervise.driver import told

PATIENCE = 60.0
SHIPPER = "shipper.dev/v1"
LEASES = "coordination.k8s.io/v1"


def content(name: str) -> str:
    """The key of this name, as a Secret has it; fleets whose stories search the etcd of this server have others."""
    return f"{name}:content-in-a-cluster-{name}"


def key(name: str) -> Credential:
    """The key of this name, as the destination knows it."""
    return Credential.parse({"api_key": content(name)})


class Node:
    """A node with `shipper supervise --kubernetes`, and a log file that it ships."""

    def __init__(self, cluster: Cluster, name: str, variables: dict[str, str], section: dict[str, Any]) -> None:
        self.cluster, self.name = cluster, name
        self.directory = cluster.directory / name
        self.directory.mkdir()
        self.log, self.out, self.state = (self.directory / part for part in ("app.log", "out", "state"))
        self.log.touch()
        self.out.touch()
        self.variables = variables
        (self.directory / "supervise.yaml").write_text(json.dumps({"kubernetes": section}))
        self.lines = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "shipper", "supervise", "--kubernetes", "--state", str(self.state)]
        command += ["--config", str(self.directory / "supervise.yaml"), "--grace", "10s"]
        environment = {**os.environ, "PYTHONPATH": "", "LOG": str(self.log), **self.variables}
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)

    def write(self, count: int = 1) -> None:
        """Writes numbered lines that name the node."""
        with self.log.open("a") as file:
            file.write("".join(f"{EVENT} {self.name} {n}\n" for n in range(self.lines, self.lines + count)))
        self.lines += count

    def said(self, what: str, **fields: Any) -> list[dict[str, Any]]:
        """The reports of the supervisor of this kind."""
        return [one for one in self._reports() if one["event"] == what and fields.items() <= one.items()]

    def _reports(self) -> Iterator[dict[str, Any]]:
        for line in self.out.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n") and b'"shipper.supervise"' in line:
                yield told(line)

    def status(self) -> dict[str, Any]:
        """What its `shipper status` says of Kubernetes."""
        found: dict[str, Any] = self.whole_status()["kubernetes"]
        return found

    def whole_status(self) -> dict[str, Any]:
        found: dict[str, Any] = questions.ask(self.state, questions.Status())
        return found

    def _signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)
        if launched := self.said("launched"):
            with suppress(ProcessLookupError):
                os.kill(launched[-1]["pid"], number)

    def kill(self) -> None:
        """As kill -9 of both its processes."""
        self._signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()
        self.process = None

    def pause(self) -> None:
        """As SIGSTOP of both its processes; `go_on` ends it."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self) -> int | None:
        """Ends it in order, and returns its exit status."""
        if self.process is None:
            return None
        self.process.terminate()
        status = self.process.wait(PATIENCE)
        self.process = None
        return status


class Cluster:
    """A namespace of an API server; made by `open_cluster`."""

    def __init__(self, directory: Path, kubernetes: Kubernetes, destination: BulkDestination) -> None:
        self.directory, self.kubernetes, self.destination = directory, kubernetes, destination
        self.namespace = kubernetes.namespace()
        self.nodes: dict[str, Node] = {}
        self._names: set[str] = set()

    @property
    def admin(self) -> Api:
        return self.kubernetes.admin

    # -- members -------------------------------------------------------------------------------------------------------

    def node(self, name: str = "node-1", *, port: int = 0, account: str = "shipper", **section: Any) -> Node:
        """Starts a member with the rights of a Pod on a node of this name; `section` is its `kubernetes` beside the
        least. It asks the API server at a port, that of a proxy for example."""
        pod = roles.pod(self.kubernetes, self.namespace, f"shipper-{name}", node=name, account=account)
        mounted = self.directory / f"account-{name}"
        variables = self.kubernetes.mount(mounted, self.namespace, account, pod=pod) | roles.environment_of(pod)
        variables |= {"SHIPPER_SERVICE_ACCOUNT": str(mounted)}
        if port:
            variables["KUBERNETES_SERVICE_PORT"] = str(port)
        made = Node(self, name, variables, {"lease": "3s", "labels": {"app": "web"}} | section)
        self.nodes[name] = made
        made.start()
        return made

    # -- objects -------------------------------------------------------------------------------------------------------

    def path(self, plural: str, name: str = "", sub: str = "", api: str = SHIPPER) -> str:
        return path(plural, self.namespace, name, sub, api=api)

    def text(self, log: Path | str, *, credential: Any = None, output: str = "main", **more: Any) -> dict[str, Any]:
        """A policy that ships a file with the key `api_key` of the Secret `es`; `more` is of its output."""
        reference = credential or {"secret": {"name": "es", "key": "api_key"}}
        to = {"type": "elasticsearch", "hosts": [self.destination.url], "credential": reference, "timeout": "2s"}
        inputs = {output.replace("main", "app"): {"type": "file", "paths": [str(log)]}}
        return {"version": 1, "inputs": inputs, "outputs": {output: to | more}}

    def apply_policy(self, name: str, policy: dict[str, Any], **spec: Any) -> Object:
        """Creates a policy of the members with the label `app: web`, or replaces its spec; returns the object."""
        selects = {"members": {"matchLabels": {"app": "web"}}}
        wanted = {"spec": {"policy": policy, **selects, **spec}}
        metadata = {"metadata": {"name": name}}
        obj = {"apiVersion": SHIPPER, "kind": "ShipperPolicy", **metadata, **wanted}
        while True:
            found = self.admin.call("GET", self.path("shipperpolicies", name))
            if found.status == 404:
                return self.admin.create(self.path("shipperpolicies"), obj)
            obj["metadata"]["resourceVersion"] = found.body["metadata"]["resourceVersion"]
            answer = self.admin.call("PUT", self.path("shipperpolicies", name), obj)
            if answer.status != 409:  # a leader writes the status of this object meanwhile
                assert answer.status == 200, answer
                return answer.body

    def delete_policy(self, name: str) -> None:
        self.admin.delete(self.path("shipperpolicies", name))

    def secret(self, name: str = "es", *, labelled: bool = True, **keys: str) -> Object:
        """Creates a Secret, or replaces its keys, each by the key of a name that the destination takes from now on."""
        self._names |= {*keys.values()}
        assert self.destination.keys is not None
        self.destination.keys |= {key(value) for value in keys.values()}
        found = {at: base64.b64encode(content(value).encode()).decode() for at, value in keys.items()}
        labels = {"shipper.dev/use": "credential"} if labelled else {}
        obj: Object = {"metadata": {"name": name, "labels": labels}, "data": found}
        try:
            return self.admin.create(path("secrets", self.namespace), obj)
        except Refused:
            return self.admin.replace(path("secrets", self.namespace, name), obj)

    def revoke(self, *names: str) -> None:
        assert self.destination.keys is not None
        self.destination.keys -= {key(name) for name in names}

    def member(self, name: str = "node-1") -> Object:
        """The status of a member; empty before it has one."""
        answer = self.admin.call("GET", self.path("shippermembers", name))
        return answer.body.get("status", {}) if answer.status == 200 else {}

    def report(self, policy: str, member: str = "node-1") -> Object:
        """What a member says of the newest policy of a name; empty if it says nothing."""
        found = [one for one in self.member(member).get("policies", ()) if one["name"] == policy]
        kept = [one for one in found if not one.get("removed")]
        return (kept or found or [{}])[-1]

    def using(self, member: str = "node-1") -> list[Object]:
        return list(self.member(member).get("using", ()))

    def policy(self, name: str) -> Object:
        return self.admin.get(self.path("shipperpolicies", name))

    def condition(self, policy: str, type: str) -> Object:
        """A condition of a policy; empty if it has none of this type."""
        conditions = self.policy(policy).get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == type), {})

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Returns what a blocking condition returns, once that is true."""
        with trio.move_on_after(PATIENCE):
            while True:
                if found := await trio.to_thread.run_sync(condition):
                    return found
                await trio.sleep(0.05)
        said = {name: node.out.read_text()[-3000:] for name, node in self.nodes.items()}
        raise AssertionError(f"not within {PATIENCE:g} s: {what}\n{json.dumps(self.member(), indent=1)}\n{said}")

    async def reaches(self, policy: str, generation: int, stage: str = "drained", member: str = "node-1") -> Object:
        """Waits until a member says that it has come to a stage of a generation; returns its entry."""

        def reached() -> Object | None:
            found = self.report(policy, member)
            return found if (found.get("generation"), found.get("stage")) == (generation, stage) else None

        found: Object = await self.until(reached, f"{member} says {policy} {generation} {stage}")
        return found

    async def refuses(self, policy: str, reason: str, member: str = "node-1") -> Object:
        """Waits until a member says why it does not run a policy; returns the nack."""

        def refused() -> Object | None:
            nack = self.report(policy, member).get("nack") or {}
            return nack if nack.get("reason") == reason else None

        found: Object = await self.until(refused, f"{member} refuses {policy}: {reason}")
        return found

    async def arrived(self, total: int) -> None:
        """Waits until so many lines have arrived."""
        await self.until(lambda: self.destination.total >= total, f"{total} lines arrive, not {self.destination.total}")

    async def delivered(self) -> None:
        """Waits until each line of each node has arrived; fails where one is there twice."""
        wanted = sorted(f"{EVENT} {node.name} {n}" for node in self.nodes.values() for n in range(node.lines))
        await self.arrived(len(wanted))
        assert sorted(one["message"] for one in self.destination.events) == wanted

    async def released(self, version: str, secret: str = "es") -> None:
        """Waits until no member uses, or will use, an older content of a Secret than this version's."""

        def bound() -> bool:
            answer = self.admin.call("GET", self.path("shippersecrets", secret))
            found = answer.body.get("status", {}).get("credentials", ()) if answer.status == 200 else ()
            return any(int(one.get("releasedBefore") or 0) >= int(version) for one in found)

        await self.until(bound, f"{secret} is released before {version}")

    def uses(self, name: str) -> int:
        """How many requests have carried the key of a name."""
        return len(self.destination.requests_with(key(name)))

    def check_secrets(self) -> None:
        """Fails where a key can be read: in what a member has said, in its state directory, in any object of ours."""
        secrets = {form for name in self._names for form in canary.of_secret(content(name))}
        for node in self.nodes.values():
            assert canary.left_in(node.out, secrets) == {}
            assert canary.left_in(node.state, secrets) == {}
        for plural in ("shippermembers", "shipperpolicies", "shippersecrets"):
            until(lambda plural=plural: self.admin.call("GET", self.path(plural)).status == 200, f"{plural} are read")
            found = json.dumps(self.admin.get(self.path(plural))).encode()
            assert canary.found(found, secrets) == [], plural


async def begun(cluster: Cluster, **node: Any) -> Node:
    """A node that has delivered ten lines by the policy `web` with the key k1."""
    made = await trio.to_thread.run_sync(lambda: cluster.node(**node))
    cluster.secret(api_key="k1")
    cluster.apply_policy("web", cluster.text(made.log))
    made.write(10)
    await cluster.reaches("web", 1)
    await cluster.arrived(10)
    return made


def port_of(url: str) -> int:
    """The port of a proxy."""
    port = urlsplit(url).port
    assert port
    return port


@asynccontextmanager
async def open_cluster(directory: Path, kubernetes: Kubernetes) -> AsyncIterator[Cluster]:
    """A namespace without members; those that a test starts end in order with it, and nothing shows a secret."""
    await trio.to_thread.run_sync(roles.install, kubernetes)
    async with open_asyncio() as aio, open_destination(aio, keys=set()) as destination:
        made = await trio.to_thread.run_sync(Cluster, directory, kubernetes, destination)
        names = ["es", "other", "third"]
        await trio.to_thread.run_sync(lambda: roles.account(kubernetes, made.namespace, secrets=names))
        try:
            yield made
            ended = [await trio.to_thread.run_sync(node.end) for node in made.nodes.values()]
            await trio.to_thread.run_sync(made.check_secrets)
            assert {*ended} <= {0, None}
        finally:
            for node in made.nodes.values():
                if node.process is not None:
                    with suppress(ProcessLookupError):
                        node.go_on()
                    node.kill()
