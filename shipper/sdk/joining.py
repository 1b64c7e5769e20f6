"""PUBLIC: makes one batch of several: those that enter or are sent together, or the parts of one batch. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise, repeat
from typing import Any, TypeVar

import orjson

from shipper.sdk import typed
from shipper.sdk.event import COLUMNS, OF_LINES, Batch, Way
from shipper.sdk.fields import Fields, merged

T = TypeVar("T")

# -- batches that enter ------------------------------------------------------------------------------------------------


def kind(batch: Batch) -> object:
    """Returns a key, to be hashed, that is equal for batches without an identity that may be `strung` to one."""
    if batch.is_lines or batch.is_relayed or batch.items is not None:
        return object()
    return batch.is_typed, batch.form, batch.route, batch.complete, orjson.dumps(batch.shared)


def strung(batches: Sequence[Batch]) -> Batch:
    """Returns one batch of the events of several of an equal `kind`, in this order, with their columns."""
    first = batches[0]
    if len(batches) == 1:
        return first
    columns: dict[str, Any] = {name: _strung([(one.count, getattr(one, name)) for one in batches]) for name in COLUMNS}
    return replace(
        first,
        count=sum([batch.count for batch in batches]),
        body=b"".join([batch.body for batch in batches]),
        sizes=None if first.sizes is None else _sizes(batches),
        **columns,
    )


def _sizes(batches: Sequence[Batch]) -> tuple[int, ...]:
    return tuple(chain.from_iterable([batch.sizes or () for batch in batches]))


# -- pieces that were processed ----------------------------------------------------------------------------------------


def pieced(made: Sequence[Batch]) -> list[Batch]:
    """Returns what was made of the `pieces` of a batch, in their order: as one batch, unless they share other fields.

    Lines become documents where their neighbours are. Events have new places, unless they were relayed: then the items
    of a batch rise, and an event that was made twice is in two.
    """
    made = [one for one in made if one.count]
    if not _are_neighbours(made):
        made = [_as_documents(one) for one in made]
    if len({_kind_of(one) for one in made}) != 1 or not _rise(made):
        return list(made)
    columns: dict[str, Any] = {name: _strung([(one.count, getattr(one, name)) for one in made]) for name in COLUMNS}
    whole = replace(
        made[0], count=sum([one.count for one in made]), body=b"".join([one.body for one in made]), **columns
    )
    if whole.sizes is not None:
        whole = replace(whole, sizes=tuple(chain.from_iterable([one.sizes or () for one in made])))
    items = list(chain.from_iterable([one.items or range(one.count) for one in made]))
    return [replace(whole, items=items if whole.is_relayed else None)]


def _are_neighbours(batches: Sequence[Batch]) -> bool:
    """Whether all are lines, each behind the one before it, or none is."""
    ends = [None if one.offset is None else one.offset + len(one.body) + one.count * (one.gap - 1) for one in batches]
    return all(one.offset == end for one, end in zip(batches[1:], ends, strict=False))


def _rise(batches: Sequence[Batch]) -> bool:
    """Whether no relayed event of one is behind those of the next."""
    items = [one.items or range(one.count) for one in batches if one.is_relayed]
    return all(one[-1] < other[0] for one, other in pairwise(items))


def _as_documents(batch: Batch) -> Batch:
    return batch.replace(batch.own()) if batch.is_lines else batch


def _kind_of(batch: Batch) -> tuple[object, ...]:
    identity = batch.origin, batch.seq, batch.is_relayed
    return batch.is_lines, batch.is_typed, batch.form, batch.gap, batch.route, identity, _written(batch.shared)


# -- batches that are sent ---------------------------------------------------------------------------------------------


def way(batch: Batch, grouping: Sequence[str] = (), *, mixes: bool = False) -> object:
    """Returns a key, to be hashed, that is equal for batches that may go `together` to an output with this `grouping`.

    They have one kind of body, and keyed state goes with keyed state only; unless the output `mixes`, they have one
    route too, and the same shared values of these fields. Of text lines, `log` and `message` differ from line to line,
    so that a batch that is grouped by one of them goes alone.
    """
    tops = _tops(grouping)
    if batch.is_lines and not OF_LINES.isdisjoint(tops):
        return object()
    kind = batch.is_typed, batch.form, batch.versions is None
    if mixes and batch.versions is None:
        return kind
    return kind, *_kept(batch, tops)


def together(batches: Sequence[Batch], grouping: Sequence[str] = ()) -> Batch:
    """Returns one batch of the events of several with an equal `way`, each with its id and its columns.

    The fields of `grouping` stay shared, by all events or in `ways`; for a dotted name, its whole top-level field. So
    do all shared fields of events in a form, which stay as they are.
    """
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    tops = _tops(grouping) if first.form is None else _tops([name for batch in batches for name in batch.shared])
    ways = _ways(batches, tops)
    alone = _common(ways)
    each = [repeat(one, batch.count) for one, batch in zip(ways, batches, strict=True)]
    bare = [replace(batch, shared={k: v for k, v in batch.shared.items() if k not in tops}) for batch in batches]
    if first.form is not None:
        body, sizes = b"".join([batch.body for batch in bare]), _sizes(bare)
    elif first.is_typed:
        body, sizes = typed.packed([event for batch in bare for event in batch.whole()])
    else:
        body, sizes = b"".join([batch.json_lines() for batch in bare]), None
    return replace(
        first,
        count=sum(batch.count for batch in batches),
        body=body,
        sizes=sizes,
        route=alone.route,
        shared=alone.shared,
        ways=None if alone is ways[0] else list(chain.from_iterable(each)),
        offset=None,
        gap=1,
        is_relayed=False,
        items=[item for batch in batches for item in batch.items or range(batch.count)],
        ids=tuple([id for batch in batches for id in batch.id_texts()]),
        timestamps=_strung([(batch.count, batch.timestamps) for batch in batches]),
        keys=_strung([(batch.count, batch.keys) for batch in batches]),
        severities=_strung([(batch.count, batch.severities) for batch in batches]),
        versions=_strung([(batch.count, batch.versions) for batch in batches]),
    )


def _ways(batches: Sequence[Batch], tops: Sequence[str]) -> list[Way]:
    """Returns what each batch keeps for itself: the same object where that is the same."""
    known = dict[object, Way]()
    keys = [_kept(batch, tops) for batch in batches]
    for key, batch in zip(keys, batches, strict=True):
        if key not in known:
            known[key] = Way(batch.route, {top: batch.shared[top] for top in tops if top in batch.shared})
    return [known[key] for key in keys]


def _common(ways: Sequence[Way]) -> Way:
    """Returns what is the same in all of these; the only one if there is no other."""
    first, *others = {id(one): one for one in ways}.values()
    if not others:
        return first
    fields = {
        name: value
        for name, value in first.shared.items()
        if all(name in one.shared and _written(one.shared[name]) == _written(value) for one in others)
    }
    return Way(first.route if all(one.route == first.route for one in others) else None, fields)


def _written(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _kept(batch: Batch, tops: Sequence[str]) -> tuple[object, ...]:
    """Returns a key of its route, and of the values that it shares of these fields."""
    values = [_written(batch.shared[top]) if top in batch.shared else None for top in tops]
    return batch.route, *values


def _tops(grouping: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([name.partition(".")[0] for name in grouping]))


def _strung(columns: Sequence[tuple[int, Sequence[T | None] | None]]) -> tuple[T | None, ...] | None:
    """Returns a column of several batches; None where no batch has it."""
    if all(column is None for _, column in columns):
        return None
    return tuple([value for count, column in columns for value in ([None] * count if column is None else column)])


def rejoined(batch: Batch, positions: Sequence[int], changed: Batch) -> Batch:
    """Returns the batch with `changed` in the place of its events at these ascending positions.

    `changed` is what a processor has made of `pick(positions)`, perhaps with fewer events; all keep their order.
    Raises ValueError if its events have lost their places.
    """
    if changed.count and changed.items is None:
        raise ValueError("the events have lost their places in the batch")
    items = batch.items if batch.items is not None else range(batch.count)
    place = {items[at]: at for at in positions}
    left = [place[item] for item in changed.items or ()]
    chosen = frozenset(positions)
    others = [at for at in range(batch.count) if at not in chosen]
    unchanged = batch.pick(others)
    if not left or not others:
        return changed if left else unchanged
    order = sorted([*others, *left])
    return _woven(batch.pick(order), order, (unchanged, others), (changed, left))


def _woven(batch: Batch, order: Sequence[int], *parts: tuple[Batch, Sequence[int]]) -> Batch:
    """Returns the batch with the fields and columns of two parts, each with the places of its events in this order."""
    one, other = [part.shared for part, _ in parts]
    same = {key: value for key, value in one.items() if key in other and _written(other[key]) == _written(value)}
    events, columns = dict[int, Fields](), dict[str, dict[int, Any]]()
    for part, places in parts:
        beside = {key: value for key, value in part.shared.items() if key not in same}
        events |= zip(places, [merged(beside, own) for own in part.own()], strict=True)
        for name, column in part.present_columns():
            columns.setdefault(name, {}).update(zip(places, column, strict=True))
    whole = replace(batch, shared=same).replace([events[at] for at in order])
    return whole.with_columns(**{name: [column.get(at) for at in order] for name, column in columns.items()})
