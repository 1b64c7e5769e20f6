"""The contract of one kind of reference to a secret, such as `{file: /run/keys/es}`.

A kind is a subclass of `SecretSource`, and the entry point that names it in the group `shipper.secret_sources` is the
key by which a policy file refers to it. Only supervisors read secrets: `shipper run` gets them beside a policy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

from shipper.sdk import hooks

LARGEST = 1 << 20
"""The most bytes of a secret."""


class Unreadable(ValueError):
    """A secret cannot be read; the text continues the name of its place: "is not set"."""


class Absent(Unreadable):
    """A secret does not exist, and may appear later."""


class SecretSource(msgspec.Struct, frozen=True):
    """One place of a secret, as in a policy file: `{KIND: …}`, perhaps with further keys. Equal ones are the same
    place."""

    name: str
    """The name in reports, after the kind: `/run/keys/es` of `file:/run/keys/es`. The last part of the path becomes
    part of the credential's id."""

    largest: ClassVar[int] = LARGEST
    """The most bytes of a content."""
    placeholder: ClassVar[str] = "NAME"
    """The placeholder in hints: `{env: NAME}`."""
    schema: ClassVar[Mapping[str, Any]] = {"type": "string"}
    """The JSON Schema of the value of the kind; its first example becomes one of the whole reference."""
    keys: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The keys that a reference may have beside the kind, each with its JSON Schema; `as` is not among them."""
    poll_seconds: ClassVar[float | None] = None
    """The interval for reading it again, where no path in `paths` shows a change."""

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, SecretSource)

    @classmethod
    def parse(cls, kind: str, value: object, keys: Mapping[str, object], folder: Path | None) -> Self:
        """Returns the place of `{KIND: value, …}` in a file of this folder; `keys` are those beside the kind.

        Raises ValueError, which quotes nothing of the value: it may be a secret in the wrong place.
        """
        return cls(text_of(kind, value))

    def paths(self, environment: Mapping[str, str]) -> Collection[Path]:
        """Returns the files to watch; raises Unreadable where the environment does not determine them."""
        return ()

    @property
    def variables(self) -> Collection[str]:
        """Returns the variables of the supervisor's environment with a secret: no other program gets them."""
        return ()

    def read(self, environment: Mapping[str, str]) -> bytes:
        """Returns the content, which may be truncated after `largest` + 1 bytes.

        Called in a worker thread; must return within seconds. Raises OSError, or Unreadable with a text without any of
        the content; raises Absent where a policy that needs nothing else can wait for it. Of any other error only the
        type is reported.
        """
        raise NotImplementedError

    def exposure(self) -> str | None:
        """Returns how other users can read the secret, and the remedy; None if they cannot. Called in a worker
        thread."""
        return None


def text_of(key: str, value: object) -> str:
    """Returns the value of a key if it is a text; raises ValueError, which quotes the key alone."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"`{key}` is followed by a text")
    return value
