"""The whole is as bad as its worst unit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shipper.protocol.messages import Failing, State, Unit
from shipper.sdk.codes import Why
from shipper.spool.figures import Amount
from shipper.status.health import LONG_SECONDS, LaneView, also, draining, hindered, output_units, overall
from shipper.values import Revision


def lane(id: int, *, active: bool = True, problem: str | None = None, output: str = "main") -> LaneView:
    code = "ok" if problem is None else f"code_{problem}"
    return LaneView(id, output, "fake", active, problem, code=code)


def unit(state: State, message: str = "", id: str = "outputs.main") -> Unit:
    code = f"code_{message.rpartition(' ')[2]}" if message else "ok"
    return Unit(id, "output", "fake", state, message, code=code)


def test_an_output_that_delivers_is_healthy() -> None:
    assert output_units([lane(1)], {}) == [unit("HEALTHY")]


def test_an_output_is_as_bad_as_the_worst_of_its_lanes() -> None:
    assert output_units([lane(1, active=False, problem="401"), lane(2)], {}) == [unit("DEGRADED", "draining: 401")]


def test_the_problem_of_the_active_lane_is_named_first() -> None:
    units = output_units([lane(1, active=False, problem="401"), lane(2, problem="503")], {})

    assert units == [unit("DEGRADED", "503")]


def failing(seconds: float, problem: str | None = "503", *, active: bool = True) -> Unit:
    (found,) = output_units([replace(lane(1, active=active, problem=problem), failing=(7, seconds))], {})
    return found


def test_a_batch_that_fails_is_named_by_its_output_and_after_long_by_its_message_too() -> None:
    soon, late = failing(1.23456), failing(LONG_SECONDS + 1)

    assert (soon.failing, soon.message) == (Failing(7, 1.235), "503")
    assert late.failing == Failing(7, LONG_SECONDS + 1)
    assert late.message == "503; it is batch 7 that fails"
    assert failing(LONG_SECONDS + 1, active=False).message.startswith("draining: 503; it is batch 7")
    assert (soon.code, late.code) == ("code_503", "code_503")


def test_an_output_without_a_problem_names_no_batch() -> None:
    assert failing(LONG_SECONDS + 1, None) == unit("HEALTHY")


def test_an_output_that_only_drains_is_shown() -> None:
    assert [u.id for u in output_units([lane(1, active=False, output="gone")], {})] == ["outputs.gone"]


def test_a_lane_that_cannot_be_opened_is_degraded() -> None:
    (unit,) = output_units([], {"main": Why("no plugin", "unknown_plugin")})

    assert (unit.state, unit.message, unit.code) == ("DEGRADED", "no plugin", "unknown_plugin")


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], "HEALTHY"),
        (["HEALTHY", "STOPPED"], "HEALTHY"),
        (["HEALTHY", "DEGRADED"], "DEGRADED"),
        (["FAILED", "DEGRADED", "HEALTHY"], "FAILED"),
    ],
)
def test_the_whole_is_as_bad_as_its_worst_unit(states: list[State], expected: State) -> None:
    units = [unit(state, f"is {state}") for state in states]

    assert overall(units, failure=None, running=True, configuring=False)[0] == expected


def test_the_worst_unit_is_named() -> None:
    whole = overall([unit("DEGRADED", "401")], failure=None, running=True, configuring=False)

    assert whole == ("DEGRADED", "output main: 401", "code_401")


def test_a_unit_that_needs_a_person_is_named_before_one_that_mends_itself_and_after_a_failed_one() -> None:
    for code in ["unauthorized", "forbidden", "credential_missing", "dead_letters_full", "disk_full", "locked"]:
        harmless = Unit("inputs.a", "input", "file", "DEGRADED", "no file yet", code="file_missing")
        held = Unit("outputs.main", "output", "fake", "DEGRADED", "held", code=code)
        failed = Unit("outputs.z", "output", "fake", "FAILED", "broken", code="failed")

        assert overall([harmless, held], failure=None, running=True, configuring=False).message == "output main: held"
        assert overall([harmless, held, failed], failure=None, running=True, configuring=False).message.endswith(
            "broken"
        )


def test_a_failed_spool_outweighs_everything() -> None:
    failure = Why("no room", "disk_full")

    assert overall([unit("HEALTHY")], failure=failure, running=True, configuring=False) == ("FAILED", *failure)


def test_the_code_of_a_unit_is_that_of_the_cause_and_not_of_what_follows_from_it() -> None:
    assert also(unit("HEALTHY"), "late", "deadline_passed") == Unit(
        "outputs.main", "output", "fake", "DEGRADED", "late", code="deadline_passed"
    )
    assert also(unit("DEGRADED", "401"), "late", "deadline_passed") == Unit(
        "outputs.main", "output", "fake", "DEGRADED", "late; 401", code="code_401"
    )


def test_before_the_first_policy_it_is_starting() -> None:
    assert overall([], failure=None, running=False, configuring=False) == ("STARTING", "waiting for a policy", "ok")
    assert overall([], failure=None, running=False, configuring=True)[0] == "CONFIGURING"


def test_what_drains_stands_under_the_revision_that_took_it_in() -> None:
    one, two = Revision(0, 1), Revision(1, 2)
    lanes = {1: lane(1, active=False, problem="401"), 2: lane(2, active=False, output="other")}
    amounts = [(one, 1, Amount(5, 50)), (one, 2, Amount(3, 30)), (two, 2, Amount(2, 20))]
    totals = {one: Amount(5, 50), two: Amount(2, 20)}
    (first, second), _ = draining(lanes, amounts, totals, {one: 90.0}, 100.0)

    assert (first.revision, first.events, first.bytes, first.oldest_seconds) == (1, 5, 50, 10.0)
    assert {name: (w.events, w.reason, w.code) for name, w in first.outputs.items()} == {
        "main": (5, "401", "code_401"),
        "other": (3, "delivering", "delivering"),
    }
    assert (second.epoch, second.revision, second.oldest_seconds) == (1, 2, 0.0)


def test_of_two_lanes_of_one_output_the_problem_is_named() -> None:
    lanes = {1: lane(1, active=False, problem="401"), 2: lane(2, active=False)}
    at = Revision(0, 1)
    (only,), _ = draining(lanes, [(at, 1, Amount(5, 5)), (at, 2, Amount(1, 1))], {at: Amount(6, 6)}, {}, 0.0)

    assert (only.outputs["main"].events, only.outputs["main"].reason, only.outputs["main"].code) == (
        6,
        "401",
        "code_401",
    )


def keyed(id: int, credential: str | None, *, active: bool, output: str = "main", destination: str = "d") -> LaneView:
    return LaneView(
        id, output, "fake", active, "401", () if credential is None else (credential,), destination, held=not active
    )


def test_what_drains_names_its_credential_and_the_one_that_goes_to_the_same_place_now() -> None:
    lanes = [keyed(1, "k1", active=False), keyed(2, "k2", active=True), keyed(3, "k0", active=False, destination="e")]
    amounts = [(Revision(0, 1), 1, Amount(2, 20)), (Revision(0, 1), 3, Amount(1, 10))]
    (drain,), _ = draining({lane.id: lane for lane in lanes}, amounts, {Revision(0, 1): Amount(3, 30)}, {}, 0)
    waiting = drain.outputs["main"]

    assert (waiting.events, list(waiting.credentials)) == (3, ["k0", "k1"])
    assert (waiting.held, waiting.rebind_to, waiting.forward) == (True, "k2", True)
    assert list(waiting.rebind_from) == ["k1"]


@pytest.mark.parametrize(
    "other",
    [
        keyed(2, "k2", active=True, destination="e"),
        keyed(2, "k2", active=True, output="other"),
        keyed(2, "k2", active=False),
        keyed(2, None, active=True),
    ],
)
def test_where_nothing_goes_to_the_same_place_with_another_credential_none_is_named(other: LaneView) -> None:
    lanes = {1: keyed(1, "k1", active=False), 2: other}
    (drain,), _ = draining(lanes, [(Revision(0, 1), 1, Amount(2, 20))], {Revision(0, 1): Amount(2, 20)}, {}, 0)

    assert drain.outputs["main"].rebind_to is None


def test_of_several_credentials_the_one_is_named_that_was_replaced() -> None:
    def waiting(old: tuple[str, ...], now: tuple[str, ...]) -> tuple[str | None, list[str]]:
        lanes = {
            1: LaneView(1, "main", "fake", False, "401", old, "d", held=True),
            2: LaneView(2, "main", "fake", True, None, now, "d"),
        }
        (drain,), _ = draining(lanes, [(Revision(0, 1), 1, Amount(2, 20))], {Revision(0, 1): Amount(2, 20)}, {}, 0)
        found = drain.outputs["main"]
        return found.rebind_to, list(found.rebind_from)

    assert waiting(("c1", "s1"), ("c1", "s2")) == ("s2", ["s1"])
    assert waiting(("c1", "s1"), ("c2", "s2")) == (None, [])


@pytest.mark.parametrize("state", ["STARTING", "CONFIGURING", "HEALTHY", "UNKNOWN"])
def test_what_hinders_the_supervisor_degrades_what_would_look_well(state: str) -> None:
    assert hindered(state, "", "ok", [("http", "no server"), ("policy", "the files")]) == ("DEGRADED", "the files")
    assert hindered(state, "x", "ok", []) == (state, "x")


@pytest.mark.parametrize("state", ["FAILED", "STOPPING", "STOPPED"])
def test_what_hinders_the_supervisor_hides_nothing_worse_and_no_end(state: str) -> None:
    assert hindered(state, "x", "unauthorized", [("policy", "the files")]) == (state, "x")


def test_of_two_problems_the_one_that_needs_a_person_is_named_and_both_if_both_do() -> None:
    policy, server = ("policy", "the files"), ("http", "no server")

    assert hindered("DEGRADED", "in: gone", "file_missing", [server, policy]) == ("DEGRADED", "the files")
    assert hindered("DEGRADED", "main: 401", "unauthorized", [policy]) == ("DEGRADED", "the files; main: 401")
    assert hindered("DEGRADED", "in: gone", "file_missing", [server]) == ("DEGRADED", "in: gone")
