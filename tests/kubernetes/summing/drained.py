"""Two leaders, one policy and one member, which may be found behind: every order of their requests.

What must hold: after a leader has concluded something of the policy, no leader before it writes to it; what is observed
never goes back; Drained is written only of a report that has drained.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from shipper.kubernetes.kinds import Condition, PolicyStatus
from tests.kubernetes.summing.made import entry, judged, member, policy, says

RULES = frozenset({"claim", "write by swap"})


class Step(NamedTuple):
    """Where a leader is in its round, and what it has read."""

    at: str = "begin"
    version: int = 0
    generation: int = 0
    status: tuple[int, bool] = (0, False)
    """What is observed, and whether it has drained."""
    report: tuple[int, str] = (0, "")


class State(NamedTuple):
    """The world."""

    generation: int = 1
    version: int = 1
    status: tuple[int, bool] = (0, False)
    token: int = 0
    report: tuple[int, str] = (1, "active")
    mishaps: int = 1
    leaders: tuple[Step, Step] = (Step("out"), Step("out"))
    rounds: tuple[int, int] = (3, 3)
    concluded: int = 0
    """The highest token of a leader that has concluded something."""
    late: bool = False
    """Whether a leader has written after that."""


def successors(state: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    generation, stage = state.report
    if state.generation < 2:
        yield "the policy is edited", state._replace(generation=2, version=state.version + 1)
    if stage == "active":
        yield "the member has drained", state._replace(report=(generation, "drained"))
    if generation < state.generation:
        yield "the member runs the new generation", state._replace(report=(state.generation, "active"))
    if state.mishaps and state.report != (1, "active"):
        yield "the member is found behind", state._replace(report=(1, "active"), mishaps=0)
    for number in (0, 1):
        yield from _leader(state, number, rules)


def wrong(before: State, state: State) -> str:
    """What must not be; empty if all is well."""
    if state.late:
        return "a leader writes after a later one has concluded"
    if state.status[0] < before.status[0]:
        return "what is observed goes back"
    return ""


def _leader(state: State, number: int, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    step, token = state.leaders[number], number + 1
    who = f"leader {token}"

    def to(new: Step, **changes: Any) -> State:
        leaders = tuple(new if one == number else old for one, old in enumerate(state.leaders))
        return state._replace(leaders=leaders, **changes)  # type: ignore[arg-type]

    if step.at == "out":
        if number == 0 or state.leaders[0].at != "out":
            yield f"{who} is elected", to(Step())
    elif step.at == "begin" and state.rounds[number] and state.token <= token:
        rounds = tuple(left - (one == number) for one, left in enumerate(state.rounds))
        claims = "claim" in rules and state.token < token
        read = Step("claim" if claims else "list", state.version, state.generation, state.status)
        yield f"{who} reads the policy", to(read, rounds=rounds)
    elif step.at == "claim":
        if state.version == step.version:
            yield f"{who} claims it", to(Step(), version=state.version + 1, token=token)
        else:
            yield f"{who} is refused", to(Step())
    elif step.at == "list":
        yield f"{who} lists members", to(step._replace(at="write", report=state.report))
    elif step.at == "write":
        status = concluded(step.generation, step.status, step.report)
        top = max(state.concluded, token)
        if status == step.status:
            yield f"{who} finds all as it is", to(Step(), concluded=top)
        elif state.version == step.version or "write by swap" not in rules:
            known = {"late": token < state.concluded, "concluded": top, "token": max(state.token, token)}
            yield f"{who} writes {status}", to(Step(), version=state.version + 1, status=status, **known)
        else:
            yield f"{who} is refused", to(Step())


@cache
def concluded(generation: int, status: tuple[int, bool], report: tuple[int, str]) -> tuple[int, bool]:
    """By the real rules."""
    observed, drained = status
    known = Condition(
        type="Drained",
        status="True" if drained else "False",
        observed_generation=observed,
        reason="R",
        last_transition_time="t",
    )
    before = PolicyStatus(observed_generation=observed, conditions=(known,) if observed else ())
    found = judged(policy(generation, before), member("a", entry(*report)))
    return found.observed_generation, says(found)["Drained"] == "True"
