"""The bodies that the `http` input takes, as events: JSON, objects one a line, lines of text. No I/O.

| format | Content-Type | body |
|---|---|---|
| `json` | `application/json`, `application/…+json` | one object; an array of objects; or objects, one a line |
| `ndjson` | `application/x-ndjson`, `application/jsonl` and their like | objects, one a line |
| `lines` | `text/plain` | lines of text; each becomes the `message` of an event |

Empty lines are no events. Lines of text are decoded by the `charset` of the Content-Type, which is UTF-8 where none is
named; bytes that are none of it become U+FFFD. JSON is always UTF-8 (RFC 8259).

An object is checked like a document of a bulk request (`elasticsearch.server.document`), and stays as it was written.
It keeps a data stream of its own; what is invalid in that name is replaced by the input's.

One invalid object refuses the whole body, so a client knows that it has stored all of it, or nothing. Memory is bounded
before anything is loaded: by the number of events, by the weight of a document (`elasticsearch.server.line`), and for
an array, which is split as a whole, by the number of its commas.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from shipper.plugin import Batch, Fields, Size
from shipper.sdk.columns import encoded
from shipper_plugins.elasticsearch.server.document import addressed, checked, chosen, own_streams
from shipper_plugins.elasticsearch.server.line import MOST_UNFOLDED, WORST, Line

Format = Literal["json", "ndjson", "lines"]

MOST_EVENTS = 200_000
"""Of one request."""
MOST_COMMAS = 1_000_000
"""Of an array; its parts take about 100 bytes each."""
BATCH_BYTES = 1 << 20

_RUN, _RUN_BYTES = 256, 1 << 18
"""Documents that are checked in one call."""
_FORMATS: Final[Mapping[str, Format]] = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/x-jsonl": "ndjson",
    "application/jsonlines": "ndjson",
    "application/x-jsonlines": "ndjson",
    "application/stream+json": "ndjson",
    "text/plain": "lines",
}

_CODECS = re.compile(
    r"utf-(?:8(?:-sig)?|16|32)(?:-[bl]e)?|iso8859-\d+|cp\d+|koi8-[rtu]|mac-\w+|tis-620"
    r"|gb(?:2312|k|18030)|big5\w*|euc_\w+|shift_jis\w*|johab"
)
"""Charsets of texts: others of Python's codecs are no charsets, or take a time that grows with the square of a text."""

_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Unfit(ValueError):
    """The body is refused; the text quotes nothing of it. `is_large` is set where a smaller one would be taken."""

    def __init__(self, reason: str, *, is_large: bool = False) -> None:
        super().__init__(reason)
        self.is_large = is_large


def format_of(kind: str) -> Format | None:
    """Returns the format of a Content-Type in small letters, without parameters; None for an unknown one."""
    if kind.startswith("application/") and kind.endswith("+json") and kind not in _FORMATS:
        return "json"
    return _FORMATS.get(kind)


def codec_of(charset: str) -> str | None:
    """Returns the codec of a charset; None for an unknown one."""
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return "utf-8" if name == "ascii" else name if _CODECS.fullmatch(name) else None


def batches(body: bytes, format: Format, stream: Fields, codec: str = "utf-8") -> list[Batch]:
    """Returns the events of a body, in batches of about 1 MiB; raises Unfit.

    `stream` is the data stream of the input, `codec` that of lines of text.
    """
    if format == "lines":
        return [Batch.documents(part) for part in _parts(_of_lines(body, codec))]
    kind, rows = _rows(body) if format == "ndjson" else _values(body)
    return [Batch.documents(part) for part in _parts(_documents(kind, rows, stream))]


# -- bodies to rows ----------------------------------------------------------------------------------------------------

Row = tuple[int, bytes]
"""The number of a document in the body, for messages, and its text."""


def _of_lines(body: bytes, codec: str) -> list[bytes]:
    text = body.decode(codec, errors="replace")
    if text.count("\n") > MOST_EVENTS:
        raise _too_many()
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return encoded([{"message": line} for line in lines if line])


def _rows(body: bytes) -> tuple[str, list[Row]]:
    if body.count(b"\n") > 2 * MOST_EVENTS:
        raise _too_many()
    lines = ((number, line.strip()) for number, line in enumerate(body.split(b"\n"), 1))
    rows = [(number, line) for number, line in lines if line]
    if len(rows) > MOST_EVENTS:
        raise _too_many()
    return "line", rows


def _values(body: bytes) -> tuple[str, list[Row]]:
    """Returns the objects of a body of JSON, and what each is: an element of an array, a line, or the body itself."""
    body = body.strip()
    if body.startswith(b"["):
        return _elements(body)
    first, newline, _ = body.partition(b"\n")
    if newline and _is_whole(first):
        return _rows(body)
    return "object", [(1, body)] if body else []


def _elements(body: bytes) -> tuple[str, list[Row]]:
    if body.count(b",") > MOST_COMMAS:
        raise Unfit("the array has too many values: send fewer, or objects one a line", is_large=True)
    try:
        elements = _array(body)
    except (msgspec.MsgspecError, RecursionError):
        raise Unfit("the body is not valid JSON") from None
    if len(elements) > MOST_EVENTS:
        raise _too_many()
    return "element", [(number, bytes(raw).strip()) for number, raw in enumerate(elements, 1)]


def _is_whole(line: bytes) -> bool:
    """Whether a first line is an object by itself, and not the beginning of one that is written over several lines."""
    if not line.rstrip().endswith(b"}"):
        return False
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


# -- rows to documents -------------------------------------------------------------------------------------------------


def _documents(kind: str, rows: Sequence[Row], stream: Fields) -> Iterator[bytes]:
    for run in _runs(kind, rows):
        texts = [text for _, text in run]
        streams = own_streams(texts)
        if streams is None:
            yield from [_checked(kind, row, stream) for row in run]
        elif any(streams):
            yield from [_with_whole_stream(text, own, stream) for text, own in zip(texts, streams, strict=True)]
        else:
            yield from texts


def _runs(kind: str, rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yields rows that may be loaded together; raises Unfit for one that may not be loaded at all."""
    run: list[Row] = []
    size = 0
    for number, text in rows:
        _weigh(kind, number, text)
        if run and (len(run) == _RUN or size + len(text) > _RUN_BYTES):
            yield run
            run, size = [], 0
        run.append((number, text))
        size += len(text)
    if run:
        yield run


def _weigh(kind: str, number: int, text: bytes) -> None:
    if len(text) * WORST <= MOST_UNFOLDED:
        return
    line = Line()
    line.add(text)
    if line.is_too_heavy:
        raise Unfit(f"{kind} {number}: the document would take more than {Size(MOST_UNFOLDED)} of memory")


def _checked(kind: str, row: Row, stream: Fields) -> bytes:
    number, text = row
    try:
        document, own = checked(text)
    except ValueError as error:
        raise Unfit(f"{kind} {number}: {error}") from None
    return _with_whole_stream(document, own, stream)


def _with_whole_stream(document: bytes, own: Fields | None, stream: Fields) -> bytes:
    """Returns a document whose data stream, if it names one, is whole and valid."""
    if own is None:
        return document
    whole = chosen(own, stream)
    return document if own == {"data_stream": whole} else addressed(document, own, whole)


def _parts(documents: Sequence[bytes] | Iterator[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for document in documents:
        if part and size + len(document) > BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(document)
        size += len(document)
    if part:
        yield part


def _too_many() -> Unfit:
    return Unfit(f"a request has at most {MOST_EVENTS} events", is_large=True)
