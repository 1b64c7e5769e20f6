from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import Answer, Outcome
from shipper.plugin.state import Version, digest_of
from shipper_plugins.file import documents as module
from shipper_plugins.file.documents import Documents

Given = tuple[str, int, bytes | None]
"""Key, place and document."""


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Calls that change something on the disk; at the one of this number the process ends."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.count = 0
        self.crash_at = crash_at

    def step(self) -> None:
        self.count += 1
        if self.count == self.crash_at:
            raise Crash

    def before(self, call: Any) -> Any:
        def stepping(*args: Any, **options: Any) -> Any:
            self.step()
            result = call(*args, **options)
            self.step()
            return result

        return stepping


@contextmanager
def steps(crash_at: int | None = None) -> Iterator[Steps]:
    counted = Steps(crash_at)
    proxy = mock.Mock(wraps=os, path=os.path, O_DIRECTORY=os.O_DIRECTORY, O_RDONLY=os.O_RDONLY)
    for name in ("O_CLOEXEC", "O_RDWR", "O_CREAT"):
        setattr(proxy, name, getattr(os, name))
    for name in ("open", "write", "replace", "unlink", "mkdir"):
        setattr(proxy, name, counted.before(getattr(os, name)))
    proxy.fsync = counted.before(lambda file: None)  # what was written outlives a process
    with mock.patch.object(module, "os", proxy), mock.patch.object(module, "_store", counted.before(module._store)):
        yield counted


def put(documents: Documents, *given: Given) -> list[Answer | None]:
    versions = [Version("", "inventory", key, place, digest_of(text), text is None) for key, place, text in given]
    answers = documents.put(versions, [text or b"{}" for *_, text in given])
    return [answers.get(position) for position in range(len(given))]


def outcomes(answers: list[Answer | None]) -> list[Outcome]:
    return [Outcome.DELIVERED if answer is None else answer.outcome for answer in answers]


def found(directory: Path, key: str) -> bytes | None:
    path = directory / "own" / "inventory" / f"{key}.json"
    return path.read_bytes() if path.exists() else None


@pytest.fixture
def documents(tmp_path: Path) -> Iterator[Documents]:
    opened = Documents(str(tmp_path / "state"))
    yield opened
    opened.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_a_document_is_a_file_byte_by_byte(documents: Documents, directory: Path) -> None:
    assert outcomes(put(documents, ("a", 1, b'{"n":1.0}'), ("b", 2, b'{"n":2}'))) == [Outcome.DELIVERED] * 2

    assert found(directory, "a") == b'{"n":1.0}'
    assert found(directory, "b") == b'{"n":2}'


def test_a_newer_version_takes_the_place_of_the_document_and_a_deletion_removes_it(
    documents: Documents, directory: Path
) -> None:
    put(documents, ("a", 1, b'{"n":1}'))
    put(documents, ("a", 2, b'{"n":2}'))
    assert found(directory, "a") == b'{"n":2}'

    assert outcomes(put(documents, ("a", 3, None))) == [Outcome.DELIVERED]
    assert found(directory, "a") is None


def test_an_older_version_is_superseded_and_told_what_is_there(documents: Documents, directory: Path) -> None:
    put(documents, ("a", 5, b'{"n":5}'))

    (answer,) = put(documents, ("a", 4, b'{"n":4}'))

    assert answer is not None
    assert answer.outcome is Outcome.SUPERSEDED
    assert answer.fence == (5, digest_of(b'{"n":5}'))
    assert found(directory, "a") == b'{"n":5}'


def test_another_document_at_the_same_place_is_superseded(documents: Documents, directory: Path) -> None:
    put(documents, ("a", 5, b'{"n":5}'))

    (answer,) = put(documents, ("a", 5, b'{"n":6}'))

    assert answer is not None
    assert (answer.outcome, answer.fence) == (Outcome.SUPERSEDED, (5, digest_of(b'{"n":5}')))
    assert found(directory, "a") == b'{"n":5}'


def test_the_same_version_again_is_a_duplicate_over_a_restart(documents: Documents) -> None:
    put(documents, ("a", 5, b'{"n":5}'), ("b", 6, None))
    documents.close()

    assert outcomes(put(documents, ("a", 5, b'{"n":5}'), ("b", 6, None))) == [Outcome.DUPLICATE] * 2


def test_a_deletion_keeps_its_place(documents: Documents, directory: Path) -> None:
    put(documents, ("a", 5, b'{"n":5}'), ("a", 6, None))
    documents.close()

    assert outcomes(put(documents, ("a", 5, b'{"n":5}'))) == [Outcome.SUPERSEDED]
    assert found(directory, "a") is None


def test_versions_of_one_key_in_one_batch_follow_each_other(documents: Documents, directory: Path) -> None:
    answers = put(documents, ("a", 1, b'{"n":1}'), ("a", 3, b'{"n":3}'), ("a", 2, b'{"n":2}'))

    assert outcomes(answers) == [Outcome.DELIVERED, Outcome.DELIVERED, Outcome.SUPERSEDED]
    assert found(directory, "a") == b'{"n":3}'


def test_a_document_that_somebody_removed_is_written_again(documents: Documents, directory: Path) -> None:
    put(documents, ("a", 1, b'{"n":1}'))
    (directory / "own" / "inventory" / "a.json").unlink()

    assert outcomes(put(documents, ("a", 1, b'{"n":1}'))) == [Outcome.DELIVERED]
    assert found(directory, "a") == b'{"n":1}'


def test_a_key_that_cannot_be_written_holds_up_no_other(documents: Documents, directory: Path) -> None:
    put(documents, ("b", 1, b'{"n":1}'))
    (directory / "own" / "inventory" / "a.json").mkdir()

    first, second = put(documents, ("a", 2, b'{"n":2}'), ("b", 3, b'{"n":3}'))

    assert first is not None
    assert first.outcome is Outcome.LATER
    assert second is None
    assert found(directory, "b") == b'{"n":3}'
    (directory / "own" / "inventory" / "a.json").rmdir()
    assert outcomes(put(documents, ("a", 2, b'{"n":2}'))) == [Outcome.DELIVERED]


def test_a_directory_that_was_removed_meanwhile_is_made_again(documents: Documents, directory: Path) -> None:
    put(documents, ("a", 1, b'{"n":1}'))
    (directory / "own" / "inventory" / "a.json").unlink()
    (directory / "own" / "inventory").rmdir()

    assert outcomes(put(documents, ("a", 2, b'{"n":2}'))) == [Outcome.LATER]
    assert outcomes(put(documents, ("a", 2, b'{"n":2}'))) == [Outcome.DELIVERED]
    assert found(directory, "a") == b'{"n":2}'


def test_a_directory_has_one_writer(documents: Documents, directory: Path) -> None:
    put(documents, ("a", 1, b'{"n":1}'))
    second = Documents(str(directory))

    with pytest.raises(BlockingIOError, match="another shipper"):
        put(second, ("a", 2, b'{"n":2}'))

    documents.close()
    assert outcomes(put(second, ("a", 2, b'{"n":2}'))) == [Outcome.DELIVERED]
    second.close()


def test_places_that_are_damaged_are_told_of_and_nothing_is_written(documents: Documents, directory: Path) -> None:
    put(documents, ("a", 1, b'{"n":1}'))
    documents.close()
    for left in (directory / ".shipper").glob("places*"):
        left.write_bytes(b"no database at all" * 1000)

    with pytest.raises(OSError, match="places"):
        put(documents, ("a", 2, b'{"n":2}'))
    assert found(directory, "a") == b'{"n":1}'


def test_places_of_a_newer_program_are_not_touched(documents: Documents, directory: Path) -> None:
    put(documents, ("a", 1, b'{"n":1}'))
    documents.close()
    db = sqlite3.connect(directory / ".shipper" / "places")
    db.execute("PRAGMA user_version = 2")
    db.close()

    with pytest.raises(OSError, match="newer version"):
        put(documents, ("a", 2, b'{"n":2}'))


def test_a_full_disk_leaves_the_old_document(documents: Documents, directory: Path) -> None:
    put(documents, ("a", 1, b'{"n":1}'))

    with mock.patch.object(module.os, "write", side_effect=OSError(28, "No space left on device")):
        (answer,) = put(documents, ("a", 2, b'{"n":2}'))

    assert answer is not None
    assert (answer.outcome, answer.code) == (Outcome.LATER, "disk_full")
    assert found(directory, "a") == b'{"n":1}'
    assert outcomes(put(documents, ("a", 2, b'{"n":2}'))) == [Outcome.DELIVERED]


def test_a_directory_whose_parent_may_not_be_read_is_used(documents: Documents, directory: Path) -> None:
    directory.mkdir()

    def refusing(path: Any, *args: Any, call: Any = os.open) -> int:
        if Path(path) == directory.parent:
            raise PermissionError(13, "Permission denied")
        return int(call(path, *args))

    with mock.patch.object(module.os, "open", refusing):
        assert outcomes(put(documents, ("a", 1, b"{}"))) == [Outcome.DELIVERED]


# -- crashes -----------------------------------------------------------------------------------------------------------


def crashed(directory: Path, at: int | None, *given: Given) -> int:
    """Put them in a process that ends at a step; how many steps there are."""
    documents = Documents(str(directory))
    with steps(at) as counted, suppress(Crash):
        put(documents, *given)
    documents.close()
    return counted.count


NEW: tuple[Given, ...] = (("a", 2, b'{"n":2}'), ("b", 3, None), ("c", 4, b'{"n":4}'))


def test_after_a_crash_at_any_step_the_same_versions_complete_what_was_begun(tmp_path: Path) -> None:
    count = crashed(tmp_path / "all", None, *NEW)
    assert count > 30

    for at in range(1, count + 1):
        directory = tmp_path / str(at)
        crashed(directory, None, ("a", 1, b'{"n":1}'), ("b", 1, b'{"n":1}'))
        crashed(directory, at, *NEW)
        assert found(directory, "a") in (b'{"n":1}', b'{"n":2}'), at
        assert found(directory, "b") in (b'{"n":1}', None), at
        assert found(directory, "c") in (None, b'{"n":4}'), at

        again = Documents(str(directory))
        assert set(outcomes(put(again, *NEW))) <= {Outcome.DELIVERED, Outcome.DUPLICATE}, at
        assert [found(directory, key) for key in "abc"] == [b'{"n":2}', None, b'{"n":4}'], at
        assert outcomes(put(again, *NEW)) == [Outcome.DUPLICATE] * 3, at
        again.close()


def test_a_version_that_nobody_has_seen_refuses_no_older_one(tmp_path: Path) -> None:
    """Its sender may have lost it, too: what is refused is refused for a document that is there."""
    count = crashed(tmp_path / "all", None, ("a", 9, b'{"n":9}'))
    for at in range(1, count + 1):
        directory = tmp_path / str(at)
        crashed(directory, at, ("a", 9, b'{"n":9}'))
        before = found(directory, "a")
        again = Documents(str(directory))
        outcome = Outcome.DELIVERED if before is None else Outcome.SUPERSEDED
        assert outcomes(put(again, ("a", 8, b'{"n":8}'))) == [outcome], at
        assert found(directory, "a") == (before or b'{"n":8}'), at
        again.close()


def test_a_second_crash_hides_no_version_that_was_seen_after_the_first(tmp_path: Path) -> None:
    last = crashed(tmp_path / "all", None, ("a", 8, b'{"n":8}'))
    for at in range(1, last + 1):
        directory = tmp_path / str(at)
        crashed(directory, last - 1, ("a", 8, b'{"n":8}'))
        assert found(directory, "a") == b'{"n":8}'
        crashed(directory, at, ("a", 9, b'{"n":9}'))
        before = found(directory, "a")
        again = Documents(str(directory))
        assert outcomes(put(again, ("a", 7, b'{"n":7}'))) == [Outcome.SUPERSEDED], at
        assert found(directory, "a") == before, at
        again.close()


def document(place: int) -> bytes | None:
    """Of each place one; every third version is a deletion."""
    return b'{"n":%d}' % place if place % 3 else None


def seen(text: bytes | None, least: int, given: set[int]) -> int:
    """The place of a document that is found; raises AssertionError if it is below `least`."""
    places = [place for place in given if place >= least and document(place) == text]
    assert places or (text is None and not least)
    return min(places) if text is not None else least


PUTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 7)), min_size=1, max_size=3)


@settings(max_examples=25)
@given(st.lists(st.tuples(PUTS, st.none() | st.integers(1, 60)), max_size=6))
def test_a_reader_sees_places_rise_whatever_comes_and_crashes(
    operations: list[tuple[list[tuple[str, int]], int | None]],
) -> None:
    """And never an older version than one that was answered."""
    with TemporaryDirectory() as temporary:
        directory = Path(temporary) / "state"
        least: dict[str, int] = dict.fromkeys("ab", 0)
        given: set[tuple[str, int]] = set()
        for puts, crash_at in operations:
            given.update(puts)
            crashed(directory, crash_at, *[(key, place, document(place)) for key, place in puts])
            for key, place in puts if crash_at is None else ():
                least[key] = max(least[key], place)
            for key in "ab":
                least[key] = seen(found(directory, key), least[key], {place for of, place in given if of == key})
