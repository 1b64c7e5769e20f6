"""What a line has room for."""

from __future__ import annotations

import os
import time
from functools import cache

import pytest

from shipper.control.statements import messages
from shipper.protocol import bounds
from shipper.protocol.bounds import IDS_BYTES, LONGEST_ID, LONGEST_TEXT, cut, fitting, parts
from shipper.protocol.messages import (
    MAX_LINE_BYTES,
    Ack,
    Observed,
    Outbound,
    QueueFigures,
    Ready,
    Unit,
)
from shipper.revisions.offer import some_errors
from shipper.revisions.statements import Refused
from shipper.sdk.errors import Problem
from shipper.spool.figures import Amount
from shipper.status.health import LaneView, draining, most_important
from shipper.values import Counts, CredentialUse, DeadLetterFigures, Revision, Revisions

MOST = 2**63 - 1
AT = Revision(MOST, MOST)
IDS = ["\x01" * 1000 + f"{number}" for number in range(IDS_BYTES // 6010)]
"""As many bytes as ids may have; each of their characters takes six."""
WORST = "\x01" * 100_000
UNITS = [Unit(f"outputs.{number}", "output", "elasticsearch", "DEGRADED", cut(WORST)) for number in range(2000)]


@cache
def observed(outputs: int) -> Observed:
    """Of ten thousand drains, the first of them of so many outputs each, and two thousand units, all with the longest
    of reasons."""
    lanes = {lane: LaneView(lane, f"{lane}", "file", False, WORST) for lane in range(outputs)}
    totals = {Revision(MOST, number): Amount(number, 10 * number) for number in range(10_000)}
    amounts = [(at, lane, Amount(1, 1)) for at in list(totals)[: 256 if outputs == 1 else 32] for lane in lanes]
    drains, left_out = draining(lanes, amounts, totals, {}, time.time())
    return Observed(
        state="DEGRADED",
        message=cut(WORST),
        revisions=Revisions(AT, AT, AT),
        draining=drains,
        draining_left_out=left_out,
        units=most_important(UNITS),
        units_left_out=len(UNITS) - len(most_important(UNITS)),
        queue=QueueFigures(events=MOST, bytes=MOST, limit_bytes=MOST, oldest_seconds=1e17, disk_bytes=MOST),
        dead_letters=DeadLetterFigures(MOST, MOST, 1e17),
        credentials_in_use=IDS,
        credentials_wanted=IDS,
    )


def ack() -> Ack:
    return Ack(
        epoch=MOST,
        revision=MOST,
        sha256="f" * 64,
        stage="drained",
        change="barrier",
        credentials=CredentialUse(IDS, IDS),
        ledger=Counts(*[MOST] * 7),
    )


def ready() -> Ready:
    return Ready(
        version="1",
        pid=MOST,
        instance="",
        http="",
        revisions=Revisions(AT, AT, AT),
        credentials_in_use=IDS,
        credentials_wanted=IDS,
    )


def nack() -> Outbound:
    problems = some_errors([Problem(WORST, MOST, MOST, WORST)] * 1000)
    (message,) = messages(Refused(AT, "f" * 64, "invalid", problems, IDS))
    return message


def test_the_longest_of_each_message_has_room_in_a_line() -> None:
    for make in [lambda: observed(1), lambda: observed(1000), ack, ready, nack]:
        assert MAX_LINE_BYTES // 8 < len(make().line()) <= MAX_LINE_BYTES


def test_of_drains_the_oldest_are_listed_and_the_others_are_counted() -> None:
    seen = observed(1)
    listed, left_out = seen.draining, seen.draining_left_out

    assert [drain.revision for drain in listed] == list(range(len(listed)))
    assert left_out.revisions + len(listed) == 10_000
    assert left_out.events + sum(drain.events for drain in listed) == sum(range(10_000))
    assert left_out.bytes == 10 * left_out.events


def test_of_a_drain_some_outputs_are_listed_and_the_others_are_counted() -> None:
    drain = observed(1000).draining[0]

    assert 0 < len(drain.outputs) < 1000
    assert len(drain.outputs) + drain.outputs_left_out == 1000


def test_of_units_the_worst_are_listed_in_their_order() -> None:
    units = [Unit(f"{n}", "input", "file", "HEALTHY" if n % 100 else "FAILED", "x" * 1900) for n in range(1000)]
    listed = most_important(units)

    assert [unit for unit in listed if unit.state == "FAILED"] == units[::100]
    assert [int(unit.id) for unit in listed] == sorted(int(unit.id) for unit in listed)
    assert 100 < len(listed) < 1000
    assert most_important(units[:10]) == units[:10]


def test_nothing_is_said_of_what_is_left_out_where_nothing_is() -> None:
    assert b"left_out" not in QUIET.line()


QUIET = Observed(
    state="HEALTHY",
    message="",
    revisions=Revisions(),
    draining=(),
    units=(),
    queue=QueueFigures(events=0, bytes=0, limit_bytes=0, oldest_seconds=0, disk_bytes=0),
    dead_letters=DeadLetterFigures(),
    credentials_in_use=(),
    credentials_wanted=(),
)


def test_ids_are_parted_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "IDS_BYTES", 100)
    ids = [f"credential-{number}" for number in range(100)]
    parted = list(parts(ids))

    assert [id for some in parted for id in some] == ids
    assert {fitting(some, 100) for some in parted} <= {6, 7, 5, 4}
    assert list(parts([])) == []
    assert list(parts(["x" * 200, "y"])) == [["x" * 200], ["y"]]


def test_what_is_no_text_is_counted_too() -> None:
    assert fitting([os.fsdecode(b"\xff")] * 3, 9) == 2


def test_a_text_is_cut_where_it_is_too_long() -> None:
    whole = "x" * LONGEST_TEXT
    assert (cut(whole), len(cut(whole + "x"))) == (whole, LONGEST_TEXT)
    assert LONGEST_ID * 6 < IDS_BYTES
