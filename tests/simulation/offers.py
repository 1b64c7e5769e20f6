"""Policies that a supervisor sends, and what an outsider knows of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import json

At = tuple[int, int]
"""Epoch and number of a revision."""


@dataclass(frozen=True)
class Target:
    """Where an output delivers, and as whom: with its name, this is the identity of a lane."""

    to: str
    credential: str


@dataclass(frozen=True)
class Feed:
    """How an input reads its stream: a changed spot replaces it; `outputs` None means all."""

    spot: int = 0
    outputs: tuple[str, ...] | None = None
    pad: int = 0


@dataclass(frozen=True)
class Shape:
    """What a policy wants."""

    outputs: Mapping[str, Target]
    inputs: Mapping[str, Feed]
    workers: int = 2
    queue_bytes: int = 1 << 20
    deadline: tuple[float, str] | None = None
    """Seconds, and what becomes then of what still waits."""
    never_reached: str | None = None
    """What becomes of what waits where nobody ever answered, if the policy says it."""

    @property
    def credentials(self) -> set[str]:
        return {target.credential for target in self.outputs.values()}

    def route(self, input: str) -> tuple[str, ...]:
        """The outputs of an input."""
        wanted = self.inputs[input].outputs
        return tuple(self.outputs) if wanted is None else wanted

    def with_output(self, name: str, target: Target | None) -> Shape:
        """Another target for an output, or none; routes that named it are routes to all."""
        outputs = {other: kept for other, kept in self.outputs.items() if other != name}
        if target is not None:
            outputs = {**self.outputs, name: target}
        inputs = {
            input: feed if feed.outputs is None or set(feed.outputs) <= set(outputs) else replace(feed, outputs=None)
            for input, feed in self.inputs.items()
        }
        return replace(self, outputs=dict(sorted(outputs.items())), inputs=inputs)


@dataclass(frozen=True)
class Offer:
    """A policy as it is sent. `stamp` is what its events are marked with, `flaw` the nack it is made to deserve."""

    at: At
    shape: Shape
    stamp: int
    text: str
    credentials: Mapping[str, Any]
    flaw: str | None = None
    sha256: str | None = None

    def line(self) -> bytes:
        """The message of the protocol."""
        message = {
            "type": "policy",
            "epoch": self.at[0],
            "revision": self.at[1],
            "policy": self.text,
            "credentials": self.credentials,
        }
        if self.sha256 is not None:
            message["sha256"] = self.sha256
        return json.encode(message) + b"\n"


def offer(at: At, shape: Shape, stamp: int, credentials: Iterable[str] | None = None) -> Offer:
    """A sound policy of this shape, with the secrets of all credentials that it refers to, or of the given ones."""
    text = _text(shape, stamp)
    ids = sorted(shape.credentials if credentials is None else credentials)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Offer(at, shape, stamp, text, {id: secret(id) for id in ids}, sha256=digest)


def secret(id: str) -> dict[str, str]:
    """The secret of a credential, as a message carries it."""
    return {"api_key": f"{id}:secret-of-{id}"}


def _text(shape: Shape, stamp: int) -> str:
    """JSON is YAML."""
    inputs = {
        name: {"type": name, "spot": feed.spot, "pad": feed.pad}
        | ({} if feed.outputs is None else {"outputs": list(feed.outputs)})
        for name, feed in shape.inputs.items()
    }
    outputs = {
        name: {"type": "backend", "to": target.to, "credential": target.credential, "workers": shape.workers}
        for name, target in shape.outputs.items()
    }
    return json.encode(
        {
            "version": 1,
            "inputs": inputs,
            "processors": [{"type": "stamp", "stamp": stamp}, *_hold(stamp)],
            "outputs": outputs,
            "queue": {"max_bytes": f"{shape.queue_bytes}B"},
            "drain": _drain(shape.deadline)
            | ({} if shape.never_reached is None else {"never_reached": shape.never_reached}),
            "log_level": "error",
        }
    ).decode()


def _hold(stamp: int) -> list[dict[str, Any]]:
    """Every third policy has its events held for a while."""
    return [{"type": "hold", "seconds": 0.1 * (stamp % 7)}] if stamp % 3 == 0 else []


def _drain(deadline: tuple[float, str] | None) -> dict[str, str]:
    return {} if deadline is None else {"deadline": f"{deadline[0] * 1000:.0f}ms", "on_deadline": deadline[1]}
