"""The way of one input's events through its processors: first the input's, then those of each output.

    batch ──> processor ──> stage ──┬──> outputs without processors
                                    └──> processor of an output ──> that output

The chain only decides the way, and does no I/O. A processor may split a batch into parts; each part names its outputs.

Events on which a processor fails go on unchanged, with a tag. Whether one event or the plugin is to blame, nobody
knows: so what failed is tried again in halves, and the event that cannot be handled is tagged alone.

A batch is immutable but for its `shared` fields, whose nested ones are those of the whole input: a plugin that changes
them in place would change every event after it, also those that never came to it. So each processor gets a copy of
these fields (10 µs a batch).

Documents by columns are written, and checked, behind the last processor. If they are invalid then, a chain without
stages runs once more, and writes them behind each processor: so the one to blame is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from shipper.pipeline import door
from shipper.pipeline.intake.conditional import on_those_that_meet
from shipper.pipeline.tap import Taps
from shipper.plugin import Part, Processor, Stage
from shipper.process import log
from shipper.process.environment import REAL, Clock
from shipper.process.groups import contained
from shipper.sdk.editing import tagged
from shipper.sdk.errors import PluginFault, raised_at
from shipper.sdk.event import Batch
from shipper.sdk.joining import pieced
from shipper.sdk.meters import Meters, measured
from shipper.sdk.weights import MOST_EVENTS, MOST_WEIGHT

_log = log.get(__name__)

MOST_FAILURES = 128
"""Failures of one processor on one batch until the rest of what failed is tagged as a whole. To find one event among
16384 takes 15; a plugin that fails on each would be called 32768 times."""

PIECE = 64 << 10
"""Bytes of a batch that pass all processors together: what they become stays in the CPU's cache (256 KiB: 3 µs an event
more)."""

REST_SECONDS = (60.0, 3600.0)
"""For how long a stage that has failed to give what it holds is passed by: at first, and at most."""

Clothe = Callable[[Batch], Batch]


class Rest:
    """Whether a stage is passed by: it failed to give what it holds, and would hold up its input for ever.

    Events go on unchanged and tagged meanwhile, as those do on which a processor fails.
    """

    def __init__(self, clock: Clock = REAL.monotonic) -> None:
        self.reason: str | None = None
        """Why, until the stage has given something again."""
        self._clock, self._until, self._seconds = clock, -math.inf, 0.0

    @property
    def is_on(self) -> bool:
        """Whether the stage gets no events now."""
        return self._clock() < self._until

    def begin(self, reason: str) -> None:
        """The stage has failed; each time in a row it rests twice as long."""
        first, most = REST_SECONDS
        self._seconds = min(2 * self._seconds, most) or first
        self.reason, self._until = reason, self._clock() + self._seconds

    def end(self) -> None:
        """The stage works."""
        self.reason, self._seconds = None, 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """A processor at its place in the policy; `stage` is its open stage, if it is one, and `rest` that of the stage."""

    processor: Processor
    meters: Meters
    point: str
    """The name of this place for `Taps`."""
    stage: Stage | None = None
    rest: Rest = field(default_factory=Rest)
    writes: bool = False
    """Whether what it makes is written and checked right behind it."""

    def on(self, part: Part, failures: Iterator[int]) -> list[Part]:
        """Returns what goes on of a part: the events on which it fails, or makes an invalid result, go on as they came,
        tagged; those that pass it by never are. `failures` yields as often as parts of it are tried again."""

        def attempted(part: Part) -> list[Part]:
            if self.stage is not None and self.rest.is_on:
                return [part._replace(batch=_tagged(part.batch, self.rest.reason or ""))]
            return self._apart(part, self._made, failures)

        def chosen(part: Part) -> list[Part]:
            return on_those_that_meet(self.processor.when, part, attempted, anew=self.stage is not None)

        with measured(self.meters):
            return self._apart(part, chosen, failures)  # the condition may fail too

    def _apart(self, part: Part, run: Callable[[Part], list[Part]], failures: Iterator[int]) -> list[Part]:
        """Returns what `run` makes of a part; if it fails, of its halves, down to the events on which it fails."""
        try:
            return run(part)
        except Exception as error:
            self._report(error)
            pieces = _pieces(part, range(part.batch.count), run, error, failures)
        made = list[Part]()
        for reason, those in groupby(pieces, lambda piece: piece.error and self._reason(piece.error)):
            if reason is None:
                made += [one for piece in those for one in piece.made]
            else:
                first, *_, last = [piece.places for piece in those] * 2
                made.append(part._replace(batch=_tagged(_picked(part.batch, range(first.start, last.stop)), reason)))
        return made

    def _made(self, part: Part) -> list[Part]:
        given = part._replace(batch=part.batch.lent())
        with contained():
            if self.stage is None:
                return self._processed(given)
            made = [_anew(one, may_be_unwritten=not self.writes) for one in _parts(self.stage.process(given))]
        return [one._replace(outputs=part.outputs) if one.outputs is None else one for one in made]

    def _processed(self, part: Part) -> list[Part]:
        made, before = self.processor.process(part.batch), part.batch

        def checked(batch: Batch) -> Batch:
            return door.check(batch, before, may_be_unwritten=not self.writes)

        if isinstance(made, Batch):
            return [part._replace(batch=checked(made))]
        return [Part(checked(one.batch), _within(one.outputs, part.outputs)) for one in _parts(made)]

    @property
    def is_slow(self) -> bool:
        """Whether it must not run in the main thread: itself, or a regular expression of its condition."""
        return self.processor.is_slow or (self.processor.when is not None and self.processor.when.searches())

    def flush(self, clothe: Clothe) -> list[Part]:
        """Returns what the stage still holds, in the envelope. Raises PluginFault if the stage fails, which has a
        `Rest` then."""
        if self.stage is None or self.rest.is_on:
            return []
        try:
            with measured(self.meters), contained():
                parts = [_anew(one, may_be_unwritten=False) for one in _parts(self.stage.flush())]
            made = [one._replace(batch=clothe(one.batch)) for one in parts if one.batch.count]
        except Exception as error:
            self._report(error)
            self.rest.begin(self._reason(error))
            raise PluginFault(self._reason(error)) from None
        if made:
            self.rest.end()
        return made

    def _report(self, error: Exception) -> None:
        _log.error("a processor failed", processor=type(self.processor).__name__, error=_describe(error))

    def _reason(self, error: Exception) -> str:
        return f"{type(self.processor).__name__} failed: {_kind(error)}"


class _Failures:
    """How many failures each processor has left on one batch, whose pieces have them together."""

    def __init__(self) -> None:
        self._of = dict[int, Iterator[int]]()

    def of(self, link: Link) -> Iterator[int]:
        """Returns those of a processor."""
        return self._of.setdefault(id(link), iter(range(MOST_FAILURES)))


@dataclass(frozen=True)
class Chain:
    """All processors of an input under one revision, and its outputs."""

    outputs: Sequence[str]
    links: Sequence[Link] = ()
    branches: Mapping[str, Sequence[Link]] = field(default_factory=dict)

    def all_links(self) -> Iterator[Link]:
        """The stages, in the order in which events pass them."""
        yield from self.links
        for links in self.branches.values():
            yield from links

    @cached_property
    def stages(self) -> list[Stage]:
        """The open stages."""
        return [link.stage for link in self.all_links() if link.stage is not None]

    @cached_property
    def has_links(self) -> bool:
        return any(True for _ in self.all_links())

    @property
    def is_slow(self) -> bool:
        """Whether some processor must not run in the main thread."""
        return any(link.is_slow for link in self.all_links())

    def on(self, batch: Batch, taps: Taps) -> list[Part]:
        """Returns the parts that a batch becomes: each with its events and its outputs (None: all)."""
        pieces = list(batch.pieces(PIECE)) if self.has_links else [batch]
        left = _Failures()
        if len(pieces) < 2:
            return self._on_piece(batch, taps, left)
        made: dict[frozenset[str] | None, list[Batch]] = {}
        for piece in pieces:
            for part in self._on_piece(piece if piece.is_relayed else replace(piece, items=None), taps, left):
                made.setdefault(part.outputs, []).append(part.batch)
        return [Part(whole, outputs) for outputs, batches in made.items() for whole in pieced(batches)]

    def _on_piece(self, batch: Batch, taps: Taps, left: _Failures) -> list[Part]:
        parts = list(self._branched(_through(self.links, [Part(batch)], taps, left), taps, left))
        try:
            return list(map(_written, parts))
        except PluginFault:
            if self.stages:
                raise
        parts = _through(self._writing.links, [Part(batch)], taps, left)
        return list(map(_written, self._writing._branched(parts, taps, left)))

    @cached_property
    def _writing(self) -> Chain:
        """The same chain, in which each processor is checked at once."""
        branches = {output: [replace(link, writes=True) for link in links] for output, links in self.branches.items()}
        return Chain(self.outputs, [replace(link, writes=True) for link in self.links], branches)

    def distinct(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Returns the parts of a relayed batch, with one identity at most once for each output, which would otherwise
        take the second event for the first. A part that repeats one gets new identities."""
        seen: dict[str, set[int]] = {name: set() for name in self.outputs}
        for part in parts:
            if part.batch.is_relayed:
                items = part.batch.items if part.batch.items is not None else range(part.batch.count)
                own = [seen[name] for name in self.outputs if part.outputs is None or name in part.outputs]
                if not all(one.isdisjoint(items) for one in own):
                    part = part._replace(batch=part.batch.anew())
                for one in own:
                    one.update(items)
            yield part

    def flush(self, clothe: Clothe, taps: Taps) -> list[Part]:
        """Returns what the stages still hold; what one stage releases passes the later ones before they are flushed."""
        left = _Failures()
        parts = list(self._branched(_flushed(self.links, clothe, taps, left), taps, left))
        for output, links in self.branches.items():
            parts += _for(output, _flushed(links, clothe, taps, left))
        return list(map(_written, parts))

    def _branched(self, parts: Iterable[Part], taps: Taps, left: _Failures) -> Iterator[Part]:
        for part in parts:
            if part.outputs is None and not self.branches:
                yield part
                continue
            wanted = [name for name in self.outputs if part.outputs is None or name in part.outputs]
            plain = frozenset(name for name in wanted if name not in self.branches)
            if plain:
                yield part._replace(outputs=plain)
            for name in wanted:
                if name in self.branches:
                    own = [Part(part.batch, frozenset({name}))]
                    yield from _for(name, _through(self.branches[name], own, taps, left))


def chained(
    outputs: Sequence[str],
    processors: Sequence[Processor],
    branches: Mapping[str, Sequence[Processor]],
    link: Callable[[str, int, Processor], Link],
) -> Chain:
    """Returns the chain of an input: its processors, and by output (`branches`) those of outputs.

    `link` makes the link of a processor, of its output ("" before the outputs) and its number there.
    """

    def links(output: str, those: Sequence[Processor]) -> list[Link]:
        return [link(output, number, one) for number, one in enumerate(those)]

    return Chain(outputs, links("", processors), {output: links(output, those) for output, those in branches.items()})


def bounded(batch: Batch) -> Iterator[Batch]:
    """Splits a batch that has not entered yet into batches of at most MOST_EVENTS and MOST_WEIGHT, or of one event, in
    order."""
    if batch.count <= 1 or (batch.count <= MOST_EVENTS and batch.weight <= MOST_WEIGHT):
        yield batch
    else:
        for half in batch.pieces(len(batch.body) // 2):
            yield from bounded(half if half.is_relayed else replace(half, items=None))


def _through(links: Sequence[Link], parts: list[Part], taps: Taps, left: _Failures) -> list[Part]:
    for link in links:
        parts = [made for part in parts for made in link.on(part, left.of(link))]
        for part in parts:
            taps.offer(link.point, part.batch)
        parts = [part for part in parts if part.batch.count]
    return parts


def _flushed(links: Sequence[Link], clothe: Clothe, taps: Taps, left: _Failures) -> list[Part]:
    parts: list[Part] = []
    for number, link in enumerate(links):
        made = link.flush(clothe)
        for part in made:
            taps.offer(link.point, part.batch)
        parts += _through(links[number + 1 :], made, taps, left)
    return parts


def _for(output: str, parts: Iterable[Part]) -> list[Part]:
    """Returns what the processors of an output made, for that output alone."""
    only = frozenset({output})
    return [part._replace(outputs=only) for part in parts if part.outputs is None or output in part.outputs]


def _written(part: Part) -> Part:
    return part._replace(batch=door.check_written(part.batch))


def _parts(made: object) -> list[Part]:
    if not isinstance(made, list | tuple) or not all(isinstance(part, Part) for part in made):
        raise PluginFault(f"a batch is expected, not {type(made).__name__}")
    for part in made:
        if part.outputs is not None and not isinstance(part.outputs, frozenset | set):
            raise PluginFault(f"the outputs of a part are a set of names, not {type(part.outputs).__name__}")
    return [part._replace(outputs=None if part.outputs is None else frozenset(part.outputs)) for part in made]


def _anew(part: Part, *, may_be_unwritten: bool) -> Part:
    """Returns what a stage made; its events have their places in this batch."""
    batch = part.batch.anew() if isinstance(part.batch, Batch) else part.batch
    return part._replace(batch=door.check(batch, may_be_unwritten=may_be_unwritten))


def _within(outputs: frozenset[str] | None, before: frozenset[str] | None) -> frozenset[str] | None:
    if outputs is None or before is None:
        return before if outputs is None else outputs
    return outputs & before


class _Piece(NamedTuple):
    """Neighbouring events of a part, and what was made of them, or why they failed."""

    places: range
    made: Sequence[Part] = ()
    error: Exception | None = None


def _pieces(
    part: Part, places: range, run: Callable[[Part], list[Part]], error: Exception, failures: Iterator[int]
) -> Iterator[_Piece]:
    """Yields what becomes of the events at these places, with which `run` has failed, in their order."""
    if len(places) < 2 or next(failures, None) is None:
        yield _Piece(places, error=error)
        return
    middle = len(places) // 2
    for half in (places[:middle], places[middle:]):
        try:
            yield _Piece(half, run(part._replace(batch=part.batch.pick(half))))
        except Exception as error:
            yield from _pieces(part, half, run, error, failures)


def _picked(batch: Batch, places: range) -> Batch:
    return batch if len(places) == batch.count else batch.pick(places)


def _tagged(batch: Batch, message: str) -> Batch:
    try:
        return batch.replace([tagged(event, message, batch.shared) for event in batch.own()])
    except (TypeError, ValueError, RecursionError):
        raise PluginFault("a document is not valid JSON, or nested too deeply") from None


def _describe(error: Exception) -> str:
    return log.redacted(str(error)) if isinstance(error, PluginFault | OSError) else raised_at(error)


def _kind(error: Exception) -> str:
    return log.redacted(str(error)) if isinstance(error, PluginFault) else type(error).__name__
