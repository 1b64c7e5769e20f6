# ruff: noqa: ASYNC240 - small files, looked at by the test itself
import os
import resource
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio
import trio.testing

from shipper.plugin import Batch, Later, Outcome, OutputContext, Size
from shipper.plugin.state import Version, digest_of
from shipper.sdk.aio import open_asyncio
from shipper.testing import check_output
from shipper_plugins.file import output as module
from shipper_plugins.file.output import FileOutput
from tests.hanging_files import hanging
from tests.short_reads import short_reads


@pytest.fixture
async def context() -> AsyncIterator[OutputContext]:
    async with open_asyncio() as aio:
        yield OutputContext("archive", aio)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.ndjson"


def numbers(*values: int, seq: int = 1) -> Batch:
    return replace(Batch.documents([b'{"n":%d}' % n for n in values]), origin=b"o" * 16, seq=seq)


def written(path: Path) -> list[Any]:
    text = path.read_bytes()
    assert text == b"" or text.endswith(b"\n")
    return [orjson.loads(line)["n"] for line in text.splitlines()]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The kernel writes what fits and then fails, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_events_are_lines_of_json_with_what_they_share(context: OutputContext, path: Path) -> None:
    batch = Batch.lines(b'say "hi"\n\n', offset=0, shared={"service": {"name": "shop"}})
    async with FileOutput(path=str(path)).open(context) as sender:
        await sender.send(batch)

    assert [orjson.loads(line) for line in path.read_bytes().splitlines()] == batch.whole()


async def test_a_file_is_appended_to_after_a_restart(context: OutputContext, path: Path) -> None:
    for n in (1, 2):
        async with FileOutput(path=str(path)).open(context) as sender:
            await sender.send(numbers(n))

    assert written(path) == [1, 2]


async def test_nothing_is_opened_before_the_first_event(context: OutputContext, path: Path) -> None:
    async with FileOutput(path=str(path / "missing")).open(context) as sender:
        with pytest.raises(Later, match=r"events\.ndjson/missing: its directory does not exist; make it"):
            await sender.send(numbers(1))


@pytest.mark.parametrize("torn", [b'{"n":', b"{", b'{"n":9}', b'{"text":"' + b"x" * 200_000])
async def test_a_line_that_a_crash_tore_is_cut_off(context: OutputContext, path: Path, torn: bytes) -> None:
    path.write_bytes(b'{"n":1}\n' + torn)
    async with FileOutput(path=str(path)).open(context) as sender:
        await sender.send(numbers(2))

    assert written(path) == [1, 2]


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_written_is_not_cut_off_where_reads_are_short(
    context: OutputContext, path: Path, seed: int
) -> None:
    """As on a file system over a network: what a short read leaves out is no line that a crash tore."""
    path.write_bytes(b'{"n":1}\n' * 20_000 + b'{"n":')
    with short_reads(seed):
        async with FileOutput(path=str(path)).open(context) as sender:
            await sender.send(numbers(2))

    assert written(path) == [1] * 20_000 + [2]


async def test_a_line_of_somebody_else_is_ended_not_cut_off(context: OutputContext, path: Path) -> None:
    path.write_bytes(b"not ours")
    async with FileOutput(path=str(path)).open(context) as sender:
        await sender.send(numbers(2))

    assert path.read_bytes() == b'not ours\n{"n":2}\n'


async def test_a_write_that_fails_in_the_middle_leaves_nothing_behind(context: OutputContext, path: Path) -> None:
    async with FileOutput(path=str(path)).open(context) as sender:
        await sender.send(numbers(1))
        with largest_file(20), pytest.raises(Later, match=r"events\.ndjson: File too large"):
            await sender.send(numbers(2, 3, 4))

        assert written(path) == [1]

        await sender.send(numbers(2, 3, 4))

    assert written(path) == [1, 2, 3, 4]


async def test_a_batch_whose_sync_fails_is_not_answered(
    context: OutputContext, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the kernel can fail a sync, so this one is made to."""

    def fail(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(5, "Input/output error")

    async with FileOutput(path=str(path)).open(context) as sender:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(Later, match="Input/output error"):
                await sender.send(numbers(1))

        assert written(path) == []

        await sender.send(numbers(1))

    assert written(path) == [1]


async def test_a_batch_is_synced_before_its_answer_unless_told_not_to(
    context: OutputContext, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    real = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            synced.append(path.read_bytes())
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    for sync in (True, False):
        async with FileOutput(path=str(path), sync=sync).open(context) as sender:
            await sender.send(numbers(1))
            await sender.send(numbers(2))

    assert synced == [b'{"n":1}\n', b'{"n":1}\n{"n":2}\n']


async def test_a_full_file_is_rotated_and_old_ones_go(context: OutputContext, path: Path) -> None:
    output = FileOutput(path=str(path), rotate_bytes=Size(20), keep=2)
    async with output.open(context) as sender:
        for n in range(1, 9):
            await sender.send(numbers(n))

    assert written(path) == [7, 8]
    assert written(path.with_suffix(".ndjson.1")) == [5, 6]
    assert written(path.with_suffix(".ndjson.2")) == [3, 4]
    assert len(list(path.parent.iterdir())) == 3


async def test_a_batch_larger_than_a_file_is_written_whole(context: OutputContext, path: Path) -> None:
    async with FileOutput(path=str(path), rotate_bytes=Size(20)).open(context) as sender:
        await sender.send(numbers(*range(100)))

    assert written(path) == list(range(100))


async def test_a_file_that_was_moved_away_is_made_anew(context: OutputContext, path: Path) -> None:
    moved = path.with_suffix(".old")
    async with FileOutput(path=str(path)).open(context) as sender:
        await sender.send(numbers(1))
        path.rename(moved)
        await sender.send(numbers(2))

    assert (written(moved), written(path)) == ([1], [2])


async def test_ids_are_written_where_that_is_asked_for(context: OutputContext, path: Path) -> None:
    batch = replace(Batch.documents([b'{"n":1}', b"{}", b'{"n":3}'], ids=[None, 'a"b', None]), origin=b"o" * 16, seq=5)
    async with FileOutput(path=str(path), id_field="_id").open(context) as sender:
        await sender.send(batch)
        await sender.send(batch)

    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    prefix = batch.id_prefix().decode()
    assert lines[:3] == [{"_id": f"{prefix}0", "n": 1}, {"_id": 'a"b'}, {"_id": f"{prefix}2", "n": 3}]
    assert lines[:3] == lines[3:]


async def test_batches_of_several_outputs_do_not_mix(context: OutputContext, path: Path) -> None:
    output = FileOutput(path=str(path), rotate_bytes=Size(50_000), keep=100)
    async with output.open(context) as one, output.open(context) as two, trio.open_nursery() as nursery:
        for n in range(20):
            nursery.start_soon((one if n % 2 else two).send, numbers(*range(n * 1000, n * 1000 + 1000)))

    found = [n for part in path.parent.iterdir() for n in written(part)]
    assert sorted(found) == list(range(20_000))
    assert all(found[i + 1] == found[i] + 1 for i in range(len(found) - 1) if (i + 1) % 1000)


async def test_a_cancel_before_the_write_writes_nothing(context: OutputContext, path: Path) -> None:
    async with FileOutput(path=str(path)).open(context) as sender:
        with trio.CancelScope() as scope:
            scope.cancel()
            await sender.send(numbers(1))

    assert scope.cancelled_caught
    assert not path.exists()


async def test_a_cancel_while_it_waits_for_its_turn_writes_nothing(context: OutputContext, path: Path) -> None:
    async with FileOutput(path=str(path)).open(context) as sender, trio.open_nursery() as nursery:
        lock = module._locks.setdefault(os.path.realpath(path), trio.Lock())
        async with lock:
            nursery.start_soon(sender.send, numbers(1))
            with trio.fail_after(30):
                while not lock.statistics().tasks_waiting:  # noqa: ASYNC110 - nobody tells when
                    await trio.sleep(0.001)
            nursery.cancel_scope.cancel()

    assert not path.exists()


async def test_file_systems_that_hang_hold_up_no_other_output(context: OutputContext, tmp_path: Path) -> None:
    """More of them than trio has threads for all, whatever they hang in; and nothing is asked of them in the loop."""
    (tmp_path / "remote").mkdir()
    path = tmp_path / "events.ndjson"
    threads = trio.to_thread.current_default_thread_limiter().total_tokens

    async def send(to: Path) -> None:
        async with FileOutput(path=str(to)).open(context) as sender:
            await sender.send(numbers(1))

    with hanging(tmp_path / "remote", "open", "lstat") as fake, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for number in range(int(threads) + 1):
                nursery.start_soon(send, tmp_path / "remote" / str(number))
            while fake.under_way <= threads:  # noqa: ASYNC110 - nobody tells when
                await trio.sleep(0.001)
            await send(path)
            fake.go_on()

    assert written(path) == [1]
    assert fake.in_the_loop == []


async def test_a_cancel_during_the_write_waits_for_its_end(
    context: OutputContext, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = trio.Event()
    go_on = trio.Event()
    real = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            trio.from_thread.run_sync(begun.set)
            trio.from_thread.run(wait_shielded)
        real(file)

    async def wait_shielded() -> None:
        with trio.CancelScope(shield=True):
            await go_on.wait()

    monkeypatch.setattr(os, "fsync", fsync)
    with trio.fail_after(30):
        async with FileOutput(path=str(path)).open(context) as sender, trio.open_nursery() as nursery:
            nursery.start_soon(sender.send, numbers(1))
            await begun.wait()
            nursery.cancel_scope.cancel()
            go_on.set()

    assert written(path) == [1]


async def test_what_is_no_file_is_not_written_to(context: OutputContext, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, reason in ((tmp_path, "Is a directory"), (fifo, "not a regular file")):
        async with FileOutput(path=str(path)).open(context) as sender:
            with trio.fail_after(30), pytest.raises(Later, match=reason):
                await sender.send(numbers(1))


async def test_a_batch_without_events_makes_no_file(context: OutputContext, path: Path) -> None:
    async with FileOutput(path=str(path)).open(context) as sender:
        answers = await sender.send(numbers())

    assert answers.count == 0
    assert not path.exists()


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="a NUL is in it"):
        FileOutput(path="/var/log/\0")


def test_only_the_path_and_the_shape_of_lines_say_where() -> None:
    assert FileOutput.live == {"workers", "flush", "sync", "rotate_bytes", "keep"}


# -- keyed state -------------------------------------------------------------------------------------------------------


def state(place: int, **documents: bytes | None) -> Batch:
    versions = [Version("", "inventory", key, place, digest_of(text), text is None) for key, text in documents.items()]
    return Batch.documents([text or b"{}" for text in documents.values()]).with_columns(versions=versions)


def test_a_directory_takes_state_alone_and_a_path_events_alone(tmp_path: Path) -> None:
    directory, path = FileOutput(directory=str(tmp_path)), FileOutput(path=str(tmp_path / "events"))

    assert (directory.takes_state(), directory.takes_events(), directory.feeding().in_flight) == (True, False, 1)
    assert (path.takes_state(), path.takes_events(), path.feeding().in_flight) == (False, True, 2)


@pytest.mark.parametrize("settings", [{}, {"path": "/a", "directory": "/b"}])
def test_either_a_path_or_a_directory_is_given(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either path is given"):
        FileOutput(**settings)


@pytest.mark.parametrize("settings", [{"sync": False}, {"id_field": "_id"}])
def test_a_directory_refuses_what_is_of_a_path(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="this is of a path") as raised:
        FileOutput(directory="/b", **settings)
    assert raised.value.at == (next(iter(settings)),)  # type: ignore[attr-defined]


async def test_a_directory_keeps_the_contract_of_an_output(context: OutputContext, tmp_path: Path) -> None:
    output = FileOutput(directory=str(tmp_path / "state"))

    (first, second) = await check_output(output, context, [state(2, a=b'{"n":1}', b=None), state(1, a=b'{"n":0}')])

    assert first.others == {}
    assert second.others[0].outcome is Outcome.SUPERSEDED
    assert (tmp_path / "state" / "own" / "inventory" / "a.json").read_bytes() == b'{"n":1}'


async def test_a_second_output_waits_until_the_first_is_closed(context: OutputContext, tmp_path: Path) -> None:
    output = FileOutput(directory=str(tmp_path))
    async with output.open(context) as second:
        async with output.open(context) as first:
            await first.send(state(1, a=b"{}"))
            with pytest.raises(Later, match="another shipper, or another output, writes here") as raised:
                await second.send(state(2, a=b"{}"))
            assert raised.value.code == "directory_in_use"
        assert (await second.send(state(2, a=b"{}"))).others == {}


async def test_a_directory_without_a_parent_is_told_of(context: OutputContext, tmp_path: Path) -> None:
    async with FileOutput(directory=str(tmp_path / "missing" / "state")).open(context) as sender:
        with pytest.raises(Later, match="No such file or directory"):
            await sender.send(state(1, a=b"{}"))


async def test_nothing_is_called_in_the_event_loop_for_a_directory(context: OutputContext, tmp_path: Path) -> None:
    with hanging(tmp_path) as disk:
        async with FileOutput(directory=str(tmp_path)).open(context) as sender:
            await sender.send(state(1, a=b"{}"))
    assert disk.in_the_loop == []
