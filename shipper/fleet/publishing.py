"""Changes of the head that people ask for: of versions, of secrets, and of the settings. Pure: a head in, a draft out.

A draft takes effect by one swap of the head that it was made from. Its records are written before the swap. A publisher
that lost the answer to the swap compares a later head with the draft (`Draft.was_done`).

The same content of a secret always has the same id, under any name, since a release of the id revokes the content.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from shipper.fleet.errors import Refused
from shipper.fleet.records import SECRETS, VERSIONS, Head, Line, Secret, Text, Version
from shipper.fleet.seal import digest
from shipper.fleet.secret import is_name
from shipper.sdk.units import Duration
from shipper.supervise.secrets import essence as of_text

LARGEST_POLICY = 1 << 20
LARGEST_SECRET = 1 << 20
HISTORY = range(2, 501)
"""How many versions a fleet may keep."""
LONGEST_GRACE = 365 * 86400.0
MOST_SECRETS = 256
"""Names of secrets in a fleet."""
MOST_IDS = 2048
"""Ids of secrets that are not yet released, or not long ago."""


@dataclass(frozen=True)
class Draft:
    """A change of the head."""

    before: Head
    after: Head
    records: Mapping[str, msgspec.Struct] = field(default_factory=dict)
    """What must be written before the swap, by key. No other draft has these keys, but for the content of a secret that
    is to be sealed anew."""
    version: Version | None = None
    """The version that it makes."""
    secret: tuple[str, str] | None = None
    """Name and id of the secret that it sets; of one that it removes, the id is empty."""

    @property
    def changes(self) -> bool:
        return self.after != self.before

    def was_done(self, now: Head) -> bool | None:
        """Returns whether a later head shows that the swap was done; None if it can no longer be known."""
        if self.version is not None:
            return self._was_published(now, self.version)
        if self.secret is None:
            return self._was_set(now)
        name, id = self.secret
        if id and self.after.fingerprints.get(id) != self.before.fingerprints.get(id):
            return now.fingerprints.get(id) == self.after.fingerprints.get(id)
        found = now.secrets.get(name, "")
        if found == id:
            return True
        return False if found == self.before.secrets.get(name, "") else None

    def _was_set(self, now: Head) -> bool | None:
        """Compares the settings that it changes; others may have changed the rest since."""
        before, after, found = (msgspec.structs.asdict(head.settings) for head in (self.before, self.after, now))
        names = [name for name, value in after.items() if value != before[name]]
        if all(found[name] == after[name] for name in names):
            return True
        return False if all(found[name] == before[name] for name in names) else None

    def _was_published(self, now: Head, version: Version) -> bool | None:
        if any(line.version == version for line in now.history):
            return True
        if now.epoch == version.epoch and now.number < version.number:
            return False
        passed = any(line.version[:2] == version[:2] for line in now.history)
        return False if passed else None


# -- versions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Publishing:
    """Who publishes, and when; `nonce` is new for each draft."""

    by: str
    at: float
    nonce: str


def publish(
    head: Head,
    policy: str,
    names: Sequence[str],
    publishing: Publishing,
    *,
    if_version: int | str | None = None,
    why: str = "publish",
) -> Draft:
    """Returns the draft of a version with this text, which names these secrets of the fleet.

    `if_version` must be the newest version, as `str(Version)`, or 0 if there is none. Raises Refused.
    """
    _refuse_accepting(head)
    newest = str(head.newest or 0)
    if if_version is not None and str(if_version) != newest:
        raise Refused(
            f"the newest version is {newest}, not {if_version}: look at what was published since (shipper fleet "
            "history), and publish again"
        )
    if len(policy.encode()) > LARGEST_POLICY:
        raise Refused("the policy is larger than 1MiB; make it shorter")
    absent = [name for name in names if name not in head.secrets]
    if absent:
        raise Refused(
            f"the policy names {_listed(absent)}, which the fleet does not have; set each with: shipper fleet secret "
            f"set {absent[0]} --file PATH"
        )
    return _published(head, policy, {name: head.secrets[name] for name in sorted(names)}, publishing, why)


def _published(head: Head, policy: str, pins: dict[str, str], publishing: Publishing, why: str) -> Draft:
    text = Text(policy, pins, publishing.nonce)
    version = Version(head.epoch, head.number + 1, digest(text))
    line = Line(version, publishing.at, publishing.by, pins, publishing.nonce, why)
    history = [*head.history, line][-max(1, head.settings.history) :]
    after = _withdrawn(replace(head, number=version.number, history=history), pins.values())
    return Draft(head, after, {VERSIONS + version.sha256: text}, version)


def line_of(head: Head, number: int | str) -> Line:
    """Returns the line of a version, `7` or `1.7`: of the newest epoch that has it. Raises Refused if it is not
    kept."""
    for line in reversed(head.history):
        if str(number) in (str(line.version), str(line.version.number)):
            return line
    kept = f"{head.history[0].version} to {head.history[-1].version} are kept" if head.history else "there is none yet"
    raise Refused(f"there is no version {number}: {kept}")


def rollback(head: Head, line: Line, policy: str, publishing: Publishing) -> Draft:
    """Returns the draft of a version with the text of an earlier one, and with the present ids. Raises Refused."""
    gone = [name for name in line.secrets if name not in head.secrets]
    if gone:
        raise Refused(
            f"version {line.version} names {_listed(gone)}, which the fleet no longer has; set each with: shipper "
            f"fleet secret set {gone[0]} --file PATH"
        )
    return publish(head, policy, list(line.secrets), publishing, why=f"rollback to {line.version}")


# -- secrets -----------------------------------------------------------------------------------------------------------


def essence(content: bytes) -> bytes:
    """Returns bytes that are equal for contents of the same secret; see `secrets.essence`.

    Raises Refused for a content that no secret can have, and quotes nothing of it.
    """
    if len(content) > LARGEST_SECRET:
        raise Refused("the content of the secret is larger than 1MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused("the content of the secret is not UTF-8") from None
    if not text.strip():
        raise Refused("the content of the secret is empty")
    return of_text(text)


def needs_text(head: Head, name: str) -> Line | None:
    """Returns the newest version if it names a secret: new content of it is published with the same text."""
    newest = head.history[-1] if head.newest else None
    return newest if newest is not None and name in newest.secrets else None


def set_secret(
    head: Head,
    name: str,
    content: bytes,
    publishing: Publishing,
    policy: str | None,
    *,
    fingerprints: Sequence[str],
    used: Mapping[str, str] = MappingProxyType({}),
) -> Draft:
    """Returns the draft of a secret's content; it changes nothing if that is the present one. Raises Refused.

    `policy` is the text of `needs_text`, `fingerprints` those of the content (`Seals.fingerprints`). `used` has ids by
    the fingerprints of contents that only members know, since the store was restored. The present content, if it is
    not sealed with the first of the fleet's keys, keeps its id, and is sealed and published anew.
    """
    _refuse_accepting(head)
    if not is_name(name):
        raise Refused("the name of a secret is of a-z, 0-9, _ and -, at most 63 characters, and begins with a-z or 0-9")
    known = next((id for id, one in head.fingerprints.items() if one in fingerprints), None)
    known = known or next((used[one] for one in fingerprints if one in used), None)
    is_sealed = known is not None and head.fingerprints.get(known) == fingerprints[0]
    if is_sealed and head.secrets.get(name) == known:
        return Draft(head, head, secret=(name, known or ""))
    id = known or f"{name}-{publishing.nonce[:16]}"
    known_now = {**head.fingerprints, id: fingerprints[0]}
    after = _withdrawn(replace(head, secrets={**head.secrets, name: id}, fingerprints=known_now), [id])
    if len(after.secrets) > MOST_SECRETS:
        raise Refused(f"a fleet has at most {MOST_SECRETS} secrets; remove one")
    if len(after.fingerprints) > MOST_IDS:
        raise Refused(
            f"{MOST_IDS} contents of secrets are not yet released by every member: see who delays that (shipper fleet "
            "secret list), and forget members that will not come back"
        )
    records: dict[str, msgspec.Struct] = {} if is_sealed else {SECRETS + id: Secret(name, content)}
    line = needs_text(head, name)
    if line is None or policy is None:
        return Draft(head, after, records, secret=(name, id))
    pins = {**line.secrets, name: id}
    draft = _published(after, policy, pins, publishing, f"secret {name}")
    return Draft(head, draft.after, {**records, **draft.records}, draft.version, (name, id))


def remove_secret(head: Head, name: str) -> Draft:
    """Returns the draft without a secret; raises Refused while the newest version names it."""
    _refuse_accepting(head)
    if name not in head.secrets:
        raise Refused(f"the fleet has no secret of this name; it has {_listed(sorted(head.secrets)) or 'none'}")
    if (line := needs_text(head, name)) is not None:
        raise Refused(f"version {line.version} names the secret {name}: publish a policy without it first")
    secrets = {other: id for other, id in head.secrets.items() if other != name}
    return Draft(head, replace(head, secrets=secrets), secret=(name, ""))


def _withdrawn(head: Head, ids: Collection[str]) -> Head:
    """Returns the head without releases of these ids; raises Refused if one of them may have been revoked."""
    for id in ids:
        release = head.released.get(id)
        if release is not None and release.state != "released":
            raise Refused(
                f"the secret {id} was released, and may have been revoked: set {release.name or 'it'} to new content "
                "first"
            )
    return replace(head, released={id: release for id, release in head.released.items() if id not in ids})


# -- settings ----------------------------------------------------------------------------------------------------------


def configure(
    head: Head,
    *,
    history: int | None = None,
    release_grace: float | None = None,
    release_when: Literal["accepted", "at_once"] | None = None,
) -> Draft:
    """Returns the draft with other settings; None leaves one as it is. Raises Refused.

    Versions beyond a shorter history go with the next publish.
    """
    _refuse_accepting(head)
    if history is not None and history not in HISTORY:
        raise Refused(f"the history has {HISTORY.start} to {HISTORY.stop - 1} versions, not {history}")
    if release_grace is not None and not 0 <= release_grace <= LONGEST_GRACE:
        raise Refused(f"the grace of a release must be at most 365 days (8760h), not {Duration(release_grace)}")
    given = {"history": history, "release_grace": release_grace, "release_when": release_when}
    changes = {name: value for name, value in given.items() if value is not None}
    return Draft(head, replace(head, settings=replace(head.settings, **changes)))


# -- what nothing names any more ---------------------------------------------------------------------------------------


def garbage(before: Head, after: Head) -> Iterator[str]:
    """Yields the keys that the head names no longer after a change, and never will again."""
    pinned = [id for line in before.history for id in line.secrets.values()]
    keys = [VERSIONS + line.version.sha256 for line in before.history]
    keys += [SECRETS + id for id in dict.fromkeys([*pinned, *before.secrets.values(), *before.released])]
    return (key for key in keys if is_garbage(after, key))


def is_garbage(head: Head, key: str) -> bool:
    """Whether a head names a record no longer, and never will again, provided that it is older than this head.

    A record that was written after the head may belong to a swap that is under way; one that is older belongs to a
    swap that has failed, or to a version of the past. The content of a secret is kept as long as the same content would
    get this id again, and until `on_release` has succeeded, which gets the public name from it.
    """
    if key.startswith(VERSIONS):
        return all(VERSIONS + line.version.sha256 != key for line in head.history)
    id = key.removeprefix(SECRETS)
    if id in head.secrets.values() or any(id in line.secrets.values() for line in head.history):
        return False
    release = head.released.get(id)
    is_done = release is not None and release.state == "done"
    return is_done or (release is None and id not in head.fingerprints)


def _refuse_accepting(head: Head) -> None:
    if head.accepting is not None:
        raise Refused(
            f"members register anew since {head.accepting.by} accepted a restored store, and epoch "
            f"{head.accepting.epoch} begins a lease later; try again then"
        )


def _listed(names: Sequence[str]) -> str:
    """Returns names in words; a long list is cut."""
    shown = [*names[:10], *(["…"] if len(names) > 10 else [])]
    return ", ".join(shown)
