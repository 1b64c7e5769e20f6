"""The other sides of relays, as `observed` lists them."""

from __future__ import annotations

from shipper.protocol.messages import MAX_LINE_BYTES, EdgeFigures, Observed, QueueFigures
from shipper.sdk.peers import Edge, Principal, Waits
from shipper.sdk.state import Quota
from shipper.status import relays
from shipper.values import DeadLetterFigures, Revisions

OBSERVED = Observed(
    state="HEALTHY",
    message="",
    revisions=Revisions(),
    draining=(),
    units=(),
    queue=QueueFigures(0, 0, 0, 0.0, 0),
    dead_letters=DeadLetterFigures(),
    credentials_in_use=(),
    credentials_wanted=(),
)


def named(name: str, *, connected: bool) -> EdgeFigures:
    (made,) = relays.edges({"door": [Edge(name, 1.0 if connected else None)]}, {})
    return made


def test_an_edge_is_listed_with_the_keys_of_the_owner_that_has_its_name() -> None:
    said = {"b": [Edge("paris"), Edge("berlin", 60.00049, 2.0, 7, 3)], "a": [Edge("rome")]}
    listed = relays.edges(said, {"berlin": Quota(12, 480), "oslo": Quota(1, 1)})

    assert listed == [
        EdgeFigures("a", "rome", None, None, 0, 0, 0, 0),
        EdgeFigures("b", "berlin", 60.0, 2.0, 7, 3, 12, 480),
        EdgeFigures("b", "paris", None, None, 0, 0, 0, 0),
    ]


def test_what_waits_on_all_lanes_of_an_output_is_unconfirmed() -> None:
    there = Principal("principal-1:6789", 5.0, "", "delivered")
    made = relays.principal("up", there, "slow", [Waits(3, 1), Waits(4, 0)], 9.0)

    assert (made.output, made.host, made.connected_seconds, made.confirms) == ("up", there.host, 5.0, "delivered")
    assert (made.unconfirmed_events, made.unconfirmed_keys, made.oldest_seconds) == (7, 1, 9.0)
    assert made.reason == ""


def test_an_output_that_is_not_connected_says_why() -> None:
    waits = [Waits()]
    assert relays.principal("up", Principal("p:1", None, "p:1: 401"), "held", waits, None).reason == "p:1: 401"
    assert relays.principal("up", Principal("p:1"), "held", waits, None).reason == "held"
    assert relays.principal("up", None, None, waits, None).reason == "not connected yet"
    assert len(relays.principal("up", None, "x" * 5000, waits, None).reason) == relays.LONGEST_REASON


def test_the_age_of_nothing_is_none() -> None:
    assert relays.principal("up", None, None, [Waits()], 9.0).oldest_seconds == 0.0


def test_of_too_many_edges_those_without_a_connection_are_listed_and_the_others_counted() -> None:
    edges = [named(f"{number:04}-{'x' * 95}", connected=number % 1000 != 0) for number in range(10_000)]
    observed = relays.with_bounds(OBSERVED, edges, [])

    assert observed.edges_left_out == len(edges) - len(observed.edges) > 0
    assert sum(edge.connected_seconds is None for edge in observed.edges) == 10
    assert [edge.name for edge in observed.edges] == sorted(edge.name for edge in observed.edges)
    assert len(observed.line()) < MAX_LINE_BYTES // 4


def test_an_observed_without_relays_says_nothing_of_them() -> None:
    line = relays.with_bounds(OBSERVED, [], []).line()
    assert b"edges" not in line
    assert b"principals" not in line
