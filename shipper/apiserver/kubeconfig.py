"""Kubeconfig files: the cluster, the user and the namespace of one context. Reading blocks.

Several files are one, in which the first entry of a name and the first `current-context` count. A relative path is
relative to its file. What would change who asks, or by which way, and is not supported here, is refused rather than
ignored: `auth-provider`, user and password, `as`, `proxy-url`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
import yaml

from shipper.apiserver.credentials import Command, Credential, FileToken, FixedToken
from shipper.apiserver.server import Server
from shipper.apiserver.trust import Identity, Pem, Trust
from shipper.sdk.errors import BadOption, OptionError

_LARGEST = 4 << 20
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class _Entry(msgspec.Struct, frozen=True, rename="kebab"):
    """Keys as kubectl writes them; others are ignored, as it does."""


class _Context(_Entry, frozen=True):
    cluster: str
    user: str = ""
    namespace: str = ""


class _Cluster(_Entry, frozen=True):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(_Entry, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class _User(_Entry, frozen=True):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: _Exec | None = None
    username: str = ""
    auth_provider: Any = None
    as_: str = msgspec.field(default="", name="as")


class _NamedContext(_Entry, frozen=True):
    name: str
    context: _Context


class _NamedCluster(_Entry, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(_Entry, frozen=True):
    name: str
    user: _User = _User()


class _File(_Entry, frozen=True):
    contexts: list[_NamedContext] | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    current_context: str | None = ""


Named = TypeVar("Named", _NamedContext, _NamedCluster, _NamedUser)


@dataclass(frozen=True, slots=True)
class Found:
    """What a context stands for."""

    server: Server
    namespace: str
    trust: Trust
    credential: Credential
    where: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A part of a file, for the words of an error."""

    path: Path
    part: str = ""

    def __truediv__(self, key: str) -> _Place:
        return _Place(self.path, f"{self.part}.{key}" if self.part else key)

    def bad(self, problem: str) -> NoReturn:
        raise OptionError(f"{self}: {problem}")

    def __str__(self) -> str:
        return f"{self.path}: {self.part}" if self.part else str(self.path)

    def beside(self, path: str) -> str:
        """Returns a path that may be relative to the file."""
        return str(self.path.parent / Path(path).expanduser())


def read(paths: Sequence[str], context: str | None = None) -> Found:
    """Returns the context of this name, or the current one; raises OptionError."""
    there = [Path(path).expanduser() for path in paths]
    parsed = [(path, _parsed(path)) for path in there if path.exists() or len(there) == 1]
    if not parsed:
        raise OptionError(f"{', '.join(map(str, there))}: no such file; KUBECONFIG names kubeconfig files")
    name = context or next((file.current_context for _, file in parsed if file.current_context), None)
    if not name:
        _Place(parsed[0][0], "current-context").bad("missing; name a context, or run `kubectl config use-context`")
    contexts = [(path, one) for path, file in parsed for one in file.contexts or ()]
    place, chosen = _named(contexts, name, "contexts", parsed[0][0])
    clusters = [(path, one) for path, file in parsed for one in file.clusters or ()]
    of_cluster, cluster = _named(clusters, chosen.context.cluster, "clusters", place.path)
    if not chosen.context.user:
        of_user, user = place / "user", _NamedUser("")
    else:
        users = [(path, one) for path, file in parsed for one in file.users or ()]
        of_user, user = _named(users, chosen.context.user, "users", place.path)
    server = _server(cluster.cluster, of_cluster)
    trust = _trust(cluster.cluster, of_cluster, user.user, of_user)
    credential = _credential(user.user, of_user, cluster.cluster)
    return Found(server, chosen.context.namespace, trust, credential, f"context {name} of {place.path}")


def _parsed(path: Path) -> _File:
    place = _Place(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except OSError as error:
        place.bad(f"{error.strerror}; give a kubeconfig by KUBECONFIG, or run in a Pod with a ServiceAccount")
    if len(raw) > _LARGEST:
        place.bad(f"a kubeconfig has at most {_LARGEST >> 20} MiB")
    try:
        loaded = yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # a safe one, both
        return msgspec.convert({} if loaded is None else loaded, _File)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        place.bad(f"{line}this is not YAML")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        place.bad(str(error) if isinstance(error, msgspec.ValidationError) else "this is not YAML")


def _named(entries: Sequence[tuple[Path, Named]], name: str, part: str, file: Path) -> tuple[_Place, Named]:
    path, found = next(((path, entry) for path, entry in entries if entry.name == name), (file, None))
    if found is None:
        there = ", ".join(dict.fromkeys(entry.name for _, entry in entries)) or "none"
        _Place(file, part).bad(f"there is no {name!r}; there is: {there}")
    return _Place(path, f"{part}[{name}]"), found


def _server(cluster: _Cluster, place: _Place) -> Server:
    if cluster.proxy_url:
        (place / "cluster.proxy-url").bad("a proxy is not supported; remove it, or run where the server is reachable")
    try:
        return Server.parse(cluster.server)
    except BadOption as error:
        (place / "cluster.server").bad(str(error))


def _trust(cluster: _Cluster, of_cluster: _Place, user: _User, of_user: _Place) -> Trust:
    at, by = of_cluster / "cluster", of_user / "user"
    ca = _pem(cluster.certificate_authority, cluster.certificate_authority_data, at / "certificate-authority")
    certificate = _pem(user.client_certificate, user.client_certificate_data, by / "client-certificate")
    key = _pem(user.client_key, user.client_key_data, by / "client-key")
    if (certificate is None) is not (key is None):
        by.bad("client-certificate and client-key belong together; give both or none")
    if ca is not None and cluster.insecure_skip_tls_verify:
        (at / "insecure-skip-tls-verify").bad("there is a certificate authority as well; remove one of them")
    identity = None if certificate is None or key is None else Identity(certificate, key)
    verify = not cluster.insecure_skip_tls_verify
    return Trust(ca, identity, cluster.tls_server_name or None, verify).checked()


def _pem(path: str, data: str, place: _Place) -> Pem | None:
    if not data:
        return Pem(place.beside(path)) if path else None
    try:
        return Pem(f"{place}-data", base64.b64decode(data, validate=True).decode("ascii"))
    except (binascii.Error, ValueError):
        _Place(place.path, f"{place.part}-data").bad("this is not PEM in base64")


def _credential(user: _User, place: _Place, cluster: _Cluster) -> Credential:
    at = place / "user"
    for key, there in (("auth-provider", user.auth_provider), ("username", user.username), ("as", user.as_)):
        if there:
            (at / key).bad("not supported; use a token, a tokenFile, a client certificate, or exec")
    if user.exec is not None:
        return _command(user.exec, at / "exec", cluster)
    if user.token_file:
        return FileToken(at.beside(user.token_file))
    return FixedToken(user.token) if user.token else None


def _command(of: _Exec, place: _Place, cluster: _Cluster) -> Command:
    if of.api_version not in EXEC_VERSIONS:
        (place / "apiVersion").bad(f"not supported; it is one of {', '.join(EXEC_VERSIONS)}")
    if of.interactive_mode == "Always":
        (place / "interactiveMode").bad("nobody is there to be asked; log in by another way")
    command = place.beside(of.command) if "/" in of.command else of.command
    told: Mapping[str, Any] | None = msgspec.to_builtins(cluster) if of.provide_cluster_info else None
    return Command(
        command,
        tuple(of.args or ()),
        of.api_version,
        {one.name: one.value for one in of.env or ()},
        str(place),
        of.install_hint,
        None if told is None else {key: value for key, value in told.items() if value},
    )
