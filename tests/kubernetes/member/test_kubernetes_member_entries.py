"""What a policy waits for: changes of others that have to drain first, whatever comes after them."""

from __future__ import annotations

from shipper.kubernetes.member.entries import Entries
from shipper.kubernetes.member.memory import Memory, Part


def of(**generations: int) -> list[Part]:
    return [Part(name, f"u-{name}", generation, "", {}) for name, generation in generations.items()]


class Runs:
    """Entries after vectors of these generations; the first one is drained."""

    def __init__(self, *vectors: dict[str, int]) -> None:
        self.entries = Entries(Memory(directory="d"))
        for number, vector in enumerate(vectors, 1):
            self.entries.by_uid = self.entries.with_vector(number, of(**vector))
            if number == 1:
                self.entries.answered(1, "drained")

    def waits(self) -> dict[str, tuple[str, ...]]:
        return {one.name: one.waits_for for one in self.entries.reports({}, {}) if one.waits_for}


def test_a_policy_waits_for_one_that_changed_before_it():
    runs = Runs({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2})

    assert runs.waits() == {"b": ("a",)}


def test_it_waits_for_that_one_still_when_it_is_edited_again():
    runs = Runs({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 2})

    assert runs.waits() == {"a": ("b",), "b": ("a",)}
    runs.entries.answered(2, "drained")
    assert runs.waits() == {"a": ("b",)}
    runs.entries.answered(3, "drained")
    assert runs.waits() == {}


def test_two_that_change_at_once_wait_for_each_other():
    runs = Runs({"a": 1, "b": 1}, {"a": 2, "b": 2})

    assert runs.waits() == {"a": ("b",), "b": ("a",)}
    runs.entries.answered(2, "drained")
    assert runs.waits() == {}


def test_it_waits_for_one_that_was_removed_after_it_was_edited():
    runs = Runs({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}, {"b": 2})

    assert runs.waits()["b"] == ("a",)


def test_of_a_burst_of_changes_few_are_remembered_and_the_oldest_is_among_them():
    burst = [{"a": generation, "b": 2} for generation in range(3, 1000)]
    runs = Runs({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}, *burst)

    assert runs.waits()["b"] == ("a",)
    assert len(runs.entries.by_uid["u-a"].before) < 20
