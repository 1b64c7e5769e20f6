"""The fields of Kibana's stock dashboards for web servers, for `parse` with `dashboards: true`.

    url.path, url.query        of `url.original`, as they were requested
    user_agent.*               name, version, device.name, os.name, os.version and os.full, as by Elasticsearch's own
                               processor `user_agent`, with the same patterns (uap-core)
    event.*                    kind, category, type, outcome, module, and created: when the line was read
    service.type

Agents are looked up among the last 4096: 0.1 µs. A new one takes 11 to 15 µs, and only its first KiB is searched. The
patterns are loaded with the first one: 0.2 s and 30 MB.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from shipper.plugin import Fields
from shipper.sdk.fields import merged
from shipper.sdk.table import Cells, Group, constant

_LONGEST_AGENT = 1024
_OTHER = "Other"
_FIRST_FAILED = 400
_NO_ERRORS = ("notice", "info", "debug", "trace")
"""Levels of an error log."""
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*+://[^/?#]*+)?+(/[^?#]*+)?+(?:\?([^#]*+))?+")
_URLS = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*+://[^/?#\n]*+)?+(/[^?#\n]*+)?+(?:\?([^#\n]*+))?+[^\n]*+\n")


def added(made: Fields, kind: str, service: str, created: Any) -> Fields:
    """Returns the fields of a line with those of the dashboards.

    `kind` is `access` or `error`, `created` the time that the event had before.
    """
    if kind == "error" and made["log"]["level"].startswith(_NO_ERRORS):
        kind = "info"
    status = made.get("http", {}).get("response", {}).get("status_code")
    event = _event(kind, service, created) | ({} if status is None else {"outcome": _outcome_of_status(status)})
    beside: Fields = {"event": event, "service": {"type": service}}
    if "url" in made:
        beside["url"] = made["url"] | _url_parts(made["url"]["original"])
    if "user_agent" in made:
        beside["user_agent"] = user_agent(made["user_agent"]["original"])
    return made | beside


def _event(kind: str, service: str, created: Any) -> Fields:
    event = {"kind": "event", "category": ["web"], "type": [kind], "module": service}
    return event | ({} if created is None else {"created": created})


def _outcome_of_status(status: int) -> str:
    return "failure" if status >= _FIRST_FAILED else "success"


def _url_parts(original: str) -> Fields:
    found = _URL.match(original)
    path, query = found.groups() if found else (None, None)
    return {name: part for name, part in (("path", path), ("query", query)) if part}


# -- columns -----------------------------------------------------------------------------------------------------------


def url_columns(urls: Sequence[bytes]) -> Group:
    """Returns the path and the query of URLs that need no escape."""
    paths, queries = zip(*_URLS.findall(b"\n".join(urls) + b"\n"), strict=True)
    return {"path": _optional(paths), "query": _optional(queries)}


def _optional(column: Sequence[bytes]) -> Cells:
    return Cells([b'"%b"' % cell if cell else b"" for cell in column], sparse=True)


def event_columns(shared: Fields, service: str, statuses: Sequence[bytes]) -> Group:
    """Returns the fields of the event and of the service for lines of an access log.

    Raises ValueError if a shared field is no group.
    """
    above, below = shared.get("service", {}), shared.get("event", {})
    if not isinstance(above, dict) or not isinstance(below, dict):
        raise ValueError("not at once")
    event = merged(below, _event("access", service, shared.get("@timestamp")))
    event.pop("outcome", None)
    outcomes = {status: _outcome_of_status(int(status)).encode() for status in set(statuses)}
    return {
        "service": constant(merged(above, {"type": service})),
        "event": {
            **{name: constant(value) for name, value in event.items()},
            "outcome": Cells(b'"', [outcomes[status] for status in statuses], b'"'),
        },
    }


# -- agents ------------------------------------------------------------------------------------------------------------


def user_agent(original: str) -> Fields:
    """Returns the fields of an agent; do not change those below them."""
    return {"original": original, **_recognized(original[:_LONGEST_AGENT])}


@lru_cache(maxsize=4096)
def _recognized(beginning: str) -> Fields:
    """Returns what the beginning of an agent tells. Of a long agent nothing else is kept: a client writes it."""
    browser, system, device = _patterns()(beginning)
    fields: Fields = {"name": browser.family if browser else _OTHER}
    if version := _version(browser):
        fields["version"] = version
    if system:
        fields["os"] = _system(system.family, _version(system))
    return fields | {"device": {"name": device.family if device else _OTHER}}


def _system(name: str, version: str) -> Fields:
    return {"name": name, "version": version, "full": f"{name} {version}"} if version else {"name": name, "full": name}


def _version(found: Any) -> str:
    parts: list[str] = []
    for part in (found.major, found.minor, found.patch, found.patch_minor) if found else ():
        if not part:
            break
        parts.append(part)
    return ".".join(parts)


@cache
def _patterns() -> Any:
    from ua_parser import Domain
    from ua_parser.loaders import load_builtins
    from ua_parser.regex import Resolver

    resolver = Resolver(load_builtins())

    def found(text: str) -> tuple[Any, Any, Any]:
        result = resolver(text, Domain.ALL)
        return result.user_agent, result.os, result.device

    return found
