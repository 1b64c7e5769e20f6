"""A real Kubernetes API server with an etcd of its own, on loopback; without controllers, Nodes or containers.

It says who may do what (RBAC), keeps objects and tells of changes as that of a cluster does. What controllers do
elsewhere, nobody does here: a deleted namespace stays `Terminating`, owners' objects are not collected, a Pod never
runs, and a ServiceAccount exists only where a test has made it.

`python3 -m tests.backends` builds the two programs, once. They die with the process that started them.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import trustme
import yaml

from shipper_demo.ports import free_port
from tests.backends.kubernetes_api import PATIENCE, Api, Object, path
from tests.backends.kubernetes_build import KUBERNETES
from tests.backends.kubernetes_flags import (
    ADMIN_TOKEN,
    GROUP,
    USERS,
    apiserver_arguments,
    audit_arguments,
    etcd_arguments,
    write,
    write_files,
)
from tests.backends.recipe import Unavailable
from tests.programs import Running

__all__ = ["ADMIN_TOKEN", "GROUP", "USERS", "Kubernetes", "Program", "Unavailable", "running"]

RBAC = "rbac.authorization.k8s.io/v1"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
# The kernel kills a child when the thread that started it ends; this thread ends with the process.
_starter = ThreadPoolExecutor(1, thread_name_prefix="starter")


@dataclass
class Program:
    """A server's process; `start` and `kill` it as often as needed."""

    command: Sequence[str]
    process: Running | None = field(default=None, repr=False)

    def start(self) -> None:
        """Starts it without a wait, if it does not run."""
        if self.process is None:
            options = {"preexec_fn": _die_with_us, "env": {**os.environ, "GOGC": "400"}}  # memory for processor time
            self.process = _starter.submit(Running, self.command, **options).result()

    def kill(self) -> None:
        """As kill -9."""
        self.end(signal.SIGKILL)

    def end(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Sends a signal, and waits for the end of the process."""
        if self.process is not None:
            process, self.process = self.process, None
            assert process.end(by, PATIENCE), f"{self.command[0]} did not end in {PATIENCE:g} s by {by.name}"

    def wait(self, is_ready: Callable[[], Any]) -> None:
        """Until it is ready."""
        assert self.process is not None
        self.process.wait(is_ready, PATIENCE)


def _die_with_us() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Kubernetes:
    """An API server. Ports, data and keys outlive its restarts."""

    directory: Path
    port: int
    etcd_url: str
    authority: trustme.CA = field(repr=False)
    etcd: Program = field(repr=False)
    apiserver: Program = field(repr=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def token(self) -> str:
        """Of the administrator."""
        return ADMIN_TOKEN

    # -- who asks ------------------------------------------------------------------------------------------------------

    @cached_property
    def admin(self) -> Api:
        return Api(self.url, self.ca, ADMIN_TOKEN, keeps=True)

    def user(self, number: int) -> Api:
        """`user-NUMBER`, from 1 to `USERS`, who has no right until a test grants one."""
        return Api(self.url, self.ca, self.user_token(number))

    def user_token(self, number: int) -> str:
        assert 1 <= number <= USERS
        return f"token-of-user-{number}"

    def certificate(self, user: str, group: str) -> tuple[Path, Path]:
        """Writes a client's certificate and its key; returns their paths."""
        # Without an alternative name trustme writes an empty one, which Go refuses.
        issued = self.authority.issue_cert("client@example.org", common_name=user, organization_name=group)
        return write(issued, self.directory / f"client-{next(self._numbers)}")

    def account(self, namespace: str, name: str) -> Object:
        """Makes a ServiceAccount."""
        return self.admin.create(path("serviceaccounts", namespace), {"metadata": {"name": name}})

    def account_token(self, namespace: str, name: str, *, seconds: int = 600, pod: Object | None = None) -> str:
        """A new token of a ServiceAccount, valid for 600 seconds or more; bound to a Pod where one is given."""
        spec: Object = {"expirationSeconds": seconds}
        if pod is not None:
            of = pod["metadata"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": of["name"], "uid": of["uid"]}
        made = self.admin.create(path("serviceaccounts", namespace, name, "token"), {"spec": spec})
        return str(made["status"]["token"])

    def mount(self, directory: Path, namespace: str, account: str, **token: Any) -> dict[str, str]:
        """Writes the files that a Pod has of its ServiceAccount; returns the environment that it has of the server."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "token").write_text(self.account_token(namespace, account, **token))
        (directory / "ca.crt").write_bytes(self.ca.read_bytes())
        (directory / "namespace").write_text(namespace)
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.port)}

    def kubeconfig(self, file: Path, token: str = ADMIN_TOKEN, *, namespace: str = "default", url: str = "") -> Path:
        """Writes a configuration of kubectl; `url` is that of a proxy."""
        cluster = {"server": url or self.url, "certificate-authority": str(self.ca)}
        context = {"cluster": "tests", "user": "tests", "namespace": namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": context}],
        }
        file.write_text(yaml.safe_dump(document))
        file.chmod(0o600)
        return file

    # -- what a test needs first ---------------------------------------------------------------------------------------

    def namespace(self) -> str:
        """Makes a namespace, another one with each call."""
        name = f"test-{next(self._numbers)}"
        self.admin.create(path("namespaces"), {"metadata": {"name": name}})
        return name

    def free(self, namespace: str) -> None:
        """Deletes a namespace, and ends its deletion as the controller would; its objects stay."""
        self.admin.delete(path("namespaces", name=namespace))
        left = self.admin.get(path("namespaces", name=namespace))
        left["spec"]["finalizers"] = []
        self.admin.replace(path("namespaces", name=namespace, sub="finalize"), left)

    def grant(self, namespace: str, subject: str, rules: Sequence[Mapping[str, Any]]) -> None:
        """Lets `user-7`, or the ServiceAccount `account:NAME` of this namespace, do what the rules of a Role say."""
        name = f"granted-{next(self._numbers)}"
        kind, _, who = subject.rpartition(":")
        of = {"kind": "ServiceAccount", "name": who, "namespace": namespace}
        bound = of if kind else {"kind": "User", "name": who, "apiGroup": RBAC.partition("/")[0]}
        role = {"apiGroup": RBAC.partition("/")[0], "kind": "Role", "name": name}
        self.admin.create(path("roles", namespace, api=RBAC), {"metadata": {"name": name}, "rules": list(rules)})
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [bound]}
        self.admin.create(path("rolebindings", namespace, api=RBAC), binding)

    # -- faults --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts what does not run; returns when the server is ready."""
        self.start_etcd()
        self.apiserver.start()
        self.apiserver.wait(lambda: self.admin.call("GET", "/readyz", seconds=5).status == 200)

    def start_etcd(self) -> None:
        """Starts etcd alone, as a test does that has killed it; returns when it is healthy."""
        self.etcd.start()
        self.etcd.wait(lambda: b"true" in _fetched(f"{self.etcd_url}/health"))

    def kill(self) -> None:
        """Kills the API server as kill -9; etcd stays. When started again, it has no history of any kind."""
        self.apiserver.kill()

    def terminate(self) -> None:
        """Ends the API server as a rolling upgrade does: watches end cleanly, after a second."""
        self.apiserver.end(signal.SIGTERM)

    def restart(self, by: signal.Signals = signal.SIGKILL) -> None:
        """Ends the API server by a signal, and starts it."""
        self.apiserver.end(by)
        self.start()

    def stop(self) -> None:
        """Kills both."""
        self.admin.close()
        self.apiserver.kill()
        self.etcd.kill()

    def compact(self) -> int:
        """Lets etcd forget all history; returns its revision.

        The API server forgets nothing by that, unless its cache of a kind is off (`--watch-cache-sizes=configmaps#0`).
        """
        revision = int(_posted(f"{self.etcd_url}/v3/kv/range", {"key": "AA=="})["header"]["revision"])
        _posted(f"{self.etcd_url}/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    # -- what it has seen ----------------------------------------------------------------------------------------------

    def audit(self) -> list[Object]:
        """The requests that it has answered, in order, and watches when they begin and end; wait for what is to come.

        Each has `verb`, `user`, `userAgent`, `objectRef`, `stage` and `responseStatus`; those of `shipper.dev` and of
        Leases also `requestObject` and `responseObject`. The server must have been started with `audit=True`.
        """
        lines = (self.directory / "audit.log").read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]


def _fetched(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=PATIENCE) as answer:
        return bytes(answer.read())


def _posted(url: str, message: Mapping[str, Any]) -> Any:
    return json.loads(_fetched(url, json.dumps(message).encode()))


@contextmanager
def running(*, audit: bool = False, arguments: Sequence[str] = ()) -> Iterator[Kubernetes]:
    """A server that is ready, with more arguments of kube-apiserver; raises Unavailable."""
    programs = KUBERNETES.made()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubernetes-", ignore_cleanup_errors=True))
        directory = Path(name)
        port, client, peer = (free_port() for _ in range(3))
        authority = trustme.CA()
        write_files(directory, authority)
        url = f"http://127.0.0.1:{client}"
        etcd = [str(programs / "etcd"), *etcd_arguments(directory, url, f"http://127.0.0.1:{peer}")]
        mine = [*audit_arguments(directory), *arguments] if audit else arguments
        apiserver = [str(programs / "kube-apiserver"), *apiserver_arguments(directory, port, url), *mine]
        kubernetes = Kubernetes(
            directory,
            port,
            url,
            authority,
            Program(etcd),
            Program(apiserver),
        )
        stack.callback(kubernetes.stop)
        kubernetes.start()
        yield kubernetes
