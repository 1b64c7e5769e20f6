"""The running `state` input: it looks, reads what changed, and stores it.

inotify triggers a look, and so does a clock, as not all file systems report changes. A look at all files is cheap
beside reading them. After each look it rests for some times as long as that took, so that files which change all the
time cost at most a part of a processor. All calls to the file system are made in threads of the input (`tail.calls`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import trio

from shipper.plugin import Code, Credential, InputContext, Source
from shipper.plugin.state import Change
from shipper_plugins.state.documents import Read, read_some
from shipper_plugins.state.keys import RECENT, Known, Plan, Refused, facts_of, is_recent, plan
from shipper_plugins.state.names import key_of
from shipper_plugins.state.view import View, Viewer
from shipper_plugins.tail.calls import Calls
from shipper_plugins.tail.stream import shown
from shipper_plugins.tail.watch import POLL, SAFETY, Watch

if TYPE_CHECKING:
    from shipper_plugins.state.input import StateInput

_AT_ONCE = 1000
"""Keys that are deleted in one transaction."""
_BREATH = 0.05
_NAMED = 3
"""Problems that are reported by name."""


class StateSource(Source):
    """See `Source`."""

    def __init__(self, settings: StateInput, context: InputContext) -> None:
        self._settings = settings
        self._context = context
        self._viewer = Viewer(settings.paths)
        self._watch = Watch()
        self._calls = Calls(f"{context.name} {settings.identity()}")
        self._known: dict[str, Known] = {}
        self._refused: dict[str, Refused] = {}
        self._problems: dict[str, str] = {}
        self._absent: set[str] = set()
        self._left_out = 0
        self._reported: str | None = None
        self._is_changed = False
        """Whether settings are new since the last look."""
        self._sleep = trio.CancelScope()

    def close(self) -> None:
        """Removes all watches; a call that hangs is not awaited."""
        self._watch.close()

    def change(self, settings: StateInput, credentials: Mapping[str, Credential]) -> None:
        """See `Source.change`; refused files may be accepted now."""
        self._settings = settings
        self._refused = {}
        self._is_changed = True
        self._sleep.cancel()

    def figures(self) -> dict[str, int]:
        """See `Source.change`."""
        return {"files": len(self._known)}

    async def run(self) -> None:
        """See `Source.run`."""
        stored = await self._context.positions(self._name(""))
        self._known = {name.removeprefix(self._name("")): Known(os.fsdecode(path)) for name, path in stored.items()}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._calls.watch, self._report)
            await self._follow()
            nursery.cancel_scope.cancel()

    def _name(self, key: str) -> str:
        """The name of a key's position."""
        return f"{self._settings.collection}/{key}"

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            self._is_changed = False
            began = trio.current_time()
            view, asked = await self._calls.run(self._settings.paths[0], self._look)
            cost = trio.current_time() - began
            self._take(view, asked)
            await self._delete(asked.removed)
            is_unsettled, is_incomplete = await self._read(view, asked)
            self._report()
            self._context.complete(self._reported is None and not is_incomplete)
            if self._settings.stop_at_end and not is_incomplete:
                return
            if not self._is_changed:
                await self._rest(cost, is_unsettled=is_unsettled)

    def _look(self) -> tuple[View, Plan]:
        view = self._viewer.look([known.path for known in self._known.values()], self._watch.follow)
        return view, plan(view, self._known, self._refused, self._viewer.covers, self._settings.max_keys)

    def _take(self, view: View, asked: Plan) -> None:
        self._problems, self._absent, self._left_out = asked.problems, view.absent, asked.left_out
        self._refused = {path: one for path, one in self._refused.items() if path in view.files}

    async def _rest(self, cost: float, *, is_unsettled: bool) -> None:
        """Waits until something changes, or it is time to look anyway."""
        least = max(_BREATH, 4 * cost)
        most = max(SAFETY if self._watch.complete else POLL[1], 20 * cost)
        due = trio.current_time() + (max(RECENT, least) if is_unsettled else most)
        with trio.CancelScope() as self._sleep:
            await trio.sleep(least)
            while (left := due - trio.current_time()) > 0:
                changes = await self._watch.changes(left)
                if changes.scan or any(key_of(path) is not None for path in changes.paths):
                    return

    # -- keeping ---------------------------------------------------------------------------------------------------

    async def _delete(self, keys: Sequence[str]) -> None:
        ahead = iter(keys)
        while some := list(islice(ahead, _AT_ONCE)):
            changes = [Change(self._settings.collection, key, None) for key in some]
            await self._context.keep(changes, dict.fromkeys(map(self._name, some)))
            for key in some:
                del self._known[key]

    async def _read(self, view: View, asked: Plan) -> tuple[bool, bool]:
        """Whether a file that was read may be changing just now, and whether it is incomplete."""
        is_unsettled = is_incomplete = False
        done = 0
        while done < len(asked.read):
            wanted = asked.read[done : done + _AT_ONCE]
            work = partial(read_some, wanted, self._settings.max_document_bytes, self._context.chunk_bytes)
            seen = await self._calls.run(wanted[0][1].path, work)
            await self._keep(view, [one for one in seen if one.document is not None])
            for one in seen:
                is_young = is_recent(one.found, view)
                is_unsettled |= is_young or not (one.document or one.unfit or one.failure)
                is_incomplete |= is_young and bool(one.unfit)
                self._refuse(one, is_young=is_young)
            done += len(seen)
        return is_unsettled, is_incomplete

    async def _keep(self, view: View, seen: Sequence[Read]) -> None:
        changes: list[Change] = []
        positions: dict[str, bytes | None] = {}
        for one in seen:
            known, path = self._known.get(one.key), one.found.path
            if known is None or (known.path, known.digest) != (path, one.digest):
                changes.append(Change(self._settings.collection, one.key, one.document))
            if known is None or known.path != path:
                positions[self._name(one.key)] = os.fsencode(path)
        if changes:
            await self._context.keep(changes, positions)
        for one in seen:
            facts = None if is_recent(one.found, view) else facts_of(one.found)
            self._known[one.key] = Known(one.found.path, facts, one.digest)

    def _refuse(self, one: Read, *, is_young: bool) -> None:
        """Notes what is wrong with a file; one that was written just now may be incomplete."""
        if one.failure:
            self._problems[one.found.path] = one.failure
        elif one.unfit and not is_young:
            self._problems[one.found.path] = one.unfit
            self._refused[one.found.path] = Refused(facts_of(one.found), one.unfit)

    # -- telling ---------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Reports what is not accepted, if that has changed."""
        problems = sorted((self._problems | self._calls.silent()).items())
        told = [f"{shown(path)}: {why}" for path, why in problems[:_NAMED]]
        if len(problems) > _NAMED:
            told.append(f"and {len(problems) - _NAMED} more")
        if self._left_out:
            told.append(f"{self._left_out} documents are left out, beyond max_keys ({self._settings.max_keys})")
        text = "; ".join(told) or None
        if text != self._reported:
            self._reported = text
            self._context.report(text, code=self._code(problems))

    def _code(self, problems: Sequence[tuple[str, str]]) -> Code:
        if not problems:
            return Code.INPUT_DEGRADED
        is_missing = all(path in self._absent for path, _ in problems)
        return Code.FILE_MISSING if is_missing else Code.FILE_UNREADABLE
