"""Ids of state directories, processes, and boots of the machine."""

from __future__ import annotations

import secrets
from pathlib import Path


def new_id() -> str:
    """Returns a new id of a directory or a process."""
    return secrets.token_hex(8)


def boot_id() -> str:
    """Returns the kernel's id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
