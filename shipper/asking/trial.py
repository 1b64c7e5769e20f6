"""Runs the cases of a policy: events pass the envelope and the processors of their input, and reach no output.

    events ──> envelope ──> chain of the input, with fresh stages ──> flush ──> events by output

It is the way of a running input (`pipeline.entrance`) without its queue. The clock of stages stands still, and events
arrive at the instant that the case names, so that a case has the same outcome on every day. What an input itself adds
or assembles, such as `log.file.path` or an event of several lines, is written in the case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import trio

from shipper.asking.matching import Compared, compared
from shipper.pipeline.intake.chain import Link, chained
from shipper.pipeline.intake.entrance import Route, flushed, processed
from shipper.pipeline.intake.envelope import Envelope
from shipper.pipeline.intake.stages import Opened, Place, open_all
from shipper.pipeline.plan import InputPlan
from shipper.pipeline.tap import Taps
from shipper.plugin import Batch, Fields, Meters, Processor, StageContext
from shipper.policy.cases import Case
from shipper.sdk.aio import open_asyncio
from shipper.sdk.fields import nested
from shipper.values import Revision


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case: by output, the events that came, and how they compare with the expected ones."""

    case: Case
    came: Mapping[str, Sequence[Fields]]
    compared: Mapping[str, Sequence[Compared]]

    @property
    def is_good(self) -> bool:
        return all(one.is_good for those in self.compared.values() for one in those)


async def tried(cases: Iterable[Case], inputs: Mapping[str, InputPlan]) -> list[Outcome]:
    """Returns the outcome of each case, in order. Raises StartFailed if a processor cannot be opened, and PluginFault
    for an event that no input could emit."""
    async with open_asyncio() as aio:

        def context(case: Case) -> StageContext:
            return StageContext(case.input, aio, Meters(), lambda: 0.0)

        return [await _tried(case, inputs[case.input], context(case)) for case in cases]


async def _tried(case: Case, input: InputPlan, context: StageContext) -> Outcome:
    made = await passed(batches(case.events), input, context, case.at)
    came = {name: [event for batch in those for event in batch.plain()] for name, those in made.items()}
    envelope = Envelope.of(input.spec.config)
    given = [event for batch in batches(case.events) for event in envelope.on(batch, case.at).plain()]
    before = given if case.exact else None
    return Outcome(case, came, {name: compared(those, came[name], before) for name, those in case.expect.items()})


async def passed(
    given: Iterable[Batch], input: InputPlan, context: StageContext, arrived: datetime
) -> dict[str, list[Batch]]:
    """Returns what the processors of an input and of its outputs make of batches, by output; raises as `tried` does."""
    async with trio.open_nursery() as nursery:

        async def start(place: Place, opened: Opened) -> None:
            await nursery.start(opened.run, context)

        opened = await open_all(input.all_processors(), {}, start)
        route = _route(input, opened)
        made, _ = processed(route, context.name, list(given), arrived, Taps())
        held, _ = flushed(route, arrived, Taps())
        for one in opened.values():
            one.close()
    return {
        name: [one.batch for one in (*made, *held) if one.outputs is None or name in one.outputs]
        for name in input.events
    }


def _route(input: InputPlan, opened: Mapping[Place, Opened]) -> Route:
    def link(output: str, number: int, processor: Processor) -> Link:
        stage = opened[output, number].stage if (output, number) in opened else None
        return Link(processor, Meters(), f"{output}.{number}", stage)

    chain = chained(input.events, input.processors, input.branches, link)
    return Route(Revision(0, 0), chain, {}, Envelope.of(input.spec.config))


def batches(events: Sequence[str | Fields]) -> Iterator[Batch]:
    """Yields the events as an input would emit them: texts as lines, mappings as documents."""
    offset = 0
    for is_line, those in groupby(events, _is_line):
        if is_line:
            text = b"".join([str(one).encode() + b"\n" for one in those])
            yield Batch.lines(text, offset=offset, shared={})
            offset += len(text)
        else:
            yield Batch.events([nested({"message": one} if isinstance(one, str) else one) for one in those])


def _is_line(event: str | Fields) -> bool:
    return isinstance(event, str) and "\n" not in event
