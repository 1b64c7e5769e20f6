"""One attempt to deliver a batch: which events have their final answer, and which remain to be sent. No I/O.

`Session` sends; the attempt decides what to send next, and what to note in the spool. The reasons of the output enter
here, and lose their secrets: what becomes of them is stored, and shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from shipper.pipeline.attempts.fences import Fences
from shipper.pipeline.attempts.stable import Stable
from shipper.plugin import Answer, Answers, Outcome
from shipper.process.log import redacted
from shipper.sdk.codes import Code
from shipper.sdk.errors import Later, PluginFault
from shipper.sdk.event import Batch
from shipper.sdk.weights import MOST_WEIGHT
from shipper.spool.drain_orders import letters_of
from shipper.spool.queue import Settlement
from shipper.values import Confirmed, Counts

SMALL_BYTES = 64 << 10
"""Bytes of an event as JSON. A destination that finds a smaller event too large has a wrong limit, or its proxy has."""
SMALL_EVENTS = 8
"""If the output fails on so many events and delivers none, the rest of the batch waits for a later attempt."""
_BEYOND = (Outcome.DEAD_LETTER, Outcome.DROPPED, Outcome.DAMAGED)
"""Final answers from further on, for events that the destination had taken before."""
_FINAL = (Outcome.DELIVERED, Outcome.DUPLICATE, Outcome.REJECTED, Outcome.SUPERSEDED, *_BEYOND)


@dataclass(slots=True)
class Trouble:
    """Why a lane stops sending for a while. `held`: the destination refuses our credential or request, which a person
    must mend."""

    reason: str
    held: bool = False
    retry_after: float | None = None
    is_of_left: bool = False
    """Whether the destination answers, and all that remains was left behind."""
    code: str = Code.UNAVAILABLE
    batch: int | None = None
    """The place of the batch, if its events may be the cause; None if the destination is."""

    def __post_init__(self) -> None:
        self.reason = redacted(self.reason)


MOST_WAIT = 86400.0
"""The longest wait, in seconds, that a destination can ask for; each destination is tried once a day."""

_PUT_OFF = Answer(Outcome.LATER)
_NO_SECONDS = "the output states a wait that is no number of seconds"


class Attempt:
    """The answers for the events of one batch, collected from the requests for pieces of it."""

    def __init__(self, batch: Batch) -> None:
        self.ordered = False
        """Whether strict order holds: no event is sent after one without a final answer, which makes the lane wait
        (`overloaded`)."""
        self.stable: Stable | None = None
        """If requests stay the same: which there are. Of each, all events have their final answers, or none has."""
        self.batch = batch
        """The batch; empty once everything was delivered, since only answers must be noted then."""
        self.targets: Sequence[str] | None = None
        """The place of each event within the destination; None while no place matters."""
        self.asked_place: str | None = None
        """The target that this attempt asks whether it takes events again."""
        self.fences: Fences | None = None
        """Of keyed state: by which it waits when it is fenced again."""
        self._count = batch.count
        self.trouble: Trouble | None = None
        self.doubt: Trouble | None = None
        """Why the output may be unable to handle some event."""
        self.retry_after: float | None = None
        self._is_stored = False
        """Whether an answer means that another shipper has stored the events."""
        self._pieces = self._cut(range(batch.count), MOST_WEIGHT)
        """What is still to be sent, each for a request; the next one is the last."""
        self._tally: Counter[Outcome] = Counter()
        self._rejected: dict[int, str] = {}
        self._others: dict[int, Answer] = {}
        """By position, the final answers of other events that were not simply delivered."""
        self._open: dict[int, Answer] = {}
        self._unasked: frozenset[int] = frozenset()
        self._is_probe = False
        self._small = 0
        """How many small events were too large for the destination."""
        self._doubted: dict[int, str] = {}
        """By position, why the output failed on the event alone."""

    @classmethod
    def probe(cls, batch: Batch, events: int) -> Attempt:
        """Returns an attempt for the first few events; the others stay open and follow when these are answered."""
        attempt = cls(batch)
        attempt._is_probe = batch.count > events
        attempt._ask(range(min(events, batch.count)))
        return attempt

    def leave_out(self, targets: Collection[str]) -> None:
        """Leaves out the events of these targets."""
        assert self.targets is not None
        self._ask([at for at, target in enumerate(self.targets) if target not in targets])

    def ask_target(self, target: str, events: int) -> None:
        """Sends only a few events of this target."""
        assert self.targets is not None
        self.asked_place = target
        self._ask([at for at, own in enumerate(self.targets) if own == target][:events])

    def stay_the_same(self, stable: Stable, most_bytes: int) -> None:
        """Sends what was sent before, or a request that is composed for the first time."""
        self.stable = stable
        self._ask(stable.asked, max(MOST_WEIGHT, most_bytes) if stable.is_new else None)

    def _ask(self, positions: Sequence[int], most_weight: int | None = MOST_WEIGHT) -> None:
        asked = frozenset(positions)
        self._pieces = self._cut(positions, most_weight)
        self._unasked = frozenset(at for at in range(self._count) if at not in asked)

    def _cut(self, positions: Sequence[int], most_weight: int | None) -> list[Sequence[int]]:
        """Returns the pieces for positions; None: they go together, whatever they weigh."""
        most = self._count if most_weight is None else self.batch.together_within(most_weight)
        return [positions[at : at + most] for at in range(0, len(positions), max(most, 1))][::-1]

    # -- what to send --------------------------------------------------------------------------------------------------

    @property
    def stops(self) -> bool:
        """Whether the lane waits as long as an event has no final answer."""
        return self.ordered or self.stable is not None

    def next_piece(self) -> tuple[Sequence[int], Batch] | None:
        """Returns the positions and the events of the next request; None when nothing remains to be sent."""
        if not self._pieces or self.trouble is not None or (self.ordered and self._open):
            return None
        positions = self._pieces[-1]
        is_whole = len(positions) == self._count
        return positions, self.batch if is_whole else self.batch.pick(positions)

    # -- what was answered ---------------------------------------------------------------------------------------------

    def answered(self, positions: Sequence[int], answers: Answers) -> None:
        """Notes the destination's answers for the last `next_piece`.

        Raises PluginFault, and notes nothing, if they are no answers, or not one for each event.
        """
        _check_answers(answers)
        if answers.count != len(positions) or not all(0 <= at < answers.count for at in answers.others):
            raise PluginFault(f"the output answered for {answers.count} of {len(positions)} events")
        if self.batch.versions is None and any(each.outcome is Outcome.SUPERSEDED for each in answers.others.values()):
            raise PluginFault("the output says of a log event that a newer version has superseded it")
        if self.batch.versions is not None and self.fences is not None:
            answers = self.fences.judged([self.batch.versions[at] for at in positions], answers)
        self._pieces.pop()
        open = [answer for answer in answers.others.values() if answer.outcome not in _FINAL]
        if self.stable is not None and open:
            self._leave_whole(positions, open)
        else:
            self._take(positions, answers)
        try:
            self.retry_after = seconds(answers.retry_after)
        except PluginFault as fault:
            self.failed(Trouble(str(fault), code=fault.code))

    def _take(self, positions: Sequence[int], answers: Answers) -> None:
        if self.stable is not None:
            self.stable.note_answered(positions)
        self._is_stored |= answers.is_stored
        self._tally[Outcome.DELIVERED] += len(positions) - len(answers.others)
        reasons = {reason: redacted(reason) for reason in {answer.reason for answer in answers.others.values()}}
        for at, answer in answers.others.items():
            reason = reasons[answer.reason]
            self._note(positions[at], answer if reason == answer.reason else replace(answer, reason=reason))
        if self._tally[Outcome.DELIVERED] == self._count:
            self.batch = Batch.documents(())

    def _leave_whole(self, positions: Sequence[int], open: Sequence[Answer]) -> None:
        """Notes that a request stays open as a whole: some of its events have no final answer."""
        worst = min(open, key=lambda answer: answer.outcome is not Outcome.HELD)
        answer = Answer(worst.outcome, redacted(worst.reason), code=worst.code)
        self._open.update(dict.fromkeys(positions, answer))

    def too_large(self, positions: Sequence[int], reason: str, code: str = Code.TOO_LARGE) -> None:
        """Notes that the request was too large: its halves are next. A single event is rejected, unless it is small."""
        if self._halve(positions):
            return
        reason = redacted(reason)
        if (size := len(self.batch.pick(positions).json_lines())) > SMALL_BYTES:
            self._note(positions[0], Answer(Outcome.REJECTED, reason, code=code))
        else:
            self._small += 1
            reason = f"{reason} for one event of {size} bytes: raise the limit there, or that of a proxy on the way"
            held = Answer(Outcome.HELD, reason, code=code)
            self._note(positions[0], held)
            self._pieces.reverse()  # from the other end next: an event there may be delivered
            if self._small == SMALL_EVENTS and not self.progress:
                self._leave_open(held)

    def broke(
        self, positions: Sequence[int], reason: str, *, works_otherwise: bool, code: str = Code.INTERNAL_ERROR
    ) -> None:
        """Notes that the output failed: the halves are next. A single event stays in doubt until it is `given_up`.

        If the output was never seen to work, so many failing events end the attempt.
        """
        if self._halve(positions):
            return
        self._doubted[positions[0]] = reason = redacted(reason)
        self.doubt = Trouble(reason, code=code)
        put_off = Answer(Outcome.LATER, reason, code=code)
        self._note(positions[0], put_off)
        self._pieces.reverse()  # from the other end next: an event there may be delivered
        if len(self._doubted) == SMALL_EVENTS and not (works_otherwise or self.progress):
            self._leave_open(put_off)

    def give_up_doubted(self) -> None:
        """Notes that the output works for other events: those on which it failed alone are rejected."""
        for position, reason in self._doubted.items():
            del self._open[position]
            self._note(position, Answer(Outcome.REJECTED, reason, code=Code.INTERNAL_ERROR))
        self._doubted.clear()

    def _halve(self, positions: Sequence[int]) -> bool:
        """Splits the last piece; returns False for a single event."""
        self._pieces.pop()
        middle = len(positions) // 2
        if middle:
            self._pieces += [positions[middle:], positions[:middle]]
        return middle > 0

    def put_off(self, error: Later) -> None:
        """Notes that the output raised an error: the last piece and everything not yet sent have no answer."""
        try:
            self.failed(Trouble(str(error), retry_after=seconds(error.retry_after), code=error.code))
        except PluginFault as fault:
            self.failed(Trouble(f"{fault}: {error}", code=fault.code))

    def failed(self, trouble: Trouble) -> None:
        """Notes that the last piece, and everything not yet sent, has no answer."""
        self.trouble = trouble
        outcome = Outcome.HELD if trouble.held else Outcome.LATER
        self._leave_open(Answer(outcome, trouble.reason, code=trouble.code))

    def _leave_open(self, answer: Answer) -> None:
        for piece in self._pieces:
            self._open.update(dict.fromkeys(piece, answer))
        self._pieces.clear()

    def _note(self, position: int, answer: Answer) -> None:
        if answer.outcome not in _FINAL:
            self._open[position] = answer
            return
        self._tally[answer.outcome] += 1
        if answer.outcome is Outcome.REJECTED:
            self._rejected[position] = answer.reason
        elif answer.outcome is not Outcome.DELIVERED:
            self._others[position] = answer

    # -- what follows --------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> int:
        """Returns the number of events with a final answer."""
        return self._tally.total()

    @property
    def has_rejected(self) -> bool:
        """Whether some final answer is a rejection."""
        return bool(self._rejected)

    def worst(self) -> Answer:
        """Returns why events are left: one answer for all, a refusal rather than a delay; it may have no reason."""
        answers = sorted(self._open.values(), key=lambda answer: answer.outcome is not Outcome.HELD)
        return next((answer for answer in answers if answer.reason), _PUT_OFF)

    def overloaded(self) -> Trouble | None:
        """Returns why the whole lane must wait: the destination put off most events singly, or any event in strict
        order."""
        later = sum(answer.outcome is Outcome.LATER and not answer.of_target for answer in self._open.values())
        is_stopped = self.stops and bool(self._open or self._pieces)
        if self.trouble is not None or not (is_stopped or later * 2 > self._count - len(self._unasked)):
            return self.trouble
        worst = self.worst()
        held = is_stopped and worst.outcome is Outcome.HELD
        return Trouble(worst.reason or "events were put off", held, self.retry_after, code=worst.code)

    @property
    def blames_events(self) -> bool:
        """Whether open events may be open for what they contain: the output failed on them, or they hold up a strict
        order."""
        return self.doubt is not None or (self.stops and self.trouble is None)

    @property
    def is_asked(self) -> bool:
        """Whether there was anything to send."""
        return len(self._unasked) < self._count

    @property
    def is_singly_put_off(self) -> bool:
        """Whether events were put off singly, not because of their target."""
        return any(not answer.of_target for answer in self._open.values())

    def refusals(self) -> dict[int, Answer]:
        """Returns, by position, the answers that hold for all events of the same target."""
        return {at: answer for at, answer in self._open.items() if answer.of_target}

    def refused_targets(self) -> dict[str, Answer]:
        """Returns the targets that refused events and took none in this attempt."""
        if self.targets is None:
            return {}
        takes = self.taking_targets()
        refused = {self.targets[at]: answer for at, answer in self.refusals().items()}
        return {target: answer for target, answer in refused.items() if target not in takes}

    def taking_targets(self) -> frozenset[str]:
        """Returns the targets that gave a final answer for some event."""
        if self.targets is None:
            return frozenset()
        still_open = frozenset(self._still_open(range(self._count)))
        return frozenset(target for at, target in enumerate(self.targets) if at not in still_open)

    def keeps(self, part: range) -> set[str | None] | None:
        """Returns what the open events of a part wait for: their targets, and None for events that were put off singly.

        Returns None for the whole if some were never sent, or the lane waits for them: they come again at once. After a
        question to a target, the question is repeated instead.
        """
        in_vain = self.trouble is not None or bool(self._pieces)
        if self._is_probe or self.stops or (in_vain and self.asked_place is None):
            return None
        return {self._keeper(at, in_vain=in_vain) for at in self._still_open(part)}

    def _keeper(self, at: int, *, in_vain: bool) -> str | None:
        answer = self._open.get(at)
        is_of_place = in_vain or answer is None or answer.of_target
        return self.targets[at] if is_of_place and self.targets else None

    def _still_open(self, part: range) -> list[int]:
        """Linear in the part: a parcel has hundreds of parts, and all their events are open when a target refuses
        everything."""
        unsent = frozenset(chain(*self._pieces))
        if not (self._open or self._unasked or unsent):
            return []
        return [at for at in part if at in self._open or at in self._unasked or at in unsent]

    def is_open(self, part: range) -> bool:
        """Whether events of a part have no final answer."""
        return bool(self._still_open(part))

    def rejected(self, part: range) -> int:
        """Returns the number of events of a part that the destination rejected."""
        return sum(at in self._rejected for at in part) if self._rejected else 0

    def settlement(
        self,
        output: str,
        part: range | None = None,
        *,
        letters: Collection[int] | None = None,
        place: int | None = None,
    ) -> Settlement | None:
        """Returns what to note in the spool for a part (None: for all events); None if nothing changed.

        An event without an answer is open, whatever kept it from being sent.

        Of the rejected events, those with the positions `letters` become dead letters (None: all do); the others stay
        open for lack of room. `place` is the place of a part that is a version of a key.
        """
        within = range(self._count) if part is None else part
        rejected = {at: self._rejected[at] for at in within if at in self._rejected} if self._rejected else {}
        still_open = self._still_open(within)
        if letters is not None:
            kept = {at for number, at in enumerate(sorted(rejected)) if number not in letters}
            still_open = sorted((*still_open, *kept))
            rejected = {at: reason for at, reason in rejected.items() if at not in kept}
        if len(still_open) == len(within):
            return None
        others = {at: self._others[at] for at in within if at in self._others} if self._others else {}
        tally = Counter(answer.outcome for answer in others.values())
        answered = len(within) - len(still_open)
        counts = Counts(
            delivered=answered - len(rejected) - len(others),
            duplicate=tally[Outcome.DUPLICATE],
            dead_letter=len(rejected) + tally[Outcome.DEAD_LETTER],
            dropped=tally[Outcome.DROPPED],
            damaged=tally[Outcome.DAMAGED],
            superseded=tally[Outcome.SUPERSEDED],
        )
        rest = self.batch.pick(still_open) if still_open else None
        fence = next((one.fence for one in others.values() if one.outcome is Outcome.SUPERSEDED), None)
        answers = self._answers(rejected, others) if answered > counts.delivered else {}
        confirmed = Confirmed.STORED if self._is_stored else Confirmed.DELIVERED
        if counts.answered == len(rejected):
            confirmed = Confirmed.UNKNOWN
        written = letters_of(self.batch, rejected, output)
        return Settlement(counts, written, rest, place, answers, fence, confirmed=confirmed)

    def _answers(self, rejected: Collection[int], others: Mapping[int, Answer]) -> dict[int, Outcome]:
        """Returns, by item, the outcome of each event that was not simply delivered; `rejected` have become dead
        letters."""
        items = range(self._count) if self.batch.items is None else self.batch.items
        given = {items[at]: Outcome.REJECTED for at in rejected}
        return given | {items[at]: answer.outcome for at, answer in others.items()}


def seconds(wait: object) -> float | None:
    """Returns the wait that a destination asked for, as an output gives it; raises PluginFault for an invalid one."""
    if wait is None:
        return None
    if isinstance(wait, bool) or not isinstance(wait, int | float) or wait != wait:
        raise PluginFault(_NO_SECONDS)
    return float(min(max(wait, 0.0), MOST_WAIT))


def _check_answers(answers: object) -> None:
    if not isinstance(answers, Answers):
        raise PluginFault(f"the output answered with {type(answers).__name__}, not with answers")
    if not isinstance(answers.count, int) or not all(isinstance(at, int) for at in answers.others):
        raise PluginFault("the output answered with positions that are no numbers")
    if not all(isinstance(answer, Answer) and isinstance(answer.reason, str) for answer in answers.others.values()):
        raise PluginFault("the output returned something else than an answer for an event")
