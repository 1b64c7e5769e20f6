"""A state directory that somebody was at: it is refused with a reason, or opens, and says nothing that is not so.

The directory holds the events of a retired lane below an open barrier, and of the lane that replaced it. Whatever is
damaged: what arrives is what was stored, and `drained` is said only if every event of the retired lane has arrived or
is counted as damaged.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shipper.protocol.messages import Ack
from shipper.sdk.errors import CredentialError, StartFailed, StateLocked
from shipper.spool.report import Report
from tests.fakes import DESTINATIONS, SPRINGS, Theatre, events, policy, theatre

OLD = range(60)
"""Events below the barrier, in batches of ten."""
NEW = range(100, 130)
LATER = range(200, 210)
"""Events that enter when all that is over."""
SETTLE_SECONDS = 0.3
"""So long after the last progress a drain is taken for held."""
Damage = Callable[[Random, Path, Path], None]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a start on a directory came to."""

    refused: str | None
    received: frozenset[int] = frozenset()
    drained: Ack | None = None


async def fill(state: Path) -> None:
    """The directory of a process that was killed while its destination did not answer."""
    async with theatre(state) as on:
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        for number, numbers in ((1, OLD), (2, NEW)):
            await on.offer(number, policy(credential=f"k{number}"), f"k{number}")
            await on.ack(number, "active")
            await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
            for first in range(numbers.start, numbers.stop, 10):
                await SPRINGS["in"].context.emit(events(*range(first, first + 10)))


async def start(state: Path) -> Seen:
    """Start on it, supply its credentials, and see what is delivered and said."""
    try:
        async with theatre(state) as on:
            for id in ("k1", "k2"):
                try:
                    await on.rollout.supply({id: {"api_key": f"{id}:secret-of-{id}"}})
                except CredentialError:
                    continue
            main = DESTINATIONS["main"]
            drained: Ack | None = None
            progress = (-1, -1)
            while drained is None and progress != (now := (len(main.asked), len(on.said))):
                progress = now
                with trio.move_on_after(SETTLE_SECONDS):
                    while drained is None:
                        acks = [m for m in on.said if isinstance(m, Ack) and m.stage == "drained" and m.revision == 2]
                        drained = acks[0] if acks else None
                        await trio.sleep(0.01)
            seen = Seen(None, frozenset(main.received), drained)
            await go_on(on)
            return seen
    except (StateLocked, StartFailed) as error:
        return Seen(str(error))


async def go_on(on: Theatre) -> None:
    """The supervisor sends the active policy again, then a new one, and what enters under that arrives."""
    before = len(on.said)
    await on.offer(2, policy(credential="k2"), "k2")
    with trio.fail_after(60):
        while len(on.said) == before:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)
    await on.offer(3, policy(credential="k3"), "k3")
    await on.ack(3, "active")
    await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
    await SPRINGS["in"].context.emit(events(*LATER))
    await DESTINATIONS["main"].until(lambda: {*LATER} <= {*DESTINATIONS["main"].received})


def check(seen: Seen) -> None:
    """Nothing is made up, and no `drained` is wrong."""
    assert seen.received <= {*OLD, *NEW}
    if seen.refused is not None:
        assert len(seen.refused) > 20
    if seen.drained is not None:
        ledger = seen.drained.ledger
        assert ledger is not None
        assert ledger.accepted == ledger.answered
        assert len(seen.received & {*OLD}) + ledger.damaged >= len(OLD), seen


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two directories of the same history, and with keys of their own."""
    paths = (tmp_path_factory.mktemp("one") / "state", tmp_path_factory.mktemp("other") / "state")
    for path in paths:
        trio.run(fill, path)
    return paths


# -- what may be done to a directory -----------------------------------------------------------------------------------


def chosen(draw: Random, state: Path) -> Path:
    return draw.choice(sorted(path for path in state.iterdir() if path.name not in ("ballast", "lock")))


def flip(draw: Random, state: Path, other: Path) -> None:
    path = chosen(draw, state)
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 8, 200)) if content else 0):
        content[draw.randrange(len(content))] ^= draw.randrange(1, 256)
    path.write_bytes(content)


def cut(draw: Random, state: Path, other: Path) -> None:
    path = chosen(draw, state)
    os.truncate(path, draw.randrange(path.stat().st_size + 1))


def remove(draw: Random, state: Path, other: Path) -> None:
    for _ in range(draw.choice((1, 2))):
        chosen(draw, state).unlink()


def swap(draw: Random, state: Path, other: Path) -> None:
    """A file, or some, of another spool."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        source = chosen(draw, other)
        shutil.copy(source, state / source.name)


def blank(draw: Random, state: Path, other: Path) -> None:
    """Blocks of zeros, as a crashed file system leaves them; or blocks of the same file in each other's place."""
    path = chosen(draw, state)
    content = bytearray(path.read_bytes())
    block = draw.choice((512, 4096))
    for _ in range(draw.choice((1, 3))):
        at, source = (draw.randrange(len(content) // block + 1) * block for _ in range(2))
        content[at : at + block] = draw.choice((bytes(block), content[source : source + block]))
    path.write_bytes(content)


def append(draw: Random, state: Path, other: Path) -> None:
    with chosen(draw, state).open("ab") as file:
        file.write(draw.randbytes(draw.choice((1, 5000))))


DAMAGES: tuple[Damage, ...] = (flip, flip, flip, cut, remove, swap, blank, append)


def damaged(templates: tuple[Path, Path], state: Path, seed: int) -> Path:
    draw = Random(seed)
    shutil.copytree(templates[0], state)
    for _ in range(draw.choice((1, 1, 1, 2))):
        draw.choice(DAMAGES)(draw, state, templates[1])
    return state


# -- what holds --------------------------------------------------------------------------------------------------------


async def test_an_undamaged_directory_loses_nothing(templates: tuple[Path, Path], tmp_path: Path) -> None:
    seen = await start(Path(shutil.copytree(templates[0], tmp_path / "state")))

    assert seen.received == {*OLD, *NEW}
    assert seen.drained is not None
    assert seen.drained.ledger is not None
    assert (seen.drained.ledger.accepted, seen.drained.ledger.damaged) == (len(OLD), 0)


@pytest.mark.timeout(240)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_a_damaged_directory_opens_or_is_refused_and_never_lies(
    templates: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    state = damaged(templates, tmp_path_factory.mktemp("damaged") / "state", seed)

    check(trio.run(start, state))
    shutil.rmtree(state.parent)


TABLES = ("lane", "barrier", "todo", "batch", "revision", "credential", "meta")


@pytest.mark.parametrize("tables", [*combinations(TABLES, 1), TABLES[:3], TABLES[1:4], TABLES])
async def test_whatever_tables_are_lost_it_goes_on_and_does_not_lie(
    templates: tuple[Path, Path], tmp_path: Path, tables: tuple[str, ...]
) -> None:
    state = Path(shutil.copytree(templates[0], tmp_path / "state"))
    db = sqlite3.connect(state / "spool-1.db", isolation_level=None)
    for table in tables:
        db.execute(f"DELETE FROM {table}")
    Report(lost=Counter(tables)).store(db)
    db.close()

    check(await start(state))


@pytest.mark.parametrize("name", ["keyring", "keyring.copy", "spool-1.db", "spool-1.db-wal", "state.key"])
async def test_a_file_of_another_spool_brings_none_of_its_events(
    templates: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    state = Path(shutil.copytree(templates[0], tmp_path / "state"))
    if (templates[1] / name).exists():
        shutil.copy(templates[1] / name, state / name)
    seen = await start(state)

    check(seen)


def content(state: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in state.iterdir() if path.name != "lock"}


async def test_a_directory_whose_key_is_gone_is_locked_and_left_as_it_is(
    templates: tuple[Path, Path], tmp_path: Path
) -> None:
    state = Path(shutil.copytree(templates[0], tmp_path / "state"))
    (state / "state.key").unlink()
    before = content(state)
    seen = await start(state)
    after = content(state)

    assert seen.refused is not None
    assert "state key" in seen.refused
    assert after == before


@pytest.mark.parametrize("name", ["state.key", "keyring", "keyring.copy", "ballast", "lock", "spool-1.db"])
async def test_a_link_in_the_place_of_a_file_is_refused_and_not_followed(
    templates: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    state = Path(shutil.copytree(templates[0], tmp_path / "state"))
    shutil.move(state / name, tmp_path / "victim")
    before = (tmp_path / "victim").read_bytes()
    (state / name).symlink_to(tmp_path / "victim")
    seen = await start(state)

    assert seen.refused is not None
    assert (tmp_path / "victim").read_bytes() == before


@pytest.mark.root
@pytest.mark.parametrize("name", ["", "state.key", "keyring", "keyring.copy", "spool-1.db"])
async def test_what_another_user_put_there_is_refused(templates: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    state = Path(shutil.copytree(templates[0], tmp_path / "state"))
    os.chown(state / name, 65534, 65534)
    seen = await start(state)

    assert seen.refused is not None
    assert "another user" in seen.refused
