# ruff: noqa: ASYNC240 - small files, written by the test itself
from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import trio

from shipper.plugin import BadOption, Size
from shipper.plugin.state import Change, Kept
from shipper.testing import RecordingInputContext
from shipper_plugins.state import keys
from shipper_plugins.state import source as state_source
from shipper_plugins.state.input import StateInput
from tests.hanging_files import hanging
from tests.plugins.running import running


@pytest.fixture(autouse=True)
def no_file_is_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written by the test counts as whole at once."""
    monkeypatch.setattr(keys, "RECENT", -3600.0)


@pytest.fixture
def context() -> Iterator[RecordingInputContext]:
    made = RecordingInputContext()
    yield made
    made.close()


def settings(path: Path | str, *more: Path | str, **others: Any) -> StateInput:
    return StateInput(paths=tuple(map(str, (path, *more))), collection="inventory", **others)


async def once(path: Path | str, *more: Path | str, context: RecordingInputContext, **others: Any) -> None:
    """Read what is there, and stop."""
    with trio.fail_after(30):
        async with settings(path, *more, stop_at_end=True, **others).open(context) as source:
            await source.run()


def kept(context: RecordingInputContext) -> dict[str, bytes | None]:
    assert all((owner, collection) == ("", "inventory") for owner, collection, _ in context.state)
    return {key: document for (_, _, key), (document, _) in context.state.items()}


def replace(path: Path, text: bytes) -> None:
    beside = path.with_suffix(".new")
    beside.write_bytes(text)
    beside.replace(path)


@contextmanager
def refusing(refused: Path) -> Iterator[None]:
    """A path that may not be read, whoever runs the test."""

    def checked(call: Any) -> Any:
        def checking(path: Any, *args: Any, **options: Any) -> Any:
            if str(path) == str(refused):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call(path, *args, **options)

        return checking

    with mock.patch.multiple(os, open=checked(os.open), listdir=checked(os.listdir)):
        yield


class Counting(RecordingInputContext):
    """It keeps what was given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.given: list[list[Change]] = []

    async def keep(self, changes: Any, *args: Any, **options: Any) -> tuple[Kept, ...]:
        self.given.append(list(changes))
        return await super().keep(changes, *args, **options)


# -- documents ---------------------------------------------------------------------------------------------------------


async def test_each_file_is_a_key_by_its_name_and_a_compact_document(
    context: RecordingInputContext, tmp_path: Path
) -> None:
    (tmp_path / "web-1.json").write_bytes(b'{ "n": 1.0,\n "s": "a b" }\n')
    (tmp_path / "web-2.yaml").write_bytes(b"n: 2\nlist: [no, 0x10]\n")
    (tmp_path / "web.3.yml").write_bytes(b"{}")
    (tmp_path / "README").write_bytes(b"no document")
    (tmp_path / ".web-4.json").write_bytes(b"{}")

    await once(tmp_path / "*", context=context)

    assert kept(context) == {
        "web-1": b'{"n":1.0,"s":"a b"}',
        "web-2": b'{"n":2,"list":["no",16]}',
        "web.3": b"{}",
    }
    assert context.problem is None
    assert context.count == 0


async def test_a_changed_file_is_a_new_version_and_a_removed_one_a_deletion(
    context: RecordingInputContext, tmp_path: Path
) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'{"n":1}')
    async with running(settings(tmp_path / "*.json"), context):
        await context.wait_until(lambda: kept(context) == {"a": b'{"n":1}'})
        replace(file, b'{"n":2}')
        await context.wait_until(lambda: kept(context) == {"a": b'{"n":2}'})
        file.write_bytes(b'{"n":3}')
        await context.wait_until(lambda: kept(context) == {"a": b'{"n":3}'})
        (tmp_path / "b.json").write_bytes(b'{"n":4}')
        await context.wait_until(lambda: kept(context) == {"a": b'{"n":3}', "b": b'{"n":4}'})
        file.unlink()
        await context.wait_until(lambda: kept(context) == {"a": None, "b": b'{"n":4}'})
        file.write_bytes(b'{"n":5}')
        await context.wait_until(lambda: kept(context) == {"a": b'{"n":5}', "b": b'{"n":4}'})
    assert set(context.problems) <= {None}


async def test_a_document_that_did_not_change_is_not_kept_again(tmp_path: Path) -> None:
    context = Counting()
    (tmp_path / "a.json").write_bytes(b'{"n":1}')
    async with running(settings(tmp_path / "*.json"), context):
        await context.wait_until(lambda: "a" in kept(context))
        replace(tmp_path / "a.json", b'{ "n": 1 }')
        (tmp_path / "b.json").write_bytes(b"{}")
        await context.wait_until(lambda: "b" in kept(context))

    assert [[change.key for change in changes] for changes in context.given] == [["a"], ["b"]]


async def test_a_file_that_changed_just_now_is_read_again_though_it_looks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "RECENT", 3600.0)
    monkeypatch.setattr(state_source, "RECENT", 0.0)
    context = Counting()
    (tmp_path / "a.json").write_bytes(b'{"n":1}')
    facts = keys.facts_of
    monkeypatch.setattr(state_source, "facts_of", lambda found: (*facts(found)[:2], 0, 0))
    monkeypatch.setattr(keys, "facts_of", lambda found: (*facts(found)[:2], 0, 0))
    async with running(settings(tmp_path / "*.json"), context):
        await context.wait_until(lambda: "a" in kept(context))
        (tmp_path / "a.json").write_bytes(b'{"n":2}')
        await context.wait_until(lambda: kept(context) == {"a": b'{"n":2}'})


async def test_documents_are_kept_in_chunks(tmp_path: Path) -> None:
    context = Counting()
    for number in range(20):
        (tmp_path / f"{number}.json").write_bytes(b'{"n":"%s"}' % (b"x" * 200_000))

    await once(tmp_path / "*.json", context=context)

    assert len(kept(context)) == 20
    assert len(context.given) >= 3
    assert all(sum(len(change.document or b"") for change in changes) < 2 << 20 for changes in context.given)


# -- what cannot be taken ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", b'{"n":', "no JSON"),
        ("a.json", b"", "no JSON"),
        ("a.json", b"[1]", "no JSON object"),
        ("a.json", b'{"n":"' + b"x" * 2000 + b'"}', "larger than max_document_bytes"),
        ("a.yaml", b"- 1", "no JSON object"),
        ("a.yaml", b"a: &x [1]\nb: *x", "line 1, column 4: an anchor is refused"),
        ("a.yaml", b'a: "' + b"\\x01" * 400 + b'"', "as JSON"),
    ],
)
async def test_a_file_that_holds_no_document_keeps_its_last_version(
    context: RecordingInputContext, tmp_path: Path, name: str, text: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(b"{}")
    async with running(settings(tmp_path / "*", max_document_bytes=Size(2000)), context):
        await context.wait_until(lambda: kept(context) == {"a": b"{}"})
        replace(tmp_path / name, text)
        await context.wait_until(lambda: context.problem is not None)
        assert f"{tmp_path / name}: " in (context.problem or "")
        assert problem in (context.problem or "")
        assert context.codes[-1] == "file_unreadable"
        assert kept(context) == {"a": b"{}"}

        replace(tmp_path / name, b'{"n": 2}')
        await context.wait_until(lambda: kept(context) == {"a": b'{"n":2}'} and context.problem is None)


async def test_a_file_that_is_being_written_is_no_problem_until_it_stays_so(
    context: RecordingInputContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "RECENT", 3600.0)
    monkeypatch.setattr(state_source, "RECENT", 0.0)
    (tmp_path / "b.json").write_bytes(b"{}")
    with (tmp_path / "a.json").open("wb") as file:
        file.write(b'{"n":')
        file.flush()
        async with running(settings(tmp_path / "*.json"), context):
            await context.wait_until(lambda: "b" in kept(context))
            (tmp_path / "c.json").write_bytes(b"{}")
            await context.wait_until(lambda: "c" in kept(context))
            file.write(b"1}")
            file.flush()
            await context.wait_until(lambda: kept(context).get("a") == b'{"n":1}')
    assert set(context.problems) <= {None}


async def test_names_that_clash_are_both_told_of_and_keep_what_they_had(
    context: RecordingInputContext, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "a.json").write_bytes(b'{"n":1}')
    async with running(settings(tmp_path / "*" / "*"), context):
        await context.wait_until(lambda: kept(context) == {"a": b'{"n":1}'})
        for other in (tmp_path / "one" / "a.yaml", tmp_path / "two" / "a.json"):
            other.write_bytes(b'{"n": 2}')
            await context.wait_until(lambda: context.problem is not None)
            assert str(tmp_path / "one" / "a.json") in (context.problem or "")
            assert str(other) in (context.problem or "")
            replace(tmp_path / "one" / "a.json", b'{"n":3}')
            (tmp_path / "one" / "b.json").write_bytes(b"{}")
            await context.wait_until(lambda: "b" in kept(context))
            assert kept(context)["a"] == b'{"n":1}'
            (tmp_path / "one" / "a.json").write_bytes(b'{"n":1}')
            other.unlink()
            await context.wait_until(lambda: context.problem is None)
            (tmp_path / "one" / "b.json").unlink()
            await context.wait_until(lambda: kept(context)["b"] is None)
            context.state.pop(("", "inventory", "b"))


async def test_the_file_that_is_left_of_a_clash_has_the_key(context: RecordingInputContext, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"n":1}')
    (tmp_path / "a.yaml").write_bytes(b"n: 2")
    async with running(settings(tmp_path / "*"), context):
        await context.wait_until(lambda: context.problem is not None)
        assert kept(context) == {}
        (tmp_path / "a.json").unlink()
        await context.wait_until(lambda: kept(context) == {"a": b'{"n":2}'} and context.problem is None)


async def test_a_missing_directory_says_nothing_about_its_documents(
    context: RecordingInputContext, tmp_path: Path
) -> None:
    directory = tmp_path / "inventory"
    directory.mkdir()
    (directory / "a.json").write_bytes(b'{"n":1}')
    async with running(settings(directory / "*.json"), context):
        await context.wait_until(lambda: "a" in kept(context))
        directory.rename(tmp_path / "elsewhere")
        await context.wait_until(lambda: context.problem is not None)
        assert "there is no such directory" in (context.problem or "")
        assert kept(context) == {"a": b'{"n":1}'}

        (tmp_path / "elsewhere").rename(directory)
        await context.wait_until(lambda: context.problem is None)
        assert kept(context) == {"a": b'{"n":1}'}
        (directory / "a.json").unlink()
        await context.wait_until(lambda: kept(context) == {"a": None})


async def test_an_unreadable_directory_says_nothing_about_its_documents(
    context: RecordingInputContext, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_bytes(b'{"n":1}')
    await once(tmp_path / "*.json", context=context)
    again = RecordingInputContext(positions=context.stored)
    (tmp_path / "a.json").unlink()
    with refusing(tmp_path):
        await once(tmp_path / "*.json", context=again)

    assert again.state == {}
    assert "Permission denied" in (again.problem or "")
    again.close()


async def test_an_unreadable_file_keeps_its_last_version(context: RecordingInputContext, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"n":1}')
    (tmp_path / "b.json").write_bytes(b'{"n":1}')
    await once(tmp_path / "*.json", context=context)
    again = RecordingInputContext(positions=context.stored)
    with refusing(tmp_path / "a.json"):
        await once(tmp_path / "*.json", context=again)

    assert kept(again) == {"b": b'{"n":1}'}
    assert f"{tmp_path / 'a.json'}: Permission denied" in (again.problem or "")
    again.close()


async def test_more_files_than_keys_are_left_out_and_told_of(context: RecordingInputContext, tmp_path: Path) -> None:
    for key in "abc":
        (tmp_path / f"{key}.json").write_bytes(b"{}")

    await once(tmp_path / "*.json", context=context, max_keys=2)

    assert len(kept(context)) == 2
    assert context.problem == "1 documents are left out, beyond max_keys (2)"


async def test_a_name_that_is_no_text_is_told_of(context: RecordingInputContext, tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")).write_bytes(b"{}")

    await once(tmp_path / "*.json", context=context)

    assert kept(context) == {}
    assert "its name is not UTF-8" in (context.problem or "")


# -- restarts ----------------------------------------------------------------------------------------------------------


async def test_a_file_that_was_removed_while_nobody_looked_becomes_a_deletion(
    context: RecordingInputContext, tmp_path: Path
) -> None:
    for key in "abc":
        (tmp_path / f"{key}.json").write_bytes(b'{"n":1}')
    await once(tmp_path / "*.json", context=context)
    again = Counting(positions=context.stored)
    (tmp_path / "b.json").unlink()
    (tmp_path / "c.json").rename(tmp_path / "d.json")
    await once(tmp_path / "*.json", context=again)

    assert kept(again) == {"a": b'{"n":1}', "d": b'{"n":1}'}  # to this context b and c were never known
    assert {change.key for changes in again.given for change in changes if change.document is None} == {"b", "c"}
    assert sorted(again.stored) == ["inventory/a", "inventory/d"]
    again.close()


async def test_no_text_of_a_document_is_in_a_position(context: RecordingInputContext, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"n":"secret"}')
    await once(tmp_path / "*.json", context=context)

    assert context.stored == {"inventory/a": os.fsencode(tmp_path / "a.json")}


async def test_a_key_moves_with_its_file_to_another_directory(context: RecordingInputContext, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "a.json").write_bytes(b'{"n":1}')
    await once(tmp_path / "one" / "*.json", context=context)
    again = Counting(positions=context.stored)
    (tmp_path / "one" / "a.json").rename(tmp_path / "two" / "a.json")
    (tmp_path / "one").rmdir()
    await once(tmp_path / "two" / "*.json", context=again)

    assert kept(again) == {"a": b'{"n":1}'}
    assert again.stored == {"inventory/a": os.fsencode(tmp_path / "two" / "a.json")}
    assert again.problem is None
    again.close()


async def test_settings_change_while_it_runs(context: RecordingInputContext, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"n":"%s"}' % (b"x" * 100))
    before, after = (settings(tmp_path / "*.json", max_document_bytes=Size(size)) for size in (50, 500))
    assert before.identity() == after.identity()
    async with running(before, context) as source:
        await context.wait_until(lambda: context.problem is not None)
        source.change(after, {})
        await context.wait_until(lambda: "a" in kept(context) and context.problem is None)
        assert source.figures() == {"files": 1}


async def test_nothing_is_called_in_the_event_loop(context: RecordingInputContext, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    with hanging(tmp_path) as disk:
        await once(tmp_path / "*.json", context=context)
    assert disk.in_the_loop == []


async def test_a_file_system_that_hangs_is_told_of_and_holds_up_no_end(
    context: RecordingInputContext, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    with hanging(tmp_path, "open"):
        async with running(settings(tmp_path / "*.json"), context):
            await context.wait_until(lambda: context.problem is not None)
        assert "does not answer" in (context.problem or "")


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "problem"),
    [("a.json", "not an absolute path"), ("/a/*.txt", "documents are named"), ("/a/{a,b}.json", "alternatives")],
)
def test_a_path_that_cannot_match_is_refused(path: str, problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        settings(path)


def test_its_keys_are_deleted_with_it_if_it_says_so() -> None:
    assert settings("/a/*.json", on_remove="delete").retracts
    assert not settings("/a/*.json").retracts


def test_a_size_out_of_bounds_is_refused() -> None:
    with pytest.raises(BadOption, match="must be from 16B to 16MiB, not 1GiB"):
        settings("/a/*.json", max_document_bytes=Size(1 << 30))


async def test_it_says_what_is_missing_and_when_it_has_kept_all(context: RecordingInputContext, tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    async with running(settings(documents / "*.json"), context):
        await context.wait_until(lambda: context.problem is not None)
        assert (context.problem, context.codes[-1]) == (f"{documents}: there is no such directory", "file_missing")
        assert not context.is_complete
        documents.mkdir()
        replace(documents / "a.json", b"{}")
        await context.wait_until(lambda: context.is_complete)
        assert (kept(context), context.problem) == ({"a": b"{}"}, None)
        replace(documents / "b.json", b"no document")
        await context.wait_until(lambda: not context.is_complete)
