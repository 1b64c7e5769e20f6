"""The identity of an event: the id under which it is sent, the same over retries, restarts and hops. No I/O.

An id is (`origin`, `seq`, item): a 128-bit id that the process drew which accepted the batch, the batch's place in that
process's spool, and the item's place in the batch as it was accepted. It is stored with the batch, so a retry after a
crash carries the same id. A copied or restored state directory never gives the id of one event to another, since its
processes have other origins. (Otherwise the backend would answer "duplicate", and the event would be lost silently.) A
batch of another shipper keeps the identity of its first acceptance (`Batch.identified`): it is packed with the batch,
and takes precedence over that of the spool.

An id that a client gave replaces ours, as it is.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache

import orjson

from shipper.sdk.columns import Column, join, numerals, quoted

_FEW, _MANY = 64, 8192


def prefix(origin: bytes, seq: int) -> bytes:
    """Returns the common beginning of the ids of a batch."""
    return base64.urlsafe_b64encode(origin).rstrip(b"=") + b"-%d-" % seq


def columns(
    prefix: bytes, count: int, items: Sequence[int] | None, given: Sequence[str | None] | None
) -> tuple[Column, ...]:
    """Returns columns whose rows, concatenated, are the ids of so many events, escaped for a JSON string.

    `items` are their places in the batch as it was accepted (None: all of them), `given` the ids of a client.
    """
    if items is None:
        places = _many()[:count] if _FEW < count <= _MANY else numerals(range(count))
    else:
        places = numerals(items)
    if given is None:
        return (prefix, places)
    theirs = quoted([id or "" for id in given])
    return ([id or prefix + place for id, place in zip(theirs, places, strict=True)],)


@cache
def _many() -> list[bytes]:
    """The places of a full batch, 0.5 MB: a quiet host never has one."""
    return numerals(range(_MANY))


def texts(count: int, columns: Sequence[Column]) -> list[str]:
    """Returns the ids that such columns hold, in order."""
    ids: list[str] = orjson.loads(b"[%b]" % join(count, b'"', *columns, b'",')[:-1])
    return ids
