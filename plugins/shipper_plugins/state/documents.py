"""The document of a file, as compact JSON; blocking.

JSON keeps its numbers as they are written. YAML is read as a policy is: without anchors, aliases and tags, so that a
small text never becomes a large document, with unique keys, and with the types of YAML 1.2.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from shipper.plugin.state import compact, digest_of
from shipper.policy.strict import read_yaml
from shipper.sdk.descriptors import in_words
from shipper_plugins.reading import read_at
from shipper_plugins.tail.calls import at
from shipper_plugins.tail.discovery import Found

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
MOST = 500
"""Files that are read at once."""


class Unfit(ValueError):
    """A file holds no valid document; the message never quotes it."""


class Read(NamedTuple):
    """A file that was read: its document, or why there is none; neither for a file that is gone."""

    key: str
    found: Found
    document: bytes | None = None
    digest: bytes = b""
    unfit: str = ""
    """What is wrong with its content, as long as that does not change."""
    failure: str = ""
    """Why it cannot be read now."""


def read_some(wanted: Sequence[tuple[str, Found]], largest: int, room: int) -> list[Read]:
    """Reads files, in this order, until they fill the room, but at least the first one."""
    seen: list[Read] = []
    for key, found in wanted[:MOST]:
        seen.append(_read(key, found, largest))
        room -= len(seen[-1].document or b"")
        if room <= 0:
            break
    return seen


def _read(key: str, found: Found, largest: int) -> Read:
    at(found.path)
    try:
        document = document_of(found.path, content_of(found.path, largest), largest)
    except Unfit as error:
        return Read(key, found, unfit=str(error))
    except FileNotFoundError:
        return Read(key, found)
    except OSError as error:
        return Read(key, found, failure=in_words(error))
    return Read(key, found, document, digest_of(document))


def content_of(path: str, largest: int) -> bytes:
    """Returns the content of a file, from one inode. Raises Unfit if it is too large or no file, OSError if it cannot
    be read."""
    file = os.open(path, _FLAGS)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Unfit("not a regular file")
        content = read_at(file, 0, largest + 1) if status.st_size <= largest else b""
        if max(status.st_size, len(content)) > largest:
            raise Unfit(f"larger than max_document_bytes ({largest} bytes)")
        return content
    finally:
        os.close(file)


def document_of(path: str, content: bytes, largest: int) -> bytes:
    """Returns the document of a file of this name. Raises Unfit."""
    try:
        document = compact(content if path.endswith(".json") else orjson.dumps(read_yaml(content)))
    except ValueError as error:
        raise Unfit(str(error)) from None
    if len(document) > largest:
        raise Unfit(f"larger than max_document_bytes ({largest} bytes) as JSON")
    return document
