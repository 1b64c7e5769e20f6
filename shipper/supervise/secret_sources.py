"""The built-in kinds of reference: files, variables of the environment, and systemd's credentials."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from shipper.sdk.descriptors import in_words
from shipper.sdk.secret_source import Absent, SecretSource, Unreadable, text_of
from shipper.supervise.reading import content


class FileSecret(SecretSource, frozen=True):
    """`{file: PATH}`, relative to the policy file."""

    placeholder: ClassVar[str] = "PATH"
    schema: ClassVar[Mapping[str, Any]] = {"type": "string", "examples": ["/run/keys/es"]}

    @classmethod
    def parse(cls, kind: str, value: object, keys: Mapping[str, object], folder: Path | None) -> FileSecret:
        path = text_of(kind, value)
        return cls(path if folder is None else str(folder / path))

    def paths(self, environment: Mapping[str, str]) -> Collection[Path]:
        return [Path(self.name)]

    def read(self, environment: Mapping[str, str]) -> bytes:
        try:
            return content(Path(self.name), self.largest)
        except FileNotFoundError as error:
            raise Absent(f"cannot be read: {in_words(error)}") from None

    def exposure(self) -> str | None:
        return exposure(Path(self.name))


class EnvironmentSecret(SecretSource, frozen=True):
    """`{env: NAME}`: a variable of the supervisor's environment, which changes at a restart only."""

    schema: ClassVar[Mapping[str, Any]] = {"type": "string", "examples": ["ES_API_KEY"]}

    @property
    def variables(self) -> Collection[str]:
        return [self.name]

    def read(self, environment: Mapping[str, str]) -> bytes:
        text = environment.get(self.name)
        if text is None:
            raise Unreadable("is not set in the supervisor's environment")
        return os.fsencode(text)


class SystemdSecret(SecretSource, frozen=True):
    """`{systemd: NAME}`: $CREDENTIALS_DIRECTORY/NAME, by `LoadCredential=`; its access rights do not show in a mode."""

    schema: ClassVar[Mapping[str, Any]] = {"type": "string", "examples": ["es"]}

    @classmethod
    def parse(cls, kind: str, value: object, keys: Mapping[str, object], folder: Path | None) -> SystemdSecret:
        name = text_of(kind, value)
        if "/" in name or name in (".", ".."):
            raise ValueError("`systemd` is followed by the name of a credential, without a slash")
        return cls(name)

    def paths(self, environment: Mapping[str, str]) -> Collection[Path]:
        return [self._path(environment)]

    def read(self, environment: Mapping[str, str]) -> bytes:
        return content(self._path(environment), self.largest)

    def _path(self, environment: Mapping[str, str]) -> Path:
        directory = environment.get("CREDENTIALS_DIRECTORY")
        if not directory:
            add = "add LoadCredential= to the unit, or use {file: PATH}"
            raise Unreadable(f"cannot be read: $CREDENTIALS_DIRECTORY is not set; {add}")
        return Path(directory, self.name)


def exposure(path: Path) -> str | None:
    """Returns how other users can read or replace the file of a secret, and the remedy; None if they cannot, or it is
    absent.

    A group that root allows to read is trusted: so a service reads keys that it cannot replace.
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
