"""The supervisor's own configuration, a small YAML file (`--config`).

on_release:                                    # run for each credential that can be revoked, until it succeeds
  command: [/usr/local/bin/revoke-key]         # SHIPPER_CREDENTIAL_NAME, and more: see revoke.py
  timeout: 30s
state_key: {systemd: shipper-state}            # or {file: PATH}: 32 bytes in base64; of a list, the first seals
http: 127.0.0.1:6780                           # where the sidecar serves /metrics and /livez
sidecar: [shipper, run]                        # another program to launch; `--state DIR` is added
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shipper import document
from shipper.document import Node
from shipper.errors import OptionError, PolicyError
from shipper.supervise.secrets import Reference
from shipper.supervise.vault import decoded_key
from shipper.units import Duration


class OnRelease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is run for each released credential."""

    command: tuple[str, ...]
    timeout: Duration = Duration(30)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of it; every part may be absent."""

    on_release: OnRelease | None = None
    state_keys: tuple[bytes, ...] = ()
    http: str | None = None
    sidecar: tuple[str, ...] = (sys.executable, "-P", "-m", "shipper", "run")

    def launch(self, state: Path) -> list[str]:
        """The command line of the sidecar."""
        address = ["--http", self.http] if self.http else []
        return [*self.sidecar, "--state", str(state / "sidecar"), *address]


def read_config(path: Path, environment: Mapping[str, str]) -> Config:
    """Raises OptionError that names file, line and remedy."""
    try:
        root = document.read(path.read_bytes(), file=str(path))
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None
    except PolicyError as error:
        raise OptionError(str(error)) from None
    if root.value is None:
        return Config()
    if not isinstance(root.value, dict):
        raise OptionError(f"{path}: the configuration is a mapping, such as `on_release: {{command: [/usr/bin/…]}}`")
    keys = _state_keys(root.value.get("state_key"), environment)
    nested: dict[str, Any] = {key: document.plain(child) for key, child in root.value.items() if key != "state_key"}
    if "state_keys" in nested:
        raise OptionError(f"{path}:{root.keys['state_keys'].line}: write `state_key`, which may be a list")
    try:
        config = msgspec.convert(nested, Config, dec_hook=_unit)
    except msgspec.ValidationError as error:
        raise OptionError(f"{path}: {error}") from None
    for command in (config.sidecar, config.on_release.command if config.on_release else ("-",)):
        if not command:
            raise OptionError(f"{path}: a command names a program")
    return msgspec.structs.replace(config, state_keys=tuple(keys))


def _unit(kind: type, value: object) -> object:
    assert kind is Duration
    return Duration.parse(value)


def _state_keys(node: Node | None, environment: Mapping[str, str]) -> list[bytes]:
    if node is None:
        return []
    nodes: Sequence[Node] = node.value if isinstance(node.value, list) else [node]
    return [_state_key(one, environment) for one in nodes]


def _state_key(node: Node, environment: Mapping[str, str]) -> bytes:
    where = f"{node.mark.file}:{node.mark.line}:{node.mark.column}: state_key"
    try:
        reference = Reference.parse(node)
        path = reference.path(environment)
        if path is None or reference.shape is not None:
            raise ValueError("write {systemd: NAME} or {file: PATH}")
        return decoded_key(path.read_bytes(), str(reference))
    except OSError as error:
        raise OptionError(f"{where}: {error.strerror}") from None
    except (ValueError, OptionError) as error:
        raise OptionError(f"{where}: {error}") from None
