"""Whoever changes policies and Secrets, at the worst moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any

import trio

from tests.backends.kubernetes_api import Api, Object, Refused
from tests.campaign_kubernetes import manifests
from tests.campaign_kubernetes.manifests import Draft
from tests.campaign_kubernetes.records import Policy
from tests.campaign_kubernetes.stage import SECRETS, Stage

ALL, EVEN, ODD = {"app": "web"}, {"parity": "even"}, {"parity": "odd"}
GONE = 60.0
"""Seconds within which the deletion of a policy must end."""
ECHO = 2.0
"""Seconds for which it waits for a write of others, to write between that and its echo."""

Deed = Callable[[], Awaitable[None]]


class ThirdParty:
    """`edits` and `rotations` count what it did; `left` says how many it may still do."""

    def __init__(self, stage: Stage, chance: Random, done: Counter[str]) -> None:
        self.stage, self.done = stage, done
        url = stage.destination.url
        self.drafts = {
            "base": Draft("base", url, "es", "api_key", ALL),
            "even": Draft("even", url, "keys", "first", EVEN),
            "odd": Draft("odd", url, "keys", "second", ODD),
        }
        self._rival = Draft("rival", url, "es", "api_key", ALL, ships="base")
        self._chance = chance
        self._number = 0
        self._locks = {name: trio.Lock() for name in (*self.drafts, "rival")}
        self.edits_left = self.rotations_left = 0
        self.wrong: list[str] = []
        """What it has met that must not be."""
        self.last: dict[tuple[str, str], str] = {}
        """The newest content of each key, as it was written."""

    # -- the first and the last ----------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Makes the Secrets and the policies."""
        for name, keys in SECRETS.items():
            contents = {key: self.stage.new_content(name, key) for key in keys}
            self.last |= {(name, key): text for key, text in contents.items()}
            made = manifests.secret(name, contents)
            await self._make(manifests.secrets(self.stage.namespace), made)
        for draft in self.drafts.values():
            await self._make(self._policies(), draft.object(self._next()))

    async def mend(self) -> None:
        """Leaves only policies that members can run, and edits each one."""
        await self._forget_rival()
        for draft in self.drafts.values():
            async with self._locks[draft.name]:
                self._heal(draft)
                if (now := self._now(draft.name)) is None or now.deleting:
                    await self._until_gone(draft.name)
                    await self._make(self._policies(), draft.object(self._next()))
                await self._patch(draft)

    def _heal(self, draft: Draft) -> None:
        draft.is_bad = False
        draft.secret, draft.key, draft.select = {
            "base": ("es", "api_key", dict(ALL)),
            "even": ("keys", "first", dict(EVEN)),
            "odd": ("keys", "second", dict(ODD)),
        }[draft.name]

    # -- deeds ---------------------------------------------------------------------------------------------------------

    @property
    def deeds(self) -> list[tuple[int, Deed]]:
        """What it does, with weights."""
        return [
            (6, self._between_write_and_echo),
            (4, self._edit),
            (3, self._write_a_bad_one),
            (2, self._name_an_absent_key),
            (2, self._select_others),
            (2, self._make_anew),
            (2, self._set_labels),
            (2, self._rival_comes_and_goes),
        ]

    @property
    def bursts(self) -> list[tuple[int, Deed]]:
        """What makes most of its edits."""
        return [(1, self._burst)]

    @property
    def rotating(self) -> list[tuple[int, Deed]]:
        """What it does to Secrets, with weights."""
        return [
            (6, self._rotate),
            (3, self._rotate_with_an_edit),
            (2, self._rotate_thrice),
            (1, self._rotate_back),
            (2, self._label_a_secret),
        ]

    async def _edit(self) -> None:
        draft = self._any()
        async with self._locks[draft.name]:
            self._heal(draft)
            await self._patch(draft)

    async def _burst(self) -> None:
        """Writes as fast as the server answers."""
        draft = self._any()
        self.done["bursts"] += 1
        async with self._locks[draft.name]:
            self._heal(draft)
            for _ in range(self._chance.choice((3, 10, 30, 100, 200))):
                if self.edits_left <= 0:
                    return
                await self._patch(draft)

    async def _between_write_and_echo(self) -> None:
        """Edits a policy in the instant in which a leader has written its status, before that one can have seen it."""
        draft = self._any()
        async with self._locks[draft.name]:
            self._heal(draft)
            for _ in range(self._chance.randrange(1, 6)):
                if await self._status_written(draft.name) and self.edits_left > 0:
                    self.done["edits between a write and its echo"] += 1
                    await self._patch(draft)

    async def _status_written(self, name: str) -> bool:
        found = self._now(name)
        before = found._replace(generation=0) if found else None

        def written() -> bool:
            now = self._now(name)
            return now is not None and now._replace(generation=0) != before

        return await self.stage.until(written, ECHO)

    async def _write_a_bad_one(self) -> None:
        """Nobody can run it; a while later it is mended, or not."""
        draft = self._any()
        self.done["bad edits"] += 1
        async with self._locks[draft.name]:
            draft.is_bad = True
            await self._patch(draft)
            await trio.sleep(self._chance.choice((0, 0.1, 1)))
            if self._chance.random() < 0.8:
                self._heal(draft)
                await self._patch(draft)

    async def _name_an_absent_key(self) -> None:
        """The policy comes before the Secret has its key; then the key comes."""
        draft = self._any()
        key = f"late_{'abcdefgh'[self._chance.randrange(8)]}"
        of = draft.secret, key
        self.stage.written.setdefault(of, [])
        self.done["keys that came late"] += 1
        async with self._locks[draft.name]:
            draft.key = key
            await self._patch(draft)
            await trio.sleep(self._chance.choice((0, 0.2, 1)))
            if self._chance.random() < 0.6:
                await self._set(*of, self.stage.new_content(*of))

    async def _select_others(self) -> None:
        draft = self.drafts[self._chance.choice(("even", "odd"))]
        self.done["edits of a selector"] += 1
        async with self._locks[draft.name]:
            draft.select = self._chance.choice((dict(EVEN), dict(ODD), dict(ALL)))
            await self._patch(draft)
            await trio.sleep(self._chance.choice((0, 0.2, 1)))
            self._heal(draft)
            await self._patch(draft)

    async def _make_anew(self) -> None:
        """Deletes a policy and makes one of the same name."""
        draft = self.drafts[self._chance.choice(("even", "odd"))]
        self.done["policies made anew"] += 1
        async with self._locks[draft.name]:
            self._heal(draft)
            await self._delete(draft.name)
            await self._until_gone(draft.name)
            await trio.sleep(self._chance.choice((0, 0, 0.3, 2)))
            draft.drains = self._chance.random() < 0.5
            await self._make(self._policies(), draft.object(self._next()))
            self.edits_left -= 1
            self.done["edits"] += 1

    async def _set_labels(self) -> None:
        """Changes labels alone, which makes no generation."""
        self.done["labels of policies"] += 1
        labels = {"metadata": {"labels": {"touched": str(self._next())}}}
        with suppress(Refused):
            await self.stage.ask(lambda api: api.patch(self._policies(self._any().name), labels))

    async def _rival_comes_and_goes(self) -> None:
        """A younger policy wants the same input and output as an older one."""
        if self._locks["rival"].locked():
            return
        async with self._locks["rival"]:
            self.done["conflicts"] += 1
            await self._make(self._policies(), self._rival.object(self._next()))
            for _ in range(self._chance.randrange(3)):
                await trio.sleep(0.3)
                await self._patch(self._rival)
            await trio.sleep(self._chance.choice((0, 0.5, 2)))
            await self._delete("rival")

    async def _forget_rival(self) -> None:
        async with self._locks["rival"]:
            await self._delete("rival")

    # -- Secrets -------------------------------------------------------------------------------------------------------

    async def _rotate(self) -> None:
        secret, key = self._chance.choice([(name, key) for name, keys in SECRETS.items() for key in keys])
        await self._set(secret, key, self.stage.new_content(secret, key))

    async def _rotate_thrice(self) -> None:
        for _ in range(3):
            await self._rotate()

    async def _rotate_with_an_edit(self) -> None:
        """A Secret and the policy that uses it change together."""
        self.done["rotations with an edit"] += 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._rotate)
            nursery.start_soon(self._edit)

    async def _rotate_back(self) -> None:
        """The content that was there before comes back; nobody revokes it, whoever releases it."""
        secret, key = self._chance.choice([(name, key) for name, keys in SECRETS.items() for key in keys])
        before = self.last[secret, key]
        if self.stage.keep(before):
            self.done["contents that came back"] += 1
            await self._set(secret, key, self.stage.new_content(secret, key))
            await trio.sleep(self._chance.choice((0, 0, 0.2)))
            await self._set(secret, key, before)

    async def _label_a_secret(self) -> None:
        """Changes labels alone, which is no rotation."""
        self.done["labels of Secrets"] += 1
        name = self._chance.choice([*SECRETS])
        labels = {"metadata": {"labels": {"touched": str(self._next())}}}
        await self.stage.ask(lambda api: api.patch(manifests.secrets(self.stage.namespace, name), labels))

    async def _set(self, secret: str, key: str, text: str) -> None:
        data = {"data": manifests.secret(secret, {key: text})["data"]}
        await self.stage.ask(lambda api: api.patch(manifests.secrets(self.stage.namespace, secret), data))
        self.last[secret, key] = text
        self.rotations_left -= 1
        self.done["rotations"] += 1

    # -- writes --------------------------------------------------------------------------------------------------------

    def _any(self) -> Draft:
        return self._chance.choice([*self.drafts.values()])

    def _now(self, name: str) -> Policy | None:
        found = self.stage.history.newest.get(("ShipperPolicy", name))
        return found if isinstance(found, Policy) else None

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _policies(self, name: str = "") -> str:
        return manifests.policies(self.stage.namespace, name)

    async def _patch(self, draft: Draft) -> None:
        change = draft.edit(self._next(), barrier=self._chance.random() < 0.3)
        self.edits_left -= 1
        self.done["edits"] += 1
        await self._must(lambda api: api.patch(self._policies(draft.name), change))

    async def _make(self, where: str, obj: Object) -> None:
        """Makes an object; one that is there already was made by an attempt whose answer was lost."""
        try:
            await self.stage.ask(lambda api: api.create(where, obj))
        except Refused as refused:
            if refused.status != 409:
                raise

    async def _delete(self, name: str) -> None:
        try:
            await self.stage.ask(lambda api: api.delete(self._policies(name)))
        except Refused as refused:
            if refused.status != 404:
                raise

    async def _until_gone(self, name: str) -> None:
        """Waits until the deletion of a policy ends, which may wait for its events."""
        began = trio.current_time()
        if not await self.stage.until(lambda: self._now(name) is None, GONE):
            now = self._now(name)
            await self.stage.until(lambda: self._now(name) is None, 2 * GONE)
            took = trio.current_time() - began
            self.wrong.append(f"the deletion of a policy took {took:.0f} s; after {GONE:g} s it was {now}")

    async def _must(self, call: Callable[[Api], Mapping[str, Any]]) -> None:
        try:
            await self.stage.ask(call)
        except Refused as refused:
            if refused.status != 404:  # `rival` may be gone
                raise
