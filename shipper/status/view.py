"""What people look at: the values that the page and `shipper top` draw. Pure.

    document ──> View(inputs, outputs, queue, revisions, credentials, letters, edges, principals)
    two documents and the time between them ──> rates (`rates.Samples`)

A document is that of `/status`, or of `shipper status --json`, whose fields of the shipper are below `observed`. What a
document does not say is None here, or empty: `shipper status` alone counts no events of inputs and outputs. A caller
that has both documents joins them (`joined`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shipper.status import drains, remedies
from shipper.status.drains import Revision, Wait
from shipper.status.rates import NO_RATES, Rates
from shipper.status.remedies import Remedy
from shipper.status.words import counted

Tone = Literal["good", "busy", "warn", "bad", "idle"]
"""How something looks: well, on its way, in need of a look, failed, or not running."""
TONES: Mapping[str, Tone] = {
    "HEALTHY": "good",
    "STARTING": "busy",
    "CONFIGURING": "busy",
    "STOPPING": "busy",
    "DEGRADED": "warn",
    "FAILED": "bad",
    "STOPPED": "idle",
    "UNKNOWN": "idle",
}
MOST_LETTERS = 1000
"""Dead letters, the newest, whose reasons a document counts."""
_OUTCOMES = ("delivered", "duplicate", "superseded", "dead_letter", "dropped")


@dataclass(frozen=True, slots=True)
class Count:
    """How often something happened since the process started, and how fast it goes on."""

    name: str
    total: int
    per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """An input, and how far behind it is."""

    name: str
    type: str
    state: str
    message: str
    code: str
    events: Count | None = None
    """Taken; None: not counted here, as all that is None below."""
    bytes: Count | None = None
    filtered: int | None = None
    failures: int | None = None
    """Events that a processor could not handle."""
    behind_bytes: int | None = None
    """Not read yet of its files."""
    files: int | None = None
    connections: int | None = None
    turned_away: int = 0
    """Connections that were closed to make room."""
    lost_datagrams: int = 0
    lost_files: int = 0
    """Gone before their end was read."""

    @property
    def tone(self) -> Tone:
        return TONES.get(self.state, "idle")

    @property
    def seconds_behind(self) -> float | None:
        """When it will have read what it has not read, at its present rate; None if that is not known."""
        fast = self.bytes.per_second if self.bytes is not None else None
        return self.behind_bytes / fast if fast and self.behind_bytes is not None else None


@dataclass(frozen=True, slots=True)
class Output:
    """An output, how its destination answers, and when it tries again."""

    name: str
    type: str
    state: str
    message: str
    code: str
    outcomes: tuple[Count, ...] = ()
    """Final answers to events: delivered, duplicate, superseded, dead_letter, dropped; those that occurred."""
    retries: Count | None = None
    responses: tuple[Count, ...] = ()
    """Answers to requests, by status."""
    failures: tuple[Count, ...] = ()
    """Requests without an answer, by cause."""
    request_seconds: float | None = None
    """How long a request takes, at present or else since the start."""
    held: bool = False
    """Whether it waits for a person."""
    next_attempt_seconds: float | None = None
    """Until it tries its destination again; None: it does not wait."""
    ill_seconds: float | None = None
    """How long it has had its problem; None: it has none, or that is not known."""
    batch: int | None = None
    """The batch that fails again and again."""
    batch_seconds: float = 0.0
    remedies: tuple[Remedy, ...] = ()
    """Commands that end that batch."""
    refusal: tuple[Remedy, ...] = ()
    """What to do about a credential that is refused."""

    @property
    def ends(self) -> str:
        """What ends its problem without an order, in words."""
        return remedies.passing(self.code)

    @property
    def tone(self) -> Tone:
        return TONES.get(self.state, "idle")

    @property
    def delivered(self) -> Count | None:
        return next((count for count in self.outcomes if count.name == "delivered"), None)


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits for outputs, each event counted once."""

    events: int
    bytes: int
    limit_bytes: int
    """0: not known."""
    disk_bytes: int
    oldest_seconds: float
    change: float | None = None
    """Events a second by which it grows, or shrinks."""
    bytes_change: float | None = None
    """The same of its bytes."""

    @property
    def seconds_to_full(self) -> float | None:
        """When it is full at its present growth; None if it does not grow, or that is not known."""
        if not self.limit_bytes or not self.bytes_change or self.bytes_change <= 0:
            return None
        return max(0, self.limit_bytes - self.bytes) / self.bytes_change

    @property
    def share(self) -> float | None:
        """The part of the limit that is used, from 0 to 1; None if the limit is not known."""
        return min(1.0, self.bytes / self.limit_bytes) if self.limit_bytes else None


Use = Literal["wanted", "released", "waits", "left", "revoked", "in use", "needed", "held"]
"""`wanted`: events wait for it, and it is missing; `released`: nothing uses it ever again; `waits`: so it is, and waits
until another one is released, or accepted; `left`: it is released here, but other hosts may use it;
`revoked`: it is released, and `on_release` is done; `needed`: only drains use it; `held`: nothing uses it yet."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential by its id, and whether it may go."""

    id: str
    name: str
    use: Use
    units: tuple[str, ...] = ()
    needed_by: tuple[str, ...] = ()
    """The drains that need it, in words."""

    @property
    def may_go(self) -> bool:
        """Whether it can be revoked: nothing uses it ever again, and nobody has revoked it yet."""
        return self.use == "released"

    @property
    def tone(self) -> Tone:
        tones: Mapping[Use, Tone] = {"wanted": "bad", "released": "good", "in use": "good", "needed": "busy"}
        return tones.get(self.use, "idle")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an output refused events for ever."""

    output: str
    reason: str
    events: int
    newest_seconds: float


@dataclass(frozen=True, slots=True)
class Letters:
    """The dead letters."""

    events: int = 0
    bytes: int = 0
    oldest_seconds: float = 0.0
    reasons: tuple[Reason, ...] = ()
    """Of the newest letters, the most frequent first."""
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """Another shipper that relays to this one."""

    input: str
    name: str
    connected_seconds: float | None
    """None: it is not connected."""
    heard_seconds: float | None
    """None: not heard of since the start."""
    waiting_events: int
    versions_behind: int
    keys: int
    bytes: int

    @property
    def tone(self) -> Tone:
        if self.connected_seconds is None:
            return "warn"
        return "busy" if self.waiting_events or self.versions_behind else "good"


@dataclass(frozen=True, slots=True)
class Principal:
    """The shipper that an output relays to."""

    output: str
    host: str
    connected_seconds: float | None
    reason: str
    """Why it is not connected."""
    confirms: str | None
    unconfirmed_events: int
    unconfirmed_keys: int
    oldest_seconds: float

    @property
    def tone(self) -> Tone:
        return "warn" if self.connected_seconds is None else "good"


@dataclass(frozen=True, slots=True)
class View:
    """All of one shipper."""

    state: str
    message: str
    code: str
    troubles: tuple[tuple[str, str], ...] = ()
    """Of the supervisor: cause, and message."""
    facts: tuple[tuple[str, str], ...] = ()
    """What else there is to say: a name, and words."""
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    units_left_out: int = 0
    queue: Queue | None = None
    revisions: tuple[Revision, ...] = ()
    """The newest first."""
    waits: tuple[Wait, ...] = ()
    """All drains, the oldest first."""
    credentials: tuple[Credential, ...] = ()
    letters: Letters = Letters()
    edges: tuple[Edge, ...] = ()
    """Those that are not connected or behind first."""
    edges_left_out: int = 0
    principals: tuple[Principal, ...] = ()

    @property
    def tone(self) -> Tone:
        return TONES.get(self.state, "idle")


def of(
    document: Mapping[str, Any],
    rates: Rates = NO_RATES,
    *,
    directory: str = "",
    orders: Collection[str] = remedies.ORDERS,
) -> View:
    """Returns the view of a document.

    `directory` is the supervisor's --state, for commands to copy; there are none without it. `orders` are the orders
    that its program takes.
    """
    observed = document.get("observed") or ({} if "observed" in document else document)
    supervisor = document.get("supervisor") or {}
    directory = directory or supervisor.get("directory", "")
    found = drains.waits(observed, rates, directory, orders)
    wanted = document.get("wanted") or supervisor.get("wanted")
    troubles = document.get("troubles") or supervisor.get("troubles") or ()
    return View(
        state=document["state"],
        message=document.get("message") or "",
        code=observed.get("code", ""),
        troubles=tuple((one.get("cause", one["kind"]), one.get("message", "")) for one in troubles),
        facts=tuple(_facts(document, observed)),
        inputs=tuple(sorted(_inputs(document, observed, rates), key=_broken_first)),
        outputs=tuple(sorted(_outputs(document, observed, rates, directory, orders), key=_broken_first)),
        units_left_out=observed.get("units_left_out", 0),
        queue=_queue(observed.get("queue"), rates),
        revisions=tuple(drains.revisions(observed, found, wanted)),
        waits=tuple(wait for those in found.values() for wait in those),
        credentials=tuple(_credentials(document, observed, [wait for those in found.values() for wait in those])),
        letters=_letters(observed, directory, orders),
        edges=tuple(sorted(_edges(observed), key=_worst_first)),
        edges_left_out=observed.get("edges_left_out", 0),
        principals=tuple(_principals(observed)),
    )


def joined(status: Mapping[str, Any], served: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns a document of `shipper status` with the counters of `/status` of the same shipper, if there are any."""
    tables = ("counters", "inputs", "outputs", "turned_away")
    return {**status, **{table: served[table] for table in tables if table in served}} if served else status


def _facts(document: Mapping[str, Any], observed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    supervisor = document.get("supervisor") or {}
    if version := supervisor.get("version"):
        yield "supervisor", f"version {version}, pid {supervisor['pid']}"
    sidecar = document.get("sidecar") or {}
    if sidecar:
        yield "sidecar", ", ".join(filter(None, (sidecar["state"], f"pid {sidecar['pid']}" if sidecar["pid"] else "")))
    if restarts := supervisor.get("restarts") or sidecar.get("restarts"):
        yield "restarts", f"{restarts:,}"
    if (lease := observed.get("lease_seconds")) is not None:
        yield "lease", f"{lease:.1f} s left" if lease else "it lapsed: nothing is sent"
    if document.get("past_deadline"):
        yield "deadline", "a drain waits past it"
    if (confirms := observed.get("confirms")) and observed.get("principals"):
        yield "drained means", "stored by the principal" if confirms == "stored" else "delivered at the end of the way"
    if keyed := observed.get("keyed"):
        yield "keyed state", f"{counted(keyed['keys'], 'key')}, {counted(keyed.get('waiting', 0), 'version')} waiting"
    if unrevoked := supervisor.get("unrevoked"):
        yield "not revoked yet", counted(unrevoked, "released credential")


def _units(observed: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    return {unit["id"].partition(".")[2]: unit for unit in observed.get("units") or () if unit["kind"] == kind}


def _inputs(document: Mapping[str, Any], observed: Mapping[str, Any], rates: Rates) -> Iterator[Input]:
    taken, away = document.get("inputs") or {}, document.get("turned_away") or {}
    for name, unit in _units(observed, "input").items():
        seen, figures = taken.get(name), unit.get("figures") or {}
        counts = {figure: _count(seen, figure, rates, "inputs", name) for figure in ("events", "bytes")}
        yield Input(
            *_common(name, unit),
            events=counts["events"],
            bytes=counts["bytes"],
            filtered=seen.get("filtered") if seen else None,
            failures=seen.get("failures") if seen else None,
            behind_bytes=figures.get("unread_bytes"),
            files=figures.get("files"),
            connections=figures.get("connections"),
            turned_away=away.get(name, 0),
            lost_datagrams=figures.get("lost_datagrams", 0),
            lost_files=figures.get("lost_files", 0),
        )


def _common(name: str, unit: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    return name, unit["type"], unit["state"], unit.get("message", ""), unit.get("code", "")


def _count(seen: Mapping[str, Any] | None, figure: str, rates: Rates, table: str, name: str) -> Count | None:
    if not seen or figure not in seen:
        return None
    return Count(figure, seen[figure], rates.of(table, name, figure))


def _outputs(
    document: Mapping[str, Any],
    observed: Mapping[str, Any],
    rates: Rates,
    directory: str,
    orders: Collection[str],
) -> Iterator[Output]:
    policy = (document.get("supervisor") or {}).get("policy") or ()
    all_counters, all_requests = document.get("counters") or {}, document.get("outputs") or {}
    for name, unit in _units(observed, "output").items():
        counters, requests, failing = all_counters.get(name, {}), all_requests.get(name, {}), unit.get("failing") or {}
        yield Output(
            *_common(name, unit),
            outcomes=tuple(_counts({o: counters[o] for o in _OUTCOMES if counters.get(o)}, rates, "counters", name)),
            retries=_count(counters, "retries", rates, "counters", name),
            responses=tuple(_counts(requests.get("responses") or {}, rates, "responses", name)),
            failures=tuple(_counts(requests.get("failures") or {}, rates, "failures", name)),
            request_seconds=_request_seconds(requests, rates, name),
            held=requests.get("held", False),
            next_attempt_seconds=requests.get("next_attempt_seconds"),
            ill_seconds=requests.get("ill_seconds"),
            batch=failing.get("batch"),
            batch_seconds=failing.get("seconds", 0.0),
            remedies=tuple(remedies.of_batch(unit, directory, orders)) if directory else (),
            refusal=tuple(remedies.of_refusal(unit, observed, policy)) if directory else (),
        )


def _counts(seen: Mapping[str, int], rates: Rates, table: str, name: str) -> Iterator[Count]:
    return (Count(figure, total, rates.of(table, name, figure)) for figure, total in seen.items())


def _request_seconds(seen: Mapping[str, Any], rates: Rates, name: str) -> float | None:
    requests, seconds = rates.of("outputs", name, "requests"), rates.of("outputs", name, "seconds")
    if requests and seconds is not None:
        return seconds / requests
    return float(seen["seconds"]) / seen["requests"] if seen.get("requests") else None


def _queue(figures: Mapping[str, Any] | None, rates: Rates) -> Queue | None:
    if not figures:
        return None
    names = ("events", "bytes", "limit_bytes", "disk_bytes", "oldest_seconds")
    return Queue(
        **{name: figures[name] for name in names},
        change=rates.change("queue", "", "events"),
        bytes_change=rates.change("queue", "", "bytes"),
    )


def _credentials(
    document: Mapping[str, Any], observed: Mapping[str, Any], found: Sequence[Wait]
) -> Iterator[Credential]:
    """Yields the credentials: those of the supervisor with their names, and whatever else the shipper names."""
    known = document.get("credentials") or (document.get("supervisor") or {}).get("credentials") or ()
    by_id: dict[str, Mapping[str, Any]] = {one["id"]: one for one in known}
    ids = [*(observed.get("credentials_in_use") or ()), *(observed.get("credentials_wanted") or ())]
    for id in dict.fromkeys((*by_id, *ids)):
        one = by_id.get(id, {})
        drains_of = tuple(f"revision {wait.revision} on {wait.output}" for wait in found if id in wait.credentials)
        use = _use(id, one, observed)
        needed_by = drains_of if use in ("needed", "wanted") else ()
        yield Credential(id, one.get("name", ""), use, tuple(one.get("units") or ()), needed_by)


def _use(id: str, one: Mapping[str, Any], observed: Mapping[str, Any]) -> Use:
    if one.get("waits_for"):
        return "waits"
    if one.get("released"):
        return "revoked" if one.get("revoked") else "left" if one.get("shared") else "released"
    if id in (observed.get("credentials_wanted") or ()):
        return "wanted"
    if id not in (observed.get("credentials_in_use") or ()):
        return "held"
    return "in use" if one.get("current", True) else "needed"


def _letters(observed: Mapping[str, Any], directory: str, orders: Collection[str]) -> Letters:
    figures = observed.get("dead_letters") or {}
    if not figures.get("events"):
        return Letters()
    is_ordered = directory and "dead-letters" in orders
    return Letters(
        events=figures["events"],
        bytes=figures["bytes"],
        oldest_seconds=figures.get("oldest_seconds", 0.0),
        reasons=tuple(
            Reason(**{name: one[name] for name in Reason.__slots__})
            for one in observed.get("dead_letter_reasons") or ()
        ),
        remedies=tuple(remedies.all_of_letters(directory)) if is_ordered else (),
    )


def _edges(observed: Mapping[str, Any]) -> Iterator[Edge]:
    return (Edge(**{name: edge[name] for name in Edge.__slots__}) for edge in observed.get("edges") or ())


def _broken_first(one: Input | Output) -> int:
    return {"bad": 0, "warn": 1}.get(one.tone, 2)


def _worst_first(edge: Edge) -> tuple[bool, int, str, str]:
    behind = edge.waiting_events + edge.versions_behind
    return edge.connected_seconds is not None, -behind, edge.input, edge.name


def _principals(observed: Mapping[str, Any]) -> Iterator[Principal]:
    return (Principal(**{name: one[name] for name in Principal.__slots__}) for one in observed.get("principals") or ())
