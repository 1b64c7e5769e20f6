"""Destinations, and the output that speaks to them.

A destination knows credentials, keeps every document under (output, id) once, and notes each request that reaches it.
An answer that does not arrive (lost, timed out, cut off by a cancel) leaves the documents where they are. A request
that is cancelled on its way may still arrive, in that instant: its connection was open until then. Nobody hears what is
answered to that, so a wait that it asks for is not noted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, cast

import trio

from shipper.plugin import (
    API_KEY,
    Answer,
    Answers,
    Batch,
    CredentialId,
    Feeding,
    Held,
    Later,
    Outcome,
    Output,
    OutputContext,
    Sender,
    StartFailed,
    TooLarge,
    takes,
)
from tests.simulation.fences import Fences, Told, told_of
from tests.simulation.stage import Stage, current
from tests.simulation.things import NAME

T = TypeVar("T")

TIMEOUT = 30.0
POISON = 7
"""One in so many events is refused for ever, in worlds that know poison."""


class Event(NamedTuple):
    """An event, as a destination sees it: its id, whose it is, and the stamp of the revision it entered under."""

    id: str
    stream: str
    number: int
    stamp: int


@dataclass(frozen=True)
class Pace:
    first: float = 0.05
    longest: float = 2.0


_Sent = list[Event] | list[Told]
_OPEN = (Outcome.LATER, Outcome.HELD)
NOWHERE = "nowhere"
"""A name that somebody wrote by mistake: nobody answers there, until the world heals."""


class Backend:
    """One destination."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name
        self.is_nowhere = name == NOWHERE
        self.valid: set[str] = set()
        self.down = False
        self.away = False
        self.refused: set[str] = set()
        """Streams whose events it refuses: each stream is a place of its own."""
        self.documents: set[tuple[str, str]] = set()
        self.fences = Fences(stage, name)

    def take(self, output: str, credential: str, events: Sequence[Event]) -> dict[int, Answer]:
        """A request arrives: note it, keep what is to be kept; returns what is not simply delivered, or raises."""
        self.stage.note("request", backend=self.name, output=output, credential=credential, events=events)
        self._refuse(credential, len(events))
        return self._each(events, lambda event: self._one(output, event))

    def take_versions(self, output: str, credential: str, versions: Sequence[Told]) -> dict[int, Answer]:
        """The same of keyed state."""
        self.stage.note(
            "request", backend=self.name, output=output, credential=credential, events=(), versions=tuple(versions)
        )
        self._refuse(credential, len(versions))
        return self._each(versions, lambda told: self._one_version(output, told))

    def _each(self, those: Sequence[T], answer_of: Callable[[T], Answer | None]) -> dict[int, Answer]:
        others: dict[int, Answer] = {}
        for at, each in enumerate(those):
            answer = answer_of(each)
            if answer is not None:
                others[at] = answer
            if answer is not None and answer.outcome in _OPEN and self.stage.scenario.is_ordered:
                return others | dict.fromkeys(range(at, len(those)), answer)
        return others

    def _refuse(self, credential: str, count: int) -> None:
        """A refusal of the request as a whole."""
        stage = self.stage
        if self.down and not stage.healed:
            raise Later("503 unavailable")
        if self.away:
            raise Held("403 forbidden") if stage.scenario.seed % 2 else Later("503 unavailable")
        if credential not in self.valid or stage.strikes("unauthorized"):
            raise Held("401 unauthorized")
        if stage.strikes("busy"):
            raise Later("429 busy", retry_after=stage.random("net").choice((None, 0.5, 3.0)))
        if stage.strikes("unavailable"):
            raise Later("502 bad gateway")
        if count > 1 and stage.strikes("too_large"):
            raise TooLarge("413 too large")

    def _one(self, output: str, event: Event) -> Answer | None:
        if (refusal := self._refusal(event.stream, event.number)) is not None:
            return refusal
        if (output, event.id) in self.documents:
            return Answer(Outcome.DUPLICATE)
        self.documents.add((output, event.id))
        return None

    def _one_version(self, output: str, told: Told) -> Answer | None:
        refusal = self._refusal(NAME, told.number)
        return self.fences.put(output, told) if refusal is None else refusal

    def _refusal(self, place: str, number: int | None) -> Answer | None:
        if "poison" in self.stage.scenario.rates and number is not None and number % POISON == 0:
            return Answer(Outcome.REJECTED, "400 mapping")
        if self.stage.strikes("item_later"):
            return Answer(Outcome.LATER, "429 item")
        if self.stage.strikes("item_held"):
            return Answer(Outcome.HELD, "403 item")
        if place in self.refused or self.stage.strikes("place_refused"):
            outcome = Outcome.HELD if self.stage.scenario.seed % 2 else Outcome.LATER
            return Answer(outcome, f"404 {place}", of_target=True)
        return None


BACKENDS: dict[str, Backend] = {}
"""Those of the world that runs, by name."""


class SimulatedOutput(Output, frozen=True):
    """Delivers to a simulated destination."""

    backoff: ClassVar[Pace] = Pace()

    to: str = "east"
    credential: Annotated[CredentialId, takes(API_KEY)] | None = None

    def contacts(self) -> Sequence[str]:
        return [self.to]

    def feeding(self) -> Feeding:
        pace = (self.backoff.first, self.backoff.longest)
        return replace(super().feeding(), backoff=pace, **current().scenario.feeding)

    def targets(self, batch: Batch) -> Sequence[str]:
        return [NAME] * batch.count if batch.versions is not None else [event.stream for event in events_of(batch)]

    def takes_state(self) -> bool:
        return True

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        stage = current()
        held = context.credentials.get(self.credential or "")
        credential = held.fields["api_key"].partition(":")[0] if held else ""
        if stage.strikes("open_fails"):
            raise StartFailed("simulated") if stage.random("net").random() < 0.5 else OSError("simulated")
        stage.note("opened", output=context.name, credential=credential)
        try:
            async with trio.open_nursery() as nursery:
                if stage.strikes("task_fails"):
                    nursery.start_soon(_fail_sooner_or_later, stage)
                yield _Connection(stage, BACKENDS[self.to], context, credential)
                nursery.cancel_scope.cancel()
        finally:
            if stage.alive:
                with trio.CancelScope(shield=True):
                    await stage.pause("net")
            stage.note("closed", output=context.name, credential=credential)


async def _fail_sooner_or_later(stage: Stage) -> None:
    """A task of the output's own that fails by itself, or when it is cancelled."""
    try:
        await trio.sleep(stage.random("net").uniform(0.0, 5.0))
    finally:
        raise OSError("simulated")


class _Connection(Sender):
    def __init__(self, stage: Stage, backend: Backend, context: OutputContext, credential: str) -> None:
        self.stage, self.backend, self.output, self.credential = stage, backend, context.name, credential
        self._begins = context.begins
        self._before: Sequence[Told] = ()
        """What was sent before: the network may deliver it once more."""

    async def send(self, batch: Batch) -> Answers:
        stage, arrived = self.stage, False
        events = events_of(batch) if batch.versions is None else told_of(batch)
        if stage.scenario.is_fenced:
            stage.note("begun", output=self.output, credential=self.credential, boottime=stage.boottime)
        try:
            if self.backend.is_nowhere and not stage.healed:
                arrived = True  # there is nobody whom it could reach
                await stage.pause("net")
                await self._hang()
                raise Later("name not found")
            await self._begin()
            await stage.pause("net")
            await self._hang()
            stage.effect()
            arrived = True
            self._echo()
            others = self._take(events)
            await stage.pause("net")
            await self._hang()
        except trio.Cancelled:
            if not arrived and stage.random("net").random() < 0.5:
                self._arrive_unheard(events)
            raise
        if stage.strikes("answer_lost"):
            raise Later("the connection broke")
        if stage.strikes("short_answer"):
            return Answers(batch.count - 1)
        if stage.strikes("output_bug"):
            raise KeyError("items")
        self._note_answers(events, others)
        return Answers(batch.count, others)

    async def _hang(self) -> None:
        if self.stage.strikes("slow_net"):
            await trio.sleep(self.stage.random("net").uniform(0.0, 3.0))
        if self.stage.strikes("hang"):
            await trio.sleep(TIMEOUT)
            raise Later(f"no answer for {TIMEOUT:.0f} s")

    def _echo(self) -> None:
        """Versions that were sent before arrive again: nobody hears the answer."""
        if self._before and self.stage.strikes("echo"):
            for told in self._before:
                self.backend.fences.put(self.output, told)

    def _take(self, events: _Sent) -> dict[int, Answer]:
        try:
            return self._arrive(events)
        except (Held, Later, TooLarge) as refusal:
            if isinstance(refusal, Later) and refusal.retry_after is not None:
                self.stage.note(
                    "busy", backend=self.backend.name, output=self.output, credential=self.credential,
                    events=[each for each in events if isinstance(each, Event)], seconds=refusal.retry_after,
                )  # fmt: skip
            raise

    def _arrive(self, events: _Sent) -> dict[int, Answer]:
        if not events or isinstance(events[0], Event):
            return self.backend.take(self.output, self.credential, cast(list[Event], events))
        self._before = cast(list[Told], events)
        return self.backend.take_versions(self.output, self.credential, self._before)

    async def _begin(self) -> None:
        """From now on somebody may receive what is sent, and it is durable that somebody may."""
        await self._begins()
        self.stage.note("contacted", backend=self.backend.name)

    def _arrive_unheard(self, events: _Sent) -> None:
        if self.backend.is_nowhere and not self.stage.healed:
            return
        with suppress(Held, Later, TooLarge):
            self._arrive(events)

    def _note_answers(self, events: _Sent, others: Mapping[int, Answer]) -> None:
        answers = [others[at].outcome.value if at in others else "delivered" for at in range(len(events))]
        kind = "answered" if isinstance(events[0], Event) else "placed"
        self.stage.note(
            kind, backend=self.backend.name, output=self.output, credential=self.credential,
            events=events, answers=answers,
        )  # fmt: skip


def events_of(batch: Batch) -> list[Event]:
    """The events of a batch, with their ids."""
    whole: list[dict[str, Any]] = batch.whole()
    return [
        Event(id, event["stream"], event["number"], event["stamp"])
        for id, event in zip(batch.id_texts(), whole, strict=True)
    ]
