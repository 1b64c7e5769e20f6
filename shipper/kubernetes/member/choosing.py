"""What a member is to run: of each policy that selects it the best choice that it can have, merged.

For each policy, in this order:

    its newest generation                      with the contents of its Secrets as they are now
    the generation that runs                   with them as they are now, and then with those that it has
    the last one that the sidecar was seen to run      likewise

So a generation that is not valid does not hold up a rotation, and a Secret that lacks a key does not take away what
runs. A choice that was refused is left out until it is another one: generation or contents. Why the newest generation
is not run as it is, is told: as a nack, or as something that is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shipper.kubernetes.kinds import Nack
from shipper.kubernetes.member.contents import Contents
from shipper.kubernetes.member.memory import Part
from shipper.kubernetes.member.policies import Known, Policies
from shipper.kubernetes.member.refusals import Refusals, told
from shipper.kubernetes.member.secrets import Missing, Secrets
from shipper.kubernetes.member.using import Usage
from shipper.kubernetes.merging import (
    WHERE,
    Candidate,
    Conflict,
    Merge,
    SecretRef,
    isolated,
    merge,
    pinned,
    references,
    tree_of,
    written,
)
from shipper.policy.document import Node
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError

Nacks = dict[str, tuple[str, Nack]]
"""By uid; the name of the policy stands with it."""


@dataclass(frozen=True, slots=True)
class Target:
    """What to run, and what is to be said about it."""

    parts: tuple[Part, ...]
    merge: Merge = field(repr=False)
    nacks: Nacks
    waits: tuple[tuple[str, str], ...]
    """Names of policies whose newest generation is not decided on, and what they wait for."""
    secrets: frozenset[str]
    """The names of the Secrets to watch."""

    @property
    def keys(self) -> list[tuple[str, int, tuple[str, ...]]]:
        return [key_of(part) for part in self.parts]

    @property
    def contents(self) -> frozenset[str]:
        return frozenset(id for part in self.parts for id in part.contents)


def key_of(part: Part) -> tuple[str, int, tuple[str, ...]]:
    """Returns what tells parts of one member apart."""
    return part.uid, part.generation, part.contents


class Choosing:
    """Decides; keeps trees between decisions, and nothing else."""

    def __init__(
        self,
        registry: Registry,
        policies: Policies,
        secrets: Secrets,
        contents: Contents,
        usage: Usage,
        refusals: Refusals,
    ) -> None:
        self._registry, self._policies, self._secrets = registry, policies, secrets
        self._contents, self._usage, self._refusals = contents, usage, refusals
        self._trees: dict[tuple[str, int], Node] = {}
        self._refs: dict[tuple[str, int], Mapping[SecretRef, tuple[str, ...]]] = {}

    def merged(self, parts: Iterable[Part]) -> Merge:
        """Returns the merge of parts that were merged before."""
        return merge(Candidate(one.name, one.uid, one.created, [self._pinned(one)]) for one in parts)

    def names(self, parts: Iterable[Part]) -> frozenset[str]:
        """Returns the names of the Secrets to which parts refer."""
        return frozenset(ref.name for part in parts for ref in self._references(part))

    def names_of(self, selected: Iterable[Known]) -> frozenset[str]:
        """Returns the names of the Secrets to which the newest generations refer."""
        return self.names(part for one in selected for part in self._parts(one))

    def choose(
        self, selected: Iterable[Known], running: Mapping[str, Part], good: Mapping[str, Part], now: float
    ) -> Target:
        """Returns the target; `running` is the newest vector, by uid, and `good` what the sidecar was seen to run."""
        choices: dict[str, list[Part]] = {}
        nacks: Nacks = {}
        waits: list[tuple[str, str]] = []
        names: set[str] = set()
        policies = {one.uid: one for one in selected}
        for one in policies.values():
            kept = [part for part in (running.get(one.uid), good.get(one.uid)) if part is not None]
            newest, why = self._newest(one, now)
            choices[one.uid] = list(_distinct(newest, self._kept(kept, now)))
            if isinstance(why, Nack):
                nacks[one.uid] = (one.name, why)
            elif why:
                waits.append((one.name, why))
            names |= self.names([*self._parts(one), *kept])
        merge_ = merge(
            Candidate(one.name, one.uid, one.created, [self._pinned(part) for part in choices[one.uid]])
            for one in policies.values()
        )
        for uid, conflict in merge_.conflicts.items():
            if uid not in nacks and choices[uid][0].generation == policies[uid].generation:
                nacks[uid] = (policies[uid].name, _conflicting(policies[uid].generation, conflict))
        parts = [choices[uid][at] for uid, at in merge_.chosen.items() if at is not None]
        self._retain({*(one.key for one in policies.values()), *_keys(running, good, parts)})
        return Target(tuple(parts), merge_, nacks, tuple(waits), frozenset(names))

    # -- the choices of one policy -------------------------------------------------------------------------------------

    def _parts(self, one: Known) -> list[Part]:
        return [] if one.problem else [Part(one.name, one.uid, one.generation, one.created, dict(one.policy))]

    def _newest(self, one: Known, now: float) -> tuple[Part | None, Nack | str]:
        """Returns the newest generation with present contents, or why it cannot be run, if it is not just judged."""
        if one.problem:
            return None, told(one.generation, "invalid", one.problem, "spec")
        judgement = self._policies.judgement(one)
        if judgement is None:
            return None, ""
        if judgement.problems:
            first, *more = judgement.problems
            text = first.message + (f" (and {len(more)} more)" if more else "")
            path = written(first.path, one.policy)
            return None, told(one.generation, "unsupported" if judgement.unsupported else "invalid", text, path)
        part, why = self._present(*self._parts(one))
        if part is None:
            return None, why
        nack = self._refusals.of(part, now)
        return (None, nack) if nack is not None else (part, "")

    def _kept(self, kept: Iterable[Part], now: float) -> Iterator[Part]:
        """Yields the choices of older generations."""
        for part in kept:
            present, _ = self._present(part)
            if present is not None and self._refusals.of(present, now) is None:
                yield present
            if self._refusals.of(part, now) is None and self._has_contents(part):
                yield part

    def _has_contents(self, part: Part) -> bool:
        found = self._contents.of(part.contents)
        usable = all(self._usage.may_become_usable(one) and not self._usage.is_barred(one) for one in found)
        return usable and len(found) == len(part.contents)

    def _present(self, part: Part) -> tuple[Part | None, Nack | str]:
        """Returns a generation with the contents that its Secrets have now, or why there are none."""
        ids: list[str] = []
        for ref, paths in self._references(part).items():
            answer = self._secrets.answer(ref.name, ref.key)
            if answer is None:
                return None, f"the Secret {ref.name} was not read yet"
            if isinstance(answer, Missing):
                path = written(paths[0], part.policy) if paths else WHERE
                return None, told(part.generation, "secret_missing", answer.why, path)
            ids.append(self._contents.named(ref, answer).id)
        present = Part(part.name, part.uid, part.generation, part.created, part.policy, tuple(ids))
        return present, ""

    # -- trees ---------------------------------------------------------------------------------------------------------

    def _tree(self, part: Part) -> Node:
        key = part.uid, part.generation
        if key not in self._trees:
            try:
                tree = tree_of(part.policy, f"policy {part.name}")
            except PolicyError:  # the judgement says what is wrong
                tree = tree_of({})
            self._trees[key] = isolated(tree, self._registry)
        return self._trees[key]

    def _references(self, part: Part) -> Mapping[SecretRef, tuple[str, ...]]:
        key = part.uid, part.generation
        if key not in self._refs:
            try:
                self._refs[key] = references(self._tree(part), self._registry)
            except PolicyError:  # the judgement says what is wrong
                self._refs[key] = {}
        return self._refs[key]

    def _pinned(self, part: Part) -> Node:
        ids = dict(zip(self._references(part), part.contents, strict=True))
        return pinned(self._tree(part), self._registry, ids) if ids else self._tree(part)

    def _retain(self, keys: set[tuple[str, int]]) -> None:
        self._trees = {key: tree for key, tree in self._trees.items() if key in keys}
        self._refs = {key: refs for key, refs in self._refs.items() if key in keys}


def _distinct(newest: Part | None, kept: Iterable[Part]) -> Iterator[Part]:
    seen = set()
    for part in [*([newest] if newest is not None else []), *kept]:
        if (key := key_of(part)) not in seen:
            seen.add(key)
            yield part


def _keys(running: Mapping[str, Part], good: Mapping[str, Part], parts: Iterable[Part]) -> set[tuple[str, int]]:
    return {(part.uid, part.generation) for part in [*running.values(), *good.values(), *parts]}


def _conflicting(generation: int, conflict: Conflict) -> Nack:
    return told(generation, "conflict", str(conflict), f"{WHERE}.{conflict.path}")
