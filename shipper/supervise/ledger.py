"""The supervisor's durable state: its revision number, the policy behind it, and every credential not yet revoked.

It is kept sealed by `vault`, and saved before anything that refers to it is sent. So after a crash of either side the
supervisor answers `credentials_wanted`, never gives a number to two policies, and runs `on_release` for every id that
was released: at least once, as the flag goes only after it succeeded.

An id is bound to a content, not to a file: two files with the same key share one id, since revoking one would kill the
other. A content that was released and comes again gets a new id, since a released id is never used again. Ids are
random: they reveal nothing about the secret, and do not repeat after a loss of the state.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from shipper.policy.document import Node
from shipper.sdk.credentials import Credential, Shape
from shipper.sdk.errors import Problem
from shipper.values import Revision

MOST_GONE = 16
"""The forgotten credentials that the page and the status still name."""


class Kept(msgspec.Struct):
    """A credential that was given out under `id`."""

    id: str
    fields: dict[str, str]
    sources: list[str]
    """The references from which it was read, such as `file:/run/keys/es`."""
    units: list[str]
    """The inputs and outputs that use it, such as `outputs.main`."""
    released: bool = False
    """Nothing uses it any more, and `on_release` has not yet succeeded, or its source has not yet released it."""
    shared: bool = False
    """It has the source's id, the same at many hosts; the source releases it, and no `on_release` of this host."""
    withdrawn: bool = False
    """The source has released it although it may be used here: it is not supplied any more."""
    public: list[str] = msgspec.field(default_factory=list)
    """Those of its fields that are names at the backend by the shape of a plugin, beside those of `SHAPES`."""

    accepted: bool = False
    """A destination has accepted it once."""
    ordered: bool = False
    """A person has ordered its revocation, whatever it waits for."""

    def __repr__(self) -> str:
        return f"<credential {self.id}>"

    @property
    def is_awaited(self) -> bool:
        """Whether an output uses it, and no destination has accepted it yet."""
        return not self.accepted and any(unit.startswith("outputs.") for unit in self.units)

    @property
    def credential(self) -> Credential:
        return Credential.parse(self.fields)

    @property
    def canonical(self) -> bytes:
        return self.credential.canonical()

    @property
    def name(self) -> str:
        """Its name at the backend: the id of an API key, the name of a user; empty if it has none."""
        return self.credential.name(self.shapes) if self.fields else ""

    @property
    def known_as(self) -> bytes:
        """Equal for credentials that a revocation may end together; see `Credential.known_as`."""
        return self.credential.known_as(self.shapes) if self.fields else self.id.encode()

    @property
    def shapes(self) -> list[Shape]:
        """Returns the shape that says which of its fields are names, if that is none of `SHAPES`."""
        return [Shape("of a plugin", tuple(self.fields), public=tuple(self.public))] if self.public else []


class Wait(NamedTuple):
    """What a released credential waits for before it is revoked: that another one is released, or accepted."""

    id: str
    until: Literal["released", "accepted"]


class Wanted(msgspec.Struct, frozen=True):
    """A valid policy, with ids in place of references."""

    tree: Node
    text: str
    signature: str
    """Equal for texts of the same meaning."""
    credentials: Mapping[str, Kept]
    reused: frozenset[str] = frozenset()
    """The ids that were known when the files were read."""
    warnings: tuple[Problem, ...] = ()
    """Parts of the policy without an effect, and secrets that others can read."""
    version: str = ""
    """The source's name for this version, for answers; empty if the source wants none."""


class Ledger(msgspec.Struct):
    """The durable state; `policy`, `signature` and `ids` belong to the newest number."""

    format: int = 1
    epoch: int = 0
    number: int = 0
    policy: str = ""
    signature: str = ""
    ids: list[str] = msgspec.field(default_factory=list)
    kept: dict[str, Kept] = msgspec.field(default_factory=dict)
    former: str = ""
    """The name of the `supervise.key` from which configured keys took over; see `vault`."""
    version: str = ""
    """The source's version of the newest number."""
    began: Revision | None = None
    """The first number with that version; None for the newest one."""
    gone: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """The newest credentials that were forgotten, as `standing.gone` describes them, for people."""
    tells_accepted: bool = False
    """Whether the sidecar tells which credentials a destination has accepted; an older one does not."""

    @property
    def at(self) -> Revision:
        return Revision(self.epoch, self.number)

    @property
    def first(self) -> Revision:
        """Returns the first number with the version of the newest one."""
        return self.began or self.at

    def adopt(self, wanted: Wanted) -> bool:
        """Gives the policy a new number if its meaning is new; returns whether the ledger must be saved."""
        before = self._remembered()
        self.kept |= {id: self._adopted(kept) for id, kept in wanted.credentials.items()}
        self.ids = sorted(wanted.credentials)
        self.began = self.first if wanted.version and wanted.version == self.version else None
        self.version = wanted.version
        if wanted.signature == self.signature:
            return before != self._remembered()
        self.number += 1
        self.policy, self.signature = wanted.text, wanted.signature
        return True

    def _adopted(self, kept: Kept) -> Kept:
        """Returns a copy; a shared credential stays one, though a secret of this host has the same content now."""
        before = self.kept.get(kept.id, kept)
        return msgspec.structs.replace(kept, shared=kept.shared or before.shared, accepted=before.accepted)

    def _remembered(self) -> object:
        return self.version, msgspec.json.encode(self.kept)

    def climb(self, above: Revision) -> None:
        """Gives the present policy a new number, above one that the sidecar knows."""
        top = max(above, self.at)
        self.epoch, self.number, self.began = top.epoch, top.number + 1, None

    @property
    def known(self) -> dict[bytes, str]:
        """Returns the ids that are not released, by content."""
        return {kept.canonical: kept.id for kept in self.kept.values() if not kept.released}

    def release(self, id: str) -> None:
        """Marks an id as released: no policy refers to it again. Its secret stays until `forget`."""
        self.kept[id].released = True

    def forget(self, id: str) -> Kept | None:
        """Removes a released credential that was revoked, and returns it."""
        return self.kept.pop(id, None)

    def note_gone(self, one: Mapping[str, Any]) -> None:
        """Keeps the description of a credential that is being forgotten, and drops the oldest above `MOST_GONE`."""
        self.gone = [*self.gone, dict(one)][-MOST_GONE:]

    def accept(self, ids: Iterable[str]) -> list[str]:
        """Marks ids as accepted by a destination; returns those that were not before."""
        found = [id for id in ids if id in self.kept and not self.kept[id].accepted]
        for id in found:
            self.kept[id].accepted = True
        return found

    def unaccepted(self, kept: Kept) -> str:
        """Returns the id of a credential that has come in the place of this one at an output, and that no destination
        has accepted yet; empty without any."""
        outputs = {unit for unit in kept.units if unit.startswith("outputs.")}
        newer = (self.kept[id] for id in self.ids if id != kept.id) if self.tells_accepted else ()
        return next((one.id for one in newer if not one.accepted and not outputs.isdisjoint(one.units)), "")

    def delayed(self) -> dict[str, str]:
        """Returns the shared credentials that are released and wait for another one to be accepted, unless a person has
        ordered their revocation; each with the id of that one."""
        released = (kept for kept in self.kept.values() if kept.shared and kept.released and not kept.ordered)
        return {kept.id: newer for kept in released if (newer := self.unaccepted(kept))}

    @property
    def secret_variables(self) -> set[str]:
        """Returns the variables of the environment from which kept credentials were read."""
        sources = [source for kept in self.kept.values() for source in kept.sources]
        return {source.removeprefix("env:") for source in sources if source.startswith("env:")}

    @property
    def pending(self) -> list[Kept]:
        """Returns the released credentials that are not yet revoked."""
        return [kept for kept in self.kept.values() if kept.released]

    def supply(self, ids: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the secrets of those ids that are kept, and neither released nor withdrawn."""
        found = {id: self.kept[id] for id in ids if id in self.kept}
        return {id: kept.fields for id, kept in found.items() if not kept.released and not kept.withdrawn}

    def withdraw(self, ids: Iterable[str]) -> list[str]:
        """Marks ids as withdrawn, so that they are not supplied again; returns those that were not before."""
        found = [id for id in ids if id in self.kept and not self.kept[id].withdrawn]
        for id in found:
            self.kept[id].withdrawn = True
        return found


Draw = Callable[[], str]


class Found(msgspec.Struct, frozen=True):
    """A credential that was just read."""

    credential: Credential
    label: str
    source: str
    units: tuple[str, ...]
    id: str = ""
    """The id that its source has given to it; empty for one that this host finds itself."""
    shapes: tuple[Shape, ...] = ()
    """Those that the settings accept."""

    @property
    def public(self) -> set[str]:
        """Returns its fields that are names by an accepted shape."""
        return {name for shape in self.shapes if self.credential.fits(shape) for name in shape.public}


def identified(
    known: Mapping[bytes, str], found: Iterable[Found], draw: Draw = lambda: secrets.token_hex(6)
) -> list[Kept]:
    """Returns the credentials with their ids, in the order of `found`; a known content keeps its id, unless its source
    has given it one."""
    found = list(found)
    ids = {**known, **{one.credential.canonical(): one.id for one in found if one.id}}
    fresh: dict[str, Kept] = {}
    answer: list[Kept] = []
    for one in found:
        id = one.id or ids.setdefault(one.credential.canonical(), f"{one.label}-{draw()}")
        kept = fresh.setdefault(id, Kept(id, dict(one.credential.fields), [], []))
        kept.shared = kept.shared or bool(one.id)
        kept.public = sorted({*kept.public, *(one.public & kept.fields.keys())})
        kept.sources = sorted({*kept.sources, one.source})
        kept.units = sorted({*kept.units, *one.units})
        answer.append(kept)
    return answer
