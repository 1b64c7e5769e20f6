"""A round of real processes: it is opened in a directory of its own, runs, and says what was wrong."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from tests.march.kind import Kind, Told, Violation
from tests.progress import Progress


class Campaign(Protocol):
    """What is played."""

    done: Counter[str]
    """How often what was done."""

    @property
    def figures(self) -> Counter[str]: ...
    def summary(self) -> str:
        """How far it is, in one line."""


C = TypeVar("C", bound=Campaign)
Opened = Callable[[Path], AbstractAsyncContextManager[C]]


def kind(command: str, draw: Callable[[int], object], run: Callable[[object], Told]) -> Kind:
    """That of campaigns which are played; rounds run one by one, since each has many processes."""
    return Kind(command, draw, run, unit="rounds", slice=1, clock=time.monotonic, twice_every=0)


def play(opened: Opened[C], run: Callable[[C], Awaitable[None]], keep: Path | None) -> Told:
    """Plays one round, in the directory `keep`, or in one that is gone afterwards."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="campaign-") as directory:
            return trio.run(_play, opened, run, Path(directory))
    keep.mkdir(parents=True, exist_ok=True)
    return trio.run(_play, opened, run, keep)


async def _play(opened: Opened[C], run: Callable[[C], Awaitable[None]], directory: Path) -> Told:
    wrong: list[Violation] = []
    played: list[C] = []
    try:
        async with opened(directory) as campaign:
            played.append(campaign)
            with Progress(campaign.summary) as tick:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_tell, tick)
                    await run(campaign)
                    nursery.cancel_scope.cancel("the round is over")
    except* Exception as group:
        wrong = violations(group)
    if not played:
        return Told(wrong)
    (campaign,) = played
    return Told(wrong, campaign.done, campaign.figures, (campaign.summary(),))


async def _tell(tick: Progress) -> None:
    while True:
        await trio.sleep(1)
        tick()


def violations(error: BaseException) -> list[Violation]:
    """What was wrong, of an error or of all in a group."""
    return [Violation(type(one).__name__, str(one)[:4000]) for one in _leaves(error)]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]
