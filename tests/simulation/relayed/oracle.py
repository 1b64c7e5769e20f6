"""The judge: from what was written, what went over the wires, what the backend got and what was said, nothing else.

L1 and F1 are judged by the world itself, which waits in vain. The numbers are those of the contract's rules:

    E1  a principal delivered an event twice, though it had its answer
    E2  an event has two ids, or an id two events
    E3  an event was confirmed to nobody's use: it never reached the backend
    E4  `drained` before an event that it covers was confirmed; or, where that is promised, delivered
    E10 `drained` says that what was confirmed is delivered, where somebody on the way confirms what is stored
    E5  a version was on its way twice at once
    E8  a request of a session that was over was answered as if it were not
    E9  events were given up though nobody refused them
    C1  two processes were served under one name
    K1  the backend does not have the last word about a key       K2  it got an older version after a newer one
    G1  an edge said that a principal went back which did not, or did not say it of one that did
    B3  a credential was used after its release                   B11 the counts of a ledger do not add up
    L1  it does not come to rest                                  L6  a hot loop
    F1  a key waits for other keys, or for log events             P6  a process, or a request, failed by itself

What is promised where a state directory goes back, or is used twice, is less: see `Case.went_back`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from shipper.plugin import Code
from tests.march.kind import Violation, first_of_each
from tests.simulation.case import FINAL
from tests.simulation.relayed.scenario import MIDDLE, Relayed
from tests.simulation.stage import Note

DURABLE_SECONDS = 40.0
"""After which an answer that was heard survives a crash."""
GONE_SECONDS = 2.0
"""For which a process keeps its name, at least, after its last request."""
Event = tuple[str, int]
"""An edge, and a number."""


class Case:
    """The notes, sorted by what they are about."""

    def __init__(self, notes: Sequence[Note], scenario: Relayed) -> None:
        self.notes, self.scenario = notes, scenario
        self.is_over = any(note.kind == "at_rest" for note in notes)
        self.events: dict[str, set[Event]] = defaultdict(set)
        """By id."""
        self.ids: dict[Event, set[str]] = defaultdict(set)
        self.stored: dict[Event, int] = {}
        """When it first reached the backend."""
        self.delivered: dict[Event, int] = {}
        """When a principal first heard the final answer."""
        self.arrived: dict[int, Note] = {}
        """By number, requests, as they arrived."""
        self.replied: dict[int, Note] = {}
        self.confirmed: dict[Event, list[Note]] = defaultdict(list)
        """The answers that say so."""
        self.heard: dict[tuple[str, Event], int] = {}
        """When a sender first heard that."""
        self.copied: dict[str, list[int]] = defaultdict(list)
        self.went_back: dict[str, list[int]] = defaultdict(list)
        self.of_clones: set[tuple[str, str]] = set()
        """Keys, by their edge, of which a principal has answered for versions of a clone of it."""
        self.set_back: set[str] = set()
        """Whose clock was."""
        for note in notes:
            self._sort(note)

    def _sort(self, note: Note) -> None:
        facts = note.facts
        match note.kind:
            case "stored":
                for id, edge, number in facts["events"]:
                    self.events[id].add((edge, number))
                    self.ids[edge, number].add(id)
                    self.stored.setdefault((edge, number), note.n)
            case "answered":
                for id, outcome in zip(facts["ids"], facts["outcomes"], strict=True):
                    for event in self.events[id] if outcome in FINAL else ():
                        self.delivered.setdefault(event, note.n)
            case "arrived":
                self.arrived[facts["request"]] = note
            case "replied":
                self.replied[facts["request"]] = note
                asked = self.arrived[facts["request"]].facts
                if facts["status"] == 200 and asked["by"].endswith("-clone"):
                    self.of_clones |= {(asked["edge"], key) for _, key, _ in asked.get("versions", ())}
                for event in self._confirmed_by(note):
                    self.confirmed[event].append(note)
            case "heard" if (reply := self.replied.get(facts["request"])) is not None:
                sender = self.arrived[facts["request"]].facts["edge"]
                for event in self._confirmed_by(reply):
                    self.heard.setdefault((sender, event), note.n)
            case "copied":
                self.copied[facts["of"]].append(note.n)
            case "set_back":
                self.set_back.add(facts["of"])
            case "went_back":
                self.went_back[facts["of"]].append(note.n)

    def _confirmed_by(self, reply: Note) -> Iterator[Event]:
        return self.stored_by(reply, "confirmed")

    def stored_by(self, reply: Note, *answers: str) -> Iterator[Event]:
        """Events that have one of these answers in a reply: "confirmed", or "awaited"."""
        asked = self.arrived[reply.facts["request"]].facts
        for answer in answers:
            for place in reply.facts.get(answer, ()):
                yield from asked["events"][place]

    def is_past(self, site: str, event: Event, n: int) -> bool:
        """Whether what `drained` of a site promises of an event was true at a time."""
        scenario = self.scenario
        if site in scenario.ends or scenario.is_delivered(site):
            reached = self.delivered.get(event)
        elif site in scenario.edges and scenario.delivers:
            reached = self.heard.get((MIDDLE, event))
        else:
            reached = self.heard.get((site, event))
        return reached is not None and reached <= n

    def said(self, type: str, **fields: Any) -> Iterator[tuple[Note, dict[str, Any]]]:
        """Messages of processes."""
        for note in self.notes:
            if note.kind == "said" and note.facts["message"]["type"] == type:
                message = note.facts["message"]
                if all(message.get(name) == value for name, value in fields.items()):
                    yield note, message


def judge(notes: Sequence[Note], scenario: Relayed) -> list[Violation]:
    """All that was violated in a world, one of each law."""
    return first_of_each(LAWS, Case(notes, scenario))


# -- log events --------------------------------------------------------------------------------------------------------


def each_event_enters_once(case: Case) -> Iterator[Violation]:
    """E1: a principal that has had the final answer for an event does not deliver it again.

    Unless the answer was not durable yet when the process died.
    """
    answered: dict[tuple[str, str], list[Note]] = defaultdict(list)
    died: dict[tuple[str, int], float] = {}
    for note in case.notes:
        if note.kind == "crashed":
            died[note.facts["site"], note.life] = note.at
        if note.kind != "answered" or case.went_back[note.facts["site"]]:
            continue
        for id, outcome in zip(note.facts["ids"], note.facts["outcomes"], strict=True):
            if outcome not in FINAL or _came_twice(case, id):
                continue
            site = note.facts["site"]
            for before in answered[site, id]:
                if before.life == note.life or died.get((site, before.life), 0.0) - before.at > DURABLE_SECONDS:
                    yield Violation("E1", f"{site} delivered {id} {sorted(case.events[id])} again")
            answered[site, id].append(note)


def _came_twice(case: Case, id: str) -> bool:
    """Whether somebody who relays it may have sent it again, since its directory went back."""
    way = [MIDDLE] if case.scenario.far else []
    return any(case.went_back[name] for edge, _ in case.events[id] for name in (edge, *way))


def an_id_stays(case: Case) -> Iterator[Violation]:
    """E2: over all principals; an edge whose directory went back gives what it reads again another id."""
    for id, events in case.events.items():
        if len(events) > 1:
            yield Violation("E2", f"{id} is of {sorted(events)}")
    for (edge, number), ids in case.ids.items():
        if len(ids) > 1 + len(case.went_back[edge]):
            yield Violation("E2", f"{number} of {edge} has the ids {sorted(ids)}")


def an_origin_is_of_its_edge(case: Case) -> Iterator[Violation]:
    """O1: no edge stores an event under the origin of another one."""
    for note in case.notes:
        if note.kind == "lied" and note.facts["status"] == 200:
            yield Violation("O1", f"{note.facts.get('site', 'a principal')} took an event under the id of another edge")


def nothing_is_lost(case: Case) -> Iterator[Violation]:
    """E3: at the end every event has been at the backend, with a final answer.

    Unless a principal stored and confirmed it, and its directory went back to a copy of before.
    """
    if not case.is_over:
        return
    written = {note.facts["edge"]: note.facts["upto"] for note in case.notes if note.kind == "written"}
    for event in ((edge, number) for edge, upto in written.items() for number in range(1, upto + 1)):
        if event not in case.delivered and not _was_forgotten(case, event):
            yield Violation("E3", f"{event} never arrived")


def _was_forgotten(case: Case, event: Event) -> bool:
    return any(
        copied < note.n < back
        for note in case.confirmed[event]
        if not case.scenario.is_delivered_by(note.facts["site"])
        for copied, back in zip(case.copied[note.facts["site"]], case.went_back[note.facts["site"]], strict=False)
    )


def drained_means_confirmed(case: Case) -> Iterator[Violation]:
    """E4: whatever an edge had accepted, and a principal had answered for, when a policy was sent.

    One that is the policy before has nothing to wait for.
    """
    accepted: dict[str, dict[Event, None]] = defaultdict(dict)
    covered: dict[tuple[str, int], list[Event]] = {}
    for note in case.notes:
        site = note.facts.get("site", "")
        match note.kind:
            case "accepted":
                accepted[site] |= {(site, number): None for number in range(1, note.facts["upto"] + 1)}
            case "replied":
                accepted[site] |= dict.fromkeys(case.stored_by(note, "confirmed", "awaited"))
            case "went_back" if site:  # it has another memory of what it accepted
                accepted[site].clear()
                covered = {at: events for at, events in covered.items() if at[0] != site}
            case "sent":
                covered[site, note.facts["revision"]] = list(accepted[site])
            case "said" if (ack := note.facts["message"]).get("stage") == "drained" and ack["change"] != "none":
                for event in covered.get((site, ack["revision"]), ()):
                    if not case.is_past(site, event, note.n):
                        yield Violation("E4", f"{site} said drained before {event} was there")


def what_is_confirmed_is_not_worth_more(case: Case) -> Iterator[Violation]:
    """E10: nothing says that an event is delivered which is only stored."""
    for note, ack in case.said("ack", stage="drained"):
        site = note.facts["site"].removesuffix("-clone")
        is_delivered = site in case.scenario.ends or case.scenario.is_delivered(site)
        if ack.get("confirms") == "delivered" and not is_delivered:
            yield Violation("E10", f"{site} says that all is delivered")


def nothing_is_given_up(case: Case) -> Iterator[Violation]:
    """E9, B11: at an edge, what is a dead letter was refused at the backend, where that is told."""
    for note, ack in case.said("ack", stage="drained"):
        ledger = dict(ack["ledger"])
        if ledger.pop("accepted") != sum(ledger.values()):
            yield Violation("B11", f"{note.facts['site']}: {ack['ledger']}")
        site = note.facts["site"].removesuffix("-clone")
        is_told = site in case.scenario.ends or case.scenario.is_delivered(site)
        may_refuse = "poison" in case.scenario.rates and is_told
        if ledger["dropped"] or ledger["damaged"] or (ledger["dead_letter"] and not may_refuse):
            yield Violation("E9", f"{note.facts['site']}: {ack['ledger']}")


# -- sessions ----------------------------------------------------------------------------------------------------------


def an_old_session_is_over(case: Case) -> Iterator[Violation]:
    """E8: of each link the newest session is served, and none of another process of the principal."""
    newest: dict[tuple[str, int, str, int], str] = {}
    stale: set[int] = set()
    for note in case.notes:
        facts = note.facts
        if note.kind == "arrived" and "generation" in facts:
            if newest.get((facts["site"], note.life, facts["edge"], facts["link"])) != facts["generation"]:
                stale.add(facts["request"])
        elif note.kind == "replied" and facts["status"] == 200:
            asked = case.arrived[facts["request"]].facts
            if "begun" in facts:
                newest[facts["site"], note.life, asked["edge"], asked["link"]] = facts["begun"]
            elif facts["request"] in stale:
                yield Violation("E8", f"{facts['site']} answered request {facts['request']}, of an old session")


def one_process_has_a_name(case: Case) -> Iterator[Violation]:
    """C1: another process is served only when the one before was not heard of for a while."""
    served: dict[tuple[str, int, str], str] = {}
    heard: dict[tuple[str, int, str], float] = {}
    instances: dict[str, str] = {}
    for note in case.notes:
        facts = note.facts
        if note.kind != "replied" or facts["status"] != 200:
            continue
        asked = case.arrived[facts["request"]]
        place = (facts["site"], note.life, asked.facts["edge"])
        if "begun" not in facts:
            if instances.get(asked.facts["generation"]) == served.get(place):
                heard[place] = asked.at
            continue
        instance = instances[facts["begun"]] = asked.facts["instance"]
        if served.get(place, instance) != instance and note.at < heard[place] + GONE_SECONDS:
            yield Violation("C1", f"{facts['site']} serves {asked.facts['by']} as another process of this name")
        served[place], heard[place] = instance, asked.at


def released_means_unused(case: Case) -> Iterator[Violation]:
    """B3: after its release, no request with a credential."""
    revoked: set[str] = set()
    for note in case.notes:
        if note.kind == "revoked":
            revoked.add(note.facts["credential"])
        elif note.kind == "asked" and note.facts["credential"] in revoked and not case.went_back[note.facts["of"]]:
            yield Violation("B3", f"a request with {note.facts['credential']} was sent after its release")


class _Told(NamedTuple):
    """The highest place that a lineage has confirmed to a link, as an edge heard it; and where and when it did."""

    place: int
    life: int
    at: float


def who_went_back_is_told(case: Case) -> Iterator[Violation]:
    """G1: an edge says it at the handshake of a principal that knows less log events than it has confirmed.

    Unless the edge has died since before that was durable, or went back itself.
    """
    told: dict[tuple[str, int, str], _Told] = {}
    lineages: dict[str, str] = {}
    died: dict[tuple[str, int], float] = {}
    owed: dict[tuple[str, int], str] = {}
    for note in case.notes:
        facts = note.facts
        site = facts.get("site", "")
        if note.kind == "crashed":
            died[site, note.life] = note.at
            owed = {at: begun for at, begun in owed.items() if at[0] != site}
        elif note.kind == "noticed" and facts["code"] == Code.PRINCIPAL_WENT_BACK:
            owed.pop((site, facts["link"]), None)
            principals = case.scenario.principals_of(site.removesuffix("-clone"))
            if not any(case.went_back[name] and case.went_back[name][0] < note.n for name in principals):
                yield Violation("G1", f"{site} says that a principal went back")
        elif note.kind == "asked" and owed.get((site, facts["link"])) == facts.get("generation", ""):
            yield Violation("G1", f"{site} does not say that {facts['at']} went back")
        elif note.kind == "heard" and (reply := case.replied.get(facts["request"])) is not None:
            link = case.arrived[facts["request"]].facts["link"]
            if (begun := reply.facts.get("begun")) is not None:
                lineages[begun], highest = reply.facts["lineage"], reply.facts["highest"]
                was = told.pop((site, link, lineages[begun]), _Told(0, note.life, note.at))
                is_durable = was.life == note.life or died.get((site, was.life), 0.0) > was.at + DURABLE_SECONDS
                if was.place > highest and is_durable and not case.went_back[site.removesuffix("-clone")]:
                    owed[site, link] = begun
                told[site, link, lineages[begun]] = was._replace(place=min(was.place, highest))
            elif places := reply.facts.get("confirmed"):
                lineage = lineages[case.arrived[facts["request"]].facts["generation"]]
                if told.get((site, link, lineage), _Told(0, 0, 0.0)).place < max(places):
                    told[site, link, lineage] = _Told(max(places), note.life, note.at)


# -- keyed state -------------------------------------------------------------------------------------------------------


def the_last_word_arrives(case: Case) -> Iterator[Violation]:
    """K1: a key that was deleted may be there again if the directory of its edge went back.

    Where the clock went back with it, and the edge uses another principal than before, it gives places once more. And
    what a clone of an edge has said of a key may be above what the edge says, which takes it over then.
    """
    if not case.is_over:
        return
    last = {(note.facts["edge"], note.facts["key"]): note.facts for note in case.notes if note.kind == "changed"}
    applied = {(note.facts["owner"], note.facts["key"]): note.facts for note in case.notes if note.kind == "applied"}
    for key, word in last.items():
        wanted = None if word["deleted"] else word["number"]
        at = case.scenario.owner(key[0]), key[1]
        has = applied[at]["number"] if at in applied else None
        may_differ = word["deleted"] or key in case.of_clones or _gives_places_again(case, key[0])
        if has != wanted and not (case.went_back[key[0]] and may_differ):
            yield Violation("K1", f"the backend has {has} of {key}, not {wanted}")


def _gives_places_again(case: Case, edge: str) -> bool:
    return edge in case.set_back and case.scenario.principals > 1


def nothing_older_is_applied(case: Case) -> Iterator[Violation]:
    """K2: by the numbers, which the shipper does not know."""
    newest: Counter[tuple[str, str]] = Counter()
    for note in case.notes:
        if note.kind == "applied" and note.facts["number"] is not None:
            key = (note.facts["owner"], note.facts["key"])
            if note.facts["number"] < newest[key]:
                yield Violation("K2", f"the backend got {note.facts['number']} of {key} after {newest[key]}")
            newest[key] = max(newest[key], note.facts["number"])


def a_version_is_on_its_way_once(case: Case) -> Iterator[Violation]:
    """E5: a link of a process sends none while a request with it is under way."""
    under_way: dict[int, tuple[Any, Any]] = {}
    for note in case.notes:
        if note.kind == "asked_no_more":
            under_way.pop(note.facts["request"], None)
        elif note.kind == "asked" and note.facts["what"] == "versions":
            sender = (note.facts["site"], note.life, note.facts["link"])
            for other, versions in under_way.values():
                if other == sender and not set(versions).isdisjoint(note.facts["versions"]):
                    yield Violation("E5", f"{note.facts['site']} sends a version that is on its way")
            under_way[note.facts["request"]] = (sender, note.facts["versions"])


# -- the processes -----------------------------------------------------------------------------------------------------


def nothing_fails(case: Case) -> Iterator[Violation]:
    """P6, L6."""
    for note in case.notes:
        if note.kind == "failed":
            yield Violation("P6", note.facts["error"])
        if note.kind == "livelock":
            yield Violation("L6", f"no end after {note.at:.1f} s")
        if note.kind == "said" and note.facts["message"].get("code") == Code.INTERNAL_ERROR:
            yield Violation("P6", note.facts["message"]["message"])


LAWS: Sequence[Callable[[Case], Iterator[Violation]]] = (
    each_event_enters_once,
    an_id_stays,
    an_origin_is_of_its_edge,
    nothing_is_lost,
    drained_means_confirmed,
    what_is_confirmed_is_not_worth_more,
    nothing_is_given_up,
    an_old_session_is_over,
    one_process_has_a_name,
    released_means_unused,
    who_went_back_is_told,
    the_last_word_arrives,
    nothing_older_is_applied,
    a_version_is_on_its_way_once,
    nothing_fails,
)
