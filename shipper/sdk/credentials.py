"""Secrets: their shapes, and their public parts.

A credential arrives beside a policy, by its id, and is kept in memory only. A setting of the type `CredentialId` refers
to it and lists the accepted shapes:

    credential: Annotated[CredentialId, takes(API_KEY, BASIC)] | None = None

The list of shapes is open: a plugin declares its own as a `Shape`. A credential is a mapping of texts; the settings
that refer to it determine its shape. Its `repr` shows no text of it, so that no log line, traceback or debugger output
does.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec

MOST_FIELDS = 16
LARGEST = 1 << 20
"""The characters of all fields together."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
_PEM = "-----BEGIN"
_ID_AND_SECRET = re.compile(r"[^\s:{}\[\]'\"]+:\S+")


class Shape(msgspec.Struct, frozen=True):
    """A set of fields that a credential may have; those in `public` are names, and may be shown."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    public: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a shape that no credential can have, or for a public field that is not among its
        fields."""
        fields = (*self.required, *self.optional)
        if not self.required or len(fields) > MOST_FIELDS or not all(map(_NAME.fullmatch, fields)):
            raise ValueError(f"the shape {self.name} has 1 to {MOST_FIELDS} fields, each with a plain name")
        if not set(self.public) <= set(fields):
            raise ValueError(f"a public field of the shape {self.name} is none of its fields")

    def __str__(self) -> str:
        """Returns the form for authors of policies: `{username, password}`; an optional field has a question mark."""
        return f"{{{', '.join((*self.required, *(f'{field}?' for field in self.optional)))}}}"


API_KEY = Shape("api_key", ("api_key",))
"""`id:secret`, or the base64 of that."""
BASIC = Shape("basic", ("username", "password"), public=("username",))
BEARER_TOKEN = Shape("bearer_token", ("bearer_token",))
CERTIFICATE = Shape("certificate", ("certificate", "key"), public=("certificate",))
"""A PEM certificate with its chain, and its key."""
TOKEN = Shape("token", ("token",))
PASSWORD = Shape("password", ("password",))
AWS = Shape("aws", ("access_key_id", "secret_access_key"), ("session_token",), public=("access_key_id",))
OAUTH2_CLIENT = Shape("oauth2_client", ("client_id", "client_secret"), public=("client_id",))
NATS = Shape("nats", ("jwt", "seed"))

SHAPES = (API_KEY, BASIC, BEARER_TOKEN, CERTIFICATE, TOKEN, PASSWORD, AWS, OAUTH2_CLIENT, NATS)
"""The built-in shapes."""
SHAPE_FIELDS: frozenset[str] = frozenset().union(*(shape.required + shape.optional for shape in SHAPES))
"""The fields of all these."""
BARE: tuple[str, ...] = tuple(sorted(one.name for one in SHAPES if len(one.required) == 1 and not one.optional))
"""The shapes that a text without further structure can have."""


class CredentialId(str):
    """The type of settings that refer to a secret; they are found by it, at any depth."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> CredentialId:
        """Returns an id; raises ValueError, which quotes nothing."""
        if not isinstance(text, str) or not text:
            raise ValueError("expected the id of a credential")
        return cls(text)


class Takes(msgspec.Struct, frozen=True):
    """The shapes that a setting accepts; made by `takes`."""

    shapes: tuple[Shape, ...]


def takes(*shapes: Shape) -> Takes:
    """For `Annotated[CredentialId, takes(…)]`: a secret of any other shape is refused. Without it: any of `SHAPES`."""
    return Takes(shapes)


class Credential(msgspec.Struct, frozen=True):
    """One secret. Read its `fields` only where they are sent."""

    fields: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<Credential {self.shape_name}>"

    def __rich_repr__(self) -> Any:
        yield self.shape_name

    def __hash__(self) -> int:
        return hash(self.canonical())

    @classmethod
    def parse(cls, value: object) -> Credential:
        """Returns a credential from JSON or YAML; raises ValueError, which never quotes the value.

        `fits` checks its shape.
        """
        if not isinstance(value, Mapping):
            raise ValueError("a credential is a mapping, such as {api_key: …} or {username: …, password: …}")
        if not 0 < len(value) <= MOST_FIELDS or not all(isinstance(k, str) and _NAME.fullmatch(k) for k in value):
            raise ValueError(f"a credential has 1 to {MOST_FIELDS} fields, each with a plain name")
        if not all(isinstance(text, str) and text for text in value.values()):
            raise ValueError("every field of a credential is a string that is not empty")
        if sum(map(len, value.values())) > LARGEST:
            raise ValueError(f"a credential has at most {LARGEST} characters")
        if any(ord(c) < 32 or ord(c) == 127 for text in value.values() if _PEM not in text for c in text):
            raise ValueError("a credential holds a control character (a line end left in a file?)")
        return cls({str(key): text for key, text in value.items()})

    def fits(self, *shapes: Shape) -> bool:
        """Whether it has one of these shapes."""
        names = self.fields.keys()
        return any(set(shape.required) <= names <= {*shape.required, *shape.optional} for shape in shapes)

    @property
    def shape_name(self) -> str:
        """Returns the name of its shape, if that is one of `SHAPES`; for messages."""
        return next((shape.name for shape in SHAPES if self.fits(shape)), "of another shape")

    def canonical(self) -> bytes:
        """Returns bytes that are equal for secrets of one shape that are sent as the same, however they are written:
        `id:secret` and its base64, PEM with other white space. For keyed fingerprints and comparisons only."""
        fields = {name: _spelled_alike(text) for name, text in self.fields.items()}
        if self.fits(API_KEY):
            fields = {"api_key": _plain_api_key(fields["api_key"])}
        return Credential(fields).written()

    def written(self) -> bytes:
        """Returns bytes that are equal only for secrets that are written alike."""
        return json.dumps(dict(self.fields), sort_keys=True, separators=(",", ":")).encode()

    def public(self, shapes: Iterable[Shape] = ()) -> dict[str, str]:
        """Returns the texts by which a backend knows it, by their fields: the id of an API key, and the fields that are
        public in a shape that it has, one of `SHAPES` or of `shapes`. Empty for a secret without a name."""
        if self.fits(API_KEY):
            id = _id_of_api_key(self.fields["api_key"])
            return {"api_key": id} if id else {}
        names = [name for shape in (*SHAPES, *shapes) if self.fits(shape) for name in shape.public]
        return {name: _spelled_alike(self.fields[name]) for name in dict.fromkeys(names) if name in self.fields}

    def name(self, shapes: Iterable[Shape] = ()) -> str:
        """Returns its `public` texts, with colons between several; empty if it has none, or is a certificate."""
        if self.fits(CERTIFICATE):
            return ""
        text = ":".join(self.public(shapes).values())
        return text if text.isprintable() else ""

    def known_as(self, shapes: Iterable[Shape] = ()) -> bytes:
        """Returns bytes that are equal for secrets that a backend may end together: those with the same `public` texts,
        as the old and the new password of one user, or one token, whatever its field is called. It is as secret as
        the credential."""
        names = self.public(shapes)
        if not names and len(self.fields) == 1:
            return Credential(dict.fromkeys(["token"], *self.fields.values())).written()
        return Credential(names).written() if names else self.canonical()

    def secrets(self, shapes: Collection[Shape] = ()) -> list[str]:
        """Returns the secret texts, in all forms in which they are sent, for a redactor; a name is no secret.

        `shapes` are those of plugins, beside `SHAPES`: fields that are public in a fitting one are not among the texts.
        """
        public = frozenset().union(*(shape.public for shape in (*SHAPES, *shapes) if self.fits(shape)))
        secrets = [text for name, text in self.fields.items() if name not in public]
        if self.fits(CERTIFICATE):
            return secrets
        with suppress(ValueError):  # of shapes without a header
            secrets.append(self.authorization().partition(" ")[2])
        if self.fits(API_KEY):
            secrets += _parts_of_api_key(secrets[-1])
        return list(dict.fromkeys([*secrets, *(quote(text, safe="") for text in secrets)]))

    def authorization(self) -> str:
        """Returns the value of an HTTP `Authorization` header; raises ValueError where there is none, and quotes
        nothing."""
        if self.fits(API_KEY):
            return f"ApiKey {_encoded_api_key(self.fields['api_key'])}"
        if self.fits(BASIC):
            pair = f"{self.fields['username']}:{self.fields['password']}"
            return f"Basic {base64.b64encode(pair.encode()).decode()}"
        if self.fits(BEARER_TOKEN):
            return f"Bearer {_checked_token(self.fields['bearer_token'])}"
        raise ValueError("a credential of this shape has no Authorization header")


def in_words(shapes: Iterable[Shape]) -> str:
    """Returns the accepted shapes for a message: `{api_key} or {username, password}`."""
    return " or ".join(map(str, shapes)) or "none"


def _spelled_alike(text: str) -> str:
    """Returns a text as it is, PEM without white space around its lines and without empty ones."""
    return "\n".join(filter(None, map(str.strip, text.splitlines()))) if _PEM in text else text


def _encoded_api_key(key: str) -> str:
    """Returns the base64 of `id:secret`, as Elasticsearch takes it; both forms are in use, so both are accepted."""
    if ":" in key:
        return base64.b64encode(key.encode()).decode()
    try:
        base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("an api_key is `id:secret` or the base64 of that") from None
    return key


def _plain_api_key(key: str) -> str:
    """Returns `id:secret`, or the key as it is if it is neither that nor its base64."""
    if ":" in key:
        return key
    with suppress(ValueError):
        pair = base64.b64decode(key, validate=True).decode()
        return pair if ":" in pair else key
    return key


def _parts_of_api_key(encoded: str) -> list[str]:
    """Returns `id:secret`, and the secret alone; none if the base64 has no such text."""
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
    """Returns the API key in a bare text, `id:secret` or the base64 of that, or None for any other text.

    Raises ValueError for a key with forbidden characters, and quotes nothing.
    """
    try:
        is_key = bool(_ID_AND_SECRET.fullmatch(text) or base64.b64decode(text, validate=True))
    except ValueError:
        return None
    return Credential.parse({"api_key": text}) if is_key else None


def _id_of_api_key(key: str) -> str:
    """Returns the public part of `id:secret`, or of its base64; empty for any other text."""
    id, colon, _secret = _plain_api_key(key).partition(":")
    return id if colon else ""
