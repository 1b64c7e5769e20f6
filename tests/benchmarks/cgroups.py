"""A part of the machine for a process: a cgroup with a share of a core and some memory. Needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.benchmarks.peers.peer import Unavailable

_ROOT = Path("/sys/fs/cgroup")
_PERIOD = 100_000
"""Microseconds."""
_JOIN = 'for group do [ "$group" = -- ] && break; echo $$ > "$group/cgroup.procs"; shift; done; shift; exec "$@"'


@contextmanager
def part(cores: float, mib: int) -> Iterator[list[str]]:
    """What stands before a command that is to run in it; all of it must have ended before the block ends. Raises
    `Unavailable`."""
    groups = _settings(f"shipper-bench-{os.getpid()}", round(cores * _PERIOD), mib << 20)
    try:
        _make(groups)
        yield ["sh", "-c", _JOIN, "sh", *map(str, groups), "--"]
    finally:
        for group in groups:
            with suppress(OSError):
                group.rmdir()


def _make(groups: Mapping[Path, Mapping[str, str]]) -> None:
    try:
        for group, settings in groups.items():
            group.mkdir()
            for name, value in settings.items():
                (group / name).write_text(value)
    except OSError as error:
        raise Unavailable(f"no cgroup can be made: {error}") from error


def _settings(name: str, quota: int, size: int) -> Mapping[Path, Mapping[str, str]]:
    """Of each cgroup to be made: its files."""
    if (_ROOT / "cgroup.controllers").exists():
        return {_ROOT / name: {"cpu.max": f"{quota} {_PERIOD}", "memory.max": str(size)}}
    cpu = {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": str(quota)}
    return {_ROOT / "cpu" / name: cpu, _ROOT / "memory" / name: {"memory.limit_in_bytes": str(size)}}
