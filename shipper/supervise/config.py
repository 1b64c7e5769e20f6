"""The supervisor's own configuration, a small YAML file (`--config`).

on_release:                                    # run for each credential that can be revoked, until it succeeds
  command: [/usr/local/bin/revoke-key]         # SHIPPER_CREDENTIAL_NAME, and more: see revoke.py
  timeout: 30s
release_when: accepted                         # when the destination has accepted the successor once; or at_once
state_key: {systemd: shipper-state}            # or {file: PATH}: 32 bytes in base64; of a list, the first seals
http: 127.0.0.1:6780                           # the sidecar serves /metrics, /status, /readyz, /livez for both
otlp: http://127.0.0.1:4318                    # the sidecar sends its metrics and its log there; see `status.export`
sidecar: [shipper, run]                        # another program to launch; `--state DIR` is added
fleet: {name: prod, etcd: […], …}              # the policy comes from a fleet; read by `shipper.fleet.settings`
kubernetes: {namespace: logging, …}            # of `--kubernetes`; read by `shipper.kubernetes.settings`
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from shipper.policy import document
from shipper.policy.document import Node, below
from shipper.policy.settings import Reader, TooMany
from shipper.sdk.codes import Code
from shipper.sdk.errors import OptionError, PolicyError, Problem
from shipper.sdk.secret_source import LARGEST, Unreadable
from shipper.sdk.units import Duration
from shipper.status.export import check_endpoint
from shipper.status.http import parse_address
from shipper.supervise.reading import content
from shipper.supervise.secrets import Place, Reference, exposed
from shipper.supervise.spare import PROGRAM
from shipper.supervise.vault import decoded_key

S = TypeVar("S", bound=msgspec.Struct)
Warn = Callable[[Problem], None]
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
    release_when: Literal["accepted", "at_once"] = "accepted"
    """When a released credential may go: once a destination has accepted what has come in its place, or at once."""
    http: str | None = None
    otlp: str | None = None
    sidecar: Command = (*PROGRAM, "run")
    state_keys: tuple[bytes, ...] = msgspec.field(default=(), name="state_key")
    fleet: Node | None = None
    """The section as it was written."""
    kubernetes: Node | None = None
    """As `fleet`."""

    def launch(self, state: Path) -> list[str]:
        """Returns the command line of the sidecar."""
        address = ["--http", self.http] if self.http else []
        receiver = ["--otlp", self.otlp] if self.otlp else []
        return [*self.sidecar, "--state", str(state / "sidecar"), *address, *receiver]


def read_config(
    path: Path,
    environment: Mapping[str, str],
    *,
    runnable: bool = False,
    warn: Warn = lambda problem: None,
) -> Config:
    """Returns the configuration; raises OptionError with file, line and remedy, or KeyAbsent if only keys are absent.

    `runnable`: the program of `on_release` must exist. `warn` is called for a key that others can read.
    """
    try:
        root = document.read(content(path, document.LARGEST), file=str(path))
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None
    except PolicyError as error:
        raise OptionError(str(error)) from None
    return _Reading(environment, runnable, warn).all(Config, root)


class ConfigReader(Reader):
    """Reads a configuration, or a section of one, by the rules of policies."""

    def __init__(self, environment: Mapping[str, str], runnable: bool, warn: Warn) -> None:
        super().__init__()
        self.warn = warn
        self.absent: list[Path] = []
        self.environment = environment
        self.runnable = runnable

    def all(self, type: type[S], root: Node, path: str = "") -> S:
        """Returns the settings of `root`; raises OptionError with every problem, or KeyAbsent if only keys are
        absent."""
        written = Node({}, root.mark) if root.value is None else root
        with suppress(TooMany):
            settings = self.struct(type, written, path)
            if settings is not None:
                return settings
        error = PolicyError(self.problems)
        if self.absent and len(self.absent) == len(self.problems):
            raise KeyAbsent(str(error), [Path(root.mark.file or ""), *self.absent])
        raise OptionError(str(error))

    def value(self, type: Any, node: Node, path: str) -> Any:
        value = super().value(type, node, path)
        if path.endswith("on_release.command") and value and self.runnable:
            with self.problems_of(node, path):
                _find(value[0], self.environment)
        return value

    def keys(self, node: Node, path: str) -> tuple[bytes, ...]:
        """Returns the keys of a reference, or of a list of them; an empty one after a problem was added."""
        nodes = node.value if isinstance(node.value, list) else [node]
        return tuple(self._key(one, path if one is node else below(path, at)) for at, one in enumerate(nodes))

    def _key(self, node: Node, path: str) -> bytes:
        reference = self.reference(node, path, "the key")
        if reference is None:
            return b""
        with self.problems_of(node, path):
            try:
                (place,) = reference.source.paths(self.environment)
                return decoded_key(content(place, LARGEST), str(reference))
            except Unreadable as error:
                self.problem(path, node.mark, f"the key {reference} {error}")
            except OSError as error:
                if isinstance(error, FileNotFoundError) and reference.kind == "file":
                    self.absent.append(place)
                self.problem(path, node.mark, f"{error.filename}: {error.strerror}", Code.FILE_UNREADABLE)
        return b""

    def reference(self, node: Node, path: str, what: str) -> Reference | None:
        """Returns the reference of {file: …} or {systemd: …}, and warns where others can read the file; None after a
        problem was added."""
        with self.problems_of(node, path):
            if not isinstance(node.value, dict) or node.value.keys() not in ({"file"}, {"systemd"}):
                raise ValueError(f"write a reference to {what}: {{file: PATH}} or {{systemd: NAME}}")
            reference = Reference.parse(node)
            if (how := exposed(reference)) is not None:
                self.warn(Place(path, node).problem(how))
            return reference
        return None

    @contextmanager
    def problems_of(self, node: Node, path: str) -> Iterator[None]:
        """Makes a ValueError or an OptionError of the block a problem of this place."""
        try:
            yield
        except (ValueError, OptionError) as error:
            self.problem(path, node.mark, str(error))


class _Reading(ConfigReader):
    """Reads the supervisor's own settings."""

    def value(self, type: Any, node: Node, path: str) -> Any:
        if path == "state_key":
            return self.keys(node, path)
        if path in ("fleet", "kubernetes"):
            return node
        value = super().value(type, node, path)
        if path == "http" and isinstance(value, str):
            with self.problems_of(node, path):
                parse_address(value)
        if path == "otlp" and isinstance(value, str):
            with self.problems_of(node, path):
                check_endpoint(value)
        return value


def _find(program: str, environment: Mapping[str, str]) -> None:
    if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
        where = "is not a program that this user may run" if os.sep in program else "is not in $PATH"
        raise OptionError(f"{program} {where}; write the path of an executable file")
