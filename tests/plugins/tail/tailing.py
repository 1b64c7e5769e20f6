"""The `file` input as its tests run it: real files, a store that is a fake, and what writes lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import trio

from shipper.plugin import Batch
from shipper.testing import RecordingInputContext
from shipper_plugins.file.input import FileInput
from shipper_plugins.journald.input import JournaldInput
from shipper_plugins.tail.stream import Stream
from shipper_plugins.tail.tailer import Tailer
from tests.plugins.running import running


class Store(RecordingInputContext):
    """Counts the emits that are under way."""

    under_way = 0
    most = 0

    async def emit(
        self, *batches: Batch, positions: Mapping[str, bytes | None] | None = None, wait: bool = True
    ) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await super().emit(*batches, positions=positions, wait=wait)
        finally:
            self.under_way -= 1

    @property
    def messages(self) -> list[str]:
        return [own["message"] for batch in self.batches for own in batch.own()]

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.move_on_after(30) as scope:
            await self.wait_until(condition)
        assert not scope.cancelled_caught, ([text[:80] for text in self.messages[-20:]], self.problems)

    async def comes(self, events: int) -> None:
        await self.until(lambda: self.count >= events)


def settings(*paths: Path | str, **options: Any) -> FileInput:
    return FileInput(paths=tuple(map(str, paths)), **options)


following = running
"""At the end of the block all files are closed."""


async def read_all(config: FileInput | JournaldInput, store: Store) -> list[str]:
    """Run once to the end of all that there is; the messages of this run."""
    before = store.count
    with trio.fail_after(60):
        async with msgspec.structs.replace(config, stop_at_end=True).open(store) as source:
            await source.run()
    return store.messages[before:]


def stream_of(source: Tailer, path: Path) -> Stream:
    """What is known of the file that is there."""
    found = source._followed.known.at(str(path))
    assert found is not None
    return found


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def lines(first: int, last: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(first, last))


def names(first: int, last: int, word: str = "line") -> list[str]:
    return lines(first, last, word).splitlines()
