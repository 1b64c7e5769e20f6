"""The order `forget_edge` at a relay's door: removes all memory of one edge.

    a mark that the edge is being forgotten, durable ──> its memory is removed ──> its keys, in steps ──> the mark too

The mark is a position of the input, so an order that a crash has interrupted goes on at the next start of the door.
While it is stored, no session of the edge begins, and no key of it is put; and keys are deleted only while it is
stored. The storing transaction checks both, so nothing is deleted that an edge has sent after it came back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, Literal

from shipper.plugin import InputContext, Outdated
from shipper.plugin.state import Change

Keys = Literal["keep", "delete"]
FORGOTTEN: Final = "FORGOTTEN/"
"""The link in the names of such marks; no name of an edge has capital letters."""
STEP: Final = 500
"""Keys that one transaction deletes."""


def not_begun(name: str) -> dict[str, None]:
    """Returns the positions of an input to expect while an edge is not being forgotten."""
    return {FORGOTTEN + name: None}


def begun(positions: Mapping[str, bytes]) -> dict[str, Keys]:
    """Returns the edges whose order was interrupted."""
    return {
        key.removeprefix(FORGOTTEN): "delete" if mode == b"delete" else "keep"
        for key, mode in positions.items()
        if key.startswith(FORGOTTEN)
    }


async def forget_memory(
    context: InputContext, name: str, keys: Keys, positions: Collection[str], awaited: Collection[str]
) -> None:
    """Removes these positions and awaited answers, and sets the mark, in one transaction."""
    gone = dict.fromkeys(positions)
    await context.emit(positions={**gone, FORGOTTEN + name: keys.encode()}, forgotten=awaited, wait=False)


async def forget_keys(context: InputContext, name: str, keys: Keys) -> int:
    """Deletes the keys of the edge and of owners below it, if that was ordered; returns their number. Removes the mark.

    Ends early if the mark is another one by then: another order goes on.
    """
    deleted, mark = 0, {FORGOTTEN + name: keys.encode()}
    points = [(one.owner, one.point) for one in await context.marks(name) if not one.deleted and keys == "delete"]
    with suppress(Outdated):
        for at in range(0, len(points), STEP):
            versions = await context.versions(points[at : at + STEP])
            changes = [Change(one.collection, one.key, None, one.owner) for one in versions]
            deleted += sum(kept.is_new for kept in await context.keep(changes, expect=mark))
        await context.emit(positions=not_begun(name), expect=mark)
    return deleted
