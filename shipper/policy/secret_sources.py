"""The installed kinds of reference to a secret, found by entry points and imported when a policy file names them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint

from shipper.policy.registry import UnknownType, loaded, points
from shipper.sdk.secret_source import SecretSource

GROUP = "shipper.secret_sources"
_FIRST = ("file", "env", "systemd")
"""The kinds that hints name first."""


class SecretSources:
    """Maps kinds of reference to classes."""

    def __init__(self, sources: Mapping[str, EntryPoint | type[SecretSource]]) -> None:
        ordered = [*(kind for kind in _FIRST if kind in sources), *sorted(sources.keys() - set(_FIRST))]
        self._sources = {kind: sources[kind] for kind in ordered}

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._sources)

    def find(self, kind: str) -> type[SecretSource]:
        """Returns the class of one of `kinds`; raises UnknownType if it cannot be loaded."""
        found = self._sources[kind]
        if isinstance(found, EntryPoint):
            found = self._sources[kind] = loaded(found, SecretSource, "secret source")
        return found

    def usable(self) -> dict[str, type[SecretSource]]:
        """Returns every kind that can be loaded."""
        found: dict[str, type[SecretSource]] = {}
        for kind in self.kinds:
            with suppress(UnknownType):
                found[kind] = self.find(kind)
        return found

    def hint(self) -> str:
        """Returns the forms of a reference: `{file: PATH}, {env: NAME} or {systemd: NAME}`."""
        *others, last = [f"{{{kind}: {source.placeholder}}}" for kind, source in self.usable().items()] or ["nowhere"]
        return f"{', '.join(others)} or {last}" if others else last


@cache
def installed() -> SecretSources:
    """All kinds that are installed in this Python; imports none of them."""
    return SecretSources(points(GROUP))
