"""Batches that were just stored, within one budget."""

from shipper.pipeline.memory.recent import Recent
from shipper.sdk.event import Batch


def batch(size: int) -> Batch:
    return Batch.documents([b'"' + b"x" * (size - 3) + b'"'])


def test_what_was_kept_is_taken_once() -> None:
    recent, kept = Recent(100), batch(50)
    recent.keep(1, 7, kept)

    assert recent.take(2, 7) is None
    assert recent.take(1, 7) is kept
    assert recent.take(1, 7) is None


def test_what_does_not_fit_is_not_kept() -> None:
    recent = Recent(100)
    recent.keep(1, 1, batch(60))
    recent.keep(1, 2, batch(60))

    assert recent.take(1, 2) is None


def test_the_budget_comes_back_with_what_is_taken_or_forgotten() -> None:
    recent = Recent(100)
    for seq in range(10):
        recent.keep(1, seq, batch(100))
        assert recent.take(1, seq) is not None
        recent.keep(2, seq, batch(100))
        recent.forget(2)
    recent.forget(3)
    recent.keep(1, 99, batch(100))

    assert recent.take(1, 99) is not None
