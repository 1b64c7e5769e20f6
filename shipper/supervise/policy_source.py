"""Where policies come from: the contract between an agent and a source of them.

The first source is `Files`. What others need, so that an agent need not change for them:

- A directory of fragments, a checkout of git: a version of what they yield, such as a hash or a commit. It is in
  `Wanted.version`; the agent keeps it beside the revision that it makes of it, and answers by it (`answered`).
- HTTP, etcd, Kubernetes: a `read` that hangs. The agent cancels it at its end only; so it has limits of time of its
  own, raises PolicyError when they are over, and never blocks the event loop's thread.
- A source that is gone: the last valid policy runs on for as long as that takes, also over restarts of the agent, which
  has it in its ledger. `problems` says so meanwhile, and `changed` returns now and then, so that it is tried again.
- A source that others write to: `answered` gets the stages of each version ("7 is drained"), of each member. It is
  called in the event loop and returns at once; whoever writes them down elsewhere keeps the newest of each member and
  version until that is done, in bounded memory, and again after a reconnect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from shipper.sdk.errors import Problem
from shipper.supervise.answers import Answer
from shipper.supervise.ledger import Wanted

Known: TypeAlias = Callable[[], Mapping[bytes, str]]
"""The ids under which contents of credentials are known, at the moment of the call."""


class PolicySource(Protocol):
    """What is wanted, over time."""

    @property
    def name(self) -> str:
        """What reports call it, in the plural: `the files`."""
        ...

    @property
    def watched(self) -> Sequence[str]:
        """What it looks at, as people named it."""
        ...

    @property
    def method(self) -> str:
        """How it learns of changes, in a word."""
        ...

    @property
    def problems(self) -> Sequence[Problem]:
        """Why the last `read` gave nothing; empty if it did."""
        ...

    @property
    def secret_variables(self) -> Collection[str]:
        """Variables of the environment that hold secrets of any policy so far: no other program gets them."""
        ...

    async def read(self, known: Known) -> Wanted:
        """What is wanted now, validated, with the known ids for known contents.

        Raises PolicyError with its problems, which is SecretsAbsent if nothing is wrong but that. It never gives what
        is older than what it gave before.
        """
        ...

    async def changed(self) -> bool:
        """Wait until something may have changed since the last `read`, or somebody asked: then the answer is True.

        Returns now and then while there are problems: what passes by itself tells of no change.
        """
        ...

    def ask(self) -> None:
        """A person wants it to be read again."""
        ...

    def answered(self, member: str, answer: Answer) -> None:
        """What became of a version, at one member."""
        ...
