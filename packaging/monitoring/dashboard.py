"""Writes the dashboard for Grafana: `python packaging/monitoring/dashboard.py > packaging/monitoring/dashboard.json`.

Each row of the dashboard is a list of panels here: a title, a unit of Grafana, and expressions with their legends.
`WHERE` stands in every expression, so that the choice of hosts at the top holds for all panels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

WHERE = 'job=~"$job", instance=~"$instance"'
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 24, 8
Json = dict[str, Any]


class Panel(NamedTuple):
    """A panel. `queries` are (expression, legend); `kind` is a plugin of Grafana."""

    title: str
    queries: list[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    text: str = ""
    limits: tuple[float, float] | None = None
    """From where a number is yellow, and red."""
    stacked: bool = False


def rate(metric: str, by: str, **matchers: str) -> str:
    more = "".join(f', {label}="{value}"' for label, value in matchers.items())
    return f"sum by (instance, {by}) (rate(shipper_{metric}{{{WHERE}{more}}}[$__rate_interval]))"


def last(metric: str, more: str = "") -> str:
    return f"shipper_{metric}{{{WHERE}{more}}}"


def grown(metric: str) -> str:
    return f"increase(shipper_{metric}{{{WHERE}}}[$__rate_interval])"


def quantile(share: float) -> str:
    buckets = f"rate(shipper_output_request_seconds_bucket{{{WHERE}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by (output, le) ({buckets}))"


ROWS: dict[str, list[Panel]] = {
    "Now": [
        Panel(
            "Alerts",
            [(f'count(ALERTS{{alertname=~"Shipper.*", alertstate="firing", {WHERE}}}) or vector(0)', "")],
            kind="stat",
            width=4,
            limits=(1, 1),
        ),
        Panel(
            "Shippers that do not answer", [(f"count(up{{{WHERE}}} == 0) or vector(0)", "")], "short", "stat", 4
        )._replace(limits=(1, 1)),
        Panel(
            "Shippers by state",
            [(f"sum by (state) ({last('state')}) > 0", "{{state}}")],
            kind="stat",
            width=4,
        ),
        Panel(
            "Fullest queue",
            [(f"max({last('queue_bytes')} / {last('queue_limit_bytes')})", "")],
            "percentunit",
            "gauge",
            4,
            limits=(0.5, 0.8),
        ),
        Panel("Oldest event", [(f"max({last('queue_oldest_seconds')}) or vector(0)", "")], "s", "stat", 4)._replace(
            limits=(300, 900)
        ),
        Panel("Dead letters kept", [(f"sum({last('dead_letters_events')})", "")], "short", "stat", 4)._replace(
            limits=(1, 10_000)
        ),
        Panel(
            "Inputs and outputs that do not do their job",
            [(f"{last('unit_state', ', state!~' + chr(34) + 'HEALTHY|STOPPED' + chr(34))} == 1", "")],
            kind="table",
            width=16,
            text="docs/troubles.md has a section for each code.",
        ),
        Panel("Versions", [(f"count by (version) ({last('build_info')})", "{{version}}")], kind="stat", width=8),
    ],
    "Inputs": [
        Panel("Events taken", [(rate("input_events_total", "input"), "{{instance}} {{input}}")], "eps"),
        Panel("Bytes taken", [(rate("input_bytes_total", "input"), "{{instance}} {{input}}")], "Bps"),
        Panel(
            "How far behind: bytes not read of files",
            [(last("input_unread_bytes"), "{{instance}} {{input}}")],
            "bytes",
        ),
        Panel(
            "Taken out, or not handled, by processors",
            [
                (rate("input_filtered_total", "input"), "{{instance}} {{input}} taken out"),
                (rate("input_failures_total", "input"), "{{instance}} {{input}} not handled"),
            ],
            "eps",
        ),
        Panel(
            "Files and connections",
            [
                (last("input_files"), "{{instance}} {{input}} files"),
                (last("input_connections"), "{{instance}} {{input}} connections"),
            ],
        ),
        Panel(
            "Peers turned away or refused, datagrams and files lost",
            [
                (
                    grown("turned_away_total"),
                    "{{instance}} {{input}} turned away",
                ),
                (last("input_refused_peers"), "{{instance}} {{input}} refused since the start"),
                (last("input_lost_datagrams"), "{{instance}} {{input}} datagrams lost since the start"),
                (last("input_lost_files"), "{{instance}} {{input}} files gone before their end was read"),
            ],
        ),
    ],
    "Queue": [
        Panel("Events that wait", [(last("queue_events"), "{{instance}}")]),
        Panel(
            "Bytes that wait, and the limit",
            [(last("queue_bytes"), "{{instance}}"), (last("queue_limit_bytes"), "{{instance}} limit")],
            "bytes",
        ),
        Panel("Age of the oldest event", [(last("queue_oldest_seconds"), "{{instance}}")], "s"),
        Panel("Bytes on disk", [(last("queue_disk_bytes"), "{{instance}}")], "bytes"),
        Panel(
            "Dead letters, and the limit",
            [(last("dead_letters_bytes"), "{{instance}}"), (last("dead_letters_limit_bytes"), "{{instance}} limit")],
            "bytes",
        ),
        Panel(
            "Keyed state",
            [(last("keyed_keys"), "{{instance}} keys"), (last("keyed_waiting"), "{{instance}} versions that wait")],
        ),
    ],
    "Outputs": [
        Panel(
            "Final answers of events",
            [(rate("events_total", "output, outcome"), "{{instance}} {{output}} {{outcome}}")],
            "eps",
            stacked=True,
        ),
        Panel(
            "Answers by status",
            [(rate("output_responses_total", "output, code"), "{{instance}} {{output}} {{code}}")],
            "reqps",
            stacked=True,
        ),
        Panel(
            "Requests without an answer, and sent again",
            [
                (rate("output_failures_total", "output, reason"), "{{instance}} {{output}} {{reason}}"),
                (rate("retries_total", "output"), "{{instance}} {{output}} sent again"),
            ],
            "reqps",
        ),
        Panel(
            "How long requests take",
            [(quantile(share), "{{output}} " + f"{share:.0%}") for share in (0.5, 0.95, 0.99)],
            "s",
        ),
        Panel(
            "Waiting: held for a person, or until the next attempt",
            [
                (last("output_held"), "{{instance}} {{output}} held"),
                (last("output_next_attempt_seconds"), "{{instance}} {{output}} seconds until the next attempt"),
            ],
        ),
        Panel(
            "Dead letters made, and dropped for lack of room",
            [
                (rate("events_total", "output", outcome="dead_letter"), "{{instance}} {{output}} made"),
                (rate("dropped_dead_letters_total", "output"), "{{instance}} {{output}} dropped"),
            ],
            "eps",
        ),
    ],
    "Revisions and credentials": [
        Panel(
            "Newest revision by stage",
            [(last("revision"), "{{instance}} {{stage}}")],
            text="active behind received: a revision starts. drained behind active: old events still wait.",
        ),
        Panel(
            "What drains wait for",
            [(last("draining_events"), "{{instance}} {{output}} revision {{revision}}")],
            stacked=True,
        ),
        Panel(
            "Credentials that are missing, or not revoked",
            [
                (last("credentials_wanted"), "{{instance}} missing"),
                (last("supervisor_unrevoked_credentials"), "{{instance}} released, not revoked"),
                (last("drain_past_deadline"), "{{instance}} a drain is past its deadline"),
            ],
        ),
        Panel("Troubles of the supervisor", [(last("supervisor_troubles") + " > 0", "{{instance}} {{kind}}")]),
        Panel("Restarts", [(grown("supervisor_restarts_total"), "{{instance}}")]),
        Panel(
            "Processor time",
            [(f"rate(process_cpu_seconds_total{{{WHERE}}}[$__rate_interval])", "{{instance}}")],
            "percentunit",
        ),
        Panel(
            "Memory",
            [(f"process_resident_memory_bytes{{{WHERE}}}", "{{instance}}")],
            "bytes",
        ),
        Panel("Seconds left of the lease", [(last("lease_seconds"), "{{instance}}")], "s"),
    ],
    "Relays": [
        Panel(
            "Edges that are connected",
            [(f"sum by (instance, input) ({last('edge_connected')})", "{{instance}} {{input}}")],
        ),
        Panel(
            "What waits at edges",
            [
                (last("edge_waiting_events"), "{{edge}} events"),
                (last("edge_versions_behind"), "{{edge}} versions of keys"),
            ],
        ),
        Panel(
            "Last request of an edge",
            [(last("edge_heard_seconds"), "{{edge}}")],
            "s",
        ),
        Panel(
            "Connected to the principal",
            [
                (last("principal_connected"), "{{instance}} {{output}}"),
                (last("principal_confirms_delivered"), "{{instance}} {{output}} confirms deliveries"),
            ],
        ),
        Panel(
            "Not confirmed by the principal",
            [
                (last("principal_unconfirmed_events"), "{{instance}} {{output}} events"),
                (last("principal_unconfirmed_keys"), "{{instance}} {{output}} keys"),
            ],
        ),
        Panel(
            "Oldest of what is not confirmed",
            [(last("principal_oldest_seconds"), "{{instance}} {{output}}")],
            "s",
        ),
        Panel("Keys of edges", [(last("edge_keys"), "{{edge}}")], width=12),
        Panel("Bytes of the keys of edges", [(last("edge_bytes"), "{{edge}}")], "bytes", width=12),
    ],
}
CLOSED = {"Relays"}
"""Rows that are folded at first: many have none."""


def dashboard() -> Json:
    """Returns the dashboard as Grafana imports it; it asks for the data source then."""
    return {
        "title": "shipper",
        "uid": "shipper",
        "tags": ["shipper"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "annotations": {"list": [_restarts()]},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[Json]:
    yield {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}
    for name, query in (
        ("job", "label_values(shipper_build_info, job)"),
        ("instance", 'label_values(shipper_build_info{job=~"$job"}, instance)'),
    ):
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"text": "All", "value": "$__all"},
        }


def _restarts() -> Json:
    return {
        "name": "New active revision",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "blue",
        "expr": f'changes(shipper_revision{{{WHERE}, stage="active"}}[$__interval]) > 0',
        "titleFormat": "{{instance}}: another revision is active",
    }


def _panels() -> Iterator[Json]:
    top = number = 0
    for title, panels in ROWS.items():
        row: Json = {"type": "row", "title": title, "id": (number := number + 1), "collapsed": title in CLOSED}
        row |= {"gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1}, "panels": []}
        top, left, below = top + 1, 0, []
        for panel in panels:
            if left + panel.width > WIDTH:
                top, left = top + _height(panel), 0
            place = {"x": left, "y": top, "w": panel.width, "h": _height(panel)}
            below.append(_panel(panel, (number := number + 1), place))
            left += panel.width
        top += _height(panels[-1])
        if row["collapsed"]:
            row["panels"] = below
        yield row
        if not row["collapsed"]:
            yield from below


def _height(panel: Panel) -> int:
    return HEIGHT if panel.kind in ("timeseries", "table") or panel.title == "Versions" else HEIGHT // 2


def _panel(panel: Panel, id: int, place: Json) -> Json:
    made: Json = {"id": id, "title": panel.title, "type": panel.kind, "datasource": SOURCE, "gridPos": place}
    made |= {"description": panel.text} if panel.text else {}
    custom: Json = {"fillOpacity": 10, "showPoints": "never"}
    if panel.stacked:
        custom |= {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 40}
    defaults: Json = {"unit": panel.unit, "min": 0, "custom": custom if panel.kind == "timeseries" else {}}
    if panel.kind == "gauge":
        defaults["max"] = 1
    if panel.limits is not None:
        steps = zip((None, *panel.limits), ("green", "yellow", "red"), strict=True)
        defaults["thresholds"] = {"mode": "absolute", "steps": [{"value": at, "color": color} for at, color in steps]}
    made["fieldConfig"] = {"defaults": defaults, "overrides": []}
    made["targets"] = [_target(panel, at, *query) for at, query in enumerate(panel.queries)]
    if panel.kind == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        made["options"] = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    elif panel.kind == "table":
        hidden = dict.fromkeys(("Time", "Value", "__name__", "job"), True)
        order = {name: at for at, name in enumerate(("instance", "unit", "type", "state", "code"))}
        made["transformations"] = [
            {"id": "organize", "options": {"excludeByName": hidden, "indexByName": order, "renameByName": {}}}
        ]
    else:
        made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return made


def _target(panel: Panel, at: int, expression: str, legend: str) -> Json:
    instant = panel.kind != "timeseries"
    target: Json = {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
    target |= {"instant": instant, "range": not instant}
    return target | ({"format": "table"} if panel.kind == "table" else {})


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=2))
