"""What a reflector has told, in order."""

from __future__ import annotations

from collections.abc import Callable

import trio

from shipper.apiserver.objects import Event, name, version


class Told:
    """What a reflector has told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []
        self.troubles: list[str | None] = []
        self.caught_up: list[str] = []
        self._more = trio.Event()

    def heed(self, event: Event) -> None:
        self.events.append((event.type, name(event.object), version(event.object)))
        self._tell()

    def trouble(self, text: str | None) -> None:
        self.troubles.append(text)
        self._tell()

    def note(self, at: str) -> None:
        self.caught_up.append(at)
        self._tell()

    def _tell(self) -> None:
        self._more.set()
        self._more = trio.Event()

    async def wait_until(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(1000):  # of a clock that jumps
            while not condition():
                await self._more.wait()

    async def wait_for(self, *event: str) -> None:
        await self.wait_until(lambda: event in self.events)
