"""The other sides of relays, for `observed`, metrics and people. Pure: made from the statements of the parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from shipper.process.log import redacted
from shipper.protocol.bounds import LIST_BYTES, cut, fitting
from shipper.protocol.messages import EdgeFigures, Observed, PrincipalFigures
from shipper.sdk.peers import Edge, Principal, Waits
from shipper.sdk.state import Quota

Figures = TypeVar("Figures", EdgeFigures, PrincipalFigures)
_NOTHING = Quota(0, 0)
LONGEST_REASON = 300
"""Why there is no connection, in characters; the message of the unit may be longer."""


def edges(said: Mapping[str, Iterable[Edge]], holdings: Mapping[str, Quota]) -> list[EdgeFigures]:
    """Returns the figures of all edges, by input and name; `holdings` are the keys by owner."""
    found = []
    for input, those in sorted(said.items()):
        for edge in sorted(those):
            has = holdings.get(edge.name, _NOTHING)
            found.append(EdgeFigures(input, *_rounded(edge), has.keys, has.bytes))
    return found


def _rounded(edge: Edge) -> Edge:
    return edge._replace(connected_seconds=_seconds(edge.connected_seconds), heard_seconds=_seconds(edge.heard_seconds))


def principal(
    output: str, said: Principal | None, problem: str | None, waits: Iterable[Waits], oldest: float | None
) -> PrincipalFigures:
    """Returns the figures of one output.

    `said`: by its sender; None: it is not open. `problem` is that of the output, `oldest` the age of what waits.
    """
    there = said or Principal("")
    reason = "" if there.connected_seconds is not None else redacted(there.reason) or problem or "not connected yet"
    events, versions = map(sum, zip(*waits, strict=True)) if (waits := list(waits)) else (0, 0)
    return PrincipalFigures(
        output=output,
        host=there.host,
        connected_seconds=_seconds(there.connected_seconds),
        reason=cut(reason, LONGEST_REASON),
        confirms=there.confirms,
        unconfirmed_events=events,
        unconfirmed_keys=versions,
        oldest_seconds=0.0 if oldest is None or not events + versions else round(max(0.0, oldest), 3),
    )


def with_bounds(observed: Observed, edges: Sequence[EdgeFigures], principals: Sequence[PrincipalFigures]) -> Observed:
    """Returns an `observed` with as many of these as it may list, those first that are not connected."""
    some, others = _listed(edges), _listed(principals)
    return msgspec.structs.replace(
        observed,
        edges=some,
        edges_left_out=len(edges) - len(some),
        principals=others,
        principals_left_out=len(principals) - len(others),
    )


def _listed(figures: Sequence[Figures]) -> Sequence[Figures]:
    order = sorted(range(len(figures)), key=lambda at: figures[at].connected_seconds is not None)
    kept = order[: fitting((figures[at] for at in order), LIST_BYTES)]
    return tuple(figures[at] for at in sorted(kept))


def _seconds(age: float | None) -> float | None:
    return None if age is None else round(max(0.0, age), 3)
