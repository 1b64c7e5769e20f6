"""The few lines of many files are one batch, and the events are those that they would be alone."""

from __future__ import annotations

from pathlib import Path

from shipper.plugin import Batch, Fields
from shipper_plugins.tail.together import FEW, together
from tests.plugins.tail.tailing import Store, append, following, lines, settings


def of(path: str, text: bytes, **more: int) -> Batch:
    return Batch.lines(text, offset=7, shared={"log": {"file": {"path": path}}, "event": {"dataset": "app"}}, **more)


def events(*batches: Batch) -> list[Fields]:
    return [event for batch in batches for event in batch.whole()]


LINES, CRLF = of("/a", "one\ntwö\n".encode()), of("/b", b"three\nfour\n", gap=2)
FLAGGED = Batch.documents(
    [b'{"message":"five","log":{"offset":1,"flags":["truncated"]}}'], shared={"event": {"dataset": "app"}}
)
MUCH, OTHER = of("/c", b"x" * FEW + b"\n"), Batch.lines(b"six\n", offset=0, shared={"event": {"dataset": "other"}})


def test_few_lines_of_several_files_are_one_batch_of_the_same_events() -> None:
    made = together([[LINES], [CRLF], [FLAGGED]])

    assert [batch.count for batch in made] == [5]
    assert events(*made) == events(LINES, CRLF, FLAGGED)
    assert made[0].shared == {"event": {"dataset": "app"}}


def test_what_is_alone_or_much_or_shares_other_fields_or_has_an_order_to_keep_stays_as_it_is() -> None:
    assert together([[LINES, FLAGGED]]) == [LINES, FLAGGED]
    assert together([[MUCH], [LINES], [OTHER], [CRLF, FLAGGED], []]) == [LINES, OTHER, MUCH, CRLF, FLAGGED]


def test_many_short_lines_stay_lines_since_each_would_become_a_document_with_all_fields() -> None:
    short = [of(path, b"\n" * 1000) for path in ("/d", "/e")]

    assert together([[batch] for batch in short]) == short


async def test_a_hundred_files_with_a_line_each_take_one_transaction(tmp_path: Path) -> None:
    paths, store = [tmp_path / f"{number:03}.log" for number in range(100)], Store()
    for number, path in enumerate(paths):
        append(path, lines(number, number + 1))
    async with following(settings(tmp_path / "*.log"), store) as source:
        await store.comes(100)
        await source._reader.turns.quiet()
        before = len(store.batches)
        for number, path in enumerate(paths):
            append(path, lines(100 + number, 101 + number))
        await store.comes(200)

    assert len(store.batches) - before < 10  # the first one alone, and perhaps another turn
    assert sorted(own["log"]["file"]["path"] for batch in store.batches[before:] for own in batch.whole()) == [
        *map(str, paths)
    ]
