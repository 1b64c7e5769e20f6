"""For whom the answer about a version was waited, why, and how long: from what `shipper fleet status --watch` said.
No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shipper_demo.process import Said

_OPEN = frozenset({"reached", "fenced", "left", "forgotten"})
"""The kinds of members for which no answer waits."""


@dataclass(slots=True)
class Spell:
    """The time for which a member was of one kind."""

    kind: str
    why: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Waits:
    """What became of each member since a version is the newest; moments are `trio.current_time()`."""

    version: str
    _spells: dict[str, list[Spell]] = field(default_factory=dict)
    _since: float | None = None

    def heard(self, fleet: Said, now: float) -> None:
        """Note the fleet as it is now; what was said before holds up to now."""
        if fleet["newest"] != self.version:
            return
        for spells in self._spells.values():
            spells[-1].seconds += now - (self._since or now)
        self._since = now
        for member in fleet["members"]:
            spells = self._spells.setdefault(member["name"], [])
            if not spells or spells[-1].kind != member["kind"]:
                spells.append(Spell(member["kind"]))
            spells[-1].why = member["why"] or spells[-1].why

    def kind(self, name: str) -> str:
        """What a member was last; empty if nothing was said of it."""
        return self._spells[name][-1].kind if name in self._spells else ""

    @property
    def now(self) -> list[str]:
        """The members for which the answer waits."""
        return [name for name, spells in sorted(self._spells.items()) if spells[-1].kind not in _OPEN]

    def rows(self) -> Iterator[tuple[str, Spell, bool]]:
        """Each member with each of its times, but for those in which it had reached the version, and whether the answer
        waited for it."""
        for name, spells in sorted(self._spells.items()):
            for spell in spells:
                if spell.kind != "reached":
                    yield name, spell, spell.kind not in _OPEN
