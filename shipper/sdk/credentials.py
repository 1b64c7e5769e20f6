"""Secrets: their shapes, and what of them may be seen.

A credential arrives beside a policy, by its id, and lives in memory only. It has exactly one of the shapes below. Its
`repr` names the shape and nothing else, so that no log line, traceback or debugger output shows it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import quote

import msgspec

Shape = Literal["api_key", "basic", "bearer_token", "certificate", "token"]

_SHAPES: dict[frozenset[str], Shape] = {
    frozenset({"api_key"}): "api_key",
    frozenset({"username", "password"}): "basic",
    frozenset({"bearer_token"}): "bearer_token",
    frozenset({"certificate", "key"}): "certificate",
    frozenset({"token"}): "token",
}
SHAPE_FIELDS: frozenset[str] = frozenset().union(*_SHAPES)
"""The fields of all shapes."""
BARE: tuple[Shape, ...] = tuple(sorted(shape for fields, shape in _SHAPES.items() if len(fields) == 1))
"""The shapes that a text without further structure can have."""
_ID_AND_SECRET = re.compile(r"[^\s:{}\[\]'\"]+:\S+")


class Credential(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One secret. `fields` holds the strings of its `shape`; read them where they go onto the wire, nowhere else."""

    shape: Shape
    fields: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<Credential {self.shape}>"

    def __rich_repr__(self) -> Any:
        yield self.shape

    def __hash__(self) -> int:
        return hash(self.canonical())

    @classmethod
    def parse(cls, value: object) -> Credential:
        """A credential from its JSON or YAML shape; raises ValueError, which never quotes the value."""
        if not isinstance(value, Mapping):
            raise ValueError("a credential is a mapping, such as {api_key: …} or {username: …, password: …}")
        shape = _SHAPES.get(frozenset(map(str, value)))
        if shape is None:
            shapes = "{api_key}, {username, password}, {bearer_token}, {certificate, key}, {token}"
            raise ValueError(f"a credential has exactly one of the shapes {shapes}")
        if not all(isinstance(text, str) and text for text in value.values()):
            raise ValueError(f"every field of a credential of shape {shape} is a string that is not empty")
        if shape not in ("certificate",) and any(ord(c) < 32 or ord(c) == 127 for v in value.values() for c in v):
            raise ValueError(f"a credential of shape {shape} holds a control character (a line end left in a file?)")
        return cls(shape, {str(key): text for key, text in value.items()})

    def canonical(self) -> bytes:
        """The bytes that two credentials share exactly if they are the same secret; for keyed fingerprints only."""
        return json.dumps(dict(self.fields), sort_keys=True, separators=(",", ":")).encode()

    def secrets(self) -> list[str]:
        """The texts that nobody may read, in the forms in which they go about, for a redactor; a name is no secret."""
        secrets = [text for name, text in self.fields.items() if name not in ("username", "certificate")]
        if self.shape == "certificate":
            return secrets
        with suppress(ValueError):  # of shapes without a header
            secrets.append(self.authorization().partition(" ")[2])
        if self.shape == "api_key":
            secrets += _parts_of_api_key(secrets[-1])
        return list(dict.fromkeys([*secrets, *(quote(text, safe="") for text in secrets)]))

    def authorization(self) -> str:
        """The value of an HTTP `Authorization` header; raises ValueError where there is none, and quotes nothing."""
        match self.shape:
            case "api_key":
                return f"ApiKey {_encoded_api_key(self.fields['api_key'])}"
            case "basic":
                pair = f"{self.fields['username']}:{self.fields['password']}"
                return f"Basic {base64.b64encode(pair.encode()).decode()}"
            case "bearer_token":
                return f"Bearer {_checked_token(self.fields['bearer_token'])}"
            case _:
                raise ValueError(f"a credential of shape {self.shape} has no Authorization header")


def _encoded_api_key(key: str) -> str:
    """Elasticsearch takes base64 of `id:secret`; both forms are handed out, so both are accepted."""
    if ":" in key:
        return base64.b64encode(key.encode()).decode()
    try:
        base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("an api_key is `id:secret` or the base64 of that") from None
    return key


def _parts_of_api_key(encoded: str) -> list[str]:
    """`id:secret`, and the secret alone, as a backend names it beside the id; its text may be none at all."""
    try:
        pair = base64.b64decode(encoded).decode()
    except ValueError:
        return []
    return [pair, pair.partition(":")[2]] if ":" in pair else []


def _checked_token(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise ValueError("a credential of shape bearer_token has characters that no HTTP header takes")
    return token


# -- texts -------------------------------------------------------------------------------------------------------------


def recognized(text: str) -> Credential | None:
    """The credential that a bare text is by its form alone: an API key, `id:secret` or the base64 of that; else None.

    Raises ValueError for a key that holds what no key may, and quotes nothing.
    """
    try:
        is_key = bool(_ID_AND_SECRET.fullmatch(text) or base64.b64decode(text, validate=True))
    except ValueError:
        return None
    return Credential.parse({"api_key": text}) if is_key else None


def public_name(credential: Credential) -> str:
    """What the backend calls it: the id of an API key, the name of a user; empty where a credential has neither."""
    text = credential.fields.get("username") or _id_of_api_key(credential.fields.get("api_key", ""))
    return text if text.isprintable() else ""


def _id_of_api_key(key: str) -> str:
    """The public part of `id:secret`, or of its base64; empty for what is neither."""
    if ":" not in key:
        try:
            key = base64.b64decode(key, validate=True).decode()
        except ValueError:
            return ""
    id, colon, _secret = key.partition(":")
    return id if colon else ""
