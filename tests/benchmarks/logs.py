"""Logs other than the one of access lines: JSON lines, large lines, many small files, files of any size, noise."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path

from tests.benchmarks.job import CACHE, access_lines

_LARGE = 64 << 10
_DIFFERENT = 20_000
_VARIED = 345_000


def json_log(lines: int) -> Path:
    """A file of an application's JSON lines of about 200 bytes."""
    return cached(f"json-{lines}.log", lambda: json_lines(lines))


def large_log(lines: int) -> Path:
    """A file of lines of 64 KiB."""
    return cached(f"large-{lines}.log", lambda: _large_lines(lines))


def small_logs(directory: Path, files: int, lines: int) -> int:
    """Write many small files, no two of which begin alike (that would make them copies); returns how many lines."""
    text = cycle(list(access_lines(min(_DIFFERENT, files * lines))))
    for number in range(files):
        part = "".join(islice(text, lines - 1))
        (directory / f"{number:06d}.log").write_text(f"container {number} started\n{part}")
    return files * lines


def big_log(path: Path, size: int) -> int:
    """Write about so many bytes of access lines, which repeat after 50 MB; returns how many lines."""
    lines = [line.encode() for line in islice(access_lines(_VARIED), max(1, min(_VARIED, size // 145)))]
    return _repeated(path, size, b"".join(lines), len(lines))


def noise_log(path: Path, size: int) -> int:
    """Write about so many bytes of lines of 1,000 characters that hardly compress; returns how many lines."""
    lines = max(1, min(16 << 20, size) // 1000)
    block = b"".join(b64encode(os.urandom(749))[:999] + b"\n" for _ in range(lines))
    return _repeated(path, size, block, lines)


def _repeated(path: Path, size: int, block: bytes, lines: int) -> int:
    times = max(1, round(size / len(block)))
    with path.open("wb") as file:
        for _ in range(times):
            file.write(block)
    return times * lines


def json_lines(lines: int) -> Iterator[str]:
    """An application's JSON lines, each with its line feed."""
    for number, line in enumerate(access_lines(lines)):
        origin, request, answer, *_ = line.split('"')
        status, size = map(int, answer.split())
        entry = {"level": "info", "logger": "shop.http", "request": number, "client": origin.split()[0]}
        entry |= {"line": request, "status": status, "bytes": size, "message": "request served"}
        yield json.dumps(entry) + "\n"


def _large_lines(lines: int) -> Iterator[str]:
    text = "".join(access_lines(_DIFFERENT)).replace("\n", " ").replace('"', "'")
    for number in range(lines):
        first = number * 4096 % (len(text) - _LARGE)
        head = f"trace {number} "
        yield head + text[first : first + _LARGE - len(head) - 1] + "\n"


def cached(name: str, lines: Callable[[], Iterable[str]]) -> Path:
    """The log of this name, made of these lines at first."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / name
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("w") as file:
            file.writelines(lines())
        part.rename(path)
    return path
