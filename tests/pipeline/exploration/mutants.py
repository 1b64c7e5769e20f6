"""Faults in each decision, and the world in which an exploration finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from shipper.pipeline.attempts.attempt import Attempt
from shipper.pipeline.attempts.stable import Stable
from shipper.pipeline.delivery.backlog import Backlog
from shipper.pipeline.delivery.feed import Feed
from shipper.pipeline.delivery.probe import Probe
from shipper.pipeline.delivery.request import Request
from shipper.pipeline.delivery.session import Session
from shipper.pipeline.delivery.waits import Waits
from shipper.plugin import Answers
from shipper.spool import drain_orders, requests

Fault = Callable[[pytest.MonkeyPatch], None]


def a_barrier_when_it_comes_by(patch: pytest.MonkeyPatch) -> None:
    """A session that is active again settles a barrier that the front has passed."""
    patch.setattr(Backlog, "barrier_is_reached", lambda self: bool(self.barriers))


def what_is_put_off_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backlog, "_leave_single", lambda self, *arguments: None)


def a_target_that_refuses_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backlog, "next_due", lambda self: float("inf") if self._put_off is None else self._put_off.due)
    patch.setattr(Backlog, "ask", lambda self, now: None)


def a_session_begins_above_what_was_under_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backlog, "rewind", lambda self: self.outstanding.clear())


def a_refusal_is_a_dead_letter(patch: pytest.MonkeyPatch) -> None:
    original = Attempt.failed

    def failed(self: Attempt, trouble: Any) -> None:
        pieces = [at for piece in self._pieces for at in piece] if trouble.held else []
        original(self, trouble)
        for at in pieces:
            self._open.pop(at, None)
            self._rejected[at] = trouble.reason

    patch.setattr(Attempt, "failed", failed)


def silence_is_an_answer(patch: pytest.MonkeyPatch) -> None:
    original = Attempt.put_off

    def put_off(self: Attempt, error: Any) -> None:
        if str(error) == "503":
            positions = self._pieces[-1]
            self.answered(positions, Answers(len(positions)))
        else:
            original(self, error)

    patch.setattr(Attempt, "put_off", put_off)


def half_of_too_large_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = Attempt._halve

    def halve(self: Attempt, positions: Any) -> bool:
        halved = original(self, positions)
        if halved:
            self._open.update(dict.fromkeys(self._pieces.pop(0), Answers(0)))  # type: ignore[arg-type]
            self._open.clear()
        return halved

    patch.setattr(Attempt, "_halve", halve)


def nobody_looks_after_a_retry(patch: pytest.MonkeyPatch) -> None:
    """What was put off never comes again by itself."""
    patch.setattr(Feed, "until", lambda self, now: float("inf"))


def what_has_no_memory_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """An entry that was handed out counts as settled once its request ended."""
    original = Request.sent

    def sent(self: Request, left: Any, now: float) -> None:
        original(self, left, now)
        for entry in self.send.parcel.entries:
            self._backlog.settled(entry.seq)

    patch.setattr(Request, "sent", sent)


def the_destination_is_never_asked_again(patch: pytest.MonkeyPatch) -> None:
    def after_trouble(self: Waits, now: float, **more: Any) -> None:
        self.destination = float("inf")

    patch.setattr(Waits, "after_trouble", after_trouble)


def a_probe_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Probe, "noted", lambda self: None)


def a_place_is_never_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "noted", lambda self, send: None)


def whatever_comes_is_the_next_one(patch: pytest.MonkeyPatch) -> None:
    """An entry that is told of is handed out, though a barrier may lie before it."""

    def arrived(self: Feed, entry: Any) -> None:
        self._gathered.add(entry)

    patch.setattr(Feed, "arrived", arrived)


def what_is_being_read_is_taken_too(patch: pytest.MonkeyPatch) -> None:
    """An entry that comes while it is read is handed out twice."""
    patch.setattr(Feed, "_reads", property(lambda self: False, lambda self, value: None), raising=False)


def nobody_is_woken_by_an_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "waits_for_requests", False)


def any_answer_settles_a_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("shipper.spool.slots.is_renewed", lambda *arguments: False)


def moved_events_leave_their_barriers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drain_orders, "_mirror_barriers", lambda db, order: None)


def a_crash_forgets_what_was_composed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requests, "of_lane", lambda db, lane: [])


def events_are_composed_twice(patch: pytest.MonkeyPatch) -> None:
    """An attempt after a lost answer has another id."""
    patch.setattr(Stable, "name", lambda self, positions: None)


def some_answers_of_a_request_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempt, "_leave_whole", lambda self, positions, open: self._take(positions, Answers(len(positions))))


MUTANTS: Mapping[str, tuple[str, Fault]] = {
    "a barrier when it comes by": ("another credential, and back", a_barrier_when_it_comes_by),
    "what is put off is forgotten": ("another credential, and back", what_is_put_off_is_forgotten),
    "a target that refuses is forgotten": ("answers", a_target_that_refuses_is_forgotten),
    "a session begins above what was under way": ("answers", a_session_begins_above_what_was_under_way),
    "a refusal is a dead letter": ("answers", a_refusal_is_a_dead_letter),
    "silence is an answer": ("answers", silence_is_an_answer),
    "half of too large is forgotten": ("answers", half_of_too_large_is_forgotten),
    "nobody looks after a retry": ("answers", nobody_looks_after_a_retry),
    "what was sent counts as settled": ("another credential, and back", what_has_no_memory_is_forgotten),
    "the destination is never asked again": ("answers", the_destination_is_never_asked_again),
    "a probe never ends": ("answers", a_probe_never_ends),
    "a place is never given back": ("answers", a_place_is_never_given_back),
    "whatever comes is the next one": ("a quiet return", whatever_comes_is_the_next_one),
    "what is being read is taken too": ("three arrivals", what_is_being_read_is_taken_too),
    "nobody is woken by an answer": ("two requests at once", nobody_is_woken_by_an_answer),
    "any answer settles a version": ("two versions", any_answer_settles_a_version),
    "a crash forgets what was composed": ("they stay the same after crashes", a_crash_forgets_what_was_composed),
    "events are composed twice": ("requests that stay the same", events_are_composed_twice),
    "some answers of a request count": ("requests that stay the same", some_answers_of_a_request_count),
    "moved events leave their barriers": ("a quiet rebind", moved_events_leave_their_barriers),
}
