"""Makes the log to ship: varied lines, the same bytes each time, each with its own timestamp (see events.h)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "benchmarks"
MOST_LINES = 28 * 86_400
_SEED = 26

_AGENTS = [
    "curl/8.5.0",
    "kube-probe/1.29",
    "Go-http-client/2.0",
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko Firefox/128.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/126.0.0.0",
]
_WORDS = ["cart", "item", "search", "user", "login", "static", "api", "v1", "order", "image", "checkout", "health"]
_REFERERS = ["-", "-", "https://shop.example/"]
_STATUSES = [200] * 12 + [304, 304, 301, 404, 404, 500, 503]


def access_log(lines: int) -> Path:
    """A file of varied nginx access-log lines of about 145 bytes, the same bytes each time; at most `MOST_LINES`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"access-{_SEED}-{lines}.log"
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("w") as file:
            file.writelines(access_lines(lines))
        part.rename(path)
    return path


def access_lines(lines: int) -> Iterator[str]:
    """The lines, each with its line feed; a second passes from each to the next."""
    chance = random.Random(_SEED)
    word = status = agent = referer = chance.choice
    for number in range(lines):
        bits = chance.getrandbits(64)
        address = f"{10 + bits % 200}.{bits >> 8 & 255}.{bits >> 16 & 255}.{bits >> 24 & 255}"
        moment = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        size = bits >> 44 & 0xFFFF
        path = f"/{word(_WORDS)}/{word(_WORDS)}/{bits >> 32 & 0xFFFFF}?q={bits >> 40 & 0xFFFFF:x}"
        yield (
            f"{address} - - [{1 + number // 86400 % 28:02d}/Jan/2026:{moment} +0000] "
            f'"GET {path} HTTP/1.1" {status(_STATUSES)} {size} "{referer(_REFERERS)}" "{agent(_AGENTS)}"\n'
        )
