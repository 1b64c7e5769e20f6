"""The laws of keyed state, judged from the notes of the outside alone.

    K1 a destination that is routed to does not have the last word about a key, and nothing says why
    K2 a destination applied an older version of a key after a newer one
    K3 `drained` before a version that it covers had its final answer, and nothing newer was on its way there
    K4 dead letters of keyed state are not what was refused for ever
    K5 the answers to an input do not rise, or acknowledge what is older than the fence
    K6 a version went where no revision ever pointed
    K7 a version got another place, though a process had admitted it that knew nothing of the fence

What is newer is known by the numbers that the one who changes a key counts, and by the places that the input was given
for them; that of a deletion is seen at a destination by its place alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.march.kind import Violation
from tests.simulation.case import Case, at_of
from tests.simulation.offers import At, Offer
from tests.simulation.stage import Note
from tests.simulation.things import NAME, Key, Word

Destination = tuple[str, str]
"""An output, and the backend that it goes to."""


class Kept(NamedTuple):
    """A word that the shipper has acknowledged, from `begun` to `n`."""

    word: Word
    begun: int
    n: int
    place: int
    fenced: bool


class Reply(NamedTuple):
    """A final answer for a version."""

    n: int
    life: int
    place: int
    outcome: str


class Course:
    """What became of keys, sorted."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.last: dict[Key, Word] = {}
        self.offered: dict[tuple[Key, int], list[Note]] = defaultdict(list)
        """When a word was given to the shipper."""
        self.kept: dict[Key, list[Kept]] = defaultdict(list)
        self.unsound: list[Note] = []
        self.applied: dict[tuple[Destination, Key], list[tuple[int, int, int | None]]] = defaultdict(list)
        """When, at which place, and the number, which no deletion has."""
        self.overwritten: dict[tuple[Destination, Key], list[int]] = defaultdict(list)
        self.replies: dict[tuple[Destination, Key], list[Reply]] = defaultdict(list)
        self.contacted: dict[str, int] = {}
        """By backend, when the first request to it began."""
        self.drained: dict[At, Note] = {}
        self.actives: dict[At, int] = {}
        """When it was first known that a revision is active."""
        for note in case.notes:
            self._sort(note)

    def _sort(self, note: Note) -> None:
        facts = note.facts
        match note.kind:
            case "changed":
                self.last[facts["word"].key] = facts["word"]
            case "keeping":
                for word in facts["words"]:
                    self.offered[word.key, word.number].append(note)
            case "kept":
                self._sort_kept(note)
            case "applied":
                told = facts["told"]
                seen = (note.n, told.place, told.number)
                self.applied[(facts["output"], facts["backend"]), told.key].append(seen)
            case "overwritten":
                self.overwritten[(facts["output"], facts["backend"]), facts["key"]].append(note.n)
            case "placed":
                for told, outcome in zip(facts["events"], facts["answers"], strict=True):
                    if outcome in ("delivered", "duplicate", "rejected", "superseded"):
                        reply = Reply(note.n, note.life, told.place, outcome)
                        self.replies[(facts["output"], facts["backend"]), told.key].append(reply)
            case "contacted":
                self.contacted.setdefault(facts["backend"], note.n)
            case "said" if facts["message"].get("stage") in ("active", "drained"):
                at = at_of(facts["message"])
                self.actives.setdefault(at, note.n)
                if facts["message"]["stage"] == "drained":
                    self.drained.setdefault(at, note)

    def _sort_kept(self, note: Note) -> None:
        if not note.facts["is_sound"]:
            self.unsound.append(note)
        for word, (place, _, fenced) in zip(note.facts["words"], note.facts["answers"], strict=True):
            begun = max(other.n for other in self.offered[word.key, word.number])
            self.kept[word.key].append(Kept(word, begun, note.n, place, fenced))

    def may_be_active(self, offer: Offer, since: int, until: int) -> bool:
        """Whether a revision may have been active in this time: what was kept by then entered under it, or was fed."""
        newer = any(at > offer.at and n < since for at, n in self.actives.items())
        return self.case.sent[offer.at] < until and not newer


def _routes(offer: Offer, destination: Destination) -> bool:
    output, to = destination
    shape = offer.shape
    target = shape.outputs.get(output)
    return NAME in shape.inputs and output in shape.route(NAME) and target is not None and target.to == to


# -- what arrives ------------------------------------------------------------------------------------------------------


def the_last_word_arrives(course: Course) -> Iterator[Violation]:
    """K1: at the end each destination has the last word about each key, or it was refused there for ever."""
    case = course.case
    if not case.is_over or case.ended_by_order:
        return
    final = case.offers[max(case.offers)].shape
    for output in final.route(NAME):
        destination = (output, final.outputs[output].to)
        for key, word in course.last.items():
            if not _has(course, destination, word) and not _is_excused(course, destination, word):
                applied = course.applied[destination, key][-1:]
                yield Violation("K1", f"{destination} does not have {word}, but {applied}")


def _has(course: Course, destination: Destination, word: Word) -> bool:
    applied, overwritten = course.applied[destination, word.key], course.overwritten[destination, word.key]
    if not applied:
        return word.deleted
    if overwritten[-1:] > [applied[-1][0]]:
        return False
    return applied[-1][2] == (None if word.deleted else word.number)


def _is_excused(course: Course, destination: Destination, word: Word) -> bool:
    replies = course.replies[destination, word.key]
    places = {kept.place for kept in course.kept[word.key] if kept.word == word}
    if any(reply.outcome == "rejected" and reply.place >= min(places, default=0) for reply in replies):
        return True
    return _is_forgotten(course, destination, word) or _has_another_owner(course, destination, word)


def _is_forgotten(course: Course, destination: Destination, word: Word) -> bool:
    """A deletion that was over everywhere while another destination was routed to."""
    offered = course.offered[word.key, word.number]
    if not word.deleted or not offered:
        return False
    begun = offered[0].n
    since = max((at for at, n in course.actives.items() if n < begun), default=(-1, -1))
    return not all(_routes(offer, destination) for at, offer in course.case.offers.items() if at >= since)


def _has_another_owner(course: Course, destination: Destination, word: Word) -> bool:
    """Somebody else wrote there, and this word was not given to the process that learned of it before it did."""
    overwritten = course.overwritten[destination, word.key]
    if not overwritten:
        return False
    offered = _first_offered(course, word)
    if word.key.owner or offered is None or overwritten[-1] > offered.n:
        return True
    fenced = [reply for reply in course.replies[destination, word.key] if reply.outcome == "superseded"]
    return any(reply.n > offered.n and reply.life != offered.life for reply in fenced)


def _first_offered(course: Course, word: Word) -> Note | None:
    """When its version was given to the shipper: of a deletion that may have been with an earlier one."""
    places = {kept.place for kept in course.kept[word.key] if kept.word == word}
    same = {kept.word.number for kept in course.kept[word.key] if kept.place in places and not kept.fenced}
    offered = [note for number in {word.number, *same} for note in course.offered[word.key, number]]
    return min(offered, key=lambda note: note.n, default=None)


def nothing_older_is_applied(course: Course) -> Iterator[Violation]:
    """K2: by the numbers, which the shipper does not know."""
    numbers = {
        (key, kept.place): kept.word.number for key, all in course.kept.items() for kept in all if not kept.fenced
    }
    for (destination, key), applied in course.applied.items():
        newest = 0
        for _, place, seen in applied:
            number = numbers.get((key, place), 0) if seen is None else seen
            if 0 < number < newest:
                yield Violation("K2", f"{destination} applied {number} of {key} after {newest}")
            newest = max(newest, number)


def only_its_own_process_raises_a_version(course: Course) -> Iterator[Violation]:
    """K7: what was admitted by an earlier process stays below a fence that a later one meets."""
    fenced: dict[Key, set[int]] = defaultdict(set)
    for (_, key), replies in course.replies.items():
        fenced[key].update(reply.life for reply in replies if reply.outcome == "superseded")
    places: dict[tuple[Key, int], set[int]] = defaultdict(set)
    for key, all in course.kept.items():
        for kept in all:
            places[key, kept.word.number].add(kept.place)
    for (destination, key), applied in course.applied.items():
        for _, place, number in applied:
            known = places.get((key, number or 0), set())
            lives = {note.life for note in course.offered[key, number or 0]}
            if known and place not in known and lives.isdisjoint(fenced[key]):
                yield Violation("K7", f"{destination} has {number} of {key} at {place}, and it was given {known}")


def versions_go_where_a_revision_points(course: Course) -> Iterator[Violation]:
    """K6: never with another credential, either, unless somebody ordered it."""
    if course.case.may_forward:
        return
    known = {
        (output, target.to, target.credential)
        for offer in course.case.offers.values()
        for output, target in offer.shape.outputs.items()
    }
    for note in course.case.notes:
        if note.kind == "request" and note.facts.get("versions"):
            place = tuple(note.facts[name] for name in ("output", "backend", "credential"))
            if place not in known:
                yield Violation("K6", f"versions went to {place}")


# -- the barrier -------------------------------------------------------------------------------------------------------


def drained_means_answered(course: Course) -> Iterator[Violation]:
    """K3: by `drained`, what stood in a lane that was retired had its answer, or something newer is bound for there.

    What an order ends, or moves elsewhere, is not judged; nor what may go elsewhere since no request began to its host.
    """
    case = course.case
    if case.ended_by_order or case.may_forward:
        return
    active = case.active()
    for at in active:
        offer = case.offers[at]
        for output in offer.shape.route(NAME) if NAME in offer.shape.inputs else ():
            target = offer.shape.outputs[output]
            retiring = next((r for r in active if r > at and case.offers[r].shape.outputs.get(output) != target), None)
            covering = None if retiring is None else _covering(course, retiring)
            if covering is not None and _was_contacted(course, offer, output):
                yield from _unanswered(course, offer, (output, target.to), covering)


def _covering(course: Course, retiring: At) -> Note | None:
    notes = [note for at, note in course.drained.items() if at >= retiring]
    return min(notes, key=lambda note: note.n, default=None)


def _was_contacted(course: Course, offer: Offer, output: str) -> bool:
    """Whether a request of any output had begun to the lane's host before the lane could be retired."""
    until = min(course.case.sent[at] for at, other in course.case.offers.items() if _moves(other, offer, output))
    return course.contacted.get(offer.shape.outputs[output].to, until) < until


def _moves(other: Offer, offer: Offer, output: str) -> bool:
    return other.at > offer.at and other.shape.outputs.get(output) != offer.shape.outputs[output]


def _unanswered(course: Course, offer: Offer, destination: Destination, covering: Note) -> Iterator[Violation]:
    case = course.case
    ended = min(case.sent[at] for at in case.offers if at > offer.at)
    for key, all in course.kept.items():
        stood = [kept for kept in all if kept.n < ended and kept.place and not kept.fenced]
        if not stood or (stood[-1].word.deleted and stood[-1].begun < course.actives.get(offer.at, len(case.notes))):
            continue
        last = stood[-1]
        answered = any(reply.place >= last.place and reply.n < covering.n for reply in course.replies[destination, key])
        if not answered and not _is_newer_bound(course, last.word, destination, covering.n):
            at = at_of(covering.facts["message"])
            yield Violation("K3", f"drained of {at} was said before {destination} had its answer for {last}")


def _is_newer_bound(course: Course, word: Word, destination: Destination, before: int) -> bool:
    """Whether a newer word of the key may be durable for this destination: it is routed to since then."""
    newer = [
        note.n
        for (key, number), offered in course.offered.items()
        if key == word.key and number > word.number
        for note in offered
        if note.n < before
    ]
    offers = [offer for offer in course.case.offers.values() if _routes(offer, destination)]
    return any(course.may_be_active(offer, n, before) for n in newer for offer in offers)


# -- answers -----------------------------------------------------------------------------------------------------------


def refused_versions_are_dead_letters(course: Course) -> Iterator[Violation]:
    """K4: each is of a refusal; and the last word about a key, where it was refused, has one."""
    case = course.case
    if not case.is_over or case.ended_by_order:
        return
    listed = {
        (letter["output"], Key(letter["state"]["owner"], letter["state"]["key"]), letter["state"]["place"])
        for _, result in case.said("result")
        for letter in result["result"].get("dead_letters", ())
        if "state" in letter
    }
    refused = {
        (output, key, reply.place)
        for ((output, _), key), replies in course.replies.items()
        for reply in replies
        if reply.outcome == "rejected"
    }
    if strange := listed - refused:
        yield Violation("K4", f"nobody refused {sorted(strange)}")
    newest = {key: max((kept.place for kept in all), default=0) for key, all in course.kept.items()}
    if missing := {each for each in refused if each[2] >= newest.get(each[1], 0)} - listed:
        yield Violation("K4", f"there is no dead letter of {sorted(missing)}")


def places_rise(course: Course) -> Iterator[Violation]:
    """K5: a newer word has a higher place, over restarts too; what an edge says late is fenced by what is newer."""
    for note in course.unsound:
        yield Violation("K5", f"the answer to {note.facts['words']} has the digest of something else")
    for all in course.kept.values():
        highest, newest, was_deleted = 0, 0, False
        for kept in all:
            if not kept.place and kept.word.deleted:
                continue
            is_stale = kept.word.number < newest
            if is_stale != kept.fenced or kept.place < highest:
                yield Violation("K5", f"{kept} was answered after {newest}, at {highest}")
            is_same = was_deleted and kept.word.deleted  # what was between nobody has seen
            if kept.word.number > newest and kept.place <= highest and not is_same:
                yield Violation("K5", f"{kept} has no higher place than {newest}, at {highest}")
            was_deleted = kept.word.deleted
            highest, newest = max(highest, kept.place), max(newest, kept.word.number)


LAWS: tuple[Callable[[Course], Iterator[Violation]], ...] = (
    the_last_word_arrives,
    nothing_older_is_applied,
    only_its_own_process_raises_a_version,
    versions_go_where_a_revision_points,
    drained_means_answered,
    refused_versions_are_dead_letters,
    places_rise,
)


def keyed_state(case: Case) -> Iterator[Violation]:
    """All of them, of a world that knows keyed state."""
    if case.scenario.keys:
        course = Course(case)
        for law in LAWS:
            yield from law(course)
