"""What the simulated parts of a fleet did, and what people were answered."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from shipper.fleet.judge import Verdict
from shipper.fleet.records import Head, Report, Version
from shipper.supervise.answers import Stage


class Reached(NamedTuple):
    """A sidecar has reached a stage."""

    at: float
    machine: str
    stage: Stage
    version: Version


class Received(NamedTuple):
    """A sidecar was given a version: this content."""

    at: float
    machine: str
    version: Version
    content: str


@dataclass
class Use:
    """A request of a sidecar; `end` is infinite while it goes on."""

    begin: float
    machine: str
    id: str
    end: float = math.inf


class Answer(NamedTuple):
    """The answer to somebody who asked."""

    asked: float
    at: float
    verdict: Verdict


class Ran(NamedTuple):
    """A command of `on_release` has begun."""

    at: float
    host: str
    id: str
    token: int


class Written(NamedTuple):
    """The store has a new head or report."""

    at: float
    revision: int
    record: Head | Report


@dataclass
class Transcript:
    reached: list[Reached] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    published: list[tuple[Version, str]] = field(default_factory=list)
    """What publishers were answered: the version, and the text that they gave."""
    ran: list[Ran] = field(default_factory=list)
    heads: list[Written] = field(default_factory=list)
    reports: list[Written] = field(default_factory=list)
    doubtful: dict[str, float] = field(default_factory=dict)
    """Machines about which no answer can say anything from an instant on: a copy of them runs under the same name."""
    older: dict[str, float] = field(default_factory=dict)
    """Machines under `on_lapse: continue` whose directory was put back from an older copy, and when."""
    restored: list[float] = field(default_factory=list)
    """When the store went back."""
    log: list[str] = field(default_factory=list)
    """What was done, in words."""
