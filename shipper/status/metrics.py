"""The status as Prometheus metrics: built from one view at each scrape, in a registry of its own.

Metrics are not kept beside the state that they describe: a scrape equals `observed` at that moment, and removed things
(an output, a drained revision) are missing from the next scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from shipper import __version__
from shipper.process.usage import usage
from shipper.protocol.messages import TROUBLES
from shipper.sdk.tallies import BOUNDS, FAILURES

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, Metric

_STATES = ("STARTING", "CONFIGURING", "HEALTHY", "DEGRADED", "FAILED", "STOPPING", "STOPPED")
_OUTCOMES = ("delivered", "duplicate", "superseded", "dead_letter", "dropped", "damaged")
_QUEUE = {
    "events": "Events that wait for an output, each counted once.",
    "bytes": "Bytes of the events that wait.",
    "limit_bytes": "Bytes of waiting events at which intake starts to wait.",
    "disk_bytes": "Bytes of the spool on disk, its log and the dead letters included.",
    "oldest_seconds": "Age of the oldest event that waits.",
}
_KEYED = {
    "keys": "Keys of keyed state, those that are deleted and still known included.",
    "waiting": "Versions of keys that wait, each counted for every destination.",
}
_DEAD_LETTERS = {
    "events": "Events that their output refused for ever, and that are kept.",
    "bytes": "Bytes of the dead letters.",
    "limit_bytes": "Bytes of dead letters at which the oldest are dropped, or events are held.",
}

_TAKEN = {
    "events": "Events that an input has taken, before processors take any out.",
    "bytes": "Bytes of the events that an input has taken, as text.",
    "filtered": "Events that processors took out.",
    "failures": "Times that a processor could not handle an event, and tagged it (processor_error).",
}
_FOLLOWED = {
    "files": "Files that an input follows.",
    "unread_bytes": "Bytes that an input has not read of its files, as they were last looked at.",
    "lost_files": "Files that were gone before an input had read their end, since it was opened; missing without one.",
    "connections": "Connections that an input has open.",
    "lost_datagrams": "Datagrams that the kernel has dropped since an input was opened, for lack of room in a buffer.",
    "refused_peers": "Connections and datagrams of peers that an input does not let in, since it was opened.",
}

_EDGES = {
    "waiting_events": "Log events that wait at an edge, as it said last.",
    "versions_behind": "Versions of keys that wait at an edge, as it said last.",
    "keys": "Keys of an edge that are stored here, without those that are deleted.",
    "bytes": "Bytes of the keys of an edge that are stored here.",
    "connected_seconds": "How long an edge has been connected; missing while it is not.",
    "heard_seconds": "Seconds since the last request of an edge; missing if there was none since the start.",
}
_PRINCIPALS = {
    "unconfirmed_events": "Log events that the principal of an output has not confirmed.",
    "unconfirmed_keys": "Keys whose last version the principal of an output has not confirmed.",
    "oldest_seconds": "Age of the oldest of what the principal of an output has not confirmed.",
    "connected_seconds": "How long an output has been connected to its principal; missing while it is not.",
}

_PROCESS = {
    "cpu_seconds": "Total user and system CPU time in seconds.",
    "virtual_memory_bytes": "Virtual memory size in bytes.",
    "resident_memory_bytes": "Resident memory size in bytes.",
    "start_time_seconds": "Start time of the process since the Unix epoch in seconds.",
    "open_fds": "Number of open file descriptors.",
    "max_fds": "Maximum number of open file descriptors.",
}

Row = tuple[tuple[str, ...], float]


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    """Returns all metrics of a status."""
    return _Collector(status).collect()


def exposition(status: Mapping[str, Any]) -> tuple[bytes, str]:
    """Returns the text that Prometheus scrapes, and its content type."""
    from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(status))
    registry.register(_Process())
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Collector:
    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status
        yield _gauge("build_info", "The version that runs.", ["version"], [((__version__,), 1)])
        yield _gauge("state", "1 for the state of the whole, 0 for the others.", ["state"], _states(status))
        labels = ["unit", "type", "state", "code"]
        yield _gauge("unit_state", "1 for the state of an input or output, and its code.", labels, _units(status))
        yield from _figures("queue", _QUEUE, status.get("queue") or {})
        yield from _figures("dead_letters", _DEAD_LETTERS, status.get("dead_letters") or {})
        yield from _figures("keyed", _KEYED, status.get("keyed") or {})
        yield from _revisions(status.get("revisions") or {})
        labels = ["epoch", "revision", "output"]
        yield _gauge(
            "draining_events",
            "Events that wait for a destination or credential which a newer revision replaced.",
            labels,
            _draining(status),
        )
        late = float(status.get("past_deadline", False))
        yield _gauge("drain_past_deadline", "1 while a drain waits past its deadline.", [], [((), late)])
        wanted = len(status.get("credentials_wanted") or ())
        yield _gauge(
            "credentials_wanted", "Credentials that queued events need and that are missing.", [], [((), wanted)]
        )
        if (lease := status.get("lease_seconds")) is not None:
            text = "Seconds left of the lease without which nothing is sent; 0: it lapsed."
            yield _gauge("lease_seconds", text, [], [((), lease)])
        yield from _counters(status.get("counters") or {})
        yield _turned_away(status.get("turned_away") or {})
        yield from _requests(status.get("outputs") or {})
        yield from _holds(status.get("outputs") or {})
        yield from _taken(status.get("inputs") or {})
        yield from _followed(status.get("units") or ())
        yield from _edges(status.get("edges") or ())
        yield from _principals(status.get("principals") or ())
        yield from _counted(status.get("plugins") or {})
        if (supervisor := status.get("supervisor")) is not None:
            yield from _supervisor(supervisor)


class _Process:
    """What this process uses, under the names that every program has for it."""

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, value in usage().items():
            family = CounterMetricFamily if name == "cpu_seconds" else GaugeMetricFamily
            yield family(f"process_{name}", _PROCESS[name], value=value)


def _gauge(name: str, text: str, labels: list[str], rows: Iterable[Row]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"shipper_{name}", text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _states(status: Mapping[str, Any]) -> Iterator[Row]:
    return (((state,), float(state == status.get("state"))) for state in _STATES)


def _units(status: Mapping[str, Any]) -> Iterator[Row]:
    return (((unit["id"], unit["type"], unit["state"], unit.get("code", "")), 1) for unit in status.get("units") or ())


def _draining(status: Mapping[str, Any]) -> Iterator[Row]:
    for drain in status.get("draining") or ():
        for output, waiting in (drain.get("outputs") or {}).items():
            yield (str(drain.get("epoch", 0)), str(drain["revision"]), output), waiting.get("events", 0)


def _figures(group: str, texts: Mapping[str, str], figures: Mapping[str, Any]) -> Iterator[Metric]:
    for name, text in texts.items():
        if figures.get(name) is not None:
            yield _gauge(f"{group}_{name}", text, [], [((), figures[name])])


def _revisions(revisions: Mapping[str, Any]) -> Iterator[Metric]:
    known = {stage: number for stage, number in revisions.items() if number is not None}
    yield _gauge(
        "epoch", "Epoch of the newest revision of a stage.", ["stage"], [((s,), n[0]) for s, n in known.items()]
    )
    yield _gauge("revision", "Newest revision of a stage.", ["stage"], [((s,), n[1]) for s, n in known.items()])


def _counters(counters: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    events = [
        ((output, outcome), counts.get(outcome, 0)) for output, counts in counters.items() for outcome in _OUTCOMES
    ]
    yield _counter("events", "Events with their final answer.", ["output", "outcome"], events)
    retries = [((output,), counts.get("retries", 0)) for output, counts in counters.items()]
    yield _counter("retries", "Requests that were sent again.", ["output"], retries)
    dropped = [((output,), counts.get("letters_dropped", 0)) for output, counts in counters.items()]
    yield _counter("dropped_dead_letters", "Dead letters that were dropped to make room.", ["output"], dropped)


def _counter(name: str, text: str, labels: list[str], rows: Iterable[Row]) -> CounterMetricFamily:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"shipper_{name}", text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _requests(outputs: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    took = HistogramMetricFamily("shipper_output_request_seconds", "How long requests took.", labels=["output"])
    for output, seen in outputs.items():
        took.add_metric((output,), list(zip(_bounds(), accumulate(seen["buckets"]), strict=True)), seen["seconds"])
    yield took
    responses = [((o, code), n) for o, seen in outputs.items() for code, n in sorted(seen["responses"].items())]
    text = "Requests that were answered, by HTTP status."
    yield _counter("output_responses", text, ["output", "code"], responses)
    failures = [((o, reason), seen["failures"].get(reason, 0)) for o, seen in outputs.items() for reason in FAILURES]
    text = "Requests that were given up without an answer."
    yield _counter("output_failures", text, ["output", "reason"], failures)


def _bounds() -> list[str]:
    return [*map(str, BOUNDS), "+Inf"]


def _holds(outputs: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    held = [((output,), float(seen["held"])) for output, seen in outputs.items()]
    yield _gauge("output_held", "1 while an output waits for a person: refused, or a missing secret.", ["output"], held)
    waits = [((output,), seen["next_attempt_seconds"] or 0.0) for output, seen in outputs.items()]
    text = "Seconds until an output tries its destination again after a failure; 0: it does not wait."
    yield _gauge("output_next_attempt_seconds", text, ["output"], waits)


def _taken(inputs: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    for name, text in _TAKEN.items():
        yield _counter(f"input_{name}", text, ["input"], [((input,), taken[name]) for input, taken in inputs.items()])


def _followed(units: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yields the figures of inputs."""
    said = {unit["id"].partition(".")[2]: unit["figures"] for unit in units if unit.get("figures")}
    for name, text in _FOLLOWED.items():
        rows = [((input,), figures[name]) for input, figures in said.items() if name in figures]
        yield _gauge(f"input_{name}", text, ["input"], rows)


def _edges(edges: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yields the figures of the edges of a principal."""
    if edges:
        names = [((edge["input"], edge["name"]), edge) for edge in edges]
        yield from _others("edge", "1 while an edge is connected.", _EDGES, ["input", "edge"], names)


def _principals(principals: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yields the figures of the principals of an edge."""
    if principals:
        names = [((one["output"],), one) for one in principals]
        text = "1 while an output is connected to its principal."
        yield from _others("principal", text, _PRINCIPALS, ["output"], names)
        confirms = [(name, one["confirms"] == "delivered") for name, one in names if one["confirms"] is not None]
        text = "1: what the principal of an output confirms is delivered at the end of the way; 0: it is stored."
        yield _gauge("principal_confirms_delivered", text, ["output"], confirms)


def _others(
    kind: str,
    connected: str,
    texts: Mapping[str, str],
    labels: list[str],
    rows: Sequence[tuple[tuple[str, ...], Mapping[str, Any]]],
) -> Iterator[Metric]:
    is_connected = [(name, float(one["connected_seconds"] is not None)) for name, one in rows]
    yield _gauge(f"{kind}_connected", connected, labels, is_connected)
    for figure, text in texts.items():
        known = [(name, one[figure]) for name, one in rows if one[figure] is not None]
        yield _gauge(f"{kind}_{figure}", text, labels, known)


def _counted(plugins: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Yields the meters of plugins. A metric has one kind and help: those of the first unit with its name."""
    named: dict[str, list[tuple[str, Any]]] = {}
    for unit, figures in plugins.items():
        for name, figure in figures.items():
            named.setdefault(name, []).append((unit, figure))
    for name, of_units in sorted(named.items()):
        first = of_units[0][1]
        same = [(unit, figure) for unit, figure in of_units if figure["kind"] == first["kind"]]
        yield _plugin_metric(f"plugin_{name}", first["kind"], first["help"], same)


def _plugin_metric(name: str, kind: str, text: str, of_units: Sequence[tuple[str, Any]]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    if kind != "histogram":
        rows = [((unit,), figure["value"]) for unit, figure in of_units]
        return (_counter if kind == "counter" else _gauge)(name, text, ["unit"], rows)
    family = HistogramMetricFamily(f"shipper_{name}", text, labels=["unit"])
    for unit, figure in of_units:
        family.add_metric((unit,), figure["buckets"], figure["sum"])
    return family


def _supervisor(supervisor: Mapping[str, Any]) -> Iterator[Metric]:
    kinds = Counter(one["kind"] if one["kind"] in TROUBLES else TROUBLES[-1] for one in supervisor["troubles"])
    text = "Problems of the supervisor, by kind."
    yield _gauge("supervisor_troubles", text, ["kind"], [((kind,), kinds[kind]) for kind in TROUBLES])
    text = "Released credentials that are not revoked yet."
    yield _gauge("supervisor_unrevoked_credentials", text, [], [((), supervisor["unrevoked"])])
    text = "Restarts of the shipper by the supervisor."
    yield _counter("supervisor_restarts", text, [], [((), supervisor["restarts"])])


def _turned_away(connections: Mapping[str, int]) -> Metric:
    text = "Connections that were closed to make room, before they had shown a valid request."
    return _counter("turned_away", text, ["input"], [((input,), count) for input, count in connections.items()])
