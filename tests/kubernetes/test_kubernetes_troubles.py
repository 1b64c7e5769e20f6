"""Each trouble has a cause, says what to do, and ends."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from types import SimpleNamespace

import pytest

from shipper.apiserver.errors import Busy, Forbidden, Invalid, NotFound, Unreachable
from shipper.kubernetes.membership.troubles import (
    APART,
    OUT,
    OUTDATED,
    REFUSED,
    TAKEN,
    UNREACHABLE,
    UNWATCHED,
    WAITS,
    WAITS_SECONDS,
    CrdOutdated,
    Troubles,
    waiting,
)
from shipper.kubernetes.summing.troubles import Troubles as LeaderTroubles


class Shown:
    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        self.times = 0
        self.troubles = Troubles(self.show)

    def show(self, cause: str, message: str | None) -> None:
        self.times += 1
        if message is None:
            del self.now[cause]
        else:
            self.now[cause] = message


def made(place: str, why: str = "", waits: Sequence[tuple[str, str]] = ()) -> SimpleNamespace:
    """What the troubles see of a member."""
    return SimpleNamespace(
        standing=SimpleNamespace(place=place, why=why), running=SimpleNamespace(waits=waits), held=""
    )


def test_a_failed_call_is_shown_by_its_cause_until_it_is_over() -> None:
    for error, cause in [
        (Unreachable("x"), UNREACHABLE),
        (Busy("x"), UNREACHABLE),
        (Forbidden("x"), REFUSED),
        (NotFound("x"), REFUSED),
        (Invalid("x"), REFUSED),
        (CrdOutdated("x"), OUTDATED),
    ]:
        shown = Shown()
        shown.troubles.failed("act", error)
        shown.troubles.failed("act", error)

        assert [*shown.now] == [cause]
        assert shown.times == 1
        shown.troubles.failed("act", None)
        assert shown.now == {}


def test_an_absent_kind_says_what_to_apply() -> None:
    shown = Shown()
    shown.troubles.failed("act", NotFound("create shippermembers: HTTP 404"))

    assert "apply the CustomResourceDefinitions" in shown.now[REFUSED]


def test_a_trouble_that_counts_seconds_is_told_once() -> None:
    shown, told = Shown(), list[str | None]()
    leading = LeaderTroubles(lambda cause, message: told.append(message))
    for seconds in (0, 7, 31):
        text = f"changes of secrets in namespace logging have not been seen for {seconds} s: refused"
        shown.troubles.watch("secret es", text)
        leading.failed("secret_unseen", "Secret es", text)

    assert (shown.times, len(told)) == (1, 1)
    assert shown.now[UNWATCHED] == told[0] == "changes of secrets in namespace logging have not been seen: refused"


def test_watches_share_one_trouble() -> None:
    shown = Shown()
    for name in "abcdef":
        shown.troubles.watch(name, f"changes of {name} have not been seen")

    assert shown.now[UNWATCHED].count("have not been seen") == 3
    for name in "abcdef":
        shown.troubles.watch(name, None)
    assert shown.now == {}


def test_what_policies_wait_for_is_one_sentence() -> None:
    assert waiting([]) is None
    assert waiting([("web", "no Secret es")]) == "policy web: no Secret es"
    assert str(waiting([(str(at), "why") for at in range(9)])).endswith("and 4 more policies")


def test_what_a_new_policy_waits_for_is_no_trouble_in_its_first_seconds() -> None:
    shown = Shown()
    member = made("ours", waits=[("web", "it was not judged yet")])

    assert shown.troubles.look_at(member, 10.0) == 10.0 + WAITS_SECONDS
    assert shown.now == {}
    assert shown.troubles.look_at(member, 10.0 + WAITS_SECONDS) == inf
    assert shown.now == {WAITS: "policy web: it was not judged yet"}
    member.running.waits = [("web", "the Secret es is absent")]
    shown.troubles.look_at(member, 20.0)
    assert shown.now == {}


@pytest.mark.parametrize(("place", "cause"), [("apart", APART), ("taken", TAKEN), ("out", OUT)])
def test_a_place_that_takes_no_part_says_why_and_what_to_do(place: str, cause: str) -> None:
    shown = Shown()
    shown.troubles.look_at(made(place, "another one holds it"), 0.0)

    assert [*shown.now] == [cause]
    assert shown.now[cause].startswith("another one holds it; ")
