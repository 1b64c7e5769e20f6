"""The kind of reference `{secret: {name: NAME, key: KEY}}`: a key of a Secret in the namespace of a ShipperPolicy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from shipper.sdk.secret_source import SecretSource, Unreadable

KIND = "secret"
_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_KEY = r"[A-Za-z0-9._-]{1,253}"


class KubernetesSecret(SecretSource, frozen=True):
    """A key of a Secret; which content of it, says the member that has merged the policies."""

    secret: str = ""
    key: str = ""
    id: str = ""
    """That of the content, where it is decided already; empty in what users write."""

    placeholder: ClassVar[str] = "{name: NAME, key: KEY}"
    schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": f"^{_NAME}$", "description": "The name of the Secret."},
            "key": {"type": "string", "pattern": f"^{_KEY}$", "description": "One of its keys."},
        },
        "required": ["name", "key"],
        "additionalProperties": False,
        "examples": [{"name": "es", "key": "api_key"}],
    }

    @classmethod
    def parse(cls, kind: str, value: object, keys: Mapping[str, object], folder: Path | None) -> KubernetesSecret:
        if not isinstance(value, Mapping) or not {"name", "key"} <= value.keys() <= {"name", "key", "id"}:
            raise ValueError("`secret` is followed by {name: NAME, key: KEY}")
        name, key, id = value["name"], value["key"], value.get("id", "")
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise ValueError("the `name` of a Secret is made of a-z, 0-9, - and ., and has at most 253 characters")
        if not isinstance(key, str) or not re.fullmatch(_KEY, key):
            raise ValueError("the `key` of a Secret is made of letters, digits, -, _ and ., at most 253 of them")
        if not isinstance(id, str):
            raise ValueError("`secret` is followed by {name: NAME, key: KEY}")
        return cls(f"{name}/{key}", name, key, id)

    def read(self, environment: Mapping[str, str]) -> bytes:
        raise Unreadable("is a Secret of Kubernetes, and this supervisor runs without `--kubernetes`")
