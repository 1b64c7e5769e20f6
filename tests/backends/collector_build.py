"""The OpenTelemetry Collector, built from Go modules of pinned versions in a minute or two."""

from __future__ import annotations

from pathlib import Path

from tests.backends import go
from tests.backends.recipe import Recipe

SOURCE = Path(__file__).with_name("collector_source")
_COMMAND = ("go", "build", "-v", "-trimpath", ".")


def _parts() -> list[bytes]:
    made_of = [path.read_bytes() for path in sorted(SOURCE.iterdir())]
    return [*made_of, go.version("the Collector").encode(), repr((_COMMAND, sorted(go.ENVIRONMENT.items()))).encode()]


def _make(place: Path) -> None:
    place.mkdir()
    go.build(_COMMAND, SOURCE, place / "collector")


COLLECTOR = Recipe("collector", (), _parts, _make)
"""A directory with `collector`."""
