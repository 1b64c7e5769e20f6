"""What is known of a world from outside, sorted by what it is about: this is all that the oracle has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.simulation.offers import At, Offer, Target
from tests.simulation.scenario import Scenario
from tests.simulation.stage import Note

FINAL = ("delivered", "duplicate", "rejected")
Pair = tuple[str, str, int]
"""An output and an event: its stream and number."""


class Answer(NamedTuple):
    """A final answer for an event that reached the shipper."""

    n: int
    life: int
    id: str
    stamp: int
    outcome: str
    target: Target
    """Where it came from."""


class Case:
    """The notes, sorted by what they are about."""

    def __init__(self, notes: Sequence[Note], scenario: Scenario) -> None:
        self.notes, self.scenario = notes, scenario
        self.offers: dict[At, Offer] = {}
        self.by_stamp: dict[int, Offer] = {}
        self.sent: dict[At, int] = {}
        self.first_sent: dict[At, int] = {}
        """Flawed or not."""
        self.answers: dict[Pair, list[Answer]] = defaultdict(list)
        self.placed: dict[tuple[str, Target], list[int]] = defaultdict(list)
        """By output and its target: when versions of keys had their answers there."""
        self.emitting: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.emitted: dict[tuple[str, int], int] = {}
        self._said: dict[str, list[tuple[Note, dict[str, Any]]]] = defaultdict(list)
        for note in notes:
            self._sort(note)
        orders = {note.facts["name"] for note in notes if note.kind == "acted"}
        deadlines = {offer.shape.deadline[1] for offer in self.offers.values() if offer.shape.deadline is not None}
        self.may_forward = not (orders | deadlines).isdisjoint(("rebind", "forward"))
        """Whether somebody wanted events to go elsewhere."""
        self.ended_by_order = not (orders | deadlines).isdisjoint(("drop", "dead_letter"))
        self.is_over = bool(notes) and notes[-1].kind == "ended" and any(note.kind == "healed" for note in notes)

    def _sort(self, note: Note) -> None:
        match note.kind:
            case "sent":
                sent: Offer = note.facts["offer"]
                self.first_sent.setdefault(sent.at, note.n)
                if sent.flaw is None:
                    self.offers[sent.at] = sent
                    self.by_stamp.setdefault(sent.stamp, sent)
                    self.sent.setdefault(sent.at, note.n)
            case "said":
                self._said[note.facts["message"]["type"]].append((note, note.facts["message"]))
            case "answered":
                target = Target(note.facts["backend"], note.facts["credential"])
                for event, outcome in zip(note.facts["events"], note.facts["answers"], strict=True):
                    if outcome in FINAL:
                        pair = (note.facts["output"], event.stream, event.number)
                        self.answers[pair].append(Answer(note.n, note.life, event.id, event.stamp, outcome, target))
            case "placed":
                target = Target(note.facts["backend"], note.facts["credential"])
                if any(outcome in FINAL or outcome == "superseded" for outcome in note.facts["answers"]):
                    self.placed[note.facts["output"], target].append(note.n)
            case "emitting":
                for number in note.facts["numbers"]:
                    self.emitting[note.facts["stream"], number].append(note.n)
            case "emitted":
                for number in note.facts["numbers"]:
                    self.emitted.setdefault((note.facts["stream"], number), note.n)

    def replaced(self, output: str, stamp: int) -> int:
        """When a revision was first sent that gives an output another target than the one of a stamp."""
        entered = self.by_stamp[stamp]
        own = entered.shape.outputs.get(output)
        others = [at for at, offer in self.offers.items() if at > entered.at and offer.shape.outputs.get(output) != own]
        return min((self.sent[at] for at in others), default=len(self.notes))

    def said(self, *types: str, stage: str | None = None) -> list[tuple[Note, dict[str, Any]]]:
        """Messages of the process of these types, and of this stage."""
        messages = [said for type in types for said in self._said[type] if stage is None or said[1]["stage"] == stage]
        return sorted(messages, key=lambda said: said[0].n) if len(types) > 1 else messages

    def active(self) -> list[At]:
        """Revisions that are known to have been active, rising."""
        acks = {at_of(ack) for stage in ("active", "drained") for _, ack in self.said("ack", stage=stage)}
        readies = {tuple(ready["revisions"]["active"] or (-1, -1)) for _, ready in self.said("ready")}
        seen = {self.by_stamp[answer.stamp].at for answers in self.answers.values() for answer in answers}
        return sorted(at for at in acks | readies | seen if at in self.offers)


def at_of(message: dict[str, Any]) -> At:
    return (message["epoch"], message["revision"])
