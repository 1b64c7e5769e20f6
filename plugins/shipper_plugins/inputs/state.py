"""The input `state`: the files of directories are keyed state, one key each.

    inputs: {inventory: {type: state, paths: ["/var/lib/inventory/*.json"], collection: inventory}}

A file that changes is a new version of its key, one that is removed a deletion. What cannot be read, or read as one
document, keeps the version that it had. What it is made of:

state_source       the running input: when to look, what is kept, what is told
state_keys         what a look changes: which files to read, which keys are removed; decided without looking at any
state_view         what a thread sees of the files, and of those that are not there any more
state_documents    the bytes of a file → one JSON object
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import trio

from shipper.plugin import BadOption, Input, InputContext, Size, Source
from shipper_plugins.inputs.state_names import SUFFIXES
from shipper_plugins.inputs.tail.discovery import check_pattern

if TYPE_CHECKING:
    from shipper_plugins.inputs.state_source import StateSource

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
    """Absolute paths or globs of documents, as those of the input `file`: `/var/lib/inventory/*.json`. Files of other
    names than `*.json`, `*.yaml` and `*.yml` are passed over."""
    collection: _Collection
    """What the keys belong to. Give each input a collection of its own."""
    on_remove: Literal["keep", "delete"] = "keep"
    """What removing this input from the policy does to its keys."""
    max_document_bytes: Size = Size(1 << 20)
    """A larger file keeps the version that it had; one of YAML has 1MiB at most in any case."""
    max_keys: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 100_000
    """How many keys there may be; files beyond that are left out."""
    stop_at_end: bool = False
    """Read what is there and stop, for one-shot use."""

    def __post_init__(self) -> None:
        for number, path in enumerate(self.paths):
            if not os.path.isabs(path):
                raise BadOption("not an absolute path, such as /var/lib/inventory/*.json", "paths", number)
            check_pattern(path, "paths", number)
            if not path.endswith((*SUFFIXES, "*")):
                raise BadOption("documents are named *.json, *.yaml or *.yml: end it so, or with *", "paths", number)
        if not 16 <= self.max_document_bytes <= 16 << 20:
            raise BadOption("max_document_bytes is between 16B and 16MiB", "max_document_bytes")

    @property
    def retracts(self) -> bool:  # type: ignore[override]
        """See `Input.retracts`."""
        return self.on_remove == "delete"

    def has_keys(self, owner: str, collection: str) -> bool:
        """See `Input.has_keys`."""
        return not owner and collection == self.collection

    def identity(self) -> Any:
        """The file set, and whose keys they are; everything else can be changed while it runs."""
        return {"paths": list(self.paths), "collection": self.collection}

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        """See `Input.open`; nothing here can fail, for a path that leads nowhere yet is told of later."""
        source = (await trio.to_thread.run_sync(_source))(self, context)
        try:
            yield source
        finally:
            source.close()


def _source() -> type[StateSource]:
    """Imported late, and in a thread: who only checks a policy, as a supervisor does, never opens an input."""
    from shipper_plugins.inputs.state_source import StateSource

    return StateSource
