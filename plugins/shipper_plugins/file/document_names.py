"""Names of files for keys of any kind: each key has one of its own, which never leads out of its directory.

Letters, digits, `-`, `_` and `.` stay as they are, but for a dot at the beginning. Every other byte of a name is
escaped as in a URL (`%2F`), so a `%` has two digits behind it. A name that takes more than `LONGEST` bytes then ends
with a digest behind `%%`, which no escape makes. Names differ by case, as keys do: the file system has to tell them
apart.
"""

from __future__ import annotations

import hashlib
import re

from shipper.plugin.state import Version

LONGEST = 200
OWN = "own"
"""The directory of the keys of this shipper itself, whose owner has no name."""

_UNSAFE = re.compile(rb"^\.|[^A-Za-z0-9._-]")
_PREFIX = 100


def path_of(version: Version) -> str:
    """Where the document of a key is, below the directory of the output: `own/inventory/web-1.json`."""
    return "/".join((_owner(version.owner), escaped(version.collection), escaped(version.key) + ".json"))


def _owner(name: str) -> str:
    """An owner that is called as the directory of own keys has its first letter escaped."""
    return f"%{ord(OWN[0]):02X}{OWN[1:]}" if name == OWN else escaped(name) or OWN


def escaped(name: str) -> str:
    """The name of a file for a name: another one for each."""
    raw = name.encode()
    safe = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], raw).decode()
    return safe if len(safe) <= LONGEST else f"{safe[:_PREFIX]}%%{hashlib.sha256(raw).hexdigest()}"
