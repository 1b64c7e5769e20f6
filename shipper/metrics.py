"""The status as Prometheus shows it: built anew from one view at each scrape, in a registry of its own.

Metrics are not kept beside the state they describe: what a scrape says is what `observed` says at that moment, and
what is gone (an output, a drained revision) is gone from the next scrape too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shipper import __version__

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_STATES = ("STARTING", "CONFIGURING", "HEALTHY", "DEGRADED", "FAILED", "STOPPING", "STOPPED")
_OUTCOMES = ("delivered", "duplicate", "dead_letter", "dropped")
_QUEUE = {
    "events": "Events that wait for an output, each counted once.",
    "bytes": "Bytes of the events that wait.",
    "limit_bytes": "Where intake starts to wait.",
    "disk_bytes": "Bytes of the spool on disk, its log and the dead letters included.",
    "oldest_seconds": "Age of the oldest event that waits.",
}
_DEAD_LETTERS = {
    "events": "Events that their output refused for ever, and that are kept.",
    "bytes": "Bytes of the dead letters.",
}

Row = tuple[tuple[str, ...], float]


def exposition(status: Mapping[str, Any]) -> tuple[bytes, str]:
    """The text that Prometheus scrapes, and its content type."""
    from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(status))
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Collector:
    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status
        yield _gauge("build_info", "The version that runs.", ["version"], [((__version__,), 1)])
        yield _gauge("state", "1 for the state of the whole, 0 for the others.", ["state"], _states(status))
        yield _gauge("unit_state", "1 for the state of an input or output.", ["unit", "type", "state"], _units(status))
        yield from _figures("queue", _QUEUE, status.get("queue") or {})
        yield from _figures("dead_letters", _DEAD_LETTERS, status.get("dead_letters") or {})
        yield from _revisions(status.get("revisions") or {})
        labels = ["epoch", "revision", "output"]
        yield _gauge("draining_events", "Events of replaced lanes that wait for an answer.", labels, _draining(status))
        wanted = len(status.get("credentials_wanted") or ())
        yield _gauge(
            "credentials_wanted", "Credentials that queued events need and that are missing.", [], [((), wanted)]
        )
        yield from _counters(status.get("counters") or {})
        yield _turned_away(status.get("turned_away") or {})


def _gauge(name: str, text: str, labels: list[str], rows: Iterable[Row]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"shipper_{name}", text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _states(status: Mapping[str, Any]) -> Iterator[Row]:
    return (((state,), float(state == status.get("state"))) for state in _STATES)


def _units(status: Mapping[str, Any]) -> Iterator[Row]:
    return (((unit["id"], unit["type"], unit["state"]), 1) for unit in status.get("units") or ())


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
    from prometheus_client.core import CounterMetricFamily

    events = CounterMetricFamily("shipper_events", "Events with their final answer.", labels=["output", "outcome"])
    retries = CounterMetricFamily("shipper_retries", "Requests that were sent again.", labels=["output"])
    for output, counts in counters.items():
        for outcome in _OUTCOMES:
            events.add_metric((output, outcome), counts.get(outcome, 0))
        retries.add_metric((output,), counts.get("retries", 0))
    yield events
    yield retries


def _turned_away(connections: Mapping[str, int]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    text = "Connections that were closed to make room, before they had shown a valid request."
    family = CounterMetricFamily("shipper_turned_away", text, labels=["input"])
    for input, count in connections.items():
        family.add_metric((input,), count)
    return family
