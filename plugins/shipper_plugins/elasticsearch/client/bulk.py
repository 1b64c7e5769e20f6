"""The bulk API of Elasticsearch 8/9 and OpenSearch 2/3: turns answers into outcomes. No I/O. (Requests: `encoding`.)

Answers are read by item, never by the HTTP status. An answer without exactly one item for each event, in order, says
nothing about any of them (`Later`: the same ids again). The fast path counts bytes and parses nothing. It knows a
single text, "all created" with the first and the last id of this request: a proxy may answer twice or mix connections
up. Any other text is parsed, even one of the same meaning; then all ids are compared, where the backend returns them:
all its answers have them (25 ns an event). Before it is parsed, an answer is bounded by what one to so many events can
be (`decoded`, `inflated`): 66 KB of gzip would become 2.7 million objects.

A 400 is the event's fault, and rejects it, unless the state or a setting of the cluster is the cause: all events of an
index would become dead letters until somebody repairs it. What ends by an act of the cluster or its administrator that
is no change for us is later, what asks for another setting is held; either is so for all events of that index.

| 400 (`illegal_argument_exception`, but for named types) | outcome |
|---|---|
| `index_closed_exception`, `cluster_block_exception` | later |
| an alias without a write index, or with several indices and none of them for writing | later |
| an index with as many documents as Lucene allows (it has to roll over) | later |
| no room for more shards (`validation_exception`) | later |
| no index can be made: its templates contradict each other, want what is not installed, or name an alias that is \
an index (`invalid_alias_name_exception`) | later |
| a pipeline that does not exist | held |
| `routing_missing_exception`: the mapping wants a routing, and none is ever sent | held |
| a data stream that takes `create` only, or an index that is only appended to, and gets keyed state | held |
| an index behind a data stream, named itself | held |
| a time series: it makes its ids itself, and events have theirs | held |
| a name of a data stream whose template is missing, or makes none | held |
| `invalid_index_name_exception`: an event may name its index | rejected |
| the limits of fields, depth and nested documents; a strict mapping; a conflict of types; a time outside of a time \
series; a field that is missing or too long; an error of a pipeline's processor | rejected: other events fit |

No text of a backend is repeated unless it is known to be harmless (`reasons`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from typing import TypeVar

import msgspec
from isal import igzip_lib, isal_zlib

from shipper.plugin import Answer, Code, Held, Later, Outcome, TooLarge
from shipper_plugins.elasticsearch.client.encoding import Request
from shipper_plugins.elasticsearch.client.reasons import (
    APPEND_ONLY,
    BACKING_INDEX,
    FULL_INDEX,
    NO_NEW_INDEX,
    NO_PIPELINE,
    NO_PLAIN_INDEX,
    NO_STREAM_TEMPLATE,
    NO_TEMPLATE,
    NO_WRITE_INDEX,
    OWN_ID,
    SEVERAL_INDICES,
    TOO_MANY_SHARDS,
    repeatable,
    repeatable_type,
)

FILTER = "errors,items.*._id,items.*.status,items.*.error.type,items.*.error.reason"
"""The requested parts of an answer (`filter_path`)."""

_LONGEST_ANSWER = 64 << 20  # decompressed; all of 8 MiB of small documents, refused at length, stays below it
_SPARE_BYTES, _ITEM_BYTES = 16 << 20, 16 << 10
"""Of an answer: a reason may quote a whole event, several times as long with its escapes."""
_SPARE_OBJECTS, _ITEM_OBJECTS = 1 << 16, 64
"""Of an answer, as far as `{` begins one: an item has three, and a reason may quote an event that has many."""
_LONGEST_WAIT = 3600.0
_GZIP = 31  # window bits
_FIRST_CREATED, _ALL_CREATED = b'{"errors":false,"items":[{"create":{', b'"status":201}}'


# -- answers to a request ----------------------------------------------------------------------------------------------


Body = TypeVar("Body")


class Error(msgspec.Struct, frozen=True):
    """Why an item was refused."""

    type: str | None = None
    reason: str | None = None


class Item(msgspec.Struct):
    """The answer for one action."""

    status: int
    id: str | None = msgspec.field(name="_id", default=None)
    error: Error | str | None = None


class _Created(msgspec.Struct):
    create: Item


class _Bulk(msgspec.Struct):
    items: list[_Created]


class _Refusal(msgspec.Struct):
    error: Error | str | None = None


_bulk = msgspec.json.Decoder(_Bulk)
_refusal = msgspec.json.Decoder(_Refusal)
_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # its stub says instance
_MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)


def read(answer: bytes, request: Request) -> dict[int, Answer]:
    """Returns the outcomes of a request that was answered 200: by position, those that were not simply delivered.

    Raises Later unless the answer has exactly one item for each event.
    """
    if _all_created(answer, request.count) and all(b'"_id":' + id in answer for id in request.ends()):
        return {}
    said = items(answer, request.count)
    check(said, request)
    judged = cache(judge)  # thousands of items are refused for a few reasons
    answers = ((position, judged(item.status, item.error)) for position, item in enumerate(said, request.first))
    return {position: answer for position, answer in answers if answer is not None}


def items(answer: bytes, count: int) -> list[Item]:
    """Returns the items of an answer to so many events; raises Later if it has another form."""
    return [entry.create for entry in decoded(_bulk, answer, count).items]


def decoded(decoder: msgspec.json.Decoder[Body], answer: bytes, count: int) -> Body:
    """Returns an answer about `count` events or documents; raises Later if it has another form, or far more objects."""
    if answer.count(b"{") > _SPARE_OBJECTS + count * _ITEM_OBJECTS:
        raise Later(f"the answer has far more items than {count}", code=Code.BAD_ANSWER)
    try:
        return decoder.decode(answer)
    except _MALFORMED:
        raise Later("the answer is not that of a bulk request", code=Code.BAD_ANSWER) from None


def check(items: Sequence[Item], request: Request) -> None:
    """Raises Later unless the items are exactly one for each event of the request, in order."""
    if len(items) != request.count:
        raise Later(f"the answer has {len(items)} items for {request.count} events", code=Code.BAD_ANSWER)
    if any(item.id not in (id, None) for item, id in zip(items, request.ids(), strict=True)):
        raise Later("the answer's items are not in the order of the events", code=Code.BAD_ANSWER)


def _all_created(answer: bytes, count: int) -> bool:
    return (
        answer.startswith(_FIRST_CREATED)
        and answer.endswith(_ALL_CREATED + b"]}")
        and answer.count(_ALL_CREATED) == count
        and answer.count(b'{"create":{') == count
    )


def longest(count: int) -> int:
    """Returns the bytes that an answer about so many events may have, without its content encoding."""
    return min(_SPARE_BYTES + count * _ITEM_BYTES, _LONGEST_ANSWER)


def inflated(answer: bytes, encoding: str, most: int = _SPARE_BYTES) -> bytes:
    """Returns the answer without its content encoding, at most `most` bytes; raises Later for a broken, unknown or
    immoderate one."""
    match encoding.lower():
        case "" | "identity":
            return answer
        case "gzip" | "x-gzip":
            stream = isal_zlib.decompressobj(_GZIP)
            try:
                text = stream.decompress(answer, most)
            except _IsalError:
                raise Later("the answer's gzip is broken", code=Code.BAD_ANSWER) from None
            if not stream.eof:
                raise Later("the answer's gzip is too large or cut short", code=Code.BAD_ANSWER)
            return text
        case _:
            raise Later("the answer has a content encoding that was not asked for", code=Code.BAD_ANSWER)


# -- judgement ---------------------------------------------------------------------------------------------------------

_OF_THE_CLUSTER = "|".join((TOO_MANY_SHARDS, NO_WRITE_INDEX, SEVERAL_INDICES, FULL_INDEX, NO_NEW_INDEX))
_OF_OURS = "|".join((NO_PIPELINE, NO_PLAIN_INDEX, BACKING_INDEX, APPEND_ONLY, OWN_ID, NO_TEMPLATE, NO_STREAM_TEMPLATE))
_CONDITIONS: Sequence[tuple[str, re.RegexFlag, Outcome]] = (
    (_OF_THE_CLUSTER, re.NOFLAG, Outcome.LATER),
    (_OF_OURS, re.DOTALL, Outcome.HELD),
)
"""Refusals (400) that the cluster's state or our configuration causes, not the event, so no reason to reject it.
Compiled with the first refusal, which few processes ever see: that takes 3 ms."""
_BY_TYPE: Mapping[str | None, Outcome] = {
    "routing_missing_exception": Outcome.HELD,
    "invalid_alias_name_exception": Outcome.LATER,
}

_OF_AN_INDEX = frozenset(
    {
        "cluster_block_exception",
        "illegal_state_exception",
        "index_closed_exception",
        "no_shard_available_action_exception",
        "unavailable_shards_exception",
    }
)
"""Errors that end in time, and that only events of the named index have."""


def judge(status: int, error: Error | str | None) -> Answer | None:
    """Returns the meaning of an item; None: delivered."""
    if 200 <= status < 300:
        return None
    known = error if isinstance(error, Error) else Error()
    outcome = _outcome(status, known)
    of_target, code = _is_of_place(outcome, status, known), _code(status, held=outcome is Outcome.HELD)
    return Answer(outcome, _reason(status, known), of_target, code if outcome in (Outcome.LATER, Outcome.HELD) else "")


def _is_of_place(outcome: Outcome, status: int, error: Error) -> bool:
    """Whether the index is the cause: all its events have this answer, and those of other indices need not."""
    if outcome is Outcome.LATER:
        return status in (400, 404) or error.type in _OF_AN_INDEX
    return outcome is Outcome.HELD and status != 401


def _outcome(status: int, error: Error) -> Outcome:
    if error.type in ("cluster_block_exception", "index_closed_exception"):
        return Outcome.LATER
    match status:
        case 409 if error.type in (None, "version_conflict_engine_exception"):
            return Outcome.DUPLICATE
        case 401 | 403:
            return Outcome.HELD
        case 400:
            return _condition(error) or Outcome.REJECTED
        case 404 | 408 | 409 | 429:
            return Outcome.LATER
        case _:
            return Outcome.REJECTED if 400 <= status < 500 else Outcome.LATER


def _condition(error: Error) -> Outcome | None:
    """Returns the outcome of a 400 that the cluster causes; None if it says nothing of the cluster."""
    said = (outcome for known, flag, outcome in _CONDITIONS if re.match(known, error.reason or "", flag))
    return _BY_TYPE.get(error.type) or next(said, None)


def _reason(status: int, error: Error) -> str:
    words = " ".join(filter(None, (str(status), repeatable_type(error.type))))
    known = repeatable(error.reason)
    return f"{words}: {known}" if known else words


# -- requests that got no answer for their events ----------------------------------------------------------------------


def refusal(status: int, headers: Mapping[str, str], body: bytes, host: str) -> Later | Held | TooLarge:
    """Returns the meaning of a status other than 200 for a request as a whole.

    An impossible request (400, 404, a redirection) is held, not rejected: a setting or something on the way is the
    cause, and a wrong setting must not turn all queued events into dead letters. A 400 that the state of the cluster
    causes is later, as that of an item is.
    """
    cause = _error_of(body, headers.get("Content-Encoding", ""))
    error, known = repeatable_type(cause.type), repeatable(cause.reason)
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    reason = " ".join(filter(None, (str(status), phrase, "from", host, f"({error})" if error else "")))
    reason += f": {known}" if known else ""
    if status == 413:
        return TooLarge(reason)
    ends = _outcome(status, cause) is Outcome.LATER and status in (400, 403)
    if status in (408, 425, 429) or status >= 500 or status < 300 or ends:
        return Later(reason, retry_after(headers, datetime.now(UTC)), code=_code(status, held=False))
    return Held(reason, code=_code(status, held=True))


def _code(status: int, *, held: bool) -> Code:
    """Returns the code of a status; a `held` 403 is a missing privilege, another one ends in time (a blocked index)."""
    if held:
        return {401: Code.UNAUTHORIZED, 403: Code.FORBIDDEN}.get(status, Code.REFUSED)
    return Code.OVERLOADED if status == 429 else Code.UNAVAILABLE


def _error_of(body: bytes, encoding: str) -> Error:
    try:
        error = _refusal.decode(inflated(body, encoding)).error
    except (*_MALFORMED, Later):
        return Error()
    return error if isinstance(error, Error) else Error()


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Returns the seconds that the backend asks to wait, at most an hour; None without a valid value.

    A date is compared with the answer's own date, so a wrong clock on either side does not matter.
    """
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return min(float(text), _LONGEST_WAIT)
    until, since = _date(text), _date(headers.get("Date", ""))
    return None if until is None else min(max((until - (since or now)).total_seconds(), 0.0), _LONGEST_WAIT)


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
