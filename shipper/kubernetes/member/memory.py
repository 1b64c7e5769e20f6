"""What a member must know for certain after a crash: values that `home` keeps sealed, since they have contents."""

from __future__ import annotations

from typing import Any

import msgspec

from shipper.supervise.secrets import essence

FORMAT = 1


class Content(msgspec.Struct, frozen=True):
    """A content of one key of a Secret, under the id that the sidecar knows it by: an id names one content for ever."""

    id: str
    secret: str
    uid: str
    key: str
    shape: str
    """What `as` beside the reference says; empty without it."""
    version: str
    """The newest resourceVersion at which this content was seen as the current one."""
    content: bytes

    def is_sent_as(self, content: bytes) -> bool:
        """Whether another content of the same key is the same secret, however it is written."""
        if content == self.content:
            return True
        try:
            one, other = (essence(text.decode("utf-8-sig"), self.shape or None) for text in (self.content, content))
        except UnicodeDecodeError:
            return False
        return one == other

    def __repr__(self) -> str:
        return f"<Content {self.id} of {self.secret}/{self.key} at {self.version}>"


class Part(msgspec.Struct, frozen=True):
    """A generation of a policy with the contents that it needs: what one policy adds to a vector."""

    name: str
    uid: str
    generation: int
    created: str
    policy: dict[str, Any]
    """`spec.policy`, as the user wrote it."""
    contents: tuple[str, ...] = ()
    """Ids, in order."""

    def __repr__(self) -> str:
        return f"<Part {self.name} {self.uid} generation {self.generation}>"


class Entry(msgspec.Struct, frozen=True):
    """Since when a member runs what it reports of one policy."""

    name: str
    uid: str
    generation: int
    since: int
    """The number of the first vector that has this generation, or of the first one without the policy."""
    first: bool = False
    """It had run no generation of the policy before this one."""
    removed: bool = False
    before: tuple[int, ...] = ()
    """The numbers of vectors with earlier changes of the policy that may not be drained, rising."""


class Memory(msgspec.Struct, frozen=True):
    """Saved before anything that depends on it: before the announcement of a vector, its number and its contents."""

    directory: str
    """The id of this state directory; no copy of it has the same."""
    number: int = 0
    """Of the newest vector."""
    drawn: int = 0
    """How many ids of contents were given out."""
    saves: int = 0
    """How often it was saved; each status names it, so that a directory that was put back knows itself as older."""
    parts: tuple[Part, ...] = ()
    """The newest vector."""
    good: tuple[Part, ...] = ()
    """What the sidecar was last seen to run of each policy, where the newest vector has something else."""
    contents: tuple[Content, ...] = ()
    """All that the sidecar may use, or that `parts` or `good` need."""
    proven: tuple[str, ...] = ()
    """Those of them that may be used without another look (`using`)."""
    withdrawn: tuple[str, ...] = ()
    """Ids that the sidecar must not get again."""
    entries: tuple[Entry, ...] = ()
    reached: dict[str, int] = {}
    """The newest vector that the sidecar has brought to each stage."""
    left: bool = False
    """It has left for good, and starts only with the API server."""
    fence: bool = False
    """Whether the API server may have a status that promises a fence."""
    format: int = FORMAT
