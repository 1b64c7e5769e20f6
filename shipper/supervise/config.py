"""The supervisor's own configuration, a small YAML file (`--config`).

on_release:                                    # run for each credential that can be revoked, until it succeeds
  command: [/usr/local/bin/revoke-key]         # SHIPPER_CREDENTIAL_NAME, and more: see revoke.py
  timeout: 30s
state_key: {systemd: shipper-state}            # or {file: PATH}: 32 bytes in base64; of a list, the first seals
http: 127.0.0.1:6780                           # the sidecar serves /metrics, /status, /readyz, /livez for both
sidecar: [shipper, run]                        # another program to launch; `--state DIR` is added
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from shipper.policy import document
from shipper.policy.document import Node, below
from shipper.policy.settings import Reader, TooMany
from shipper.sdk.codes import Code
from shipper.sdk.errors import OptionError, PolicyError, Problem
from shipper.sdk.secret_source import LARGEST, Unreadable
from shipper.sdk.units import Duration
from shipper.status.http import parse_address
from shipper.supervise.reading import content
from shipper.supervise.secrets import Place, Reference, exposed
from shipper.supervise.vault import decoded_key

Command = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class OnRelease(msgspec.Struct, frozen=True):
    """The command for each released credential."""

    command: Command
    timeout: Duration = Duration(30)


class KeyAbsent(OptionError):
    """The only problem of a configuration is that files of state keys are absent; `paths` may appear later."""

    def __init__(self, message: str, paths: Sequence[Path]) -> None:
        super().__init__(message)
        self.paths = tuple(paths)


class Config(msgspec.Struct, frozen=True):
    """The whole configuration; every part is optional."""

    on_release: OnRelease | None = None
    http: str | None = None
    sidecar: Command = (sys.executable, "-P", "-m", "shipper", "run")
    state_keys: tuple[bytes, ...] = msgspec.field(default=(), name="state_key")

    def launch(self, state: Path) -> list[str]:
        """Returns the command line of the sidecar."""
        address = ["--http", self.http] if self.http else []
        return [*self.sidecar, "--state", str(state / "sidecar"), *address]


def read_config(
    path: Path,
    environment: Mapping[str, str],
    *,
    runnable: bool = False,
    warn: Callable[[Problem], None] = lambda problem: None,
) -> Config:
    """Returns the configuration; raises OptionError with file, line and remedy, or KeyAbsent if only keys are absent.

    `runnable`: the program of `on_release` must exist. `warn` is called for a key that others can read.
    """
    reading = _Reading(environment, runnable, warn)
    try:
        return reading.config(document.read(content(path, document.LARGEST), file=str(path)))
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None
    except PolicyError as error:
        if reading.absent and len(reading.absent) == len(error.problems):
            raise KeyAbsent(str(error), [path, *reading.absent]) from None
        raise OptionError(str(error)) from None


class _Reading(Reader):
    """Reads one configuration, by the rules of policies."""

    def __init__(self, environment: Mapping[str, str], runnable: bool, warn: Callable[[Problem], None]) -> None:
        super().__init__()
        self.warn = warn
        self.absent: list[Path] = []
        self.environment = environment
        self.runnable = runnable

    def config(self, root: Node) -> Config:
        """Returns the configuration; raises PolicyError with every problem."""
        written = Node({}, root.mark) if root.value is None else root
        try:
            config = self.struct(Config, written, "")
        except TooMany:
            config = None
        if config is None:
            raise PolicyError(self.problems)
        return config

    def value(self, type: Any, node: Node, path: str) -> Any:
        if path == "state_key":
            nodes = node.value if isinstance(node.value, list) else [node]
            return tuple(self.state_key(one, path if one is node else below(path, at)) for at, one in enumerate(nodes))
        value = super().value(type, node, path)
        try:
            if path == "http" and isinstance(value, str):
                parse_address(value)
            if path == "on_release.command" and value and self.runnable:
                _find(value[0], self.environment)
        except OptionError as error:
            self.problem(path, node.mark, str(error))
        return value

    def state_key(self, node: Node, path: str) -> bytes:
        """Returns the key of a reference; empty after a problem was added."""
        try:
            if not isinstance(node.value, dict) or node.value.keys() not in ({"file"}, {"systemd"}):
                raise ValueError("write a reference to the key: {file: PATH} or {systemd: NAME}")
            reference = Reference.parse(node)
            (place,) = reference.source.paths(self.environment)
            if (how := exposed(reference)) is not None:
                self.warn(Place(path, node).problem(how))
            return decoded_key(content(place, LARGEST), str(reference))
        except OSError as error:
            if isinstance(error, FileNotFoundError) and reference.kind == "file":
                self.absent.append(place)
            self.problem(path, node.mark, f"{error.filename}: {error.strerror}", Code.FILE_UNREADABLE)
        except Unreadable as error:
            self.problem(path, node.mark, f"the key {reference} {error}")
        except (ValueError, OptionError) as error:
            self.problem(path, node.mark, str(error))
        return b""


def _find(program: str, environment: Mapping[str, str]) -> None:
    if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
        where = "is not a program that this user may run" if os.sep in program else "is not in $PATH"
        raise OptionError(f"{program} {where}; write the path of an executable file")
