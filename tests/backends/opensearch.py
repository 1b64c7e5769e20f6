"""A real OpenSearch node with its security plugin, on loopback.

`maven` has the distribution; configuration, certificates, data and logs are new for each node, in
a directory that `nobody` may enter (OpenSearch refuses to run as root). Starting takes 10 to 20 seconds, so a session
starts one node and its tests take users, roles and indices with names of their own.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import pwd
import secrets
import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bcrypt
import trustme
from cryptography.hazmat.primitives import serialization

from shipper_demo.ports import free_port
from tests.backends.maven import JVM, OPENSEARCH
from tests.backends.recipe import Unavailable
from tests.programs import Running

__all__ = ["OpenSearch", "Unavailable", "running"]

SECURITY = "/_plugins/_security/api"
WRITER = {
    "cluster_permissions": ["indices:data/write/bulk"],
    "index_permissions": [
        {
            "index_patterns": ["logs-*"],
            "allowed_actions": [
                "indices:data/write/bulk*",
                "indices:data/write/index",
                "indices:admin/create",
                "indices:admin/mapping/put",
            ],
        }
    ],
}
"""A role that may write to `logs-*` and do nothing else."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class OpenSearch:
    """A running node. `url` and `ca` are what a policy needs; the methods act as its administrator."""

    url: str
    ca: Path
    admin: tuple[str, str]
    process: Running = field(repr=False)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: tuple[str, str] | None = None,
        timeout: float = 30,
    ) -> Answer:
        """Ask as the administrator, or as `user`; bytes are sent as they are (NDJSON), all else as JSON."""
        payload = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        pair = base64.b64encode(":".join(user or self.admin).encode()).decode()
        headers = {"Authorization": f"Basic {pair}", "Content-Type": kind}
        request = urllib.request.Request(self.url + path, payload, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self.tls()) as answer:
                return Answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read())

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def change(self, method: str, path: str, body: object = None) -> Any:
        """An administrator's request that must succeed; returns its JSON."""
        answer = self.request(method, path, body)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:500]!r}")
        return answer.json()

    def create_writer(self, name: str, role: Mapping[str, object] = WRITER) -> tuple[str, str]:
        """A user with a role of its own; returns user name and password."""
        password = secrets.token_urlsafe(18)
        self.change("PUT", f"{SECURITY}/roles/{name}", role)
        self.change("PUT", f"{SECURITY}/internalusers/{name}", {"password": password})
        self.change("PUT", f"{SECURITY}/rolesmapping/{name}", {"users": [name]})
        return name, password

    def delete_user(self, name: str) -> None:
        """When this returns, the next request of the user is answered 401."""
        self.change("DELETE", f"{SECURITY}/internalusers/{name}")

    def answers(self) -> bool:
        """Whether the cluster answers its administrator; before, it is not there, or says 503."""
        try:
            return self.request("GET", "/_cluster/health?wait_for_status=yellow&timeout=5s").status == 200
        except http.client.HTTPException:
            return False

    def count(self, index: str) -> int:
        """Documents that a search finds now, after a refresh; 0 where nothing matches, or an index is being made."""
        self.change("POST", f"/{index}/_refresh?ignore_unavailable=true")
        answer = self.request("GET", f"/{index}/_count?ignore_unavailable=true")
        if answer.status == 503:  # by one error or another, on a machine that is busy
            return 0
        assert answer.status == 200, answer
        return int(answer.json()["count"])

    def documents(self, index: str, page: int = 5000) -> Iterator[dict[str, Any]]:
        """Every document of an index (its `_id`, `_source`), in no order, by a scroll."""
        self.change("POST", f"/{index}/_refresh")
        found = self.change("POST", f"/{index}/_search?scroll=1m", {"size": page, "sort": ["_doc"]})
        while found["hits"]["hits"]:
            yield from found["hits"]["hits"]
            found = self.change("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": found["_scroll_id"]})


@contextmanager
def running() -> Iterator[OpenSearch]:
    """Start a node, wait until it answers, and stop it; raises Unavailable where there can be none."""
    distribution = OPENSEARCH.made()
    root = Path(tempfile.mkdtemp(prefix="opensearch-"))
    root.chmod(0o755)
    password = secrets.token_urlsafe(18)
    try:
        home = _for_nobody(distribution, root)
        url = _configure(home, root, password)
        process = _start(home, root)
        try:
            node = OpenSearch(url, root / "config/certs/ca.pem", ("admin", password), process)
            process.wait(node.answers, 180)
            yield node
        finally:
            process.end()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _for_nobody(home: Path, root: Path) -> Path:
    """The distribution, copied where the cache is in a directory that only root may enter."""
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in (home, *home.parents)):
        return home
    return Path(shutil.copytree(home, root / "home", symlinks=True))


def _java_home() -> Path | None:
    if "JAVA_HOME" in os.environ:
        return Path(os.environ["JAVA_HOME"])
    java = shutil.which("java")
    return Path(java).resolve().parents[1] if java else None


# -- how it is set up --------------------------------------------------------------------------------------------------

_JVM_OPTIONS = """\
-Xms512m
-Xmx512m
18-23:-Djava.security.manager=allow
-Djava.util.concurrent.ForkJoinPool.common.threadFactory=org.opensearch.secure_sm.SecuredForkJoinWorkerThreadFactory
-Djava.io.tmpdir=${OPENSEARCH_TMPDIR}
"""

_AUTHENTICATION = """\
_meta: {type: config, config_version: 2}
config:
  dynamic:
    http: {anonymous_auth_enabled: false, xff: {enabled: false}}
    authc:
      basic:
        http_enabled: true
        order: 1
        http_authenticator: {type: basic, challenge: true}
        authentication_backend: {type: intern}
"""


def _configure(home: Path, root: Path, password: str) -> str:
    config = root / "config"
    shutil.copytree(home / "config", config)
    for name in ("data", "logs", "tmp", "config/certs"):
        (root / name).mkdir()
    _write_certificates(config / "certs")
    _write_security(home, config / "opensearch-security", password)
    port, transport = free_port(), free_port()
    settings = {
        "cluster.name": "test",
        "discovery.type": "single-node",
        "network.host": "127.0.0.1",
        "http.port": port,
        "transport.port": transport,
        "path.data": str(root / "data"),
        "path.logs": str(root / "logs"),
        "cluster.routing.allocation.disk.threshold_enabled": False,  # a full disk of the machine would block writes
        "plugins.security.ssl.transport.enforce_hostname_verification": False,
        "plugins.security.ssl.http.enabled": True,
        "plugins.security.allow_default_init_securityindex": True,
        "plugins.security.nodes_dn": ["CN=node,*"],
        "plugins.security.authcz.admin_dn": ["CN=admin"],
        "plugins.security.restapi.roles_enabled": ["all_access", "security_rest_api_access"],
        "plugins.security.audit.type": "noop",
        "plugins.security.password.hashing.bcrypt.rounds": 4,  # the default 12 costs 0.5 s a password
    }
    for layer in ("transport", "http"):
        settings[f"plugins.security.ssl.{layer}.pemcert_filepath"] = "certs/node.pem"
        settings[f"plugins.security.ssl.{layer}.pemkey_filepath"] = "certs/node.key"
        settings[f"plugins.security.ssl.{layer}.pemtrustedcas_filepath"] = "certs/ca.pem"
    (config / "opensearch.yml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items()))
    (config / "jvm.options").write_text("\n".join([*JVM, _JVM_OPTIONS]))
    return f"https://localhost:{port}"


def _write_security(home: Path, place: Path, password: str) -> None:
    """The plugin's first users and roles: an administrator, and no rights for anyone else."""
    shutil.copytree(home / "plugins/opensearch-security/config", place)
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4, prefix=b"2a")).decode()
    admin = {"hash": hashed, "reserved": True, "backend_roles": ["admin"]}
    users = {"_meta": {"type": "internalusers", "config_version": 2}, "admin": admin}
    # The mapping that is shipped gives every user rights to `_bulk`, and would hide a 403.
    roles = {"_meta": {"type": "rolesmapping", "config_version": 2}, "all_access": {"backend_roles": ["admin"]}}
    (place / "internal_users.yml").write_text(json.dumps(users))
    (place / "roles_mapping.yml").write_text(json.dumps(roles))
    (place / "config.yml").write_text(_AUTHENTICATION)


def _write_certificates(place: Path) -> None:
    """An authority and the node's certificate, with its key as PKCS#8, the one form that OpenSearch accepts.

    The node shows the authority too, as an Elasticsearch does with the one that it makes.
    """
    authority = trustme.CA()
    node = authority.issue_cert("localhost", "127.0.0.1", common_name="node")
    key = serialization.load_pem_private_key(node.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    authority.cert_pem.write_to_path(place / "ca.pem")
    (place / "node.pem").write_bytes(b"".join(pem.bytes() for pem in (*node.cert_chain_pems, authority.cert_pem)))
    (place / "node.key").write_bytes(key.private_bytes(*form))


# -- how it runs -------------------------------------------------------------------------------------------------------


def _start(home: Path, root: Path) -> Running:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root / "tmp"),
        "JAVA_HOME": str(_java_home()),
        "OPENSEARCH_PATH_CONF": str(root / "config"),
        "OPENSEARCH_TMPDIR": str(root / "tmp"),
    }
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for folder, _, files in os.walk(root):
            for path in (folder, *(os.path.join(folder, file) for file in files)):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return Running([home / "bin/opensearch"], env=environment, cwd=root / "tmp", **identity)
