"""Nodes without a kubelet: the Pods of a workload as processes of this machine, by its manifest.

What a kubelet does of that manifest is done here: the variables and files of the downward API, the ConfigMap, the
directories, and a token that is bound to the Pod. A path of the container becomes one of the test's own directory.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from shipper_demo.ports import free_port
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import Object, path

PATIENCE = 60.0
_PORT = 6780


@dataclass
class Node:
    """One node, with the Pod that runs on it."""

    name: str
    place: Path
    pod: Object
    port: int
    command: list[str]
    environment: dict[str, str] = field(repr=False)
    process: subprocess.Popen[bytes] | None = None

    def probe(self, kind: str) -> int:
        """Asks as the kubelet does for `startupProbe`, `livenessProbe` or `readinessProbe`; returns the status."""
        container = _shipper(self.pod)
        asked = container[kind]["httpGet"]
        (port,) = [one["containerPort"] for one in container["ports"] if one["name"] == asked["port"]]
        assert port == _PORT
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("GET", asked["path"])
            return connection.getresponse().status

    @property
    def log(self) -> str:
        return (self.place / "log").read_text()

    def start(self) -> None:
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, cwd=self.place, env=self.environment, stdout=log, stderr=log)

    def stop(self) -> None:
        """As a kubelet ends a Pod; kills it if that takes too long."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


@contextmanager
def started(
    kubernetes: Kubernetes,
    namespace: str,
    workload: str,
    place: Path,
    names: list[str],
    environment: Mapping[str, str],
) -> Iterator[dict[str, Node]]:
    """Runs the shippers of a workload, such as `daemonsets/shipper`, for as long as the block.

    `names` are those of nodes, of which each has a Pod of a DaemonSet, or of the Pods of a StatefulSet.
    """
    nodes = {name: _node(kubernetes, namespace, workload, place / name, name, environment) for name in names}
    try:
        for node in nodes.values():
            node.start()
        yield nodes
    finally:
        for node in nodes.values():
            node.stop()


def _node(
    kubernetes: Kubernetes, namespace: str, workload: str, place: Path, name: str, environment: Mapping[str, str]
) -> Node:
    admin = kubernetes.admin
    place.mkdir()
    port = free_port()
    plural, _, of = workload.partition("/")
    wanted = admin.get(path(plural, namespace, of, api="apps/v1"))["spec"]
    pod = admin.create(path("pods", namespace), _pod(wanted, of, name, is_node=plural == "daemonsets"))
    spec = pod["spec"]
    container = _shipper(pod)
    mounts = {
        mount["mountPath"]: _volume(kubernetes, namespace, pod, mount["name"], place, port)
        for mount in _mounts(container)
    }
    token = place / "token"
    variables = kubernetes.mount(token, namespace, spec["serviceAccountName"], pod=pod)
    variables |= {one["name"]: _field(pod, one["valueFrom"]["fieldRef"]["fieldPath"]) for one in container["env"]}
    variables["SHIPPER_SERVICE_ACCOUNT"] = str(token)
    arguments = [_here(argument, mounts) for argument in container["args"]]
    command = [sys.executable, "-m", "shipper", *arguments]
    return Node(name, place, pod, port, command, {**environment, **variables})


def _pod(wanted: Object, of: str, name: str, *, is_node: bool) -> Object:
    """What the controller of a DaemonSet, or of a StatefulSet, makes of its template."""
    template, claims = wanted["template"], wanted.get("volumeClaimTemplates", ())
    own = f"{of}-{name}" if is_node else name
    claimed = [
        {
            "name": claim["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{claim['metadata']['name']}-{own}"},
        }
        for claim in claims
    ]
    spec = {**template["spec"], "volumes": [*template["spec"]["volumes"], *claimed]}
    spec["nodeName"] = name if is_node else "node-1"
    return {"metadata": {"name": own, "labels": template["metadata"]["labels"]}, "spec": spec}


def _shipper(pod: Object) -> Object:
    """The container in which the shipper runs."""
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    (found,) = [one for one in containers if one["name"] == "shipper"]
    return dict(found)


def _mounts(container: Object) -> list[Object]:
    mounted = [one for one in container["volumeMounts"] if not one["mountPath"].startswith(("/tmp", "/var/log"))]
    return [one for one in mounted if not one["mountPath"].startswith("/var/run/secrets")]


def _here(argument: str, mounts: Mapping[str, Path]) -> str:
    for inside, outside in mounts.items():
        if argument == inside or argument.startswith(f"{inside}/"):
            return f"{outside}{argument.removeprefix(inside)}"
    return argument


def _volume(kubernetes: Kubernetes, namespace: str, pod: Object, name: str, place: Path, port: int) -> Path:
    volume = next(one for one in pod["spec"]["volumes"] if one["name"] == name)
    directory = place / name
    directory.mkdir(mode=0o700)
    if "configMap" in volume:
        found = kubernetes.admin.get(path("configmaps", namespace, volume["configMap"]["name"]))
        for file, text in found["data"].items():
            (directory / file).write_text(_for_this_machine(text, place, port))
    for item in volume.get("downwardAPI", {}).get("items", ()):
        labels = _field(pod, item["fieldRef"]["fieldPath"])
        (directory / item["path"]).write_text("".join(f'{key}="{value}"\n' for key, value in labels.items()))
    return directory


def _for_this_machine(text: str, place: Path, port: int) -> str:
    """All nodes have one network here, and no file at /etc/podinfo."""
    text = text.replace(f"http: 0.0.0.0:{_PORT}", f"http: 127.0.0.1:{port}")
    return text.replace("kubernetes:\n", f"kubernetes:\n  labels: {place / 'labels' / 'labels'}\n")


def _field(pod: Object, where: str) -> Any:
    """What the downward API says of a field."""
    found: Any = pod
    for part in where.split("."):
        found = found[part]
    return found
