"""The contents of Secrets that this member knows by an id, and the newest version at which each was the current one.

An id names one content for ever. A content that the sidecar has released and that comes again gets another id, and so
does one that was withdrawn.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from shipper.apiserver.objects import Object, name, uid, version
from shipper.apiserver.versions import newest
from shipper.kubernetes.member.memory import Content, Memory
from shipper.kubernetes.member.secrets import Current, contents
from shipper.kubernetes.merging import SecretRef


class Contents:
    """By id."""

    def __init__(self, memory: Memory) -> None:
        self.by_id = {one.id: one for one in memory.contents}
        self.drawn = memory.drawn
        self._directory = memory.directory

    def renamed(self, directory: str) -> None:
        """New ids name this directory."""
        self._directory = directory

    def of(self, ids: Iterable[str]) -> list[Content]:
        """Returns the contents of those ids that are known."""
        return [self.by_id[id] for id in ids if id in self.by_id]

    def named(self, ref: SecretRef, current: Current) -> Content:
        """Returns a current content under its id, a new one if it has none."""
        for one in self.by_id.values():
            if (one.uid, one.key, one.shape) == (current.uid, ref.key, ref.shape) and one.is_sent_as(current.content):
                return one
        self.drawn += 1
        label = re.sub(r"[^a-z0-9]+", "-", f"{ref.name}-{ref.key}".lower()).strip("-")[:40] or "secret"
        id = f"{label}-{self._directory[:8]}-{self.drawn}"
        new = Content(id, ref.name, current.uid, ref.key, ref.shape, current.version, current.content)
        self.by_id[id] = new
        return new

    def saw(self, found: Object) -> None:
        """A Secret is like this: what it has is current at its version."""
        of_key = dict(contents(found))
        for one in self.by_id.values():
            if (
                one.uid == uid(found)
                and one.secret == name(found)
                and one.key in of_key
                and one.is_sent_as(of_key[one.key])
            ):
                self.by_id[one.id] = replace(one, version=newest(one.version, version(found)))

    def retain(self, ids: Collection[str]) -> None:
        """Forgets all others: their ids are spent."""
        if not self.by_id.keys() <= set(ids):
            self.by_id = {id: one for id, one in self.by_id.items() if id in ids}
