"""Where the API server is, and with what credential it is asked.

The first of these that there is decides:

1. a kubeconfig or a context of it that the caller names
2. the kubeconfigs of KUBECONFIG
3. in a Pod (KUBERNETES_SERVICE_HOST) its ServiceAccount: files below SERVICE_ACCOUNT, or below the directory that the
   variable SHIPPER_SERVICE_ACCOUNT names, for where a Pod mounts them elsewhere
4. ~/.kube/config

Reading blocks. Whatever is wrong with a file is an OptionError with the file, the place in it and the remedy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shipper.apiserver import kubeconfig as files
from shipper.apiserver.credentials import Credential, FileToken
from shipper.apiserver.server import Server
from shipper.apiserver.trust import Pem, Trust
from shipper.process.environment import REAL, Environment
from shipper.sdk.errors import BadOption, OptionError

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SERVICE_ACCOUNT_VARIABLE = "SHIPPER_SERVICE_ACCOUNT"
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a client needs; holds paths where there are files, so that what is replaced is read anew."""

    server: Server
    namespace: str
    trust: Trust
    credential: Credential
    source: str
    """Where all this is from, in words."""


async def configured(
    variables: Mapping[str, str],
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    environment: Environment = REAL,
) -> Configuration:
    """Returns `find`'s answer, which is looked for in a thread; raises OptionError."""

    def look() -> Configuration:
        return find(variables, namespace=namespace, context=context, kubeconfig=kubeconfig)

    return await environment.in_thread(look, abandon_on_cancel=True)


def find(
    variables: Mapping[str, str],
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> Configuration:
    """Returns the configuration; `variables` are the environment of this process.

    `namespace` takes the place of that of the ServiceAccount or of the context. Raises OptionError. Blocks.
    """
    found = _found(variables, context, kubeconfig)
    return replace(found, namespace=namespace) if namespace else found


def _found(variables: Mapping[str, str], context: str | None, kubeconfig: str | None) -> Configuration:
    if kubeconfig is not None:
        return _outside([kubeconfig], context)
    named = [path for path in variables.get("KUBECONFIG", "").split(os.pathsep) if path]
    if named:
        return _outside(named, context)
    if context is None and variables.get("KUBERNETES_SERVICE_HOST"):
        return _inside(variables)
    home = variables.get("HOME") or str(Path("~").expanduser())
    return _outside([str(Path(home) / ".kube" / "config")], context)


def _outside(paths: Sequence[str], context: str | None) -> Configuration:
    found = files.read(paths, context)
    namespace = found.namespace or DEFAULT_NAMESPACE
    return Configuration(found.server, namespace, found.trust, found.credential, found.where)


def _inside(variables: Mapping[str, str]) -> Configuration:
    """In a Pod; its token is read when it is used, and here to see that it is there."""
    directory = Path(variables.get(SERVICE_ACCOUNT_VARIABLE) or SERVICE_ACCOUNT)
    host, port = variables["KUBERNETES_SERVICE_HOST"], variables.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        server = Server.parse(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
    except BadOption as error:
        raise OptionError(f"KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT: {error}") from None
    _text(directory / "token")
    namespace = _text(directory / "namespace")
    trust = Trust(ca=Pem(str(directory / "ca.crt"))).checked()
    return Configuration(server, namespace, trust, FileToken(str(directory / "token")), f"ServiceAccount {directory}")


def _text(path: Path) -> str:
    try:
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "this is no text"
        raise OptionError(
            f"{path}: {cause}; the Pod needs a ServiceAccount, and automountServiceAccountToken must not be false"
        ) from None
    if not found:
        raise OptionError(f"{path}: this file is empty; mount the ServiceAccount of the Pod there")
    return found
