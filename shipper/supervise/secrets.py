"""References to secrets in policy files, in place of ids of credentials, and the reading of their contents.

    credential: {file: /run/keys/es}                        a file; relative to the policy file
    credential: {env: ES_API_KEY}                           a variable of the supervisor's environment
    credential: {systemd: es}                               $CREDENTIALS_DIRECTORY/es
    credential: {file: /run/keys/token, as: bearer_token}   a bare text that is neither `id:secret` nor base64
    credential: {KIND: …, …}                                an installed kind of `SecretSource`

The content is an API key (`id:secret` or base64), or a mapping of an accepted shape (`mapped`). Errors name the
reference, never the content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from shipper.policy import document
from shipper.policy.document import Node, followed, suggest
from shipper.policy.registry import Kind, Registry, UnknownType
from shipper.policy.secret_sources import SecretSources, installed
from shipper.policy.uses import changed
from shipper.process import log
from shipper.process.groups import contained
from shipper.sdk.codes import Code
from shipper.sdk.credentials import BARE, SHAPE_FIELDS, Credential, Shape, recognized
from shipper.sdk.credentials import in_words as shapes_in_words
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import PolicyError, Problem
from shipper.sdk.secret_source import LARGEST, Absent, SecretSource, Unreadable
from shipper.sdk.tls import NotNow, check_usable
from shipper.supervise.mapped import fields_of


class SecretsAbsent(PolicyError):
    """The only problems of a policy are absent secrets."""


class Reference(msgspec.Struct, frozen=True):
    """A reference to one secret, with its shape if the content does not show it."""

    kind: str
    source: SecretSource
    shape: str | None = None

    def __str__(self) -> str:
        """Returns the reference for reports; bytes of a path that are not UTF-8 are escaped."""
        return f"{self.kind}:{self.source.name}".encode(errors="backslashreplace").decode()

    @property
    def label(self) -> str:
        """Returns a short name for ids: `es` for /run/keys/es."""
        return re.sub(r"[^a-z0-9]+", "-", Path(self.source.name).name.lower()).strip("-")[:32] or "credential"

    @classmethod
    def parse(cls, node: Node) -> Reference:
        """Returns the reference of a node; raises ValueError, which quotes only known keys."""
        sources = installed()
        if not isinstance(node.value, dict):
            raise ValueError(_hint(sources))
        fields = {key: document.plain(child) for key, child in node.value.items()}
        shape = fields.pop("as", None)
        if shape is not None and shape not in BARE:
            raise ValueError(f"`as` is one of {', '.join(BARE)}; other shapes are written as a mapping in the secret")
        kinds = [kind for kind in sources.kinds if kind in fields]
        source = _loaded(sources, kinds[0]) if len(kinds) == 1 else SecretSource
        beside = fields.keys() - set(kinds)
        if not beside <= source.keys.keys() and not SHAPE_FIELDS.isdisjoint(beside):
            raise ValueError(_hint(sources))
        if len(kinds) != 1 or (beside and not source.keys):
            meant = "" if kinds else suggest(next(iter(fields), ""), sources.kinds)
            raise ValueError(f"a reference has exactly one kind: {sources.hint()}{meant}")
        if not beside <= source.keys.keys():
            raise ValueError(f"beside `{kinds[0]}` a reference has {', '.join(source.keys)} or `as`, and no other key")
        folder = None if node.mark.file is None else Path(node.mark.file).parent.absolute()
        value = fields.pop(kinds[0])
        try:
            place = source.parse(kinds[0], value, fields, folder)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"the secret source {kinds[0]} fails: {type(error).__name__}") from None
        return cls(kinds[0], place, None if shape is None else str(shape))


def _hint(sources: SecretSources) -> str:
    return f"a policy must not contain a secret; write a reference: {sources.hint()}"


def _loaded(sources: SecretSources, kind: str) -> type[SecretSource]:
    try:
        return sources.find(kind)
    except UnknownType as error:
        raise ValueError(str(error)) from None


# -- in the tree -------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A reference to a secret in a file, and the accepted shapes."""

    path: str
    node: Node
    shapes: tuple[Shape, ...] = ()

    def problem(self, message: str, code: str = Code.BAD_VALUE) -> Problem:
        """Returns a problem at this place."""
        mark = self.node.mark
        return Problem(self.path, mark.line, mark.column, message, mark.file, code)

    def misfit(self, reference: Reference, credential: Credential) -> Problem | None:
        """Returns the problem of a secret with a shape that is not accepted here, or None."""
        if credential.fits(*self.shapes):
            return None
        text = f"the secret {reference}: its shape is not accepted here; accepted: {shapes_in_words(self.shapes)}"
        return self.problem(text, Code.SECRET_UNAVAILABLE)


def of_file(path: Path, shape: str | None = None) -> Node:
    """Returns the reference to a file, as a policy has it."""
    mark = document.Mark(1, 1)
    fields = {"file": str(path.absolute()), **({} if shape is None else {"as": shape})}
    return Node({key: Node(value, mark) for key, value in fields.items()}, mark)


def references(tree: Node, registry: Registry) -> dict[Reference, list[Place]]:
    """Returns every reference and its places; raises PolicyError for invalid ones."""
    found: dict[Reference, list[Place]] = {}
    problems: list[Problem] = []

    def note(place: Place) -> Node:
        try:
            found.setdefault(Reference.parse(place.node), []).append(place)
        except ValueError as error:
            problems.append(place.problem(str(error)))
        return place.node

    everywhere(tree, registry, note)
    if problems:
        raise PolicyError(problems)
    return found


def substituted(tree: Node, registry: Registry, ids: Mapping[Reference, str]) -> Node:
    """Returns the tree with an id in place of every reference."""
    return everywhere(tree, registry, lambda place: Node(ids[Reference.parse(place.node)], place.node.mark))


Visit = Callable[[Place], Node]


_SECTIONS: tuple[Kind, ...] = ("inputs", "outputs")


def everywhere(tree: Node, registry: Registry, visit: Visit) -> Node:
    """Returns the tree with the result of `visit` at each place for the id of a credential in the settings of a plugin.

    The types of the plugin's settings decide where these places are. Settings of an unknown plugin are left for the
    schema to refuse.
    """
    assert isinstance(tree.value, dict)
    sections = dict(tree.value)
    for kind in _SECTIONS:
        section = sections.get(kind)
        if section is not None and isinstance(section.value, dict):
            parts = {name: _part(tree, kind, name, registry, visit) for name in section.value}
            sections[kind] = replace(section, value=parts)
    return replace(tree, value=sections)


def _part(tree: Node, kind: Kind, name: str, registry: Registry, visit: Visit) -> Node:
    def visited(node: Node, keys: tuple[str | int, ...], shapes: tuple[Shape, ...]) -> Node:
        return visit(Place(followed(tree, "", (kind, name, *keys))[1], node, shapes))

    node, _ = followed(tree, "", (kind, name))
    type = node.value.get("type") if isinstance(node.value, dict) else None
    if type is None or not isinstance(type.value, str):
        return node
    try:
        plugin = registry.find(kind, type.value)
    except UnknownType:
        return node
    return changed(node, plugin, lambda place: visited(place.tree, place.path, place.shapes))


# -- contents ----------------------------------------------------------------------------------------------------------


def read(reference: Reference, environment: Mapping[str, str], shapes: Collection[Shape] = ()) -> Credential:
    """Returns the secret of a reference; raises ValueError with the reference and the remedy, never the content.

    `shapes` are those that the settings accept: what is public in them stays readable in later lines.

    Raises Absent where the secret may appear later; systemd's credentials and the environment change only at a restart.
    """
    try:
        with contained():
            raw = reference.source.read(environment)
    except Absent as error:
        raise Absent(f"the secret {reference} {error}") from None
    except OSError as error:
        raise ValueError(f"the secret {reference} cannot be read: {in_words(error)}") from None
    except Unreadable as error:
        raise ValueError(f"the secret {reference} {error}") from None
    except Exception as error:  # of a plugin; its text may quote anything
        raise ValueError(f"the secret {reference} cannot be read: {type(error).__name__}") from None
    return of_content(reference, raw, shapes)


def of_content(reference: Reference, raw: bytes, shapes: Collection[Shape] = ()) -> Credential:
    """Returns the secret that a content is; raises ValueError as `read` does, also for one that a sidecar refuses since
    no connection could use it."""
    try:
        text = _decoded(raw)
    except Unreadable as error:
        raise ValueError(f"the secret {reference} {error}") from None
    try:
        credential = interpreted(text, reference.shape)
        with suppress(NotNow):  # the sidecar will tell
            check_usable(credential)
    except ValueError as error:
        raise ValueError(f"the secret {reference}: {error}") from None
    hide(credential, shapes)
    return credential


def watched(reference: Reference, environment: Mapping[str, str]) -> Collection[Path]:
    """Returns the files to watch for changes of the secret; none where they are unknown, which `read` reports."""
    try:
        return reference.source.paths(environment)
    except Exception:
        return ()


def _decoded(raw: bytes) -> str:
    if len(raw) > LARGEST:
        raise Unreadable("cannot be read: it is larger than 1MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("cannot be read: it is not UTF-8") from None


def hide(credential: Credential, shapes: Collection[Shape] = ()) -> None:
    """Hides the secret in every later line of this process, even in text of a command or a server; not what is public
    in one of `shapes`, which are those of plugins."""
    for text in credential.secrets(shapes):
        log.hide(text)


def exposed(reference: Reference) -> str | None:
    """Returns how other users can read a secret, in a sentence; None if they cannot."""
    try:
        how = reference.source.exposure()
    except Exception as error:
        how = f"its access rights are unknown: {type(error).__name__}"
    return how and f"the secret {reference}: {how}"


def interpreted(text: str, shape: str | None = None) -> Credential:
    """Returns the credential of a secret's content, without one trailing line end; raises ValueError."""
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise ValueError("it is empty")
    if shape is not None:
        return Credential.parse({shape: text})
    if (credential := recognized(text)) is not None:
        return credential
    if (fields := fields_of(text)) is not None:
        return Credential.parse(fields)
    raise ValueError(
        "it is neither an API key (`id:secret` or its base64) nor a mapping such as {username: …, password: …}; "
        "for another bare text, write `as: bearer_token` beside the reference"
    )


def essences(credential: Credential) -> list[bytes]:
    """Returns the possible `essence` of the content from which a credential was read, whose spelling is not known: that
    of a mapping, and, of a single field, that of a bare text."""
    bare = [essence(text) for text in credential.fields.values()] if len(credential.fields) == 1 else []
    return list(dict.fromkeys([credential.canonical(), *bare]))


def essence(text: str, shape: str | None = None) -> bytes:
    """Returns bytes that are equal for contents of the same secret, however they are written.

    A text that is no secret, or whose shape stands beside the reference, is itself, without one trailing line end.
    """
    try:
        return interpreted(text, shape).canonical()
    except ValueError:
        return text.removesuffix("\n").removesuffix("\r").encode()
