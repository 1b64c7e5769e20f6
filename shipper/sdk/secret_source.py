"""Where a secret lies: the contract of one kind of reference, such as `{file: /run/keys/es}`.

A kind is a subclass of `SecretSource`, and the entry point that names it in the group `shipper.secret_sources` is the
key by which a policy file refers to it. Only supervisors read secrets: `shipper run` gets them beside a policy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

LARGEST = 1 << 20
"""Bytes that a secret may have."""


class Unreadable(ValueError):
    """A secret cannot be read; the text goes on behind the name of its place: "is not set"."""


class Absent(Unreadable):
    """It is not there, and may come yet."""


class SecretSource(msgspec.Struct, frozen=True):
    """One place of a secret, as a policy file names it: `{KIND: …}`, perhaps with further keys. Equal ones are one."""

    name: str
    """What people and programs are told of it, behind the kind: `/run/keys/es` of `file:/run/keys/es`. Its last part,
    as of a path, becomes part of the credential's id."""

    largest: ClassVar[int] = LARGEST
    """Bytes that a content may have."""
    placeholder: ClassVar[str] = "NAME"
    """What hints show behind the kind: `{env: NAME}`."""
    schema: ClassVar[Mapping[str, Any]] = {"type": "string"}
    """The JSON Schema of what is behind the kind; a first example of it becomes one of the whole reference."""
    keys: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The keys that a reference may have beside the kind, each with its JSON Schema; `as` is not among them."""
    poll_seconds: ClassVar[float | None] = None
    """How often to read it again, where no path of `paths` tells of a change."""

    @classmethod
    def parse(cls, kind: str, value: object, keys: Mapping[str, object], folder: Path | None) -> Self:
        """The place that `{KIND: value, …}` names, in a file of this folder; `keys` are those beside the kind.

        Raises ValueError, which quotes nothing that was written: it may be a secret in the wrong place.
        """
        return cls(text_of(kind, value))

    def paths(self, environment: Mapping[str, str]) -> Collection[Path]:
        """The files to watch; raises Unreadable where the environment does not say which."""
        return ()

    @property
    def variables(self) -> Collection[str]:
        """The variables of the supervisor's environment that hold a secret: no other program gets them."""
        return ()

    def read(self, environment: Mapping[str, str]) -> bytes:
        """The content; of one with more than `largest` bytes it may be cut behind one more.

        Called in a worker thread, and ends by itself within seconds. Raises OSError, or Unreadable with a text that has
        nothing of the content; it is Absent where a policy that needs nothing else can wait for it. Of any other error
        only the type is told.
        """
        raise NotImplementedError

    def exposure(self) -> str | None:
        """How others may get at it, and what to do; None if they may not. Called in a worker thread."""
        return None


def text_of(key: str, value: object) -> str:
    """The value of a key that is followed by a text; raises ValueError, which quotes the key alone."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"`{key}` is followed by a text")
    return value
