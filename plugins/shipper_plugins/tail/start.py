"""`from: end`: where the first sight of a file is its end.

That holds for the files that are there when the input begins with these paths; a file that appears later, also while
the shipper was down, is new and is read from its beginning, or rotation would lose lines. The mark of that beginning is
stored with the positions, in one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from shipper.sdk.descriptors import is_short
from shipper_plugins.tail.content import WINDOW, open_content
from shipper_plugins.tail.discovery import Found
from shipper_plugins.tail.lines import Charset
from shipper_plugins.tail.options import Options
from shipper_plugins.tail.place import Place, fingerprint

MARK = "begun"
_BACK = 64 << 10


def begun(options: Options) -> bytes:
    """What is stored at MARK once the input has begun with these paths."""
    return hashlib.sha256(options.identity.encode()).hexdigest().encode()


def ends(strangers: Iterable[Found], encoding: str) -> dict[Found, tuple[Place, bytes]]:
    """Where these files end, and their first bytes; blocking. Files that cannot be read are left out."""
    found_ends = {}
    for found in strangers:
        try:
            found_ends[found] = _end(found, encoding)
        except OSError as error:
            if is_short(error):
                raise
    return found_ends


def _end(found: Found, encoding: str) -> tuple[Place, bytes]:
    """The place after the last whole line. A compressed file is taken as read, without decompressing it."""
    content = open_content(found.path, found.file)
    try:
        head, size = content.head(), content.size()
        if content.compressed:
            return Place(done=size), head
        start = max(0, size - _BACK) // 4 * 4
        last = content.look(start, _BACK + 4).found
        offset = start + Charset.of(encoding, head).rfind(last)
        tail = content.look(offset, 0).before
        return Place(offset, fingerprint(tail[-WINDOW:]), since=offset), head
    finally:
        content.close()
