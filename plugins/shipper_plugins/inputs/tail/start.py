"""`from: end`: where the first sight of a file is its end.

That holds for the files that are there when the input begins with these paths; a file that appears later, also while
the shipper was down, is new and is read from its beginning, or rotation would lose lines. The mark of that beginning is
stored with the positions, in one transaction.
"""

from __future__ import annotations

import hashlib
from functools import partial

from shipper.plugin import InputContext, is_short
from shipper_plugins.inputs.tail.calls import Calls
from shipper_plugins.inputs.tail.content import WINDOW, open_content
from shipper_plugins.inputs.tail.discovery import Found, Scan
from shipper_plugins.inputs.tail.known import Known
from shipper_plugins.inputs.tail.lines import Charset
from shipper_plugins.inputs.tail.options import Options
from shipper_plugins.inputs.tail.stream import Position, fingerprint

MARK = "begun"
_BACK = 64 << 10


async def begin_at_end(
    options: Options, context: InputContext, calls: Calls, known: Known, scan: Scan, mark: bytes | None
) -> None:
    """Put every file that is not known at its end, unless the input began with these paths before."""
    begun = hashlib.sha256(options.identity.encode()).hexdigest().encode()
    if mark == begun:
        return
    strangers = [found for found in scan.files.values() if found.file not in known.by_file]
    ends = await calls.run(options.paths[0], partial(_ends, strangers, options.encoding))
    positions = {}
    for found, (position, head) in ends.items():
        stream = known.new(found.path, found.file, 0)
        stream.offset, stream.tail, stream.done = position.offset, position.tail, position.done
        stream.since = position.offset
        stream.compressed, stream.settled = position.compressed, True
        known.grow(stream, head)
        positions[stream.key] = stream.position(stream.offset, stream.tail, stream.crc, done=stream.done)
    await context.emit(positions={**positions, MARK: begun})


def _ends(strangers: list[Found], encoding: str) -> dict[Found, tuple[Position, bytes]]:
    ends = {}
    for found in {found.file: found for found in strangers}.values():
        try:
            ends[found] = _end(found, encoding)
        except OSError as error:
            if is_short(error):
                raise
    return ends


def _end(found: Found, encoding: str) -> tuple[Position, bytes]:
    """The place after the last whole line. A compressed file is taken as read, without decompressing it."""
    content = open_content(found.path, found.file)
    try:
        head, size = content.head(), content.size()
        if content.compressed:
            return Position(path=found.path, dev=0, ino=0, compressed=True, done=size), head
        start = max(0, size - _BACK) // 4 * 4
        last = content.look(start, _BACK + 4).found
        offset = start + Charset.of(encoding, head).rfind(last)
        tail = content.look(offset, 0).before
        return Position(path=found.path, dev=0, ino=0, offset=offset, tail=fingerprint(tail[-WINDOW:])), head
    finally:
        content.close()
