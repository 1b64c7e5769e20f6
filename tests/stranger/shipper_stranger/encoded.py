"""`{encoded: PATH}`: a secret in base64, in a file."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from shipper.plugin.secrets import Absent, SecretSource, Unreadable, text_of


class Encoded(SecretSource, frozen=True):
    """A secret in a file, as base64."""

    placeholder: ClassVar[str] = "PATH"
    schema: ClassVar[Mapping[str, Any]] = {"type": "string", "examples": ["/run/keys/api.b64"]}

    @classmethod
    def parse(cls, kind: str, value: object, keys: Mapping[str, object], folder: Path | None) -> Encoded:
        path = text_of(kind, value)
        return cls(path if folder is None else str(folder / path))

    def paths(self, environment: Mapping[str, str]) -> Collection[Path]:
        return [Path(self.name)]

    def read(self, environment: Mapping[str, str]) -> bytes:
        try:
            with Path(self.name).open("rb") as file:
                return base64.b64decode(file.read(2 * self.largest), validate=False)
        except FileNotFoundError:
            raise Absent("is not there") from None
        except binascii.Error:
            raise Unreadable("is not base64") from None
