"""What a campaign of explorations tells apart and counts."""

from __future__ import annotations

import pytest

from tests.march.sums import Sums
from tests.prove import explorations
from tests.prove.explorations import TABLE, Explored, Seen, run


def test_what_merely_raises_fails_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(states: int) -> Seen:
        raise AttributeError("no such thing")

    monkeypatch.setattr(
        explorations, "TABLE", {"a crash": crashes, "a fault": lambda states: Seen(1, "B11: lost", False)}
    )
    crash, fault = (run(Explored(name, 1)).violations for name in ("a crash", "a fault"))

    assert [str(each) for each in crash] == ["E: a crash could not go on: AttributeError: no such thing"]
    assert [str(each) for each in fault] == ["X: a fault: B11: lost"]


@pytest.mark.parametrize(
    ("asked", "seed", "sums", "rounds"),
    [
        (None, None, Sums(), len(TABLE)),
        (34, len(TABLE) - 34, Sums(), 34),
        (99, len(TABLE) - 34, Sums(), 34),
        (99, None, Sums(next_seed=len(TABLE), rounds=34), 34),
        (99, len(TABLE), Sums(), 0),
    ],
)
def test_no_exploration_counts_twice(asked: int | None, seed: int | None, sums: Sums, rounds: int) -> None:
    assert explorations._rounds(asked, seed, sums) == rounds
