"""Pickles worlds, fast, and so that equal ones are pickled alike as far as may be."""

from __future__ import annotations

import pickle
from collections import Counter
from copyreg import dispatch_table
from dataclasses import fields
from io import BytesIO
from typing import Any, ClassVar

from shipper.sdk.event import Batch
from shipper.sdk.feeding import Feeding
from shipper.spool.dead_letters import Limits

_CACHES = {"_table": None, "_size": None}
"""What a batch only keeps because it was asked for it."""
_OF_BATCH = tuple(field.name for field in fields(Batch) if field.name not in _CACHES)
_constants: list[object] = []
loads = pickle.loads


def dumps(world: object) -> bytes:
    """Only this process can read what it returns."""
    written = BytesIO()
    _Pickler(written).dump(world)
    return written.getvalue()


def constant(number: int) -> object:
    """Returns one that was pickled as this number."""
    return _constants[number]


def batch(*values: object) -> Batch:
    """Returns a batch of its fields but the caches."""
    made = object.__new__(Batch)
    for name, value in (*zip(_OF_BATCH, values, strict=True), *_CACHES.items()):
        object.__setattr__(made, name, value)
    return made


def _of_constant(value: object) -> tuple[Any, ...]:
    if value not in _constants:
        _constants.append(value)
    return constant, (_constants.index(value),)


def _of_batch(value: Batch) -> tuple[Any, ...]:
    return batch, tuple(getattr(value, name) for name in _OF_BATCH)


def _of_counter(counter: Counter[Any]) -> tuple[Any, ...]:
    """It does not matter what was counted first."""
    return Counter, (), None, None, iter(sorted(counter.items(), key=repr))


class _Pickler(pickle.Pickler):
    dispatch_table: ClassVar = {
        **dispatch_table,
        Batch: _of_batch,
        Counter: _of_counter,
        **dict.fromkeys((Feeding, Limits), _of_constant),
    }
