"""Orders of people about members and about the store: forget, release despite, accept a restore.

Each is safe to repeat: a person who got no answer, or was interrupted, gives the same order again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec
import trio
from msgspec.structs import replace

from shipper.fleet.errors import Refused
from shipper.fleet.records import (
    ALIVE,
    HEAD,
    MEMBERS,
    RESTORED,
    VERSIONS,
    Accepting,
    Head,
    Lapse,
    Line,
    Lost,
    Report,
    Restored,
    Text,
    Undelivered,
    Version,
    is_name,
)
from shipper.fleet.release import THE_STORE, is_unknown, retired_ids
from shipper.fleet.seal import Seals, Unauthentic, digest
from shipper.fleet.settings import LONGEST_LEASE
from shipper.fleet.store import ABSENT, Entry, Store, StoreError, StoreUnreachable, held
from shipper.fleet.view import View

MOST_FORGOTTEN = 200
"""Lost directories that the head remembers as forgotten."""
_ATTEMPTS = 20
"""Swaps of one key against others that swap it too."""
_SHORTEST_PAUSE = 15.0
"""Seconds for members to register again after a restore."""
_BUSY = "the head is changed all the time by somebody else; run the order again"
_TOKENS_PER_EPOCH = 1 << 32


class Forgotten(msgspec.Struct, frozen=True):
    """What was forgotten."""

    member: str
    """NAME, or NAME/DIRECTORY."""
    undelivered: Undelivered
    """As it reported last."""
    warning: str = ""


class Accepted(msgspec.Struct, frozen=True):
    """The epoch that began after a restore."""

    epoch: int
    version: Version | None
    """The restored newest policy under its new number; None if there was none."""
    registered: int
    """Members that have registered again."""
    missing: list[str]
    """Members that have not, and are away or have not seen the order."""


# forget


async def forget(store: Store, seals: Seals, target: str, *, force: bool = False, only: str = "") -> Forgotten:
    """Forgets a member, or its directory NAME/DIRECTORY that was lost or takes no part; leaves the member's last report
    as a tombstone.

    Refuses a member whose lease holds, or whose report was removed, unless `force`; with `only`, one whose last report
    is another than that `Report.write_id`. Raises Refused, or StoreError.
    """
    name, _, directory = target.partition("/")
    if directory:
        return await _forget_directory(store, seals, name, directory)
    key = MEMBERS + name
    await _head(store, seals)  # whoever has another key than the fleet overwrites no record
    for _ in range(_ATTEMPTS):
        entry = (await store.read(key)).entry
        if entry is None and not (force and is_name(name)):
            raise Refused(f"the fleet has no member {name}; see `shipper fleet members`")
        report = _report(seals, name, entry)
        if only and report.write_id != only:
            raise Refused(f"{name} has written another report")
        if report.state == "forgotten":
            return Forgotten(name, report.undelivered, _warning(report))
        if not force and held((await store.read(ALIVE + name)).entry) is not None:
            raise Refused(
                f"{name} is live: its lease holds. Run `shipper fleet leave` on that host, or, if it is another's "
                f"record, `shipper fleet forget {name} --force`"
            )
        tombstone = seals.seal(key, replace(report, state="forgotten"))
        await _swap(store, key, tombstone, ABSENT if entry is None else entry.revision)
    raise StoreError(f"{name} is changed all the time by somebody else; run the order again")


def _report(seals: Seals, name: str, entry: Entry | None) -> Report:
    """Returns a member's report; an empty one in place of one that is forged or was removed, so that it can be
    forgotten too."""
    try:
        return seals.open(MEMBERS + name, entry.value if entry else b"", Report)
    except Unauthentic:
        return Report(name, directory="", boot="", instance="", write=0, epoch=0)


def _warning(report: Report) -> str:
    if report.fence is not None:
        return ""
    return f"{report.name} has `on_lapse: continue`: if its host still runs, it may still send"


async def _forget_directory(store: Store, seals: Seals, name: str, directory: str) -> Forgotten:
    target = f"{name}/{directory}"
    for _ in range(_ATTEMPTS):
        head, revision = await _head(store, seals)
        before, lost = head.forgotten.get(target), await _lost(store, seals, name, directory)
        if lost is None and before is None:
            lost = await _apart(store, seals, name, directory)
        if before is not None and lost in (None, before):
            return Forgotten(target, before.undelivered)
        assert lost is not None
        others = {full: one for full, one in head.forgotten.items() if full != target}
        kept = list((others | {target: lost}).items())[-MOST_FORGOTTEN:]
        await _swap_head(store, seals, replace(head, forgotten=dict(kept)), revision)
    raise StoreError(_BUSY)


async def _lost(store: Store, seals: Seals, name: str, directory: str) -> Lost | None:
    """Returns a lost directory as the report lists it; None if it does not."""
    entry = (await store.read(MEMBERS + name)).entry
    some = _report(seals, name, entry).lost if entry is not None else []
    return next((one for one in some if one.directory == directory), None)


async def _apart(store: Store, seals: Seals, name: str, directory: str) -> Lost:
    """Returns what is known of a directory that takes no part; raises Refused if there is none."""
    entry = (await store.read(RESTORED + name)).entry
    if entry is None or seals.open(entry.key, entry.value, Restored).directory != directory:
        raise Refused(f"{name} has lost no directory {directory}; see `shipper fleet members`")
    return Lost(directory, time.time(), {}, Undelivered())


# release despite


async def order_release(
    store: Store, seals: Seals, id: str, member: str, *, wall: Callable[[], float] = time.time
) -> None:
    """Orders that the undelivered events of a fenced or forgotten member, or forgotten directory NAME/DIRECTORY, no
    longer delay the release of an id; by the id that has come in its place, that it need not be accepted; by
    `release.THE_STORE`, that its lost content is given up.

    It holds until that member writes again. Raises Refused, or StoreError.
    """
    for _ in range(_ATTEMPTS):
        head, revision = await _head(store, seals)
        if id not in retired_ids(head):
            raise Refused(f"{id} is no retired secret that waits for its release; see `shipper fleet secret list`")
        if member == THE_STORE and not is_unknown(head, id):
            raise Refused(
                f"the store has the content of {id}: it is released by itself; see `shipper fleet secret list`"
            )
        known = await _last_known(store, seals, head, member)
        noted = head.lapses.get(member)
        if noted is None or noted.report != known:
            noted = Lapse(known, wall())
        if id in noted.ordered:
            return
        lapses = {**head.lapses, member: replace(noted, ordered=[*noted.ordered, id])}
        await _swap_head(store, seals, replace(head, lapses=lapses), revision)
    raise StoreError(_BUSY)


async def _last_known(store: Store, seals: Seals, head: Head, member: str) -> str:
    """Returns the name of the last report of a member that is away, the forgotten directory, the id of the secret
    that is not accepted, or the store."""
    if member == THE_STORE:
        return member
    if (lost := head.forgotten.get(member)) is not None:
        return lost.directory
    if head.history and member in head.history[-1].secrets.values():
        return member
    if "/" in member:
        raise Refused(f"{member} is no forgotten directory; see `shipper fleet secret list`")
    return (await _away(store, seals, member)).write_id


async def _away(store: Store, seals: Seals, member: str) -> Report:
    """Returns the report of a member that is forgotten, or that has no lease and stops sending without one."""
    entry = (await store.read(MEMBERS + member)).entry
    if entry is None:
        raise Refused(f"the fleet has no member {member}; see `shipper fleet members`")
    report = seals.open(MEMBERS + member, entry.value, Report)
    if report.state == "forgotten":
        return report
    if held((await store.read(ALIVE + member)).entry) is not None:
        raise Refused(f"{member} is live: it releases the secret by itself; see `shipper fleet secret list`")
    if report.fence is None:
        raise Refused(
            f"{member} is away and may still send, since it has `on_lapse: continue`; when its host is stopped, run "
            f"`shipper fleet forget {member}`"
        )
    return report


# a restored store


async def accept_restore(
    store: Store, seals: Seals, by: str, *, force: bool = False, wall: Callable[[], float] = time.time
) -> Accepted:
    """Begins a new epoch after the store was restored from an older state: asks members to register again, waits for
    a lease, and publishes the restored newest policy with today's secrets.

    Raises Refused if a secret of today is too old, or, unless `force`, if no member says that the store was restored,
    or if members use secrets that this store does not know; set them anew, then run it again. An interrupted order is
    continued by the next one.
    """
    if not force:
        await _check_witnesses(store, seals)
    epoch = await _announce(store, seals, by, wall)
    leases = [report.lease for report in (await _reports(store, seals)).values()]
    await trio.sleep(max([_SHORTEST_PAUSE, *(lease for lease in leases if lease <= LONGEST_LEASE)]))
    nonce = secrets.token_hex(16)
    for _ in range(_ATTEMPTS):
        head, revision = await _head(store, seals)
        reports = await _reports(store, seals)
        registered = {name: report for name, report in reports.items() if report.epoch == epoch}
        if head.accepting is None or head.accepting.epoch != epoch:
            if head.epoch != epoch:
                raise Refused("the store was restored again meanwhile; run the order again")
            active = [report for report in reports.values() if report.state in ("joining", "member")]
            missing = sorted(report.name for report in active if report.epoch != epoch)
            return Accepted(epoch, head.newest, len(registered), missing)
        try:
            _check_secrets(head, registered, force)
            named = _with_unknown(head, registered.values())
            begun = await _begun(store, seals, named, by, wall(), nonce)
        except Refused:
            await _take_back(store, seals, epoch)
            raise
        await _swap_head(store, seals, begun, revision)
    raise StoreError(_BUSY)


async def _check_witnesses(store: Store, seals: Seals) -> None:
    """Raises Refused if no member takes no part because of the store, and no order was interrupted. The store may have
    lost no version, but only a member's last report."""
    apart: dict[str, Restored] = {}
    for entry in (await store.list(RESTORED)).entries:
        with suppress(Unauthentic):
            apart[entry.key.removeprefix(RESTORED)] = seals.open(entry.key, entry.value, Restored)
    head, at = await _head(store, seals)
    view = View(at, head, await _reports(store, seals), {}, {}, 0.0, apart=apart)
    if head.accepting is None and all(one.why != "store" for one in view.outsiders.values()):
        raise Refused(
            "no member says that this store was restored, and a new epoch makes every member register again; after a "
            "restore a running member says so within a lease (see `shipper fleet status`); if none was running, use "
            "`--force`"
        )


async def _announce(store: Store, seals: Seals, by: str, wall: Callable[[], float]) -> int:
    """Asks the members to register for the next epoch, unless this was done before; returns that epoch."""
    for _ in range(_ATTEMPTS):
        head, revision = await _head(store, seals)
        if head.accepting is not None:
            return head.accepting.epoch
        asked = replace(head, accepting=Accepting(head.epoch + 1, wall(), by))
        await _swap_head(store, seals, asked, revision)
    raise StoreError(_BUSY)


async def _take_back(store: Store, seals: Seals, epoch: int) -> None:
    """Takes the announcement back, so that secrets can be set and policies published."""
    for _ in range(_ATTEMPTS):
        head, revision = await _head(store, seals)
        if head.accepting is None or head.accepting.epoch != epoch:
            return
        await _swap_head(store, seals, replace(head, accepting=None), revision)


def _check_secrets(head: Head, registered: Mapping[str, Report], force: bool) -> None:
    for name, report in sorted(registered.items()):
        for secret, id in sorted(head.secrets.items()):
            if id in report.released:
                raise Refused(
                    f"the restored store has {id} as today's secret {secret}, and {name} knows that it was released: "
                    f"run `shipper fleet secret set {secret}` with its newest content, then `accept-restore` again"
                )
        known = {*head.fingerprints, *head.secrets.values(), *head.released}
        unknown = sorted(set(report.using) - known)
        if unknown and not force:
            secret = unknown[0].rpartition("-")[0]
            raise Refused(
                f"{name} uses {', '.join(unknown)}, set after the state that was restored: run `shipper fleet secret "
                f"set {secret} --file PATH` with the content that is in use, which gets its id again, then "
                "`accept-restore`; if nobody has that content, set new content, then `accept-restore --force`"
            )


def _with_unknown(head: Head, reports: Iterable[Report]) -> Head:
    """Returns the head with the ids that members use and the restore has lost, of unknown content: a member must not
    lose them, and no command gets them (`release.Why`)."""
    used = sorted({id for report in reports for id in report.using} - head.fingerprints.keys())
    return replace(head, fingerprints=head.fingerprints | dict.fromkeys(used, ""))


async def _begun(store: Store, seals: Seals, head: Head, by: str, at: float, nonce: str) -> Head:
    """Returns the head of the epoch that was announced; the text of its first version is in the store by then."""
    assert head.accepting is not None
    epoch = head.accepting.epoch
    new = replace(head, epoch=epoch, accepting=None, lapses={}, token=max(head.token, epoch * _TOKENS_PER_EPOCH))
    if head.newest is None:
        return new
    place = VERSIONS + head.newest.sha256
    entry = (await store.read(place)).entry
    if entry is None:
        raise Refused(f"the restored store does not have the text of version {head.newest}: publish one anew")
    restored = seals.open(place, entry.value, Text)
    absent = sorted(restored.secrets.keys() - head.secrets.keys())
    if absent:
        raise Refused(f"version {head.newest} names the secret {absent[0]}: run `shipper fleet secret set {absent[0]}`")
    text = Text(restored.policy, {name: head.secrets[name] for name in restored.secrets}, nonce)
    version = Version(epoch, head.number + 1, digest(text))
    key = VERSIONS + version.sha256
    await store.swap(key, seals.seal(key, text), expected=ABSENT)
    line = Line(version, at, by, text.secrets, nonce, why=f"accept-restore of {head.newest}")
    return replace(new, number=version.number, history=[*head.history, line][-head.settings.history :])


async def _reports(store: Store, seals: Seals) -> Mapping[str, Report]:
    """Returns the authentic reports of all members."""
    found: dict[str, Report] = {}
    for entry in (await store.list(MEMBERS)).entries:
        try:
            found[entry.key.removeprefix(MEMBERS)] = seals.open(entry.key, entry.value, Report)
        except Unauthentic:
            continue
    return found


# Swaps. An order ends when it reads what it wanted to write, so a lost answer costs one more turn.


async def _head(store: Store, seals: Seals) -> tuple[Head, int]:
    """Returns the head and its revision."""
    entry = (await store.read(HEAD)).entry
    if entry is None:
        raise Refused("the fleet does not exist yet: `shipper fleet publish` begins it")
    return seals.open(HEAD, entry.value, Head), entry.revision


async def _swap_head(store: Store, seals: Seals, head: Head, expected: int) -> None:
    await _swap(store, HEAD, seals.seal(HEAD, head.replacing()), expected)


async def _swap(store: Store, key: str, value: bytes, expected: int) -> None:
    """Swaps; whether it was done, the next turn reads. A late effect is harmless: it is the same order."""
    try:
        await store.swap(key, value, expected=expected)
    except StoreUnreachable:
        return
