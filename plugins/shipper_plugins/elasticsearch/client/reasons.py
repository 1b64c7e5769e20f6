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
FULL_INDEX = (
    r"[Nn]umber of documents in (?:the index can't exceed|the index cannot exceed|the shard cannot exceed"
    r"|shard \[[\w.-]{1,255}\]\[\d{1,5}\] exceeds the limit of) \[?\d{1,12}\]?"
)
NO_TEMPLATE = rf"no matching index template found for data stream {_NAME}"
NO_STREAM_TEMPLATE = rf"matching index template {_NAME} for data stream {_NAME} has no data stream template"
NO_PIPELINE = rf"pipeline with id {_NAME} does not exist"
NO_PLAIN_INDEX = "only write ops with an op_type of create are allowed in data streams"
BACKING_INDEX = (
    r"index request with op_type=(?:create|index and no if_primary_term and if_seq_no set) targeting backing indices is"
    rf" disallowed, target corresponding data stream {_NAME} instead"
)
APPEND_ONLY = (
    r"Validation Failed: 1: Operation \[[A-Z]{1,16}\] is not allowed"
    r"(?=(?: with a custom document id .{0,2048})? as setting `index\.append_only\.enabled` is enabled)"
)
OWN_ID = (
    r"(?:(?:\[\d{1,9}:\d{1,9}\] )?failed to parse: )?_id must be unset"
    rf"(?= or set to \[[\w-]{{1,128}}\] but was \[.{{1,2048}}\] because {_NAME} is in time_series mode)"
)
"""A time series makes its ids itself."""
NO_NEW_INDEX = (
    r"Failed to parse mapping\b"
    r"|the number of source shards \[\d{1,5}\] must be a factor of \[\d{1,5}\]"
    rf"|unknown setting {_NAME} please check that any required plugins are installed"
    rf"|Unknown [a-z_]{{1,32}} type {_NAME} for {_NAME}"
)
"""Its templates make no index."""
_KNOWN = (
    rf"failed to parse field {_NAME} of type {_NAME}"
    rf"|object mapping for {_NAME} tried to parse field {_NAME} as object"
    rf"|mapping set to strict, dynamic introduction of {_NAME} within {_NAME} is not allowed"
    rf"|can't merge a non object mapping {_NAME} with an object mapping"
    rf"|mapper {_NAME} cannot be changed from type {_NAME} to {_NAME}"
    rf"|Limit of (?:total fields|mapping depth|nested fields|total dimension fields) {_NAME} has been exceeded"
    rf"|The number of nested documents has exceeded the allowed limit of {_NAME}"
    rf"|data stream timestamp field {_NAME} is missing"
    r"|Document contains at least one immense term"
    rf"|{NO_PLAIN_INDEX}"
    rf"|{NO_PIPELINE}"
    rf"|no such index {_NAME}(?: and \[action\.auto_create_index\] (?:\({_NAMES}\) doesn't match"
    r"|contains \[-[\w.@*-]{1,128}\] which forbids automatic creation of the index))?"
    r"|no such index \[composable template \[[\w.@*, -]{1,256}\] forbids index auto creation\]"
    rf"|Invalid (?:index|alias) name {_NAME}"
    rf"|{NO_WRITE_INDEX}"
    rf"|{SEVERAL_INDICES}"
    rf"|{FULL_INDEX}"
    rf"|{NO_TEMPLATE}"
    rf"|{NO_STREAM_TEMPLATE}"
    rf"|{BACKING_INDEX}"
    rf"|{APPEND_ONLY}"
    rf"|{OWN_ID}"
    rf"|{NO_NEW_INDEX}"
    rf"|(?:index {_NAME} )?blocked by(?:: \[[A-Z_]{{1,32}}/\d{{1,3}}/[\w ,()/-]{{1,128}}\]?)?"
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
_POSITION = re.compile(r"(?:\[\d{1,9}:\d{1,9}\] )?(?:failed to parse: )?")
"""Line and column, which precede the reason in Elasticsearch 8 and 9."""
_TYPE = re.compile(r"[a-z_]{1,64}")


def repeatable(reason: str | None) -> str:
    """Returns the known beginning of a reason, or an empty text."""
    text = reason or ""
    position = _POSITION.match(text)
    known = re.match(_KNOWN, text[position.end() if position else 0 :])  # compiled for the first: it takes 3 ms
    return known[0] if known else ""


def repeatable_type(type: str | None) -> str:
    """Returns the type of an error, such as `security_exception`, or an empty text for an invalid one."""
    return type if type is not None and _TYPE.fullmatch(type) else ""
