"""A real Elasticsearch node with security, on loopback.

It is the distribution for integration tests, which has users, roles and API keys, and lacks most other modules: there
is no answer to `GET /`, and none about data streams. The rest is as for `opensearch`.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bcrypt

from shipper_demo.ports import free_port
from tests.backends import opensearch
from tests.backends.maven import ELASTICSEARCH, JVM
from tests.backends.opensearch import OpenSearch, Unavailable
from tests.programs import Running

WRITER = {"indices": [{"names": ["logs-*"], "privileges": ["create_doc", "auto_configure"]}]}
"""A role that may write to `logs-*` and do nothing else."""

_LEFT_OUT = ("gc.log", "HeapDump", "ErrorFile", "UseG1GC")
_JVM_OPTIONS = ("-Xms512m", "-Xmx512m", *JVM)

__all__ = ["Elasticsearch", "Unavailable", "running"]


@dataclass
class Elasticsearch(OpenSearch):
    """A running node. `url` and `ca` are what a policy needs; the methods act as its administrator."""

    def create_writer(self, name: str, role: Mapping[str, object] = WRITER) -> tuple[str, str]:
        """A user with a role of its own; returns user name and password."""
        password = secrets.token_urlsafe(18)
        self.change("PUT", f"/_security/role/{name}", role)
        self.change("PUT", f"/_security/user/{name}", {"password": password, "roles": [name]})
        return name, password

    def create_api_key(self, name: str, role: Mapping[str, object] = WRITER) -> tuple[str, str]:
        """An API key with these rights; returns its id and `id:secret`."""
        made = self.change("POST", "/_security/api_key", {"name": name, "role_descriptors": {name: role}})
        return made["id"], f"{made['id']}:{made['api_key']}"

    def delete_api_key(self, id: str) -> None:
        """When this returns, the next request with it is answered 401."""
        self.change("DELETE", "/_security/api_key", {"ids": [id]})

    def delete_user(self, name: str) -> None:
        """When this returns, the next request of the user is answered 401."""
        self.change("DELETE", f"/_security/user/{name}")


@contextmanager
def running() -> Iterator[Elasticsearch]:
    """Start a node, wait until it answers, and stop it; raises Unavailable where there can be none."""
    distribution = ELASTICSEARCH.made()
    root = Path(tempfile.mkdtemp(prefix="elasticsearch-"))
    root.chmod(0o755)
    password = secrets.token_urlsafe(18)
    try:
        home = opensearch._for_nobody(distribution, root)
        url = _configure(home, root, password)
        process = _start(home, root, _for_nobody(root))
        try:
            node = Elasticsearch(url, root / "config/certs/ca.pem", ("admin", password), process)
            process.wait(node.answers, 180)
            yield node
        finally:
            process.end()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _configure(home: Path, root: Path, password: str) -> str:
    """The administrator is of the file realm, for whom no keystore has to be made: that is two programs in Java."""
    config = root / "config"
    shutil.copytree(home / "config", config)
    for name in ("data", "logs", "tmp", "config/certs"):
        (root / name).mkdir()
    opensearch._write_certificates(config / "certs")
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4, prefix=b"2a")).decode()
    (config / "users").write_text(f"admin:{hashed}\n")
    (config / "users_roles").write_text("superuser:admin\n")
    port, transport = free_port(), free_port()
    settings: dict[str, Any] = {
        "cluster.name": "test",
        "discovery.type": "single-node",
        "network.host": "127.0.0.1",
        "http.port": port,
        "transport.port": transport,
        "path.data": str(root / "data"),
        "path.logs": str(root / "logs"),
        "cluster.routing.allocation.disk.threshold_enabled": False,  # a full disk of the machine would block writes
        "xpack.security.enabled": True,
        "xpack.security.autoconfiguration.enabled": False,
        "xpack.security.authc.api_key.enabled": True,
        "xpack.security.authc.password_hashing.algorithm": "bcrypt4",  # the default 10 costs 0.1 s a password
    }
    for layer in ("transport", "http"):
        settings[f"xpack.security.{layer}.ssl.enabled"] = True
        settings[f"xpack.security.{layer}.ssl.certificate"] = "certs/node.pem"
        settings[f"xpack.security.{layer}.ssl.key"] = "certs/node.key"
        settings[f"xpack.security.{layer}.ssl.certificate_authorities"] = ["certs/ca.pem"]
    (config / "elasticsearch.yml").write_text("".join(f"{key}: {json.dumps(one)}\n" for key, one in settings.items()))
    options = (config / "jvm.options").read_text().splitlines()
    kept = [line for line in options if not any(part in line for part in _LEFT_OUT)]
    (config / "jvm.options").write_text("\n".join([*kept, *_JVM_OPTIONS, ""]))
    return f"https://localhost:{port}"


def _for_nobody(root: Path) -> dict[str, Any]:
    """Who runs the node: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for folder, _, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _start(home: Path, root: Path, identity: Mapping[str, Any]) -> Running:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root / "tmp"),
        "ES_JAVA_HOME": str(opensearch._java_home()),
        "ES_PATH_CONF": str(root / "config"),
        "ES_TMPDIR": str(root / "tmp"),
        "CLI_JAVA_OPTS": " ".join(JVM),  # of the program that starts the node
    }
    return Running([home / "bin/elasticsearch"], env=environment, cwd=root / "tmp", **identity)
