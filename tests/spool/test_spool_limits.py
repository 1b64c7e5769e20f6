"""What the active revision wants of the spool outlives the process, whatever the numbers are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.spool import limits
from shipper.spool.audit import audit
from shipper.spool.dead_letters import Limits
from shipper.spool.limits import SpoolLimits
from shipper.spool.report import Report
from shipper.spool.schema import set_meta
from shipper.spool.spool import open_spool
from shipper.values import Revision
from tests.fakes import bench
from tests.spool.test_spool_revisions import Spool

LIMITS = SpoolLimits(Limits(5, "hold"), 0.25, "dead_letter")


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from(["drop_oldest", "hold"]),
    st.none() | st.integers(0, 10**9) | st.just(1e20),
    st.sampled_from(["hold", "forward", "dead_letter", "drop"]),
    st.sampled_from(["forward", "hold"]),
)
def test_what_is_stored_is_sound_and_comes_back(
    size: int, when_full: str, deadline: float, action: str, never: str
) -> None:
    spool = Spool()
    limits.store(spool.db, LIMITS)
    limits.store(spool.db, SpoolLimits(Limits(size, when_full), deadline, action, never))  # type: ignore[arg-type]
    largest = 2**62 - 1
    audit(spool.db, spool.sealer)

    assert Report.load(spool.db) is None
    assert limits.load(spool.db) == SpoolLimits(
        Limits(min(size, largest), when_full),  # type: ignore[arg-type]
        None if deadline is None else min(deadline, largest / 1e6),
        action,  # type: ignore[arg-type]
        never,  # type: ignore[arg-type]
    )


def test_a_spool_of_before_is_under_the_defaults() -> None:
    assert limits.load(Spool().db) == SpoolLimits()


@pytest.mark.parametrize("value", ["5", 77])
def test_words_that_are_none_are_the_defaults(value: object) -> None:
    spool = Spool()
    limits.store(spool.db, LIMITS)
    for key in ("letters_when_full", "on_deadline"):
        set_meta(spool.db, key, value)
    set_meta(spool.db, "never_reached", 77)

    assert limits.load(spool.db) == SpoolLimits(Limits(5, "drop_oldest"), 0.25, "hold", "hold")


async def test_the_terms_of_a_cut_hold_after_a_crash_before_any_policy_has_come(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1)
        await on.spool.revisions.cut(Revision(0, 1), [], LIMITS)
        assert on.spool.limits == LIMITS
    async with open_spool(tmp_path, None) as spool:
        assert spool.limits == LIMITS


async def test_a_spool_of_before_keeps_the_terms_of_the_policy_that_comes_again(tmp_path: Path) -> None:
    async with open_spool(tmp_path, None) as spool:
        await spool.revisions.take_over(LIMITS)
    async with open_spool(tmp_path, None) as spool:
        assert spool.limits == LIMITS
