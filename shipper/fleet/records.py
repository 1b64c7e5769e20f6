"""What a fleet keeps in its store. Each record is sealed under the fleet's key for its own place (`seal`).

    head               the one object that orders everything: epoch, newest version, history, secrets, releases, token
    versions/SHA256    the text of a version and its pins; written before the head names it, and never changed
    secrets/ID         the content of a secret; never changed
    members/NAME       the report of one member, written by that member alone; renewed in every third of its lease
    alive/NAME         exists while the member's lease holds
    restored/NAME      exists while the member takes no part, since the store is not as it wrote it last
    leader             exists while the lease of the elected candidate for `on_release` holds

A swap of `head` is the only instant at which a version begins, a secret changes or is released, and a candidate gets a
higher token. So one number has one publisher, a version is durable before any member sees it, and a publish that pins
a secret cannot cross the release of that secret.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import msgspec

from shipper.supervise.answers import Stage
from shipper.values import Counts

FORMAT = 1
HEAD = "head"
VERSIONS, SECRETS, MEMBERS, ALIVE = "versions/", "secrets/", "members/", "alive/"
LEADER, RESTORED = "leader", "restored/"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}", re.ASCII)


def is_name(text: str) -> bool:
    """Returns whether a member may have this name; no member writes a key below `members/` with another one."""
    return _NAME.fullmatch(text) is not None


class Version(NamedTuple):
    """The name of a version. The digest is that of its `Text` record, which has a nonce: no other publish ever has
    this triple, even if a number recurs after a restore."""

    epoch: int
    number: int
    sha256: str

    def __str__(self) -> str:
        """`7`, or `1.7` after a restore began epoch 1."""
        return f"{self.epoch}.{self.number}" if self.epoch else str(self.number)


class Text(msgspec.Struct, frozen=True):
    """`versions/SHA256`: what a version is."""

    policy: str
    """The YAML text as it was published, with references to secrets."""
    secrets: dict[str, str]
    """The pins: the id of each secret of the fleet that the text names."""
    nonce: str
    format: int = FORMAT


class Secret(msgspec.Struct, frozen=True):
    """`secrets/ID`: the content of a secret."""

    name: str
    """The first one that it had; the same content has the same id under any name."""
    content: bytes
    format: int = FORMAT

    def __repr__(self) -> str:
        return f"<Secret {self.name}>"


class Line(msgspec.Struct, frozen=True):
    """A version in the head's history."""

    version: Version
    at: float
    """Unix seconds."""
    by: str
    """USER@HOST of the publisher."""
    secrets: dict[str, str]
    """The pins of `Text`."""
    publish: str
    """The nonce of this publish: who lost the answer to a swap finds here whether it was done."""
    why: str = "publish"
    """`publish`, `rollback to 5`, `secret es`."""


class Release(msgspec.Struct, frozen=True):
    """A secret that every member has released."""

    name: str
    at: float
    state: Literal["released", "begun", "done"] = "released"
    """`released` may still be withdrawn by a publish; `begun`: `on_release` may have run."""
    token: int = 0
    """Of the candidate that began it last."""
    despite: list[str] = []
    """Members that had not released it: fenced or forgotten ones whose grace is over."""
    failing: float = 0.0
    """Unix seconds since which `on_release` fails on the candidate that began it last; 0 if it has not failed."""


class Undelivered(msgspec.Struct, frozen=True):
    """The events that a member holds."""

    events: int = 0
    bytes: int = 0
    oldest_seconds: float = 0.0


class Lost(msgspec.Struct, frozen=True):
    """A directory that was registered under this name before, and was replaced by another."""

    directory: str
    at: float
    stages: dict[Stage, Version]
    undelivered: Undelivered
    forgotten: bool = False
    """Whether it was forgotten as a member, before the other one came."""


class Lapse(msgspec.Struct, frozen=True):
    """A member that is away, as the elected candidate noted it; over once the member writes another report."""

    report: str
    """`Report.write_id` of its last report."""
    since: float
    """Unix seconds at which a candidate first saw that it is away."""
    ordered: list[str] = []
    """Ids that a person has ordered to release despite its undelivered events."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of the whole fleet, for every member alike."""

    history: int = 50
    """Versions that are kept."""
    release_grace: float = 86400.0
    """Seconds for which a fenced or forgotten member with undelivered events delays a release."""
    release_when: Literal["accepted", "at_once"] = "accepted"
    """When a release may begin: once the destination has accepted, somewhere, the secret in its place, or at once."""


class Accepting(msgspec.Struct, frozen=True):
    """A person has accepted a restored store: members register again for this epoch, which begins a lease later."""

    epoch: int
    at: float
    by: str


class Head(msgspec.Struct, frozen=True):
    """`head`: see the module."""

    fleet: str
    epoch: int = 0
    number: int = 0
    """The number of the newest version; 0 before the first one."""
    history: list[Line] = []
    """Versions by age, the newest last, also those of earlier epochs."""
    secrets: dict[str, str] = {}
    """Today's id of each secret."""
    fingerprints: dict[str, str] = {}
    """A keyed digest of each secret's content by id: the same content gets the same id again."""
    released: dict[str, Release] = {}
    """Releases by id."""
    lapses: dict[str, Lapse] = {}
    """Members that are away while a release, or their `forget_after`, waits for time to pass."""
    forgotten: dict[str, Lost] = {}
    """Lost directories that a person has forgotten, as NAME/DIRECTORY, the newest last; they no longer count."""
    token: int = 0
    """The highest fencing token; above `epoch << 32`, so that it rises even over a restore."""
    leader: str = ""
    """The member with that token."""
    settings: Settings = Settings()
    accepting: Accepting | None = None
    serial: int = 0
    """Rises with each change of the head: an older one in its place has a lower one."""
    format: int = FORMAT

    @property
    def order(self) -> tuple[int, int]:
        """Returns the epoch and the serial: of two heads of one store, the newer one has the greater."""
        return self.epoch, self.serial

    def replacing(self) -> Head:
        """Returns this head as it is written over the one from which it was made."""
        return msgspec.structs.replace(self, serial=self.serial + 1)

    @property
    def newest(self) -> Version | None:
        return self.history[-1].version if self.number and self.history else None

    def has_forgotten(self, name: str, lost: Lost) -> bool:
        """Returns whether a person has forgotten this loss; a directory may come back, and be lost again."""
        return self.forgotten.get(f"{name}/{lost.directory}") == lost


class Refusal(msgspec.Struct, frozen=True):
    """A member's nack of a version."""

    version: Version
    reason: str
    """Of the protocol's nack, or `unauthentic`: the record is not sealed by the fleet."""
    problems: list[str] = []
    """In words, at most 10, without secrets."""
    at: float = 0.0


class Fence(msgspec.Struct, frozen=True):
    """A member that stops sending when its lease is over (`on_lapse: hold`)."""

    lease: float
    """Seconds."""
    request: float
    """Seconds of the longest request that its outputs make."""


class Report(msgspec.Struct, frozen=True):
    """`members/NAME`: what one member says of itself; the newest counts."""

    name: str
    directory: str
    """The id of its state directory."""
    boot: str
    """The id of the machine's boot, and where the directory is on it: not even a copy of the directory has the same."""
    instance: str
    """The id of the process."""
    write: int
    """Counts the writes of this directory. A process that lost the answer to a swap recognises its own write by it, and
    a directory that was restored from a backup knows fewer writes than the store."""
    epoch: int
    state: Literal["joining", "member", "left", "forgotten"] = "joining"
    since: float = 0.0
    """Unix seconds at which it joined."""
    seen: float = 0.0
    """Unix seconds of this write, by the member's clock; for people only."""
    lease: float = 15.0
    """Seconds."""
    begun: Version | None = None
    """The newest version when it joined; None before it has read it, or if there was none."""
    stages: dict[Stage, Version] = {}
    """The newest version that has reached each stage."""
    ledger: Counts | None = None
    """The events for which its newest drained version waited there; None if that is unknown."""
    refusal: Refusal | None = None
    """The newest refused version, while no newer one was accepted."""
    using: list[str] = []
    """The ids of the fleet's secrets that its sidecar uses, or may use."""
    unaccepted: list[str] = []
    """Those of these that no destination has accepted yet from there; empty from a sidecar that does not tell."""
    contents: dict[str, list[str]] = {}
    """By id of these, a keyed digest of the content, one for each way in which it may be spelled."""
    released: list[str] = []
    """The ids that it knows to be released; after a restore they tell which of today's secrets are too old."""
    undelivered: Undelivered = Undelivered()
    local: str = ""
    """The stage of its newest own rotation, and its revision: `drained 12`, `refused 12`; empty if there is none."""
    fence: Fence | None = None
    lost: list[Lost] = []
    releases: bool = False
    """Whether it has an `on_release`, and so is a candidate."""
    forget_after: float | None = None
    """Seconds after which it may be forgotten when it is away with nothing undelivered."""
    http: str = ""
    """The address at which it answers questions."""
    format: int = FORMAT

    @property
    def write_id(self) -> str:
        """Names this write: no other process, and no other write of this one, has the same."""
        return f"{self.instance}.{self.write}"


class Alive(msgspec.Struct, frozen=True):
    """`alive/NAME`."""

    directory: str
    boot: str
    instance: str


class Restored(msgspec.Struct, frozen=True):
    """`restored/NAME`: what a member knows that takes no part; it removes that when it takes part again."""

    name: str
    directory: str
    """The id of its state directory."""
    inode: int
    """Of that directory: a copy of it has the same id, and must not remove this."""
    epoch: int
    """The newest one that it knows; nothing counts in a later one."""
    newest: Version | None
    """The newest version that it has seen."""
    revision: int
    """Of its last write, which the store had for certain; 0 for none."""
    why: Literal["store", "clone"]
    """`store`: the store has lost something. `clone`: another process writes this member's record."""
    head: tuple[int, int] = (0, 0)
    """`Head.order` of the newest head that it has seen."""
    contents: dict[str, list[str]] = {}
    """As in `Report`, of the ids that it uses: the store may have lost them."""
    format: int = FORMAT


class Leader(msgspec.Struct, frozen=True):
    """`leader`."""

    member: str
    instance: str
