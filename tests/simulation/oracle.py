"""The judge: from what was written, what reached the destinations and what the process said, nothing else.

L1 and L3 are judged by the world itself, which waits in vain. The letters are those of the properties:

    B1  `drained` before an event that it covers had its final answer
    B2  an event is on the wrong side of a cut
    B3  a request, or an open connection, with a credential that was released
    O7  a request began without a lease, or with a secret that was withdrawn
    B6  acks go backwards                     B7  an ack was taken back, or changed
    B8  a flawed policy was not refused       B9  a flawed policy has a stage
    B10 a drain ended by giving events up, though nobody ordered that
    B11 the counts of a ledger do not add up  B12 an event was read twice
    B13 a revision that changes nothing of an input closed it
    Q1  what was acknowledged was lost        O1  an event with a final answer was sent again
    O4  a busy destination was not left alone for as long as it asked
    O5  dead letters are not what was refused for ever
    O9  in strict order an event had its final answer before an earlier one
    T1  an event went where nobody sent it: elsewhere without an order, with another credential or after an answer
    L1  it does not come to rest              L2  a credential is kept for ever
    L3  it waits for a destination it does not need                                   L6  a hot loop
    L8  it looks healthy though an event has waited for long
    K1 to K7 are those of keyed state: see `last_word`
    P2  the end of the process                P6  it failed by itself                 E2  a nonce was used twice
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.march.kind import Violation, first_of_each
from tests.simulation import last_word
from tests.simulation.backend import POISON
from tests.simulation.case import Case, at_of
from tests.simulation.offers import At, Offer
from tests.simulation.scenario import Scenario
from tests.simulation.stage import Note

PIPE_SECONDS = 2.0
"""What a line takes to be heard, at most, and answered by all lanes."""
LONG_SECONDS = 25.0
"""Longer than a lane may be without progress before it is said, and than the disk may be slow."""
_DISK = {"disk_full", "disk_slow", "commit_fails"}


def judge(notes: Sequence[Note], scenario: Scenario) -> list[Violation]:
    """All that was violated in a world, one of each law."""
    return first_of_each(LAWS, Case(notes, scenario))


# -- the barrier -------------------------------------------------------------------------------------------------------


def drained_means_answered(case: Case) -> Iterator[Violation]:
    """B1: each event that entered under a revision whose lane a later one retired has its final answer by then."""
    active = case.active()
    drained: dict[At, Note] = {}
    for note, ack in case.said("ack", stage="drained"):
        drained.setdefault(at_of(ack), note)
    for (output, stream, number), answers in case.answers.items():
        for stamp in {answer.stamp for answer in answers}:
            first = next(answer for answer in answers if answer.stamp == stamp)
            covering = _covering(case, active, drained, output, stamp)
            if covering is not None and covering.n < first.n:
                at = at_of(covering.facts["message"])
                event = f"{stream} {number}, of revision {stamp}"
                yield Violation("B1", f"drained of {at} was said before {output} had its answer for {event}")


def _covering(case: Case, active: list[At], drained: dict[At, Note], output: str, stamp: int) -> Note | None:
    """The first `drained` that promises an answer for what entered under a stamp, bound for an output."""
    entered = case.by_stamp[stamp]
    identity = entered.shape.outputs.get(output)
    retiring = next(
        (at for at in active if at > entered.at and case.offers[at].shape.outputs.get(output) != identity), None
    )
    if retiring is None:
        return None
    notes = [note for at, note in drained.items() if at >= retiring]
    return min(notes, key=lambda note: note.n, default=None)


def sides_of_the_cut(case: Case) -> Iterator[Violation]:
    """B2: what was accepted before a policy was sent is older than it; what came after its `active` is not."""
    acks = [(note, at_of(ack)) for note, ack in case.said("ack", stage="active")]
    actives = {case.offers[at].stamp: note.n for note, at in acks if at in case.offers}
    for (_, stream, number), answers in case.answers.items():
        begun = case.emitting[stream, number]
        stamps = {answer.stamp for answer in answers}
        if len(begun) != 1 or len(stamps) != 1:
            continue
        (stamp,) = stamps
        ended = case.emitted.get((stream, number))
        if any(stamp < newer and n < begun[0] for newer, n in actives.items()):
            yield Violation(
                "B2", f"{stream} {number} came after a newer revision was active, and entered under {stamp}"
            )
        if ended is not None and case.sent[case.by_stamp[stamp].at] > ended:
            yield Violation("B2", f"{stream} {number} was accepted before revision {stamp} was sent, and is of it")


def released_means_unused(case: Case) -> Iterator[Violation]:
    """B3: after its release, no request with a credential and no open connection."""
    revoked: dict[str, int] = {}
    open_: dict[str, int] = defaultdict(int)
    for note in case.notes:
        credential = note.facts.get("credential", "")
        match note.kind:
            case "opened":
                open_[credential] += 1
                if credential in revoked:
                    yield Violation("B3", f"a connection was opened with {credential} after its release")
            case "closed":
                open_[credential] -= 1
            case "crashed":
                open_.clear()
            case "revoked":
                revoked[credential] = note.n
                if open_[credential] > 0:
                    yield Violation("B3", f"{credential} was released while a connection with it was open")
            case "request" if credential in revoked:
                yield Violation("B3", f"a request with {credential} arrived after its release")


def nothing_begins_without_a_lease(case: Case) -> Iterator[Violation]:
    """O7: none that was said in this life was still good; which of them was heard does not matter."""
    latest = math.inf
    for note in case.notes:
        match note.kind:
            case "greeted":
                latest = -math.inf if note.facts["lease"] else math.inf
            case "leased":
                until = note.facts["until"]
                latest = math.inf if until is None else max(latest, until)
            case "begun" if note.facts["boottime"] >= latest:
                yield Violation("O7", f"a request of {note.facts['output']} began after the longest lease")


def nothing_begins_with_a_withdrawn_secret(case: Case) -> Iterator[Violation]:
    """O7: none since it was said to be wanted, unless it was sent again since it was withdrawn."""
    withdrawn: set[str] = set()
    gone: set[str] = set()
    for note in case.notes:
        match note.kind:
            case "greeted":
                withdrawn, gone = set(), set()
            case "withdrawn":
                withdrawn.add(note.facts["credential"])
            case "supplied":
                withdrawn.difference_update(note.facts["credentials"])
                gone.difference_update(note.facts["credentials"])
            case "sent":
                withdrawn -= note.facts["offer"].shape.credentials
                gone -= note.facts["offer"].shape.credentials
            case "said" if note.facts["message"]["type"] == "observed":
                gone |= withdrawn.intersection(note.facts["message"]["credentials_wanted"])
            case "begun" if note.facts["credential"] in gone:
                yield Violation("O7", f"a request began with {note.facts['credential']}, which was withdrawn")


def released_stays_released(case: Case) -> Iterator[Violation]:
    """L2, B3: a released credential is not asked for again, and at the end only the last policy's are in use."""
    revoked: set[str] = set()
    for note in case.notes:
        if note.kind == "revoked":
            revoked.add(note.facts["credential"])
        elif note.kind == "said" and (
            again := revoked.intersection(note.facts["message"].get("credentials_wanted", ()))
        ):
            yield Violation("B3", f"{sorted(again)} were released, and are wanted")
    if case.is_over:
        last = max(case.offers)
        uses = [ack["credentials"]["in_use"] for _, ack in case.said("ack", stage="drained") if at_of(ack) == last]
        if kept := set(uses[-1]) - case.offers[last].shape.credentials:
            yield Violation("L2", f"{sorted(kept)} are in use though only {last} is left")


# -- the conversation --------------------------------------------------------------------------------------------------


def acks_are_monotone(case: Case) -> Iterator[Violation]:
    """B6, B7: `active` and `drained` rise, over restarts too; what was said is repeated identically."""
    texts: dict[tuple[At, str], Any] = {}
    highest: dict[str, At] = {}
    first: set[tuple[At, str]] = set()
    for note, message in case.said("ready", "ack"):
        if message["type"] == "ready":
            for stage in ("active", "drained"):
                stored = tuple(message["revisions"][stage] or (-1, -1))
                if stored < highest.get(stage, (-1, -1)):
                    yield Violation("B7", f"{stage} {highest[stage]} was said, and after a restart it is {stored}")
            continue
        at, stage = at_of(message), message["stage"]
        if stage != "received" and (at, stage) not in first and at < highest.get(stage, at):
            yield Violation("B6", f"{stage} of {at} came after that of {highest[stage]}")
        first.add((at, stage))
        highest[stage] = max(highest.get(stage, at), at)
        if texts.setdefault((at, stage), message) != message and stage == "drained":
            yield Violation("B7", f"drained of {at} changed: {texts[at, stage]} became {message}")
        if at in case.offers and message["sha256"] != case.offers[at].sha256:
            yield Violation("B7", f"the ack of {at} names another text")
        if stage == "active" and note.n < case.first_sent.get(at, 0):
            yield Violation("B7", f"{at} was {stage} before it was sent")


def ledgers_add_up(case: Case) -> Iterator[Violation]:
    """B11: accepted = delivered + duplicate + dead_letter + dropped + damaged + superseded."""
    for _, ack in case.said("ack", stage="drained"):
        counts = dict(ack["ledger"])
        if counts.pop("accepted") != sum(counts.values()) or counts["damaged"]:
            yield Violation("B11", f"the ledger of {at_of(ack)} is {ack['ledger']}")


def nothing_is_given_up_unasked(case: Case) -> Iterator[Violation]:
    """B10: a drain ends by answers; events are dropped by order only, and dead letters without one were refused."""
    if case.ended_by_order:
        return
    for _, ack in case.said("ack", stage="drained"):
        ledger = ack["ledger"]
        if ledger["dropped"] or (ledger["dead_letter"] and "poison" not in case.scenario.rates):
            yield Violation("B10", f"nobody ordered it, and the ledger of {at_of(ack)} is {ledger}")


_DESERVED = {"conflict": {"conflict", "stale"}}
"""Where a newer revision became active meanwhile, the number is simply old."""


def flaws_are_refused(case: Case) -> Iterator[Violation]:
    """B8, B9: a flawed policy is nacked for its flaw, if the process lived long enough, and never has a stage."""
    for note in case.notes:
        if note.kind != "sent" or note.facts["offer"].flaw is None:
            continue
        flawed: Offer = note.facts["offer"]
        answers = [
            message for other, message in case.said("ack", "nack") if other.n > note.n and at_of(message) == flawed.at
        ]
        reasons = {message["reason"] for message in answers if message["type"] == "nack"}
        if not _heard_to_the_end(case, note) or reasons & _DESERVED.get(flawed.flaw or "", {flawed.flaw}):
            continue
        yield Violation("B8", f"a policy {flawed.at} that is {flawed.flaw} was answered by {sorted(reasons)}")


def _heard_to_the_end(case: Case, sent: Note) -> bool:
    """Whether the process that a line was sent to lived on until the world was over."""
    later = case.notes[sent.n :]
    return case.is_over and not any(note.kind in ("crashed", "started", "told_to_stop") for note in later)


# -- events ------------------------------------------------------------------------------------------------------------


def nothing_is_lost(case: Case) -> Iterator[Violation]:
    """Q1: at the end every event that was written has a final answer of every output of its route."""
    if not case.is_over or case.ended_by_order:
        return
    reached: dict[tuple[str, int], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for (output, stream, number), answers in case.answers.items():
        for answer in answers:
            reached[stream, number][answer.stamp].add(output)
    written = {note.facts["stream"]: note.facts["upto"] for note in case.notes if note.kind == "written"}
    for stream, number in ((stream, number) for stream, upto in written.items() for number in range(1, upto + 1)):
        stamps = reached[stream, number]
        if not stamps:
            yield Violation("Q1", f"{stream} {number} never arrived")
        for stamp, outputs in stamps.items():
            if missing := set(case.by_stamp[stamp].shape.route(stream)) - outputs:
                yield Violation("Q1", f"{stream} {number}, of revision {stamp}, never arrived at {sorted(missing)}")


def nothing_goes_elsewhere_unasked(case: Case) -> Iterator[Violation]:
    """T1: without an order, events go elsewhere only from where no request ever began, with the credential they had.

    Whichever output and identity it was of, in this life or an earlier one, crashed or not.
    """
    if case.may_forward:
        return
    contacted: dict[str, int] = {}
    for note in (note for note in case.notes if note.kind == "contacted"):
        contacted.setdefault(note.facts["backend"], note.n)
    for note in (note for note in case.notes if note.kind == "request"):
        output, backend, credential = (note.facts[name] for name in ("output", "backend", "credential"))
        for stamp in {event.stamp for event in note.facts["events"]}:
            own = case.by_stamp[stamp].shape.outputs[output]
            if (own.to, own.credential) == (backend, credential):
                continue
            if own.credential != credential:
                yield Violation("T1", f"what entered under {stamp} went to {backend} with {credential}, unasked")
            if contacted.get(own.to, note.n) < min(note.n, case.replaced(output, stamp)):
                yield Violation("T1", f"what entered under {stamp} left {own.to}, where a request had begun, unasked")


def every_event_has_one_id(case: Case) -> Iterator[Violation]:
    """B12: an event that was read twice would have two ids."""
    for (output, stream, number), answers in case.answers.items():
        if len(ids := {answer.id for answer in answers}) > 1:
            yield Violation("B12", f"{stream} {number} reached {output} under {len(ids)} ids")


def what_stays_reads_on(case: Case) -> Iterator[Violation]:
    """B13: an input that reads is closed by a revision that wants it otherwise, or by the end of the process."""
    active, since = (-1, -1), {}
    stopping = False
    for note in case.notes:
        match note.kind:
            case "started":
                stopping = False
            case "told_to_stop" | "at_rest":
                stopping = True
            case "said" if note.facts["message"].get("stage") == "active":
                active = max(active, at_of(note.facts["message"]))
            case "reading":
                since[note.facts["stream"]] = active
            case "read_no_more" if not stopping:
                stream, spot = note.facts["stream"], note.facts["spot"]
                newer = [offer for at, offer in case.offers.items() if since[stream] < at and case.sent[at] < note.n]
                if all(_reads(offer, stream, spot) for offer in newer):
                    yield Violation("B13", f"{stream} was closed, and no revision above {since[stream]} wanted that")


def _reads(offer: Offer, stream: str, spot: int) -> bool:
    feed = offer.shape.inputs.get(stream)
    return feed is not None and feed.spot == spot and bool(offer.shape.route(stream))


def who_waits_long_does_not_look_healthy(case: Case) -> Iterator[Violation]:
    """L8: a lane that was given an event long ago, and since then answered none, is not HEALTHY."""
    progress = _progress(case)
    for lane, spans in _waits(case).items():
        ends = sorted(progress[lane])
        for note, message in case.said("observed"):
            if message["state"] != "HEALTHY":
                continue
            before = [end for end in ends if end < note.n]
            since = max(case.notes[before[-1]].at if before else 0.0, _started(case, note))
            waiting = [case.notes[begin].at for begin, end in spans if begin < note.n < end]
            if waiting and note.at - max(since, min(waiting)) > LONG_SECONDS:
                yield Violation("L8", f"HEALTHY at {note.at:.0f} s, and {lane} waits since {min(waiting):.0f} s")


def _progress(case: Case) -> dict[tuple[str, object], list[int]]:
    """By output and its target: when events, or versions of keys, had their answers there."""
    ends: dict[tuple[str, object], list[int]] = defaultdict(list)
    ends.update((lane, list(placed)) for lane, placed in case.placed.items())
    for (output, _, _), answers in case.answers.items():
        for answer in answers:
            ends[output, answer.target].append(answer.n)
    return ends


def _waits(case: Case) -> dict[tuple[str, object], list[tuple[int, int]]]:
    """By output and its target: when an event was accepted, and when it had its answer, unless it went elsewhere."""
    spans: dict[tuple[str, object], list[tuple[int, int]]] = defaultdict(list)
    for (output, stream, number), answers in case.answers.items():
        target = case.by_stamp[answers[0].stamp].shape.outputs.get(output)
        if (stream, number) in case.emitted and target == answers[0].target:
            spans[output, target].append((case.emitted[stream, number], answers[0].n))
    return spans


def _started(case: Case, note: Note) -> float:
    return max(other.at for other in case.notes[: note.n] if other.kind == "started")


def answered_is_not_sent_again(case: Case) -> Iterator[Violation]:
    """O1: within one life, what has its final answer is not sent again (but what a peer handed over twice is)."""
    for (output, stream, number), answers in case.answers.items():
        if len(case.emitting[stream, number]) > 1:
            continue
        seen: set[tuple[int, int]] = set()
        for answer in answers:
            if (answer.life, answer.stamp) in seen:
                yield Violation("O1", f"{stream} {number} was sent to {output} again after its final answer")
            seen.add((answer.life, answer.stamp))


def order_is_kept(case: Case) -> Iterator[Violation]:
    """O9: in strict order, what a stream wrote first under a revision had its first final answer first."""
    if not case.scenario.is_ordered or case.may_forward or case.ended_by_order:
        return
    latest: dict[tuple[object, ...], tuple[int, int]] = {}
    for (output, stream, number), answers in sorted(case.answers.items()):
        first = answers[0]
        if len(case.emitting[stream, number]) > 1:
            continue
        lane = (output, stream, first.target, first.stamp)
        before, answered = latest.get(lane, (number, first.n))
        if first.n < answered and case.emitted.get((stream, before), math.inf) < case.emitting[stream, number][0]:
            yield Violation("O9", f"{output} had its answer for {stream} {number} before that for {before}")
        latest[lane] = (number, first.n)


def busy_is_left_alone(case: Case) -> Iterator[Violation]:
    """O4: what was refused for some seconds does not come again before, whatever happens elsewhere.

    Only a wait that was heard counts: an order aborts requests, and one of them may reach a busy destination all the
    same. A new process knows of no wait, and an order may move events to a lane that may ask. Settings that change
    (here the workers), and a secret that comes again, end the waits of their outputs: worlds with that are not judged.
    An output that fails by itself in the instant of an answer takes it with it.
    """
    if case.ended_by_order or {"task_fails", "tune", "withdraw"} & case.scenario.names():
        return
    calm_from = 0.0
    until: dict[tuple[str, ...], float] = {}
    for note in case.notes:
        match note.kind:
            case "started" | "acted":
                until.clear()
                calm_from = note.at + PIPE_SECONDS
            case "busy" if note.at >= calm_from:
                until |= dict.fromkeys(_places(note), note.at + note.facts["seconds"])
            case "request":
                if any(note.at < until.get(place, 0.0) for place in _places(note)):
                    yield Violation("O4", f"a request came again before {note.facts['backend']} wanted it")


def _places(note: Note) -> list[tuple[str, ...]]:
    """The events of a request, by the lane: what a peer handed over twice may stand on two."""
    lane = tuple(note.facts[name] for name in ("output", "backend", "credential"))
    return [(*lane, event.id) for event in note.facts["events"]]


def dead_letters_are_the_refused(case: Case) -> Iterator[Violation]:
    """O5, O6: the dead letters are the events that were refused for ever, and no others."""
    if not case.is_over or case.ended_by_order:
        return
    listed = {
        (letter["output"], letter["event_id"])
        for _, result in case.said("result")
        for letter in result["result"].get("dead_letters", ())
        if "state" not in letter
    }
    refused = {
        (output, answer.id)
        for (output, _, number), answers in case.answers.items()
        for answer in answers
        if "poison" in case.scenario.rates and number % POISON == 0
    }
    if listed != refused:
        yield Violation(
            "O5",
            f"{len(refused - listed)} refused events are no dead letters, {len(listed - refused)} are for no refusal",
        )


# -- the process -------------------------------------------------------------------------------------------------------


def it_ends_in_order(case: Case) -> Iterator[Violation]:
    """P2, P6, L6, E2: it ends with status 0 when told to, says so, and never fails by itself."""
    stopped = 0
    for note in case.notes:
        match note.kind:
            case "started":
                stopped = 0
            case "said" if note.facts["message"]["type"] == "stopped":
                stopped += 1
            case "nonce_reused":
                yield Violation("E2", f"a key and a nonce sealed two texts, one of them a {note.facts['of']}")
            case "livelock":
                yield Violation("L6", "it went round and round without getting anywhere")
            case "failed":
                yield Violation("P6", f"the process failed: {note.facts['error']}")
            case "ended" if note.facts["status"] != 0 and not _DISK.intersection(case.scenario.names()):
                yield Violation("P2", f"the process ended with status {note.facts['status']}")
    if case.is_over:
        ends = [message for _, message in case.said("stopped")]
        if not stopped or ends[-1] != {"type": "stopped", "clean": True, "undelivered": 0}:
            yield Violation("P2", f"at the end it said {ends[-1:]}")


LAWS: tuple[Callable[[Case], Iterator[Violation]], ...] = (
    drained_means_answered,
    sides_of_the_cut,
    released_means_unused,
    nothing_begins_without_a_lease,
    nothing_begins_with_a_withdrawn_secret,
    released_stays_released,
    acks_are_monotone,
    ledgers_add_up,
    nothing_is_given_up_unasked,
    flaws_are_refused,
    nothing_is_lost,
    nothing_goes_elsewhere_unasked,
    every_event_has_one_id,
    what_stays_reads_on,
    who_waits_long_does_not_look_healthy,
    answered_is_not_sent_again,
    order_is_kept,
    busy_is_left_alone,
    dead_letters_are_the_refused,
    it_ends_in_order,
    last_word.keyed_state,
)
