"""Two leaders, one member that holds, and one Secret: every order of their requests, in a small world.

Each request is one step, and nobody knows of what happens between two of his own. The leaders decide by the real
`release`; the member is as its protocol has it: announce, read again, use; heed the bounds in its Lease before it
renews one that was over. A watch may show it any content that there ever was.

What must hold in each state: nothing in use is of before the bound, unless it is what the Secret had at the bound; and
bounds only rise.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from shipper.kubernetes.kinds import MemberSpec, MemberStatus, SecretStatus, Using
from shipper.kubernetes.kinds import Release as Bound
from shipper.kubernetes.summing.parts import Standings
from shipper.kubernetes.summing.records import Lease, Member
from shipper.kubernetes.summing.release import Secret, View, release

PLACE = "u/key"

RULES = frozenset(
    {
        "announce",  # a content stands in `using` before it is used
        "read again",  # after it was announced
        "drop late",  # an entry of `using` goes after the content is out of use
        "heed",  # the bounds in the Lease, before it is renewed
        "begin anew",  # what was read before a lapse is not used after it
        "renew by swap",
        "secret first",  # the leader reads it before members
        "oldest in use",  # is the bound
        "write the fence",  # before its member does not count
        "fence by swap",  # of the Lease that was over: a PUT on another one would undo a renewal
        "write by swap",
    }
)


class Step(NamedTuple):
    """Where a leader is in its round, and what it has read."""

    at: str = "begin"
    version: int = 0
    """Of the object that it will write."""
    bound: int = 0
    secret: int = 0
    using: frozenset[tuple[str, int]] = frozenset()
    lease: tuple[int, bool, int] = (0, False, 0)


class State(NamedTuple):
    """The world."""

    contents: str = "ab"
    """What the Secret has at each version, from 1 on; `b` twice is a change of labels."""
    secret: int = 1
    using: frozenset[tuple[str, int]] = frozenset({("a", 1)})
    lease: int = 1
    """Its version."""
    over: bool = False
    """Whether it was not renewed for so long that leaders take the member for absent."""
    sends: bool = True
    """Whether the member sends; it has stopped before its Lease is over."""
    fence: int = 0
    version: int = 1
    bound: int = 0
    token: int = 0
    # the member
    used: frozenset[str] = frozenset({"a"})
    """Contents that its sidecar has."""
    next: tuple[str, str, int] | None = None
    """How far it has come with a content: announced or confirmed; and the version at which a watch showed it."""
    returns: tuple[int, int] | None = None
    """The Lease as it has read it: version and bound."""
    lapses: int = 1
    # the leaders, with tokens 1 and 2
    leaders: tuple[Step, Step] = (Step("out"), Step("out"))
    rounds: tuple[int, int] = (2, 2)


def content(state: State, version: int) -> str:
    return state.contents[version - 1]


def last(state: State, of: str) -> int:
    """The newest version at which a content was the current one, as far as the Secret was written."""
    return state.contents.rindex(of, 0, state.secret) + 1


def wrong(before: State, state: State) -> str:
    """What must not be in a state, or between two of them; empty if all is well."""
    if state.bound < before.bound:
        return f"released before {state.bound}, after {before.bound}"
    for of in state.used if state.sends and state.bound else ():
        if last(state, of) < state.bound and of != content(state, state.bound):
            return f"{of} is in use although everything before {state.bound} is released"
    return ""


def successors(state: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    yield from _outside(state)
    yield from _member(state, rules)
    for number in (0, 1):
        yield from _leader(state, number, rules)


def _outside(state: State) -> Iterator[tuple[str, State]]:
    if state.secret < len(state.contents):
        yield "the Secret is written", state._replace(secret=state.secret + 1)
    if state.lapses and state.sends:
        yield "the Lease is over", state._replace(over=True, sends=False, lapses=state.lapses - 1)


def _member(state: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    if state.next is None:
        for version in range(1, state.secret + 1):
            if content(state, version) not in state.used:
                yield from _adoption(state, "picked", content(state, version), version, rules)
    else:
        yield from _adoption(state, *state.next, rules)
    if len(state.used) > 1:
        newest = max(state.used, key=lambda of: last(state, of))
        yield "the older content has drained", state._replace(used=frozenset({newest}))
    kept = {(of, at) for of, at in state.using if of in state.used or (state.next or ("", ""))[1] == of}
    if "drop late" not in rules and state.next and state.next[0] in ("announced", "confirmed"):
        kept = {(of, at) for of, at in kept if of == state.next[1]}
    if kept != state.using:
        yield "using is reported", state._replace(using=frozenset(kept))
    written = frozenset((of, state.secret if of == content(state, state.secret) else at) for of, at in state.using)
    if written != state.using:
        yield "the version of the current content is reported", state._replace(using=written)
    if not state.sends:
        if state.returns is None:
            yield "the member reads its Lease", state._replace(returns=(state.lease, state.fence))
        else:
            yield from _return(state, *state.returns, rules)


def _adoption(state: State, how: str, of: str, at: int, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    if how == "picked":
        using = state.using | {(of, at)} if "announce" in rules else state.using
        yield f"{of} is announced", state._replace(using=using, next=("announced", of, at))
    elif how == "announced":
        if content(state, state.secret) == of or "read again" not in rules:
            yield f"{of} is confirmed", state._replace(next=("confirmed", of, at))
        else:
            yield f"{of} is not confirmed", state._replace(next=None)
    else:
        yield f"{of} is offered", state._replace(used=state.used | {of}, using=state.using | {(of, at)}, next=None)


def _return(state: State, version: int, fence: int, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    if state.lease != version and "renew by swap" in rules:
        yield "the renewal is a conflict", state._replace(returns=None)
        return
    current = content(state, state.secret)
    fits = {of for of in state.used if of == current or last(state, of) >= fence or "heed" not in rules}
    step = state.next if "begin anew" not in rules else None
    yield (
        "the Lease is renewed",
        state._replace(lease=state.lease + 1, over=False, sends=True, used=frozenset(fits), returns=None, next=step),
    )


# -- leaders -----------------------------------------------------------------------------------------------------------


def _leader(state: State, number: int, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    step, token = state.leaders[number], number + 1

    def to(new: Step, **changes: object) -> State:
        leaders = tuple(new if one == number else old for one, old in enumerate(state.leaders))
        return state._replace(leaders=leaders, **changes)

    who = f"leader {token}"
    if step.at == "out":
        if number == 0 or state.leaders[0].at != "out":
            yield f"{who} is elected", to(Step())
    elif step.at == "begin":
        if state.token > token or not state.rounds[number]:
            return
        rounds = tuple(left - (one == number) for one, left in enumerate(state.rounds))
        first = "secret" if "secret first" in rules else "members"
        begun = Step("claim" if state.token < token else first, state.version, state.bound)
        yield f"{who} reads the object", to(begun, rounds=rounds)
    elif step.at == "claim":
        if state.version == step.version:
            first = "secret" if "secret first" in rules else "members"
            claimed = Step(first, state.version + 1, state.bound)
            yield f"{who} claims the object", to(claimed, version=state.version + 1, token=token)
        else:
            yield f"{who} is refused", to(Step())
    elif step.at == "secret":
        after = "members" if "secret first" in rules else "judge"
        yield f"{who} reads the Secret", to(step._replace(at=after, secret=state.secret))
    elif step.at == "members":
        yield f"{who} lists members", to(step._replace(at="leases", using=state.using))
    elif step.at == "leases":
        after = "judge" if "secret first" in rules else "secret"
        yield f"{who} lists Leases", to(step._replace(at=after, lease=(state.lease, state.over, state.fence)))
    elif step.at == "judge":
        yield from _judged(state, step, who, to, rules)


def _judged(state: State, step: Step, who: str, to: Any, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    bound, fence = decided(step.secret, step.using, step.lease, step.bound, rules)
    version, _, before = step.lease
    if fence > before and "write the fence" in rules:
        if state.lease == version or "fence by swap" not in rules:
            yield f"{who} fences by {fence}", to(Step(), lease=state.lease + 1, fence=fence, over=True)
        else:
            yield f"{who} cannot fence", to(Step())
    elif bound != step.bound:
        if state.version == step.version or "write by swap" not in rules:
            yield f"{who} releases before {bound}", to(Step(), version=state.version + 1, bound=bound)
        else:
            yield f"{who} is refused", to(Step())
    else:
        yield f"{who} finds all as it is", to(Step())


@cache
def decided(
    secret: int, using: frozenset[tuple[str, int]], lease: tuple[int, bool, int], bound: int, rules: frozenset[str]
) -> tuple[int, int]:
    """The bound, and that of a fence, by the real rules."""
    version, over, fence = lease
    if "oldest in use" not in rules:
        using = frozenset()
    entries = tuple(Using(secret="es", uid="u", key="key", resource_version=str(at)) for _, at in sorted(using))
    status = MemberStatus(process="d/p", fence="hold", using=entries)
    if "write the fence" not in rules and over:
        fence = secret
    bounds = {PLACE: str(fence)} if fence else {}
    found = Lease("shipper-member-m", "l", str(version), "d/b/p", 40, "r", 0, bounds)
    view = View(
        [Member("m", "u-m", "1", {}, MemberSpec(), status)],
        {"m": found},
        Standings(absent=frozenset({"m"}) if over else frozenset()),
    )
    before = SecretStatus(
        credentials=(Bound(secret="es", uid="u", key="key", released_before=str(bound or "")),) if bound else ()
    )
    decision = release(Secret("es", str(secret), "u"), view, before, "now", {"key"})
    wanted = decision.fences.get("m", {}).get(PLACE, "0")
    return int(decision.status.credentials[0].released_before or 0), int(wanted)
