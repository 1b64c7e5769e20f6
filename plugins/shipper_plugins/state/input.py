"""The `state` input: the files of directories are keyed state, one key each.

    inputs: {inventory: {type: state, paths: ["/var/lib/inventory/*.json"], collection: inventory}}

A changed file is a new version of its key, a removed one a deletion. A file that cannot be read, or has no valid
document, keeps its last version. The modules:

state.source       the running input: when to look, what is kept, what is reported
state.keys         what a look changes: which files to read, which keys are removed; decided without looking at any
state.view         what a thread sees of the files, and of those that are gone
state.documents    the bytes of a file → one JSON object
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import trio

from shipper.plugin import BadOption, Input, InputContext, Size, Source
from shipper_plugins.state.names import SUFFIXES
from shipper_plugins.tail.discovery import check_pattern

if TYPE_CHECKING:
    from shipper_plugins.state.source import StateSource

_Glob = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
_Collection = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*(?!\n)$",
        max_length=255,
        description="letters, digits and any of _ . - such as inventory",
    ),
]


class StateInput(Input, frozen=True, kw_only=True):
    """Follows documents, each of which is the last word about one thing: a file is a key, its name without `.json`,
    `.yaml` or `.yml`, and a JSON object."""

    ending: ClassVar[Mapping[str, bool | int | str]] = {"stop_at_end": True}
    gives_state: ClassVar[bool] = True
    gives_events: ClassVar[bool] = False
    is_source: ClassVar[bool] = True

    paths: Annotated[tuple[_Glob, ...], msgspec.Meta(min_length=1)]
    """Absolute paths or globs of documents, as those of the input `file`: `/var/lib/inventory/*.json`. Files with other
    names than `*.json`, `*.yaml` and `*.yml` are ignored."""
    collection: _Collection
    """The collection of the keys. Give each input its own."""
    on_remove: Literal["keep", "delete"] = "keep"
    """What removing this input from the policy does to its keys."""
    max_document_bytes: Size = Size(1 << 20)
    """A larger file keeps its last version; YAML has 1MiB at most in any case."""
    max_keys: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 100_000
    """The most keys; further files are left out."""
    stop_at_end: bool = False
    """Read the present files and stop, for one-shot use."""

    def __post_init__(self) -> None:
        for number, path in enumerate(self.paths):
            if not os.path.isabs(path):
                raise BadOption("not an absolute path, such as /var/lib/inventory/*.json", "paths", number)
            check_pattern(path, "paths", number)
            if not path.endswith((*SUFFIXES, "*")):
                raise BadOption("documents are named *.json, *.yaml or *.yml: end it so, or with *", "paths", number)
        if not 16 <= self.max_document_bytes <= 16 << 20:
            raise BadOption(f"must be from 16B to 16MiB, not {self.max_document_bytes}", "max_document_bytes")

    @property
    def retracts(self) -> bool:  # type: ignore[override]
        """See `Input.retracts`."""
        return self.on_remove == "delete"

    def has_keys(self, owner: str, collection: str) -> bool:
        """See `Input.has_keys`."""
        return not owner and collection == self.collection

    def identity(self) -> Any:
        """Returns the file set, and the owner of its keys; everything else can change while it runs."""
        return {"paths": list(self.paths), "collection": self.collection}

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        """See `Input.open`; nothing here can fail, since a path that leads nowhere yet is reported later."""
        source = (await trio.to_thread.run_sync(_source))(self, context)
        try:
            yield source
        finally:
            source.close()


def _source() -> type[StateSource]:
    """Imported late, and in a thread: a supervisor that only checks a policy never opens an input."""
    from shipper_plugins.state.source import StateSource

    return StateSource
