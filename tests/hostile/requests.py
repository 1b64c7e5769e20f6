"""Bulk requests that nobody should send, with what may become of them.

A case is what one connection sends. Its documents carry its token, so that what was stored is known to be its own, and
none that was damaged is taken for another's. Those that an ambiguous framing hides in a body say `smuggled`, and none
of them may ever be stored.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import zlib
from dataclasses import dataclass, replace
from functools import cache, reduce
from random import Random

from tests.hostile.frames import mutated, value

CLOSE = "Connection: close\r\n"
NDJSON = "Content-Type: application/x-ndjson\r\n"


@dataclass(frozen=True, slots=True)
class Case:
    """The bytes of a connection; `requests` at most are answered, and `documents` at most are stored.

    `exact`: each is answered 200, and all are stored. `drip`: so many bytes are sent at a time; `kind` is what was
    drawn.
    """

    raw: bytes
    requests: int
    documents: int
    exact: bool = False
    kind: str = ""
    drip: int | None = None


def gzipped(plain: bytes, level: int = 9) -> bytes:
    """The same bytes at any time."""
    return gzip.compress(plain, level, mtime=0)


_MEBIBYTE = bytes(1 << 20)


@cache
def bomb(mebibytes: int) -> bytes:
    """NULs by gzip. Behind a full flush a mebibyte is the same bytes each time, and need not be packed again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = (packer.compress(_MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)) * mebibytes + packer.flush()
    check = reduce(lambda value, _: zlib.crc32(_MEBIBYTE, value), range(mebibytes), 0)
    return gzipped(b"")[:10] + packed + struct.pack("<II", check, mebibytes << 20)


BOMB = bomb(64)


def case(draw: Random, number: int) -> Case:
    return draw.choice(_KINDS)(draw, number)


def token(number: int) -> str:
    """The mark of a case: not even damage turns it into another's."""
    return hashlib.sha256(b"case %d" % number).hexdigest()[:16]


def documents(number: int, count: int, note: str = "") -> bytes:
    """The body of a bulk request."""
    lines = (
        b'{"create":{}}\n' + json.dumps({"case": token(number), "n": n, "note": note}).encode() for n in range(count)
    )
    return b"".join(line + b"\n" for line in lines)


def post(body: bytes, headers: str = "", *, length: int | None = None, line: str = "POST /_bulk HTTP/1.1") -> bytes:
    """A request whose framing is a Content-Length, unless its headers bring another."""
    framing = "" if length is None else f"Content-Length: {length}\r\n"
    return f"{line}\r\nHost: x\r\n{NDJSON}{framing}{headers}\r\n".encode("latin-1") + body


def sound(number: int, count: int, headers: str = "") -> bytes:
    body = documents(number, count)
    return post(body, headers, length=len(body))


def chunked(body: bytes, sizes: int = 7, extension: bytes = b"") -> bytes:
    parts = [body[at : at + sizes] for at in range(0, len(body), sizes)]
    return b"".join(b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts) + b"0\r\n\r\n"


# -- kinds -------------------------------------------------------------------------------------------------------------


def _sound(draw: Random, number: int) -> Case:
    """What everybody may send: pipelined, chunked, compressed."""
    counts = [draw.randrange(1, 5) for _ in range(draw.choice((1, 1, 3, 16)))]
    parts = []
    for count in counts[:-1]:
        parts.append(sound(number, count))
    body, headers = documents(number, counts[-1]), CLOSE
    if draw.random() < 0.5:
        body, headers = draw.choice(((gzipped(body, 1), "gzip"), (zlib.compress(body), "deflate")))
        headers = f"{CLOSE}Content-Encoding: {headers}\r\n"
    if draw.random() < 0.5:
        parts.append(post(chunked(body, draw.choice((1, 7, 5000))), f"{headers}Transfer-Encoding: chunked\r\n"))
    else:
        parts.append(post(body, headers, length=len(body)))
    return Case(b"".join(parts), len(counts), sum(counts), exact=True, kind="sound")


def _slow(draw: Random, number: int) -> Case:
    """A sound one that comes by a few bytes at a time."""
    case = _sound(draw, number)
    return replace(case, kind="slow", drip=max(len(case.raw) // 40, 1))


AMBIGUOUS = (
    "Content-Length: {short}\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: {long}\r\n",
    "Content-Length: {short}\r\nContent-Length: {long}\r\n",
    "Content-Length: {short}, {long}\r\n",
    "Content-Length: +{short}\r\n",
    "Content-Length: -{short}\r\n",
    "Content-Length: 0x{short}\r\n",
    "Content-Length: {short}_0\r\n",
    "Content-Length: {short} {long}\r\n",
    "Content-Length:\r\n",
    "Content-Length: \x0b{short}\r\n",
    "Content-Length : {short}\r\n",
    "Content-Length\x00: {short}\r\n",
    "Content-Length: 1{short}000000000000000000000\r\n",
    "X: y\r\n Content-Length: {short}\r\n",
    "Content-Length:\r\n {short}\r\n",
    "Transfer-Encoding:\r\n chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: identity, chunked, chunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    'Transfer-Encoding: "chunked"\r\n',
    "Transfer-Encoding: \x0bchunked\r\n",
    "Transfer-Encoding\x0b: chunked\r\n",
    "\x00Transfer-Encoding: chunked\r\n",
    "Foo: bar\nTransfer-Encoding: chunked\r\n",
    "Foo: bar\rTransfer-Encoding: chunked\r\n",
)
"""Framings that two servers may understand differently."""


def ambiguous(number: int, framing: str) -> Case:
    """A body that hides a second request, from whoever does not see the framing as another does."""
    hidden = sound(number, 1).replace(b'"note": ""', b'"note": "smuggled"')
    body = b"0\r\n\r\n" + hidden
    framing = framing.format(short=5, long=len(body))
    return Case(post(body, framing), 1, 0)


def _ambiguous(draw: Random, number: int) -> Case:
    return replace(ambiguous(number, draw.choice(AMBIGUOUS)), kind="smuggling")


CHUNKS = (
    b"ffffffffffffffffff\r\nx",
    b"-1\r\nx\r\n0\r\n\r\n",
    b"0x5\r\nabcde\r\n0\r\n\r\n",
    b"5;%b\r\nabcde\r\n0\r\n\r\n" % (b"e" * 100_000),
    b"5\nabcde\n0\n\n",
    b"5\r\nabcdefgh\r\n0\r\n\r\n",
    b" 5\r\nabcde\r\n0\r\n\r\n",
    b"5 \r\nabcde\r\n0\r\n\r\n",
    b"\r\n\r\n",
    b"0\r\nContent-Length: 5\r\nX: %b\r\n\r\n" % (b"t" * 100_000),
    b"5\r\nab",
)


def _chunks(draw: Random, number: int) -> Case:
    body = documents(number, 1)
    if draw.random() < 0.3:
        raw = chunked(body, 9, b";a=" + b"b" * draw.choice((1, 300)))
        return Case(post(raw, f"{CLOSE}Transfer-Encoding: chunked\r\n"), 1, 1, kind="chunk extensions")
    return Case(post(draw.choice(CHUNKS), f"{CLOSE}Transfer-Encoding: chunked\r\n"), 2, 0, kind="broken chunks")


def _heads(draw: Random, number: int) -> Case:
    """Heads that are too large, or none."""
    body = documents(number, 1)
    flood = "".join(f"X-{n}: y\r\n" for n in range(draw.choice((100, 5000))))
    path = f"/{'a' * draw.choice((300, 100_000))}/_bulk"
    kind, raw = draw.choice(
        (
            ("header flood", post(body, flood + CLOSE, length=len(body))),
            ("giant header", post(body, f"X: {'y' * draw.choice((8000, 100_000))}\r\n{CLOSE}", length=len(body))),
            ("giant path", post(body, CLOSE, length=len(body), line=f"POST {path} HTTP/1.1")),
            ("strange request line", post(body, CLOSE, length=len(body), line=draw.choice(_LINES))),
            ("strange header", post(body, draw.choice(_HEADERS) + CLOSE, length=len(body))),
            ("another protocol", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(200)),
            ("another protocol", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
            ("noise", draw.randbytes(draw.choice((1, 50, 10_000)))),
        )
    )
    return Case(raw, 2, 1, kind=kind)


_LINES = (
    "POST /_bulk",
    "POST /_bulk HTTP/0.9",
    "POST /_bulk HTTP/1.0",
    "POST /_bulk HTTP/9.9",
    "POST http://evil/_bulk HTTP/1.1",
    "POST /..%2f..%2fetc/_bulk HTTP/1.1",
    "POST /%00/_bulk HTTP/1.1",
    "POST /\xff\xfe/_bulk HTTP/1.1",
    "POST /a/b/_bulk?filter_path=**.**.**.**.** HTTP/1.1",
    "CONNECT x:1 HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "TRACE /_bulk HTTP/1.1",
    "POST\t/_bulk\tHTTP/1.1",
    " POST /_bulk HTTP/1.1",
    "POST //_bulk HTTP/1.1",
)
_HEADERS = (
    "Upgrade: websocket\r\nConnection: upgrade\r\n",
    "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "Expect: 200-ok\r\n",
    "Host: a\r\nHost: b\r\n",
    "Authorization: Basic \xff\xfe\r\n",
    "Accept: application/vnd.elasticsearch+json; compatible-with=9\r\n",
    "Accept: a\x0bb\r\n",
    "Content-Encoding: gzip, gzip\r\n",
    "Content-Type: multipart/form-data; boundary=x\r\n",
    "X: " + "(" * 5000 + "\r\n",
    "Cookie: " + "a=b; " * 1000 + "\r\n",
)


def _squeezed(draw: Random, number: int) -> Case:
    """Bodies that are not what their encoding says, or far more."""
    packed = gzipped(documents(number, 3), 1)
    bomb = BOMB if draw.random() < 0.05 else gzipped(bytes(1 << 18))
    kind, body = draw.choice(
        (
            ("gzip cut short", packed[: draw.randrange(len(packed))]),
            ("gzip and noise", packed + draw.randbytes(9)),
            ("gzip in gzip", gzipped(packed)),
            ("damaged gzip", mutated(draw, packed)),
            ("bomb", bomb),
            ("two gzip members", packed + gzipped(documents(number, 2), 1)),
        )
    )
    exact = kind == "two gzip members"
    encoding = f"Content-Encoding: {'gzip' if exact else draw.choice(('gzip', 'gzip', 'deflate'))}\r\n{CLOSE}"
    return Case(post(body, encoding, length=len(body)), 1, 5 if exact else 100, exact, kind)


def _items(draw: Random, number: int) -> Case:
    """Bodies whose lines are not what they should be."""
    lines = documents(number, 4)
    meta = json.dumps({draw.choice(("create", "index", "update", "delete", "x")): value(draw)}).encode()
    lines = draw.choice(
        (mutated(draw, lines), meta + b"\n" + lines, lines[: draw.randrange(len(lines))], lines + b"[" * 5000)
    )
    return Case(post(lines, CLOSE, length=len(lines)), 1, 20, kind="strange lines")


def _mutated(draw: Random, number: int) -> Case:
    """A sound request, damaged anywhere, its framing too."""
    return Case(mutated(draw, sound(number, 2, CLOSE) + sound(number, 1, CLOSE)), 20, 200, kind="damaged")


_KINDS = (_sound, _sound, _slow, _ambiguous, _chunks, _heads, _squeezed, _items, _mutated)
