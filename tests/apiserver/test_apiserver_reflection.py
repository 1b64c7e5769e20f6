"""A reflection against a model of a store whose watch is delayed, repeated, reordered, and loses events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shipper.apiserver.objects import Event, name, uid, version
from shipper.apiserver.reflection import MOST_GONE, Reflection
from tests.apiserver.server import thing


class Replica:
    """What a consumer makes of the events alone; it checks that they are lives."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}

    def take(self, events: list[Event], *, after_list: bool = False) -> None:
        for event in events:
            if event.type == "SYNCED":
                continue
            known = self.objects.get(name(event.object))
            if event.type == "ADDED":
                assert known is None, "added twice"
            else:
                assert known is not None, f"{event.type} of an object that was not added"
                assert uid(known) == uid(event.object), "of another life"
            if event.type == "MODIFIED" and not after_list:
                assert known is not None
                assert int(version(event.object)) > int(version(known)), "went back"
            if event.type == "DELETED":
                del self.objects[name(event.object)]
            else:
                self.objects[name(event.object)] = event.object


class Watched(RuleBasedStateMachine):
    """A store, its history, and a watch of it that goes wrong in every way that a list can mend."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0
        self.store: dict[str, dict[str, Any]] = {}
        self.history: list[Event] = []
        self.sent = 0
        """How much of the history the watch has passed."""
        self.behind: list[Event] = []
        """Of the passed ones, those that are delayed."""
        self.lossy = False
        self.reflection, self.replica = Reflection(), Replica()
        self.listed()

    @rule(which=st.sampled_from("abc"))
    def write(self, which: str) -> None:
        self.at += 1
        kind = "MODIFIED" if which in self.store else "ADDED"
        life = uid(self.store[which]) if which in self.store else f"{which}-{self.at}"
        self.store[which] = thing(which, self.at, life, spec=self.at)
        self.history.append(Event(kind, self.store[which]))

    @rule(which=st.sampled_from("abc"))
    def delete(self, which: str) -> None:
        if which in self.store:
            self.at += 1
            gone = self.store.pop(which)
            self.history.append(Event("DELETED", thing(which, self.at, uid(gone), spec=gone["spec"])))

    @rule()
    def write_elsewhere(self) -> None:
        self.at += 1

    @precondition(lambda self: self.sent < len(self.history))
    @rule(fate=st.sampled_from(["told", "told", "told", "delayed", "lost"]))
    def pass_on(self, fate: str) -> None:
        event = self.history[self.sent]
        self.sent += 1
        if fate == "told":
            self.tell(event)
        elif fate == "delayed":
            self.behind.append(event)
        else:
            self.lossy = True

    @precondition(lambda self: self.behind)
    @rule(data=st.data())
    def tell_late(self, data: st.DataObject) -> None:
        """In any order."""
        self.tell(self.behind.pop(data.draw(st.integers(0, len(self.behind) - 1))))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def tell_again(self, data: st.DataObject) -> None:
        if not self.lossy and not self.behind:  # a connection was made anew, from an older version
            first = data.draw(st.integers(0, self.sent - 1))
            for event in self.history[first : self.sent]:
                self.tell(event)

    @precondition(lambda self: not self.behind and not self.lossy and self.sent == len(self.history) and self.at)
    @rule()
    def bookmark(self) -> None:
        self.reflection.caught_up(str(self.at))

    @rule()
    def listed(self) -> None:
        at = str(self.at or 1)
        self.at = int(at)
        self.replica.take(self.reflection.relisted(self.store.values(), at), after_list=True)
        self.sent, self.lossy = len(self.history), False
        self.behind.clear()
        assert self.reflection.objects == self.store

    @rule(kept=st.integers(0, 5))
    def restored(self, kept: int) -> None:
        """The store is that of an older copy, in which other things happen from then on."""
        copy: dict[str, dict[str, Any]] = {}
        self.history = self.history[:kept]
        for event in self.history:
            if event.type == "DELETED":
                copy.pop(name(event.object), None)
            else:
                copy[name(event.object)] = event.object
        self.store = copy
        self.at = max([int(version(event.object)) for event in self.history], default=1)
        self.listed()

    def tell(self, event: Event) -> None:
        self.replica.take(self.reflection.take(event))

    @invariant()
    def what_is_told_is_what_is_known(self) -> None:
        assert self.replica.objects == self.reflection.objects

    @invariant()
    def all_that_was_told_is_the_state_of_the_store(self) -> None:
        if not self.behind and not self.lossy and self.sent == len(self.history):
            assert self.reflection.objects == self.store


TestWatched = Watched.TestCase


def test_an_event_that_comes_again_is_taken_once():
    reflection = Reflection()
    reflection.relisted([], "1")

    assert [e.type for e in reflection.take(Event("ADDED", thing("a", 2)))] == ["ADDED"]
    assert reflection.take(Event("ADDED", thing("a", 2))) == []


def test_an_object_that_is_created_again_is_another_one():
    reflection = Reflection()
    reflection.relisted([thing("a", 1, "first")], "1")

    told = reflection.take(Event("ADDED", thing("a", 5, "second")))

    assert [(event.type, uid(event.object)) for event in told] == [("DELETED", "first"), ("ADDED", "second")]


def test_a_list_tells_deletions_first_then_changes_and_its_version_at_last():
    reflection = Reflection()
    reflection.relisted([thing("a", 1), thing("b", 2), thing("c", 3, "first")], "3")

    told = reflection.relisted([thing("b", 5), thing("c", 6, "second"), thing("d", 7)], "9")

    assert [(event.type, name(event.object)) for event in told] == [
        ("DELETED", "a"),
        ("DELETED", "c"),
        ("MODIFIED", "b"),
        ("ADDED", "c"),
        ("ADDED", "d"),
        ("SYNCED", ""),
    ]
    assert version(told[-1].object) == "9"


def test_an_order_of_pages_tells_nothing_of_versions():
    """Items of a list are in the order of their names: the version of the last one is not the newest."""
    reflection = Reflection()
    reflection.relisted([thing("a", 9), thing("b", 2)], "12")

    assert reflection.seen == "12"


def test_opaque_versions_are_taken_as_they_come_but_for_equal_ones():
    reflection = Reflection()
    reflection.relisted([thing("a", "x")], "l")

    assert reflection.take(Event("MODIFIED", thing("a", "x"))) == []
    assert [e.type for e in reflection.take(Event("MODIFIED", thing("a", "y")))] == ["MODIFIED"]
    assert reflection.seen == "y"


@pytest.mark.parametrize("at", ["7", "opaque"])
def test_a_deleted_object_does_not_come_back_by_an_old_event(at):
    reflection = Reflection()
    reflection.relisted([thing("a", 1)], "1")
    reflection.take(Event("DELETED", thing("a", at)))

    assert reflection.take(Event("MODIFIED", thing("a", 5 if at == "7" else "older"))) == []


def test_managed_fields_are_not_kept():
    reflection = Reflection()
    full = thing("a", 2)
    full["metadata"]["managedFields"] = [{"manager": "kubectl"}] * 100

    [told] = reflection.take(Event("ADDED", full))

    assert told.object == thing("a", 2)


def test_deletions_are_remembered_within_bounds():
    reflection = Reflection()
    for number in range(3 * MOST_GONE):
        reflection.take(Event("DELETED", thing(f"a{number}", number + 1)))

    assert len(reflection._gone) <= MOST_GONE


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.text(max_size=3)))
)
def test_whatever_a_server_says_is_told_as_lives(said):
    reflection, replica = Reflection(), Replica()
    for number, (which, type, life) in enumerate(said):
        replica.take(reflection.take(Event(type, thing(which, number + 1, life or "x"))))  # type: ignore[arg-type]

        assert replica.objects == reflection.objects
