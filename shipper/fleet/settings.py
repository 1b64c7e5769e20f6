"""The `fleet:` section of the supervisor's configuration.

fleet:
  name: prod
  member: ${HOSTNAME}                            # unique in the fleet; variables as in policies
  etcd: [https://etcd-1:2379, https://etcd-2:2379]
  kubernetes: {kubeconfig: PATH, context: NAME, namespace: NAME}   # in place of etcd; each is optional, as in a Pod
  tls: {ca: PATH, certificate: PATH, key: PATH}  # how etcd is verified, and the certificate for it
  credential: {file: PATH}                       # or {systemd: NAME}: {username: …, password: …} of etcd
  keys: [{file: PATH}]                           # 32 bytes in base64, the same on all hosts; the first seals, all open
  prefix: /shipper/                              # of the keys in etcd
  lease: 15s
  on_lapse: continue                             # or hold: nothing is sent after the lease
  rebind_revoked: false                          # events of a released secret go with its successor
  forget_after: never                            # or how long after its lease a member is forgotten
  on_release: {command: […]}                     # for each released secret of the fleet; makes this host a candidate
  http: {address: HOST:PORT, certificate: PATH, key: PATH, token: {file: PATH}}   # or a loopback address alone
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from shipper.policy.document import Node, below
from shipper.sdk.credentials import BASIC, BEARER_TOKEN, Credential
from shipper.sdk.errors import BadOption
from shipper.sdk.hosts import is_loopback
from shipper.sdk.secret_source import Absent
from shipper.sdk.tls import ClientTls, Material, check_identity, client_context, server_context
from shipper.sdk.units import Duration
from shipper.status.http import parse_address
from shipper.supervise import secrets
from shipper.supervise.config import ConfigReader, OnRelease, Warn
from shipper.supervise.variables import replaced

SHORTEST_LEASE, LONGEST_LEASE = Duration(2), Duration(600)
SHORTEST_MEMORY = Duration(60)
"""Of `forget_after`."""
SHORTEST_TOKEN = 16
PREFIX = "/shipper/"
_MOST_HOSTS = 16
_MOST_KEYS = 8

Name = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9._-]{1,253}$", description="at most 253 of the characters A-Z, a-z, 0-9, `.`, `_` and `-`"
    ),
]
Prefix = Annotated[
    str, msgspec.Meta(pattern=r"^/([A-Za-z0-9._-]{1,100}/){0,8}$", description="a path such as /shipper/")
]


Text = Annotated[str, msgspec.Meta(min_length=1)]
Namespace = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="the name of a namespace")
]


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The API server that is the store, and the namespace of the fleet's objects; without all that, as
    `shipper.apiserver.config` finds them."""

    kubeconfig: Text | None = None
    context: Text | None = None
    namespace: Namespace | None = None


class EtcdTls(msgspec.Struct, frozen=True, kw_only=True):
    """How the store is verified, and the certificate that this host shows to it."""

    ca: Material | None = None
    """PEM file of the authorities to trust (default: those of the system)."""
    certificate: Material | None = None
    key: Material | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` are written together, or neither of them")
        client_context(ClientTls(ca=self.ca))
        if self.certificate is not None and self.key is not None:
            check_identity(self.certificate.pem, self.key.pem)

    def __repr__(self) -> str:
        return "<EtcdTls>"


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """Where this member answers questions. Other than loopback only with a certificate and a token."""

    address: str
    """`HOST:PORT`."""
    certificate: Material | None = None
    key: Material | None = None
    token: Credential | None = None
    """The bearer token that every request has to show."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` are written together, or neither of them")
        if self.certificate is not None and self.key is not None:
            check_identity(self.certificate.pem, self.key.pem)
        is_open = self.certificate is None or self.token is None
        if is_open and not is_loopback(parse_address(self.address)[0]):
            raise BadOption(
                "other hosts can reach this address: write `certificate`, `key` and `token` beside it, or listen on "
                "127.0.0.1",
                "address",
            )

    def __repr__(self) -> str:
        return f"<Http {self.address}>"

    def context(self) -> ssl.SSLContext | None:
        """Returns the context of the listener; None without a certificate."""
        if self.certificate is None or self.key is None:
            return None
        return server_context(self.certificate.pem, self.key.pem)


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The section; see the module."""

    name: Name
    member: Name
    keys: tuple[bytes, ...]
    """Each of 32 bytes."""
    etcd: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=_MOST_HOSTS)] = ()
    """URLs, without paths; empty if the store is an API server."""
    kubernetes: Cluster | None = None
    tls: EtcdTls | None = None
    credential: Credential | None = None
    """Of the shape {username, password}."""
    prefix: Prefix = PREFIX
    """The keys of the fleet in etcd begin with `prefix`, its name and a slash."""
    lease: Duration = Duration(15)
    on_lapse: Literal["continue", "hold"] = "continue"
    rebind_revoked: bool = False
    forget_after: Duration | None = None
    on_release: OnRelease | None = None
    http: Http | None = None

    def __post_init__(self) -> None:
        _check(SHORTEST_LEASE <= self.lease <= LONGEST_LEASE, f"must be from 2s to 10m, not {self.lease}", "lease")
        if self.forget_after is not None:
            longer = self.forget_after >= SHORTEST_MEMORY and self.forget_after > self.lease
            _check(longer, f"write `never`, or at least {SHORTEST_MEMORY} and more than the lease", "forget_after")
        self._check_store()
        for at, url in enumerate(self.etcd):
            self._check_url(url, at)

    def __repr__(self) -> str:
        return f"<FleetSettings {self.name}/{self.member}>"

    def _check_store(self) -> None:
        if self.kubernetes is None:
            _check(bool(self.etcd), "a fleet needs a store: write `etcd:` with its URLs, or `kubernetes: {}`")
            return
        _check(not self.etcd, "a fleet has one store: write `etcd` or `kubernetes`, not both", "kubernetes")
        for name, value, usual in (
            ("tls", self.tls, None),
            ("credential", self.credential, None),
            ("prefix", self.prefix, PREFIX),
        ):
            _check(value == usual, f"`{name}` is of etcd; an API server is found by `kubernetes`", name)

    def _check_url(self, url: str, at: int) -> None:
        if not _URL.fullmatch(url):
            raise BadOption("expected the URL of a host of etcd, such as https://etcd-1:2379", "etcd", at)
        if self.etcd.index(url) < at:
            raise BadOption("this URL is written twice; keep one", "etcd", at)
        parts = urlsplit(url)
        if parts.scheme == "https" or is_loopback(parts.hostname or ""):
            return
        if self.credential is not None or self.tls is not None:
            what = "`tls`" if self.credential is None else "the password of `credential`"
            raise BadOption(f"http:// does not protect {what}; write https://", "etcd", at)


_URL = re.compile(r"https?://(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}/?")


def read(
    node: Node,
    environment: Mapping[str, str],
    *,
    runnable: bool = False,
    warn: Warn = lambda problem: None,
) -> FleetSettings:
    """Returns the settings of a section; raises OptionError with file, line and remedy, or KeyAbsent if only keys are
    absent.

    `runnable`: the program of `on_release` must exist. `warn` is called for a file of a secret that others can read.
    ${HOSTNAME} is the name of this host even where the environment has none.
    """
    everywhere = {"HOSTNAME": socket.gethostname(), **environment}
    return _Reading(everywhere, runnable, warn).all(FleetSettings, node, "fleet")


class _Reading(ConfigReader):
    """Reads one section."""

    def value(self, type: Any, node: Node, path: str) -> Any:
        if path == "fleet.keys":
            return self.some_keys(node, path)
        if path == "fleet.credential":
            return self.secret(node, path, "the name and the password", None)
        if path == "fleet.http.token":
            return self.secret(node, path, "the token", BEARER_TOKEN.name)
        if path == "fleet.http" and isinstance(node.value, str):
            node = Node({"address": node}, node.mark, {"address": node.mark})
        if isinstance(node.value, str) and "${" in node.value:
            with self.problems_of(node, path):
                node = replace(node, value=replaced(node.value, self.environment))
        value = super().value(type, node, path)
        if path == "fleet.http.address" and isinstance(value, str):
            with self.problems_of(node, path):
                parse_address(value)
        return value

    def some_keys(self, node: Node, path: str) -> tuple[bytes, ...]:
        if isinstance(node.value, list) and not 0 < len(node.value) <= _MOST_KEYS:
            self.problem(path, node.mark, f"a fleet has 1 to {_MOST_KEYS} keys; the first seals, all open")
            return ()
        keys = self.keys(node, path)
        for at, key in enumerate(keys):
            if key and key in keys[:at] and isinstance(node.value, list):
                self.problem(below(path, at), node.value[at].mark, "this key is written twice; keep one")
        return keys

    def secret(self, node: Node, path: str, what: str, shape: str | None) -> Credential | None:
        """Returns the content of a reference; None after a problem was added."""
        reference = self.reference(node, path, what)
        if reference is None:
            return None
        with self.problems_of(node, path):
            try:
                found = secrets.read(msgspec.structs.replace(reference, shape=shape), self.environment)
            except Absent:
                self.absent += reference.source.paths(self.environment)
                raise
            if shape is None and not found.fits(BASIC):
                raise ValueError(f"the secret {reference} is no mapping {{username: …, password: …}}")
            if shape is not None and len(found.fields[shape]) < SHORTEST_TOKEN:
                raise ValueError(
                    f"the secret {reference} has fewer than {SHORTEST_TOKEN} characters; write a longer one"
                )
            return found
        return None


def _check(holds: bool, message: str, *at: str) -> None:
    """Raises BadOption for the setting `at` unless it holds."""
    if not holds:
        raise BadOption(message, *at)
