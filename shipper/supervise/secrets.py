"""Where a policy file says that a secret lies, and what is read there.

    credential: {file: /run/keys/es}                        a file; relative to the policy file
    credential: {env: ES_API_KEY}                           a variable of the supervisor's environment
    credential: {systemd: es}                               $CREDENTIALS_DIRECTORY/es
    credential: {file: /run/keys/token, as: bearer_token}   a bare text that is neither `id:secret` nor base64

The content is an API key (`id:secret` or base64), or a YAML or JSON mapping of one credential shape. It never shows in
an error: those name the reference.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shipper.policy import document
from shipper.policy.document import Node, below
from shipper.process import log
from shipper.sdk.codes import Code
from shipper.sdk.credentials import BARE, SHAPE_FIELDS, Credential, recognized
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import PolicyError, Problem
from shipper.supervise.reading import content

LARGEST = 1 << 20
_KINDS = ("file", "env", "systemd")
_WHERE = "{file: PATH}, {env: NAME} or {systemd: NAME}"
_HINT = f"a secret does not stand in a policy; write where it lies: {_WHERE}"


class Absent(ValueError):
    """The file of a secret is not there, and may come yet."""


class SecretsAbsent(PolicyError):
    """Nothing is wrong with a policy but that files of its secrets are absent."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Where one secret lies."""

    kind: str
    name: str
    shape: str | None = None

    def __str__(self) -> str:
        """As people and programs are told of it: of a path that is not UTF-8, with its other bytes written out."""
        return f"{self.kind}:{self.name}".encode(errors="backslashreplace").decode()

    @property
    def label(self) -> str:
        """A short name for ids: `es` for /run/keys/es."""
        return re.sub(r"[^a-z0-9]+", "-", Path(self.name).name.lower()).strip("-")[:32] or "credential"

    def path(self, environment: Mapping[str, str]) -> Path | None:
        """The file that holds it, if one does; raises ValueError where systemd gave no directory."""
        if self.kind == "file":
            return Path(self.name)
        if self.kind == "env":
            return None
        directory = environment.get("CREDENTIALS_DIRECTORY")
        if not directory:
            raise ValueError("$CREDENTIALS_DIRECTORY is not set; add LoadCredential= to the unit, or use {file: PATH}")
        return Path(directory, self.name)

    @classmethod
    def parse(cls, node: Node) -> Reference:
        """Raises ValueError that quotes nothing but the keys that we know."""
        if not isinstance(node.value, dict):
            raise ValueError(_HINT)
        fields = {key: child.value for key, child in node.value.items()}
        shape = fields.pop("as", None)
        if shape is not None and shape not in BARE:
            raise ValueError(f"`as` is one of {', '.join(BARE)}; other shapes are written as a mapping in the secret")
        if not SHAPE_FIELDS.isdisjoint(fields):
            raise ValueError(_HINT)
        if len(fields) != 1 or (kind := next(iter(fields))) not in _KINDS:
            raise ValueError(f"where a secret lies is said in exactly one way: {_WHERE}")
        name = fields[kind]
        if not isinstance(name, str) or not name or "\0" in name:
            raise ValueError(f"`{kind}` is followed by a text")
        if kind == "systemd" and ("/" in name or name in (".", "..")):
            raise ValueError("`systemd` is followed by the name of a credential, without a slash")
        if kind == "file" and node.mark.file is not None:
            name = str(Path(node.mark.file).parent.absolute() / name)
        return cls(kind, name, None if shape is None else str(shape))


# -- in the tree -------------------------------------------------------------------------------------------------------


def references(tree: Node) -> dict[Reference, list[tuple[str, Node]]]:
    """Every reference and its places; raises PolicyError for what is none."""
    found: dict[Reference, list[tuple[str, Node]]] = {}
    problems: list[Problem] = []

    def note(path: str, node: Node) -> Node:
        try:
            found.setdefault(Reference.parse(node), []).append((path, node))
        except ValueError as error:
            problems.append(problem(path, node, str(error)))
        return node

    everywhere(tree, note)
    if problems:
        raise PolicyError(problems)
    return found


def substituted(tree: Node, ids: Mapping[Reference, str]) -> Node:
    """The tree with an id in place of every reference."""
    return everywhere(tree, lambda _, node: Node(ids[Reference.parse(node)], node.mark))


def problem(path: str, node: Node, message: str, code: str = Code.BAD_VALUE) -> Problem:
    """A problem at a node's place."""
    return Problem(path, node.mark.line, node.mark.column, message, node.mark.file, code)


Visit = Callable[[str, Node], Node]


def everywhere(tree: Node, visit: Visit) -> Node:
    """The tree with what `visit(path, node)` gives in the place of each credential.

    That is what plugins call `credential`, and each of `credentials`, at the top of their settings or under `tls`.
    Nowhere else: below that, such a key is the user's own word (a field that `add_fields` sets, perhaps).
    """
    assert isinstance(tree.value, dict)
    sections = dict(tree.value)
    for key in ("inputs", "outputs"):
        section = sections.get(key)
        if section is not None and isinstance(section.value, dict):
            plugins = {name: _settings(below(key, name), node, visit) for name, node in section.value.items()}
            sections[key] = replace(section, value=plugins)
    return replace(tree, value=sections)


def _settings(path: str, node: Node, visit: Visit) -> Node:
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={key: _setting(path, key, child, visit) for key, child in node.value.items()})


def _setting(path: str, key: str, node: Node, visit: Visit) -> Node:
    path = below(path, key)
    if key == "credential" and node.value is not None:
        return visit(path, node)
    if key == "credentials" and isinstance(node.value, list):
        return replace(node, value=[visit(below(path, at), item) for at, item in enumerate(node.value)])
    return _settings(path, node, visit) if key == "tls" else node


# -- what is read there ------------------------------------------------------------------------------------------------


def read(reference: Reference, environment: Mapping[str, str]) -> Credential:
    """The secret of a reference; raises ValueError that names the reference and the remedy, never the content.

    It is Absent where a file may come yet; what systemd hands over, and the environment, change at a restart only.
    """
    try:
        path = reference.path(environment)
        text = environment.get(reference.name) if path is None else _content(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = in_words(error) if isinstance(error, OSError) else "it is not UTF-8"
        kind = Absent if isinstance(error, FileNotFoundError) and reference.kind == "file" else ValueError
        raise kind(f"the secret {reference} cannot be read: {reason}") from None
    if text is None:
        raise ValueError(f"the secret {reference} is not set in the supervisor's environment")
    try:
        credential = interpreted(text, reference.shape)
    except ValueError as error:
        raise ValueError(f"the secret {reference}: {error}") from None
    hide(credential)
    return credential


def hide(credential: Credential) -> None:
    """From now on no line of this process shows it, whatever a command or a server may write."""
    for text in credential.secrets():
        log.hide(text)


def exposure(path: Path) -> str | None:
    """How others may get at the file of a secret, and what to do; None if they may not, or there is no such file.

    What root lets another group read is meant for that group: so a service reads keys that it cannot replace.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    given = stat.S_IRGRP if found.st_uid == 0 != found.st_gid else 0
    if found.st_mode & 0o077 & ~given:
        return f"other users have rights to it (mode {stat.S_IMODE(found.st_mode):04o}); write: chmod go= {path}"
    if found.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {found.st_uid}); write: chown {os.geteuid()} {path}"
    return None


def exposed(reference: Reference) -> str | None:
    """The same for a reference, in a sentence. What systemd hands over has rights that a mode cannot say."""
    how = exposure(Path(reference.name)) if reference.kind == "file" else None
    return how and f"the secret {reference}: {how}"


def _content(path: Path) -> str:
    raw = content(path, LARGEST)
    if len(raw) > LARGEST:
        raise OSError(0, "it is larger than 1MiB")
    return raw.decode("utf-8-sig")


def interpreted(text: str, shape: str | None = None) -> Credential:
    """The credential that a secret's content says, without one trailing line end; raises ValueError."""
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise ValueError("it is empty")
    if shape is not None:
        return Credential.parse({shape: text})
    if (credential := recognized(text)) is not None:
        return credential
    if (fields := _mapping(text)) is not None:
        return Credential.parse(fields)
    raise ValueError(
        "it is neither an API key (`id:secret` or its base64) nor a mapping such as {username: …, password: …}; "
        "for another bare text, write `as: bearer_token` beside the reference"
    )


def _mapping(text: str) -> object:
    """The mapping that a text writes in YAML or JSON; None for what is none."""
    try:
        node = document.read(text)
    except PolicyError:
        return None
    return document.plain(node) if isinstance(node.value, dict) else None
