"""What must not be seen, in every form in which it might stand, and where to look for it.

The drivers of the real processes (`tests.story.driver`, `tests.supervise.driver`) look after every test: no secret that
was sent and no event that was written is in what the process said and logged, in its arguments and environment, or in
what it left in its state directory.
"""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

EVENT = "canary-event"
"""Each event of such a test contains it."""
LEAST = 6
"""Characters of a secret that is looked for."""
_BLANK = bytes(1 << 16)


def forms(text: str) -> Iterator[bytes]:
    """A text of several lines is known by the longest that is no armour."""
    lines = [line for line in text.splitlines() if not line.startswith("-----")]
    raw = max(lines, key=len).encode()
    yield from (raw, raw[::-1], base64.b64encode(raw).rstrip(b"="), raw.hex().encode())
    yield from (urllib.parse.quote(raw, safe="").encode(), json.dumps(raw.decode()).encode()[1:-1])


def of_secret(text: str) -> Iterator[bytes]:
    """The id of an API key is told, on purpose, to whoever revokes it: what follows the colon is not."""
    parts = [text, *(text.split(":")[1:] if "\n" not in text else [])]
    for part in parts:
        if len(part) >= LEAST:
            yield from forms(part)


def of_credentials(credentials: object) -> set[bytes]:
    """Of all fields of secrets by their ids, as a message carries them."""
    shapes = credentials.values() if isinstance(credentials, dict) else []
    fields = [pair for shape in shapes if isinstance(shape, dict) for pair in shape.items()]
    secret = [value for name, value in fields if isinstance(value, str) and name not in ("username", "certificate")]
    return {form for value in secret for form in of_secret(value)}


def found(content: bytes, canaries: Collection[bytes]) -> list[bytes]:
    """Those that are in it."""
    return [canary for canary in canaries if canary in content]


def left_in(directory: Path, canaries: Collection[bytes]) -> dict[str, list[bytes]]:
    """By file, what is found in it; a single file may be given, too. Files may go meanwhile."""
    files = [directory] if directory.is_file() else [path for path in directory.rglob("*") if path.is_file()]
    return {str(path): seen for path in files if (seen := found(_content(path), canaries))}


def _content(path: Path) -> bytes:
    """All but blocks of zeros: the ballast of a spool has 8 MB of them, and a log of etcd up to 64."""
    try:
        with path.open("rb", buffering=0) as file:
            return b"".join(block for block in iter(partial(file.read, len(_BLANK)), b"") if block != _BLANK)
    except FileNotFoundError:
        return b""


def shown_by(process: int, *names: str) -> bytes:
    """What /proc tells of a process to whoever may look: little if it is hardened, nothing if it is gone."""
    shown = b""
    for name in names or ("cmdline", "environ", "maps", "comm", "status", "limits"):
        with suppress(OSError):
            shown += Path(f"/proc/{process}/{name}").read_bytes()
    return shown
