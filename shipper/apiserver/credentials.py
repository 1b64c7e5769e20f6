"""The kinds of credentials that a configuration may name; `login` obtains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FixedToken:
    """A token in the configuration itself."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class FileToken:
    """A file with a token, which is replaced before the token expires."""

    path: str


@dataclass(frozen=True, slots=True)
class Command:
    """A program that prints an ExecCredential: `exec` of a kubeconfig."""

    command: str
    arguments: tuple[str, ...]
    api_version: str
    environment: Mapping[str, str] = field(repr=False)
    """In addition to that of this process."""
    where: str
    """Its place in the configuration."""
    hint: str = ""
    """How to install it."""
    cluster: Mapping[str, Any] | None = None
    """What the program is told of the cluster, if it wants that."""


Credential = FixedToken | FileToken | Command | None
"""None: only the certificate of `trust.Identity`, or nobody."""
