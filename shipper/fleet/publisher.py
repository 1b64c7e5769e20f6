"""Publishes versions, and sets secrets and settings, in a store; any number of publishers may do so at once.

A change is tried until it is certain that it was done, or that it was not. One attempt reads the head, makes a draft
from it, writes the draft's records, and swaps the head. If another publisher was faster, the next attempt begins with
the new head. If the answer to the swap is lost, the same swap is sent again: it expects the same revision, so it is
done at most once, and its answer tells whether it was. The records are written again before that: a store that was
restored meanwhile may have the expected revision without them.

After a version, what the head no longer names is removed from the store; every so often also what publishers left that
were killed. A failure there fails nothing.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Literal, TypeVar

import msgspec
import trio

from shipper.fleet import changes, publishing
from shipper.fleet.errors import Refused
from shipper.fleet.publishing import Draft, Publishing
from shipper.fleet.records import (
    HEAD,
    MEMBERS,
    RESTORED,
    SECRETS,
    VERSIONS,
    Head,
    Report,
    Restored,
    Settings,
    Text,
    Version,
)
from shipper.fleet.seal import Seals, Unauthentic, digest
from shipper.fleet.store import ABSENT, Entry, Store, StoreError, StoreUnreachable, Swapped
from shipper.policy.registry import Registry
from shipper.process import log
from shipper.sdk.errors import ShipperError

PATIENCE = 60.0
"""Seconds after which no attempt begins."""
LONGEST_PAUSE = 1.0
PRUNING = 10.0
"""Seconds for removing what nothing names."""
MOST_PRUNED = 100
"""Records that are removed after one version."""

_log = log.get(__name__)
T = TypeVar("T", bound=msgspec.Struct)


class OutcomeUnknown(StoreUnreachable):
    """The answer to the swap was lost, and the store has not answered since."""


class Gone(Refused):
    """The text of a version is no longer kept."""


class Publisher:
    """One publisher of a fleet. Each method raises Refused, Unauthentic and StoreError; nothing was changed then, but
    for OutcomeUnknown."""

    def __init__(self, store: Store, seals: Seals, by: str) -> None:
        """`by` is shown in the history: USER@HOST."""
        self._store, self._seals, self._by = store, seals, by

    async def head(self) -> tuple[Head, int]:
        """Returns the head and its revision; an empty head and `ABSENT` before the first change of a fleet."""
        return self._opened((await self._store.read(HEAD)).entry)

    async def text(self, version: Version) -> Text:
        """Returns the text of a version in the history; raises Gone if it is no longer kept."""
        key = VERSIONS + version.sha256
        entry = (await self._store.read(key)).entry
        if entry is None:
            raise Gone(f"the text of version {version} is no longer kept")
        text = self._seals.open(key, entry.value, Text)
        if digest(text) != version.sha256:
            raise Unauthentic(f"the record {key} is the text of another version")
        return text

    async def publish(self, policy: str, *, if_version: int | str | None = None) -> Version:
        """Publishes a text, and returns its version; raises PolicyError if it is not valid.

        With `if_version`, only if that is the newest version (0: none).
        """
        names = changes.read(policy, Registry.installed()).names

        async def draft(head: Head) -> Draft:
            return publishing.publish(head, policy, names, self._publishing(), if_version=if_version)

        return _version(await self._done(draft))

    async def published(self, policy: str) -> Version | None:
        """Returns the newest version if it has this text and the present secrets; None if there is something to
        publish."""
        head, _ = await self.head()
        if head.newest is None:
            return None
        pins = head.history[-1].secrets
        try:
            text = await self.text(head.newest)
        except Gone:
            return None
        is_same = text.policy == policy and all(head.secrets.get(name) == id for name, id in pins.items())
        return head.newest if is_same else None

    async def rollback(self, number: int | str) -> Version:
        """Publishes the text of an earlier version with the present secrets, and returns the new version."""

        async def draft(head: Head) -> Draft:
            line = publishing.line_of(head, number)
            text = await self.text(line.version)
            return publishing.rollback(head, line, text.policy, self._publishing())

        return _version(await self._done(draft))

    async def set_secret(self, name: str, content: bytes) -> tuple[str, Version | None]:
        """Sets the content of a secret; returns its id, and the version that was published for it.

        That is None if the newest version does not name the secret, or has this content already.
        """
        fingerprints = self._seals.fingerprints(publishing.essence(content))

        async def draft(head: Head) -> Draft:
            line = publishing.needs_text(head, name)
            policy = None if line is None else (await self.text(line.version)).policy
            used = {} if {*fingerprints} & {*head.fingerprints.values()} else await self._used()
            return publishing.set_secret(
                head, name, content, self._publishing(), policy, fingerprints=fingerprints, used=used
            )

        done = await self._done(draft)
        assert done.secret is not None
        return done.secret[1], done.version

    async def remove_secret(self, name: str) -> None:
        """Removes a secret that the newest version does not name."""

        async def draft(head: Head) -> Draft:
            return publishing.remove_secret(head, name)

        await self._done(draft)

    async def configure(
        self,
        *,
        history: int | None = None,
        release_grace: float | None = None,
        release_when: Literal["accepted", "at_once"] | None = None,
    ) -> Settings:
        """Changes settings of the fleet, and returns all of them; None leaves one as it is."""

        async def draft(head: Head) -> Draft:
            return publishing.configure(head, history=history, release_grace=release_grace, release_when=release_when)

        return (await self._done(draft)).after.settings

    def _publishing(self) -> Publishing:
        return Publishing(self._by, time.time(), secrets.token_hex(16))

    async def _used(self) -> dict[str, str]:
        """Returns the ids of secrets by the fingerprints of their contents, as members that use them know them."""
        reports = await self._records(MEMBERS, Report)
        released = {id for report in reports for id in report.released}
        contents = [report.contents for report in reports if report.state in ("joining", "member")]
        contents += [one.contents for one in await self._records(RESTORED, Restored)]
        return {one: id for each in contents for id, those in each.items() if id not in released for one in those}

    async def _records(self, kind: str, type: type[T]) -> list[T]:
        """Returns the authentic records of all members."""
        found = []
        for entry in (await self._store.list(kind)).entries:
            with suppress(Unauthentic):
                found.append(self._seals.open(entry.key, entry.value, type))
        return found

    def _opened(self, entry: Entry | None) -> tuple[Head, int]:
        if entry is None:
            return Head(self._seals.fleet), ABSENT
        return self._seals.open(HEAD, entry.value, Head), entry.revision

    # -- until it is certain

    async def _done(self, make: Callable[[Head], Awaitable[Draft]]) -> Draft:
        """Returns the draft that was done, or that changes nothing."""
        attempts = _Attempts()
        while True:
            try:
                if (draft := await self._attempt(make, attempts)) is not None:
                    return draft
            except OutcomeUnknown:
                raise
            except StoreUnreachable as error:
                if attempts.over:
                    raise StoreUnreachable(f"{error}; nothing was changed") from None
            if attempts.over:
                raise Refused(f"other publishers were faster for {PATIENCE:g} s; nothing was changed: try again")
            await attempts.pause()

    async def _attempt(self, make: Callable[[Head], Awaitable[Draft]], attempts: _Attempts) -> Draft | None:
        """Returns the draft that was done; None if another publisher was faster."""
        head, revision = await self.head()
        try:
            draft = await make(head)
        except Gone:
            if (await self.head())[1] == revision:
                raise
            return None
        if not draft.changes:
            return draft
        attempts.written += draft.records
        await self._write(draft)
        now = await self._swapped(draft, revision, attempts)
        if now is None:
            return None
        await self._prune(draft, *now, [key for key in attempts.written if key not in draft.records])
        return draft

    async def _write(self, draft: Draft) -> None:
        """Returns when the records of a draft are durable; one that is there is sealed anew, if it is to be."""
        for key, record in draft.records.items():
            attempts = _Attempts()
            written = await self._store.swap(key, self._seals.seal(key, record), expected=ABSENT)
            while not written.done:
                entry = written.entry
                found = self._seals.open(key, entry.value if entry else b"", type(record))
                if entry is None or self._seals.is_first(entry.value):
                    break
                if attempts.over:
                    raise StoreUnreachable(f"{key} is written by others again and again")
                await attempts.pause()
                written = await self._store.swap(key, self._seals.seal(key, found), expected=entry.revision)

    async def _swapped(self, draft: Draft, revision: int, attempts: _Attempts) -> tuple[Head, int] | None:
        """Returns a head with the draft, and its revision; None if the draft was certainly not done."""
        raw = self._seals.seal(HEAD, draft.after.replacing())
        if len(raw) > self._store.largest:
            raise Refused(
                "the fleet has too many secrets for so long a history; remove secrets, or keep fewer versions"
            )
        lost = False
        while True:
            try:
                if lost:
                    await self._write(draft)
                swapped = await self._store.swap(HEAD, raw, expected=revision)
            except StoreUnreachable as error:
                if attempts.over:
                    raise _unknown(draft, error) from None
                lost = True
                await attempts.pause()
            except (StoreError, Unauthentic) as error:
                if lost:
                    raise _unknown(draft, error) from None
                raise
            else:
                return self._outcome(draft, swapped, lost)

    def _outcome(self, draft: Draft, swapped: Swapped, lost: bool) -> tuple[Head, int] | None:
        head, revision = self._opened(swapped.entry)
        if swapped.done:
            return head, revision
        was_done = draft.was_done(head)
        if was_done is None and lost:
            raise _unknown(draft, StoreUnreachable("the answer of the store was lost"))
        return (head, revision) if was_done else None

    # -- what nothing names

    async def _prune(self, draft: Draft, head: Head, revision: int, left: Iterable[str]) -> None:
        """Removes what the head names no longer, since this change or an earlier one."""
        if draft.version is None:
            return
        with trio.move_on_after(PRUNING) as scope, suppress(StoreError, Unauthentic):
            keys = dict.fromkeys([*publishing.garbage(draft.before, head), *left])
            for key in list(keys)[:MOST_PRUNED]:
                entry = (await self._store.read(key)).entry
                await self._remove([] if entry is None else [entry], revision)
            if draft.version.number % max(1, head.settings.history) == 0:
                for prefix in (VERSIONS, SECRETS):
                    found = (await self._store.list(prefix, keys_only=True)).entries
                    await self._remove(self._garbage(head, found, revision), revision)
        if scope.cancelled_caught:
            _log.info("not everything that the fleet no longer names was removed from the store in time")

    def _garbage(self, head: Head, entries: Sequence[Entry], revision: int) -> list[Entry]:
        found = [one for one in entries if one.created < revision and publishing.is_garbage(head, one.key)]
        return found[:MOST_PRUNED]

    async def _remove(self, entries: Iterable[Entry], revision: int) -> None:
        """Removes entries that the head at a revision does not name, as long as the head of now does not either: the
        store may have been restored since, while this process was suspended."""
        for entry in entries:
            head, now = await self.head()
            if now < revision:
                return
            if publishing.is_garbage(head, entry.key):
                await self._store.swap(entry.key, None, expected=entry.revision)


class _Attempts:
    """The attempts of one change."""

    def __init__(self) -> None:
        self.written: list[str] = []
        """The keys of all their records."""
        self._ends = trio.current_time() + PATIENCE
        self._longest = 0.01

    @property
    def over(self) -> bool:
        return trio.current_time() >= self._ends

    async def pause(self) -> None:
        """Waits for a random time, so that publishers do not meet again and again."""
        await trio.sleep(random.uniform(0, self._longest))
        self._longest = min(LONGEST_PAUSE, self._longest * 2)


def _version(draft: Draft) -> Version:
    assert draft.version is not None
    return draft.version


def _unknown(draft: Draft, error: ShipperError) -> OutcomeUnknown:
    if draft.version is not None:
        nonce = draft.after.history[-1].publish
        return OutcomeUnknown(
            f"{error}; it is unknown whether version {draft.version} was published: it was if `shipper fleet history` "
            f"shows the publish {nonce[:8]}"
        )
    if draft.secret is None:
        return OutcomeUnknown(f"{error}; it is unknown whether the settings were changed: see `shipper fleet settings`")
    name, id = draft.secret
    return OutcomeUnknown(
        f"{error}; it is unknown whether the secret {name} was changed: it was if `shipper fleet secret list` shows "
        + (f"the id {id}" if id else "it no longer")
    )
