"""The contract between an agent and a source of policies.

The first source is `Files`. Other kinds fit without a change of the agent:

- A directory of fragments, a checkout of git: each policy has a version, such as a hash or a commit, in
  `Wanted.version`. The agent keeps it with the revision, and names it in its answers (`answered`).
- HTTP, etcd, Kubernetes: `read` may hang. The agent cancels it only at its end; so it has timeouts of its own, after
  which it raises PolicyError, and never blocks the event loop's thread.
- A source that is unreachable: the last valid policy keeps running, also over restarts of the agent, which has it in
  its ledger. Meanwhile `problems` has the reason, and `changed` returns now and then, so that the source is tried
  again.
- A source that publishes the stages: `answered` gets those of each version ("7 is drained") at each member. It is
  called in the event loop and returns at once; a source that writes them elsewhere keeps the newest answer of each
  member and version until it is written, in bounded memory, and writes it again after a reconnect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from shipper.protocol.messages import Result
from shipper.sdk.errors import Problem
from shipper.supervise.answers import Answer
from shipper.supervise.ledger import Kept, Wanted

Known: TypeAlias = Callable[[], Mapping[bytes, str]]
"""Returns the known ids of contents of credentials, at the moment of the call."""


class PolicySource(Protocol):
    """A source of policies."""

    @property
    def name(self) -> str:
        """Its name in reports, in the plural: `the files`."""
        ...

    @property
    def watched(self) -> Sequence[str]:
        """The names that it watches, as people wrote them."""
        ...

    @property
    def method(self) -> str:
        """How it notices changes, in a word."""
        ...

    @property
    def problems(self) -> Sequence[Problem]:
        """The problems of the last `read`; empty if it succeeded."""
        ...

    @property
    def secret_variables(self) -> Collection[str]:
        """Variables of the environment with secrets of any policy so far: no other program gets them."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether many hosts follow it: then a first policy that is not valid here is waited out instead of ending
        the agent, and `leave` tells the others that this host has gone."""
        ...

    @property
    def delays(self) -> bool:
        """Whether its credentials count as used here until what has come in their place was accepted; if not, the
        source waits for that itself, or has no credentials."""
        ...

    async def may_run(self) -> None:
        """Returns when the policy of an earlier process may run again, which `changed` need not have confirmed."""
        ...

    async def read(self, known: Known) -> Wanted:
        """Returns the wanted policy, validated, with the known ids for known contents.

        Raises PolicyError with its problems, or SecretsAbsent if that is the only one. Never returns an older policy
        than before.
        """
        ...

    async def changed(self) -> bool:
        """Waits until something may have changed since the last `read`, or a person asks for it; returns True if a
        person asked.

        Returns now and then while there are problems, which may pass without a change.
        """
        ...

    def ask(self) -> None:
        """Requests another reading, for a person."""
        ...

    def answered(self, member: str, answer: Answer) -> None:
        """Receives the stage of a version at one member."""
        ...

    def released(self, kept: Kept) -> None:
        """Receives a credential with an id of the source that every member here has released.

        It stays in their ledgers until `Agent.forget`.
        """
        ...

    def status(self) -> Mapping[str, Any]:
        """Returns its part of the answer to `shipper status`; no secrets."""
        ...

    async def leave(self) -> Result:
        """Tells the others, once every member has stopped, that this host has gone; returns the outcome for a person,
        after some seconds at most."""
        ...
