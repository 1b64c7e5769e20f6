"""Worlds in which something is about to happen, so that little has to be explored to see whether a rule is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shipper.kubernetes.member.steps import Confirm, Judge, Offer, Write
from tests.kubernetes.model.api import Api
from tests.kubernetes.model.host import Host
from tests.kubernetes.model.world import Budget, World

Rules = frozenset[str]
Start = Callable[[Rules], World]
QUICK = frozenset({"member", "policy"})


def alone(*, hold: bool = False) -> Callable[[Api], list[Host]]:
    """Returns a maker of one host."""
    return lambda api: [Host(api, "a", labels={"app": "web"}, hold=hold)]


def _world(without: Rules, *, hold: bool = False) -> World:
    world = World(alone(hold=hold), Budget(), without, quick=QUICK, registered=True)
    world.hurry()
    return world


def _then(world: World, **budget: object) -> World:
    world.budget = replace(Budget(), **budget)  # type: ignore[arg-type]
    return world


def first_use(without: Rules) -> World:
    """The content of a Secret was seen, and is used for the first time; it is rotated just then."""
    return _then(_world(without).until(Judge), contents=("id:two",))


def read_again(without: Rules) -> World:
    """As the first use, just before the Secret is read again."""
    return _then(_world(without).until(Confirm), contents=("id:two",))


def offered(without: Rules) -> World:
    """A policy that runs names a Secret from now on, whose content is about to be offered for the first time."""
    world = World(alone(), Budget(), without, quick=QUICK, registered=True, key="")
    world.hurry()
    world.settled()
    world.edit()
    world.hurry()
    return _then(world.until(Offer), contents=("id:two",))


def announced(without: Rules) -> World:
    """As the first use, just before the status is written."""
    return _then(_world(without).until(Write), contents=("id:two",))


def rotation(without: Rules) -> World:
    """A content runs, and is rotated twice; the first one comes back."""
    return _then(_world(without).settled().led(), contents=("id:two", "id:one"))


def labels_only(without: Rules) -> World:
    """A Secret gets another label."""
    return _then(_world(without).settled().led(), relabels=1)


def fenced(without: Rules) -> World:
    """A member with `hold` was away for longer than its lease; meanwhile its content was rotated and released."""
    world = _world(without, hold=True).settled()
    world.led()
    world.lapse(0)
    world.set_content("id:two")
    return _then(world.led(4))


def fenced_meanwhile(without: Rules) -> World:
    """As `fenced`, while the leader still decides."""
    world = _world(without, hold=True).settled()
    world.led()
    world.lapse(0)
    world.set_content("id:two")
    return _then(world)


def removed_while_down(without: Rules) -> World:
    """While a member was down its object was deleted, and its content released."""
    world = _world(without, hold=True).settled()
    world.led()
    host = world.hosts[0]
    world._start(0, host.durable, host.agent)
    world.lapse(0)
    world.api.delete("member", "a")
    world.set_content("id:two")
    return _then(world.led(4))


def put_back(without: Rules) -> World:
    """A directory was copied, went on to another content, and is put back."""
    world = _world(without, hold=True).settled()
    world.backup(0)
    world.set_content("id:two")
    world.settled().led(4)
    world.put_back(0)
    return _then(world)


def denied(without: Rules) -> World:
    """As the first use, just before the Secret is read again, while the right to read it goes and comes back."""
    return _then(_world(without).until(Confirm), contents=("id:two",), denials=2)


def crash(without: Rules) -> World:
    """A process may be killed between any two steps of a rotation."""
    return _then(_world(without).until(Confirm), contents=("id:two",), crashes=1)


def lost_answers(without: Rules) -> World:
    """An answer may be lost while a rotation is under way."""
    return _then(_world(without).settled().led(), contents=("id:two", "id:one"), lost=1)


def handed_over(without: Rules) -> World:
    """A policy that selected one member, which has not begun to run it, selects another one now, which has drained."""
    hosts = [("a", "web"), ("b", "db")]
    world = World(
        lambda api: [Host(api, name, labels={"app": app}) for name, app in hosts],
        Budget(),
        without,
        quick=frozenset({"secret", "member"}),
        registered=True,
        key="",
    )
    world.hurry()
    world.until(Judge).until(Offer if "introduce a policy" in without else Write)
    world.hand_over("db")
    world.settled(1)
    world.asleep = frozenset({1})
    return world


STARTS: dict[str, Start] = {
    start.__name__: start
    for start in (
        first_use,
        read_again,
        offered,
        announced,
        rotation,
        labels_only,
        fenced,
        fenced_meanwhile,
        removed_while_down,
        put_back,
        crash,
        denied,
        lost_answers,
        handed_over,
    )
}
