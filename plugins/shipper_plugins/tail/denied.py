"""What people are told of a file, or a directory, that the user of this process may not read."""

from __future__ import annotations

import errno
import os
import pwd
from functools import lru_cache

from shipper.sdk.descriptors import in_words


def reason(error: OSError) -> str:
    """Returns an error in words; for a missing right with the user that needs it. May wait for the users' database."""
    if error.errno != errno.EACCES:
        return in_words(error)
    user = _name(os.geteuid())
    return (
        f"{os.strerror(errno.EACCES)} for the user {user}: add it to the group of the file (often adm), "
        f"or run setfacl -m u:{user}:rX on it"
    )


@lru_cache(maxsize=8)
def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return str(uid)
