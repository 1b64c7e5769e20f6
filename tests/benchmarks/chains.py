"""Processors, and the five chains that published configurations use most: logs, and what is done with their lines.

nginx-drop       an access log without what was answered by 200
json-timestamp   JSON lines with a renamed field, and the time of the application
cri-multiline    the log of a container, whose stack traces of five lines are one event each
syslog-route     a syslog file, of which one program goes to an output of its own
dissect-convert  an access log that is cut at delimiters, with numbers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.job import access_lines, access_log
from tests.benchmarks.logs import cached, json_lines, json_log

TRACE = 5
"""Lines of a stack trace."""
_A_SECOND = 50
"""Lines of one second."""
_NGINX = {"type": "parse", "format": "nginx"}
_CUT = '%{client.ip} - %{user.name} [%{time}] "%{request}" %{status} %{bytes} "%{referrer}" "%{user_agent.original}"'
_IS_OK = {"equals": {"http.response.status_code": 200}}
_RETRIES = {"contains": {"message": "kube-probe"}}


@dataclass(frozen=True)
class Load:
    """A log of so many lines, and what is done with it."""

    log: Callable[[int], Path]
    processors: Sequence[Mapping[str, Any]] = ()
    input: Mapping[str, Any] = field(default_factory=dict)
    arriving: Callable[[int], int] = lambda lines: lines
    """How many events of so many lines arrive."""
    outputs: Sequence[str] = ("main",)


def timed_log(lines: int) -> Path:
    """JSON lines with a time of the application."""
    return cached(f"timed-{lines}.log", lambda: _timed(lines))


def traces_log(lines: int) -> Path:
    """Stack traces of five lines."""
    return cached(f"traces-{lines}.log", lambda: _traces(lines))


def container_log(lines: int) -> Path:
    """Lines of a container's log, as CRI writes them."""
    return cached(f"cri-{lines}.log", lambda: _container(access_lines(lines)))


def container_traces_log(lines: int) -> Path:
    """Stack traces of five lines in a container's log."""
    return cached(f"cri-traces-{lines}.log", lambda: _container(_traces(lines)))


def syslog_log(lines: int) -> Path:
    """A syslog file in the traditional format."""
    return cached(f"syslog-{lines}.log", lambda: _syslog(lines))


def _clock(number: int) -> str:
    second = number // _A_SECOND
    return f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def _timed(lines: int) -> Iterator[str]:
    for number, line in enumerate(json_lines(lines)):
        fraction = number % _A_SECOND * (1000 // _A_SECOND)
        yield f'{{"time": "2026-01-17T{_clock(number)}.{fraction:03d}Z", {line[1:]}'


def _traces(lines: int) -> Iterator[str]:
    for number, line in enumerate(access_lines(lines)):
        yield (
            line
            if number % TRACE == 0
            else f"\tat com.example.Cart.add(Cart.java:{number % 1000}) {line[:60].strip()}\n"
        )


def _container(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"2026-01-17T{_clock(number)}.{number % 1_000_000:06d}789Z stdout F {line}"


def _syslog(lines: int) -> Iterator[str]:
    for number, line in enumerate(access_lines(lines)):
        program = ("sshd", "cron", "su", "kernel")[number % 4]
        yield f"Jan 17 {_clock(number)} web-{number % 3} {program}[{number % 5000 + 1}]: {line[:70].strip()}\n"


def _not_ok(lines: int) -> int:
    with access_log(lines).open() as log:
        return sum('" 200 ' not in line for line in log)


def _not_probed(lines: int) -> int:
    with access_log(lines).open() as log:
        return sum("kube-probe" not in line for line in log)


def _on_lines(*processors: Mapping[str, Any], **more: Any) -> Load:
    return Load(access_log, processors, **more)


LOADS: Mapping[str, Load] = {
    "add_fields": _on_lines({"type": "add_fields", "fields": {"service.name": "shop"}}),
    "drop": _on_lines({"type": "drop", "when": _RETRIES}, arriving=_not_probed),
    "route": _on_lines(
        {"type": "route", "routes": [{"when": _RETRIES, "outputs": ["second"]}], "default": ["main"]},
        outputs=("main", "second"),
    ),
    "copy": _on_lines({"type": "copy", "fields": {"message": "event.original"}}),
    "redact": _on_lines({"type": "redact", "patterns": [r"(?i)(?:password|token|secret)=[^&\s]+"]}),
    "dissect": _on_lines({"type": "dissect", "tokenizer": _CUT, "target_prefix": ""}),
    "nginx-drop_fields": _on_lines(_NGINX, {"type": "drop_fields", "fields": ["agent", "http.version"]}),
    "nginx-rename": _on_lines(_NGINX, {"type": "rename", "fields": {"url.original": "url.full"}}),
    "nginx-convert": _on_lines(_NGINX, {"type": "convert", "fields": {"http.response.status_code": "string"}}),
    "timestamp": Load(
        json_log, [{"type": "parse", "format": "json"}, {"type": "timestamp", "field": "request", "layouts": ["UNIX"]}]
    ),
    "cri": Load(container_log, [{"type": "parse", "format": "cri"}]),
    "syslog-file": Load(syslog_log, [{"type": "parse", "format": "syslog"}]),
    "multiline": Load(traces_log, input={"multiline": {"pattern": r"^\s"}}, arriving=lambda lines: -(-lines // TRACE)),
    "nginx-drop": _on_lines(_NGINX, {"type": "drop", "when": _IS_OK}, arriving=_not_ok),
    "json-timestamp": Load(
        timed_log,
        [
            {"type": "parse", "format": "json"},
            {"type": "rename", "fields": {"line": "url.original"}},
            {"type": "timestamp", "field": "time", "layouts": ["2006-01-02T15:04:05.000Z07:00"]},
        ],
    ),
    "cri-multiline": Load(
        container_traces_log,
        [{"type": "parse", "format": "cri"}],
        {"multiline": {"pattern": r"^\S+ (?:stdout|stderr) F \s"}},
        lambda lines: -(-lines // TRACE),
    ),
    "syslog-route": Load(
        syslog_log,
        [
            {"type": "parse", "format": "syslog"},
            {
                "type": "route",
                "routes": [{"when": {"equals": {"process.name": "sshd"}}, "outputs": ["second"]}],
                "default": ["main"],
            },
        ],
        outputs=("main", "second"),
    ),
    "dissect-convert": _on_lines(
        {"type": "dissect", "tokenizer": _CUT, "target_prefix": ""},
        {"type": "convert", "fields": {"status": "integer", "bytes": "integer"}},
    ),
}
