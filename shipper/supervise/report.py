"""The supervisor's report: lines for people on a terminal, otherwise one ECS JSON object a line, as in the sidecar's
log.

    12:00:01.002  revision 3 active after 12 ms (barrier)
    12:00:01.480  revision 3 drained after 490 ms: 812 events delivered
    12:00:01.481  released es-3f9c0a7be2d1 (VuaCfGcBCdbkQm-e5aOx, file:/run/keys/es): it can be revoked now

In JSON, `message` is the text for people, `event.action` the kind of event, and its fields are `shipper.…`. Colours
only on a terminal, and not with NO_COLOR. A reader cannot block shipping: the lines wait in a bounded queue. While a
reader pauses (`less`, Ctrl-S), lines that do not fit are dropped and counted, and their number is reported; after a
closed pipe, or on a full disk, lines are lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from shipper.process.log import Writer, as_json, coloured, is_followed, pass_on, printable, redacted
from shipper.sdk.errors import Problem
from shipper.sdk.units import events_in_words

_RED, _YELLOW, _GREEN, _DIM = "\033[31m", "\033[33m", "\033[32m", "\033[2m"
_PLAIN = "\033[0m"
_LEVELS = {
    "invalid": "error",
    "warning": "warning",
    "nack": "error",
    "refused": "error",
    "failed": "error",
    "start_failed": "error",
    "unfenced": "error",
    "error": "error",
    "ended": "warning",
    "silent": "warning",
    "garbled": "warning",
    "unknown": "warning",
    "killed": "warning",
    "lost": "warning",
    "waits": "error",
    "release_waits": "warning",
}
"""The level of events without a health; otherwise `info`."""
_HEALTH = {"DEGRADED": "warning", "FAILED": "error"}
_COLOURS = {"error": _RED, "warning": _YELLOW}
_GOOD = ("valid", "present", "released", "revoked")
_LOGGER = "shipper.supervise"

Fields = Mapping[str, Any]


class Report:
    """Writes events to a file descriptor."""

    def __init__(self, descriptor: int, *, json: bool | None = None) -> None:
        """Without `json`: text on a terminal, otherwise JSON."""
        self.format = "json" if json or (json is None and not os.isatty(descriptor)) else "text"
        self._colours = coloured(descriptor)
        self._writer = Writer(descriptor, lambda lines: b"\n".join(self._lines("lost", {"lines": lines})))

    def say(self, what: str, fields: Fields | None = None) -> None:
        """Reports an event: its kind, and its fields. Never waits."""
        for line in self._lines(what, fields or {}):
            self._writer.write(line, _level(what, fields or {}))
        if is_followed():
            pass_on(_as_json(what, fields or {}))

    def flush(self) -> bool:
        """Waits for a moment until all is written; returns whether it is. Runs at exit too."""
        return self._writer.flush()

    def _lines(self, what: str, fields: Fields) -> list[bytes]:
        if self.format == "json":
            return [_as_json(what, fields)]
        return [redacted(line).encode(errors="replace") for line in self._for_people(what, fields)]

    def _for_people(self, what: str, fields: Fields) -> list[str]:
        now = time.time()
        at = f"{time.strftime('%H:%M:%S', time.localtime(now))}.{int(now * 1000) % 1000:03d}"
        first, *more = in_words(what, fields)
        if not self._colours:
            return [f"{at}  {first}", *(f"    {line}" for line in more)]
        good = what in _GOOD or fields.get("state") == "HEALTHY"
        colour = _GREEN if good else _COLOURS.get(_level(what, fields), "")
        return [f"{_DIM}{at}{_PLAIN}  {colour}{first}{_PLAIN}", *(f"    {line}" for line in more)]


def _as_json(what: str, fields: Fields) -> bytes:
    head = {"event": "\n".join(in_words(what, fields)), "level": _level(what, fields), "logger": _LOGGER}
    return as_json({**_structured(fields), **head, "event.action": what})


def _level(what: str, fields: Fields) -> str:
    if what == "release_waits" and fields.get("until") == "accepted":  # each rotation does, for a moment
        return "info"
    return _LEVELS.get(what) or _HEALTH.get(str(fields.get("state")), "info")


def _structured(value: Any) -> Any:
    """Returns a value with each Problem as a mapping of its parts."""
    if isinstance(value, Problem):
        return {name: getattr(value, name) for name in Problem.__slots__}
    if isinstance(value, Mapping):
        return {key: _structured(item) for key, item in value.items()}
    return [_structured(item) for item in value] if isinstance(value, list | tuple) else value


def in_words(what: str, fields: Fields) -> list[str]:
    """Returns the lines for an event; text of a backend cannot control the terminal."""
    first, *more = map(printable, _WORDS[what](fields))
    return [f"{printable(fields['member'])}: {first}" if "member" in fields else first, *more]


def _line(template: str) -> Callable[[Fields], list[str]]:
    return lambda fields: [template.format_map(fields)]


def _problems(errors: Any) -> list[str]:
    return [str(problem) for problem in errors]


def _degraded(fields: Fields) -> str:
    return "DEGRADED: " if "state" in fields else ""


def _ack(fields: Fields) -> list[str]:
    after = f" after {fields['milliseconds']} ms" if "milliseconds" in fields else ""
    stage = f"revision {fields['revision']} {fields['stage']}{after}"
    match fields["stage"]:
        case "drained" if "ledger" in fields:
            return [f"{stage}: {counted(fields['ledger'])}"]
        case "active":
            return [f"{stage} ({_CHANGES.get(fields['change'], fields['change'])})"]
        case _:
            return [stage]


_CHANGES = {
    "none": "it means the same as before",
    "live": "nothing queued is affected",
    "barrier": "events queued before must still drain",
}


def counted(ledger: Mapping[str, int]) -> str:
    """Returns the final answers to the events before a barrier, in words."""
    parts = [f"{count:,} {name.replace('_', ' ')}" for name, count in ledger.items() if name != "accepted" and count]
    events = "event" if ledger.get("accepted") == 1 else "events"
    return f"{ledger.get('accepted', 0):,} {events}" + (f", {', '.join(parts)}" if parts else "")


def _ready(fields: Fields) -> list[str]:
    http = f", http://{fields['http']}" if fields["http"] else ""
    return [f"sidecar is ready (version {fields['version']}, pid {fields['pid']}{http})"]


def _unit(fields: Fields) -> list[str]:
    message = f": {fields['message']}" if fields["message"] else ""
    return [f"{fields['unit'].replace('inputs.', 'input ').replace('outputs.', 'output ')} {fields['state']}{message}"]


def _released(fields: Fields) -> list[str]:
    names = [fields["name"]] if fields["name"] else []
    return [f"released {fields['credential']} ({', '.join([*names, *fields['sources']])}): it can be revoked now"]


def _release_waits(fields: Fields) -> list[str]:
    names = [fields["name"]] if fields["name"] else []
    if fields.get("until") == "accepted":
        return [
            f"{fields['credential']} ({', '.join([*names, *fields['sources']])}) is released, and waits for its "
            f"successor {fields['used']} to be accepted by the destination; to have it revoked all the same: "
            f"shipper order revoke --credential {fields['credential']}"
        ]
    same = f"has the name {fields['name']}, too" if fields["name"] else "is the same secret"
    return [
        f"{fields['credential']} ({', '.join([*names, *fields['sources']])}) is not used any more, and waits: "
        f"{fields['used']}, which is in use, {same}; to have it revoked, replace that one by one with another name"
    ]


def _returned(fields: Fields) -> list[str]:
    sources = ", ".join(fields["sources"])
    id = fields["credential"]
    return [
        f"{sources} holds a secret whose former id is released; its new id is {id}. While that is in use, the "
        "former one is not revoked, unless on_release has begun"
    ]


def _done(fields: Fields) -> list[str]:
    return ["everything that was read has its final answer", *(f"but {failure}" for failure in fields["failures"])]


def _unknown(fields: Fields) -> list[str]:
    first, *more = fields["credentials"]
    return [
        f"queued events need {', '.join([first, *more])}, which was released or never known here; end that with one of",
        f"shipper order rebind --from {first} --to ID --state DIR",
        "shipper order forward --revision N --output NAME --state DIR",
        "shipper order dead-letter --revision N --state DIR    (`shipper status --state DIR` says which)",
    ]


def _ordered(fields: Fields) -> list[str]:
    params = "".join(f" {name}={value}" for name, value in fields["params"].items())
    return [f"order {fields['name']}{params} goes to the sidecar"]


def _result(fields: Fields) -> list[str]:
    end = "done" if fields["status"] == "SUCCESS" else "refused"
    return [f"order {end}" + (f": {fields['message']}" if fields["message"] else "")]


def _stopping(fields: Fields) -> list[str]:
    """It names no number of events, since the last observation may be old."""
    seconds = f"{fields['seconds']:g} s"
    if fields["waits"]:
        return [f"stopping; waits up to {seconds} for queued events to be delivered; the rest stays in the queue"]
    return [f"stopping, within {seconds}"]


_WORDS: Mapping[str, Callable[[Fields], list[str]]] = {
    "watching": lambda f: [f"watching {', '.join(f['paths'])} ({f['method']})"],
    "launched": _line("sidecar started (pid {pid})"),
    "launch_failed": _line("DEGRADED: the sidecar cannot be started: {message}; next attempt in {seconds:.1f} s"),
    "ready": _ready,
    "ended": _line("sidecar ended: {reason}; next start in {seconds:.1f} s"),
    "hung": _line("DEGRADED: {message}; if that lasts, the watchdog of the service manager starts all of it again"),
    "answers": _line("HEALTHY: what did not answer does so again"),
    "silent": _line("the sidecar sent nothing for {seconds:.0f} s and is killed"),
    "garbled": _line("the sidecar wrote a line that is no message of the protocol"),
    "sent": _line("revision {revision} sent"),
    "ack": _ack,
    "resumed": _line("revision {revision} continues: it was drained before"),
    "nack": lambda f: [f"revision {f['revision']} refused: {f['reason']}", *_problems(f["errors"])],
    "refused": _line("revision {revision} was refused again and again under new numbers; change a file or send SIGHUP"),
    "invalid": lambda f: [
        f"{_degraded(f)}{f['source']} are not a valid policy{f['consequence']}",
        *_problems(f["errors"]),
    ],
    "valid": _line("{source} are valid again (revision {revision})"),
    "absent": lambda f: [
        "DEGRADED: nothing runs until every secret is present; waiting",
        *_problems(f["errors"]),
    ],
    "key_absent": _line("DEGRADED: nothing runs until the state key is present; waiting: {message}"),
    "present": _line("every secret is present (revision {revision})"),
    "warning": _line("warning: {problem}"),
    "unchanged": _line("read again: nothing new, revision {revision} stays"),
    "released": _released,
    "release_waits": _release_waits,
    "revoked": _line("on_release done for {credential}"),
    "given_up": _line("{credential} is given up, as its content is lost: no on_release runs for it"),
    "revoke_failed": _line("DEGRADED: on_release failed for {credential}: {reason}; next attempt in {seconds:.1f} s"),
    "returned": _returned,
    "supplied": lambda f: [f"supplied {', '.join(f['credentials'])}, which the sidecar asked for"],
    "unknown": _unknown,
    "unit": _unit,
    "failed": _line("sidecar FAILED: {message}"),
    "start_failed": _line("the sidecar cannot start: {message}{consequence}"),
    "unfenced": lambda f: [
        f"the sidecar (version {f['version']}) is too old to send under a lease only, since it cannot do "
        f"{', '.join(f['missing'])}; nothing runs: install a newer shipper, or change on_lapse to continue"
    ],
    "unserved": _line(
        "DEGRADED: no status server: {address} cannot be used, perhaps because another process uses it; "
        "the next start of the sidecar tries again"
    ),
    "error": _line("the sidecar refused message {line}: {message}"),
    "ordered": _ordered,
    "result": _result,
    "save_failed": _line("DEGRADED: the state cannot be saved ({message}); nothing new is sent until it can"),
    "unheard": _line("DEGRADED: some questions get no answer: {message}"),
    "fleet_joined": lambda f: [
        f"fleet {f['fleet']}: {f['name']} joined" + (f" at version {f['version']}" if f["version"] else "")
    ],
    "fleet_released": lambda f: [f"{f['credential']} ({', '.join(f['sources'])}) is released by the fleet"],
    "fleet_elected": _line("fleet {fleet}: this host was elected to run on_release (token {token})"),
    "fleet_version": _line("version {version} received from the fleet"),
    "fleet_left": _line("fleet {fleet}: left"),
    "fleet_trouble": _line("DEGRADED: {message}; {consequence}"),
    "fleet_well": _line("{cause}: over"),
    "kubernetes_joined": _line("kubernetes: {name} takes part in namespace {namespace}"),
    "kubernetes_policies": lambda f: [f"kubernetes: received {', '.join(f['policies']) or 'no policy'}"],
    "kubernetes_left": _line("kubernetes: left namespace {namespace}"),
    "kubernetes_leader": _line("kubernetes: {message}"),
    "kubernetes_events": _line("kubernetes: {message}"),
    "kubernetes_trouble": _line("DEGRADED: {message}; {consequence}"),
    "kubernetes_well": _line("{cause}: over"),
    "stopping": _stopping,
    "killed": _line("stopping at once: {reason}"),
    "stopped": lambda f: [f"sidecar stopped; {events_in_words(f['undelivered'])} left in the queue"],
    "lost": _line("{lines} lines were dropped, since this output was not read"),
    "waits": _line("not everything was delivered: it waits for {reason}"),
    "done": _done,
}
