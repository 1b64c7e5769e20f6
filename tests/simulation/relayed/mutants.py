"""Faults made by hand in the product, one or more for each rule of what must hold on the wire.

A mutant is a function that puts the fault into the product, through pytest's monkeypatch; `MUTANTS` says which law of
the oracle it breaks, and in which worlds it is looked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from inspect import signature
from typing import Any, NamedTuple

import pytest

from shipper.plugin import Batch
from shipper_plugins.relay.edge.lineage import Lineage
from shipper_plugins.relay.edge.state import StateSide
from shipper_plugins.relay.frames import Answered, Part, Request
from shipper_plugins.relay.principal import edges as relay_edges
from shipper_plugins.relay.principal import keys as relay_keys
from shipper_plugins.relay.principal import parts as relay_parts
from shipper_plugins.relay.principal.door import Refused, busy
from shipper_plugins.relay.principal.edges import Edges
from shipper_plugins.relay.principal.generations import Sessions
from shipper_plugins.relay.principal.state import KeyedState
from shipper_plugins.relay.principal.taken import Memory
from tests.simulation.relayed.scenario import Relayed
from tests.simulation.stage import Crashed

_EMIT = signature(Edges.store)

# -- 1: exactly once a hop ---------------------------------------------------------------------------------------------


def nothing_is_remembered(patch: pytest.MonkeyPatch) -> None:
    """What comes again enters again."""
    patch.setattr(Memory, "taking", lambda self, fresh: self)


# -- 2: ids ------------------------------------------------------------------------------------------------------------


def ids_are_given_anew(patch: pytest.MonkeyPatch) -> None:
    """By each principal."""
    original = relay_parts._new

    def new(part: Part, batch: Batch, *arguments: Any, **options: Any) -> Any:
        made, entry = original(part, batch, *arguments, **options)
        return made.identified(os.urandom(16), made.seq), entry

    patch.setattr(relay_parts, "_new", new)


def an_origin_is_of_whoever_shows_it(patch: pytest.MonkeyPatch) -> None:
    """The proof that an edge has drawn it is not asked for."""
    patch.setattr(Request, "check_origins", lambda self, edge: None)


# -- 3: confirmed means persisted --------------------------------------------------------------------------------------


def confirmed_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The principal answers while the transaction is under way."""
    from tests.simulation.relayed.world import current

    async def emit(self: Edges, *arguments: Any, **options: Any) -> None:
        async def later() -> None:
            with suppress(Exception, Crashed):
                await kept(self, *arguments, **options)

        if _EMIT.bind(self, *arguments, **options).arguments["batches"]:
            current().stage.nursery.start_soon(later)
        else:
            await kept(self, *arguments, **options)

    kept = Edges.store
    patch.setattr(Edges, "store", emit)


def nobody_says_that_a_principal_went_back(patch: pytest.MonkeyPatch) -> None:
    """An edge sees it, and says nothing."""
    patch.setattr(Lineage, "_tell", lambda self, what, knows, confirmed: None)


# -- 4: delivered ------------------------------------------------------------------------------------------------------


def stored_is_enough(patch: pytest.MonkeyPatch) -> None:
    """A principal that waits for delivery confirms what it has stored."""

    def answered(edge: Any, parts: Sequence[tuple[Part, Batch]]) -> Answered:
        return Answered([part.place for part, _ in parts])

    patch.setattr(relay_parts, "_answered", answered)


def the_promise_of_the_next_one_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    """A principal in the middle promises delivery, whatever the last one does."""
    patch.setattr(Edges, "delivers", property(lambda self: True))


# -- 5: keyed state ----------------------------------------------------------------------------------------------------


def places_are_those_of_the_principal(patch: pytest.MonkeyPatch) -> None:
    """Whatever comes last is the newest."""
    original = relay_keys.Change
    patch.setattr(relay_keys, "Change", lambda *arguments: original(*arguments[:4]))


# -- 6: resync ---------------------------------------------------------------------------------------------------------


def nobody_compares(patch: pytest.MonkeyPatch) -> None:
    """A new session is as good as the one before."""

    async def agree(self: StateSide, talk: Any) -> None:
        self.is_routed, self.agreed = True, talk.session

    patch.setattr(StateSide, "_agree", agree)


# -- 7: fairness -------------------------------------------------------------------------------------------------------


def state_waits_for_log_events(patch: pytest.MonkeyPatch) -> None:
    """A principal without room for log events takes no keyed state either."""
    store, keep, full = Edges.store, KeyedState.keep, set[int]()

    async def noted(self: Edges, *arguments: Any, **options: Any) -> None:
        full.add(id(self))
        await store(self, *arguments, **options)
        full.discard(id(self))

    async def waits(self: KeyedState, *arguments: Any, **options: Any) -> Any:
        if id(self._edges) in full:
            raise busy("there is no room for more events now")
        return await keep(self, *arguments, **options)

    patch.setattr(Edges, "store", noted)
    patch.setattr(KeyedState, "keep", waits)


# -- 8: generations ----------------------------------------------------------------------------------------------------


def sessions_never_end(patch: pytest.MonkeyPatch) -> None:
    """What an older session sends is answered like that of the newest."""
    patch.setattr(Sessions, "hear", lambda self, link, generation, now: None)


def a_name_has_two_processes(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes is served."""
    patch.setattr(Sessions, "_left", lambda self, now, *, is_connected: 0.0)


# -- 9: an edge has only its own, and is put off -----------------------------------------------------------------------


def full_is_for_ever(patch: pytest.MonkeyPatch) -> None:
    """What has no room now is refused."""
    patch.setattr(relay_edges, "busy", lambda reason: Refused(422, "part_refused", reason))


class Mutant(NamedTuple):
    """What it breaks, and where that is looked for."""

    law: str
    where: Callable[[Relayed], bool] = lambda scenario: True


def _delivers(scenario: Relayed) -> bool:
    return scenario.delivers


def _stores_slowly(scenario: Relayed) -> bool:
    return not scenario.delivers and {"disk_slow", "kill_principal"} <= scenario.names()


def _chain_stores_at_its_end(scenario: Relayed) -> bool:
    return scenario.far and scenario.delivers and not scenario.far_delivers


def _parts_come_again(scenario: Relayed) -> bool:
    """Where principals confirm what they store: one that waits for answers and forgets never comes to rest."""
    return not scenario.delivers and _comes_again(scenario)


def _versions_come_again(scenario: Relayed) -> bool:
    return scenario.keys > 0 and _comes_again(scenario)


def _comes_again(scenario: Relayed) -> bool:
    return scenario.rates.get("again", 0) > 0.1


def _state_goes_back(scenario: Relayed) -> bool:
    return scenario.lost == "principal" and scenario.keys > 0


def _events_go_back(scenario: Relayed) -> bool:
    return scenario.lost == "principal" and not scenario.delivers


MUTANTS: Mapping[Callable[[pytest.MonkeyPatch], None], Mutant] = {
    nothing_is_remembered: Mutant("E1", _parts_come_again),
    ids_are_given_anew: Mutant("E2", lambda scenario: scenario.principals > 1),
    an_origin_is_of_whoever_shows_it: Mutant("O1", lambda scenario: scenario.lies),
    confirmed_before_the_commit: Mutant("E3", _stores_slowly),
    nobody_says_that_a_principal_went_back: Mutant("G1", _events_go_back),
    stored_is_enough: Mutant("E4", _delivers),
    the_promise_of_the_next_one_is_not_asked: Mutant("E10", _chain_stores_at_its_end),
    places_are_those_of_the_principal: Mutant("K2", _versions_come_again),
    nobody_compares: Mutant("K1", _state_goes_back),
    state_waits_for_log_events: Mutant("F1", lambda scenario: scenario.trial == "full"),
    sessions_never_end: Mutant("E8", _comes_again),
    a_name_has_two_processes: Mutant("C1", lambda scenario: scenario.lost == "clone"),
    full_is_for_ever: Mutant("E9", lambda scenario: scenario.trial == "full"),
}
