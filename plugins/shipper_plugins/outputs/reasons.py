"""Filters the reasons that a backend gives for a refusal, for the log and the status. No I/O.

A reason may quote the event's value, in many forms ('…', "…", […], bytes), and a backend is not trusted. So only known
texts pass, with names of a limited alphabet in their brackets; to remove known quotations would not suffice. Texts of a
missing permission name the action, and the privilege that grants it.
"""

from __future__ import annotations

import re

_NAME = r"\[[\w.@-]{1,128}\]"
_NAMES = r"\[(?:[\w.@*<>/-]{1,128}(?:, ?[\w.@*<>/-]{1,128}){0,31})?\]"
_ACTION = r"\[[\w:/*.-]{1,128}(?:\[[a-z*]{1,8}\])?\]"
_WHO = rf"(?:API key id {_NAME} of )?(?:user|service account) (?:{_NAME}|\[[\w/-]{{1,128}}\])"
TOO_MANY_SHARDS = (
    r"(?:Validation Failed: 1: )?this action would add \[\d{1,9}\] (?:total )?shards, but this cluster currently has"
    r" \[\d{1,9}\]/\[\d{1,9}\] maximum (?:normal |frozen )?shards open"
)
NO_WRITE_INDEX = rf"no write index is defined for alias {_NAME}"
SEVERAL_INDICES = (
    rf"(?:[Aa]lias|data stream) {_NAME} has more than one index associated with it \[?{_NAMES}\]?,"
    r" can't execute a single index op"
)
FULL_INDEX = r"Number of documents in the index can't exceed \[\d{1,12}\]"
NO_TEMPLATE = rf"no matching index template found for data stream {_NAME}"
NO_STREAM_TEMPLATE = rf"matching index template {_NAME} for data stream {_NAME} has no data stream template"
NO_PIPELINE = rf"pipeline with id {_NAME} does not exist"
NO_PLAIN_INDEX = "only write ops with an op_type of create are allowed in data streams"
_KNOWN = re.compile(
    rf"failed to parse field {_NAME} of type {_NAME}"
    rf"|object mapping for {_NAME} tried to parse field {_NAME} as object"
    rf"|mapping set to strict, dynamic introduction of {_NAME} within {_NAME} is not allowed"
    rf"|can't merge a non object mapping {_NAME} with an object mapping"
    rf"|mapper {_NAME} cannot be changed from type {_NAME} to {_NAME}"
    rf"|Limit of total fields {_NAME} has been exceeded"
    rf"|data stream timestamp field {_NAME} is missing"
    r"|Document contains at least one immense term"
    rf"|{NO_PLAIN_INDEX}"
    rf"|{NO_PIPELINE}"
    rf"|no such index {_NAME}(?: and \[action\.auto_create_index\] \({_NAMES}\) doesn't match)?"
    rf"|{NO_WRITE_INDEX}"
    rf"|{SEVERAL_INDICES}"
    rf"|{FULL_INDEX}"
    rf"|{NO_TEMPLATE}"
    rf"|{NO_STREAM_TEMPLATE}"
    rf"|index {_NAME} blocked by"
    rf"|action {_ACTION} is unauthorized for {_WHO}(?: with (?:effective |assigned )?roles {_NAMES})?"
    rf"(?: on (?:restricted )?indices {_NAMES})?"
    r"(?:, this action is granted by the (?:index |cluster )?privileges \[[a-z_,]{1,256}\])?"
    rf"|no permissions for {_ACTION}"
    r"|unable to authenticate with provided credentials"
    rf"|unable to authenticate user {_NAME} for REST request"
    rf"|failed to authenticate (?:user|service account) {_NAME}"
    r"|missing authentication credentials for REST request"
    r"|api key (?:has been invalidated|is expired)"
    r"|api key \[[\w-]{1,128}\] has been invalidated"
    rf"|{TOO_MANY_SHARDS}"
)
_POSITION = re.compile(r"(?:\[\d{1,9}:\d{1,9}\] )?")
"""Line and column, which precede the reason in Elasticsearch 8."""
_TYPE = re.compile(r"[a-z_]{1,64}")


def repeatable(reason: str | None) -> str:
    """Returns the known beginning of a reason, or an empty text."""
    text = reason or ""
    position = _POSITION.match(text)
    known = _KNOWN.match(text, position.end() if position else 0)
    return known[0] if known else ""


def repeatable_type(type: str | None) -> str:
    """Returns the type of an error, such as `security_exception`, or an empty text for an invalid one."""
    return type if type is not None and _TYPE.fullmatch(type) else ""
