"""The way through processors: parts, and the outputs that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shipper.pipeline.intake.chain import MOST_FAILURES, MOST_WEIGHT, Chain, Link, bounded
from shipper.pipeline.tap import Taps
from shipper.plugin import Batch, Condition, Meters, Part, PluginFault, Processor, Stage
from shipper.process import log
from shipper.sdk.table import Cells, Table
from shipper_plugins.processors.copy import Copy
from shipper_plugins.processors.drop import Drop
from shipper_plugins.processors.rename import Rename
from tests.fakes import events


class Split(Processor, frozen=True):
    """The first event to some outputs, the others to others."""

    first: frozenset[str] | None = None
    others: frozenset[str] | None = None

    def process(self, batch: Batch) -> Sequence[Part]:
        return [
            Part(batch.pick([0]), self.first),
            Part(batch.pick(range(1, batch.count)), self.others),
        ]


class Mark(Processor, frozen=True):
    mark: str = "seen"

    def process(self, batch: Batch) -> Batch:
        return batch.share({self.mark: True})


class Odd(Processor, frozen=True):
    """What it makes is none of what can be."""

    def process(self, batch: Batch) -> Sequence[Part]:
        return [Part(batch, "main")]  # type: ignore[arg-type]


class Failing(Stage):
    def process(self, part: Part) -> Sequence[Part]:
        return []

    def flush(self) -> Sequence[Part]:
        raise ZeroDivisionError("a secret")


def link(processor: Processor, stage: Stage | None = None) -> Link:
    return Link(processor, Meters(), "point", stage)


def test_each_part_goes_on_to_the_outputs_that_it_names_and_its_input_has() -> None:
    chain = Chain(("a", "b"), [link(Split(frozenset({"a", "no"}), frozenset({"b"}))), link(Mark())])
    parts = chain.on(events(1, 2, 3), Taps())

    assert [(part.batch.whole(), part.outputs) for part in parts] == [
        ([{"n": 1, "seen": True}], frozenset({"a"})),
        ([{"n": 2, "seen": True}, {"n": 3, "seen": True}], frozenset({"b"})),
    ]


def test_a_second_split_divides_what_the_first_one_left() -> None:
    first = Split(frozenset({"a"}), frozenset({"a", "b"}))
    chain = Chain(("a", "b"), [link(first), link(Split(frozenset({"b"}), None))])
    parts = chain.on(events(1, 2, 3), Taps())

    assert [([event["n"] for event in part.batch.own()], part.outputs) for part in parts] == [
        ([2], frozenset({"b"})),
        ([3], frozenset({"a", "b"})),
    ]


def test_processors_of_an_output_see_a_copy_of_their_own() -> None:
    chain = Chain(("a", "b", "c"), [link(Mark("all"))], {"b": [link(Mark("b"))], "c": [link(Mark("c"))]})
    parts = chain.on(events(1), Taps())

    assert {part.outputs: set(part.batch.shared) for part in parts} == {
        frozenset({"a"}): {"all"},
        frozenset({"b"}): {"all", "b"},
        frozenset({"c"}): {"all", "c"},
    }


def test_what_names_its_outputs_wrongly_has_failed_and_marks_its_events() -> None:
    (part,) = Chain(("a",), [link(Odd())]).on(events(1), Taps())

    assert part.batch.own()[0]["error"] == {"message": "Odd failed: the outputs of a part are a set of names, not str"}


class Telling(Processor, frozen=True):
    def process(self, batch: Batch) -> Batch:
        raise PluginFault("no hunter2-in-a-chain")


def test_the_reason_of_a_processor_shows_no_secret_in_the_event_that_goes_on() -> None:
    log.hide("hunter2-in-a-chain")
    (part,) = Chain(("a",), [link(Telling())]).on(events(1), Taps())

    assert part.batch.own()[0]["error"] == {"message": "Telling failed: no [hidden]"}


class Vandal(Stage):
    """Changes all that it can reach of a batch in place, and fails."""

    def process(self, part: Part) -> Sequence[Part]:
        part.batch.shared["host"]["name"] = part.batch.shared["list"][0]["x"] = "changed"
        part.batch.shared["more"] = "more"
        raise ZeroDivisionError("a secret")


class Vandalism(Processor, frozen=True):
    def process(self, batch: Batch) -> Batch:
        return Vandal().process(Part(batch))[0].batch


@pytest.mark.parametrize(("processor", "stage"), [(Mark(), Vandal()), (Vandalism(), None)], ids=["stage", "processor"])
def test_an_event_that_a_plugin_changed_before_it_failed_goes_on_as_it_came(
    processor: Processor, stage: Stage | None
) -> None:
    shared = {"host": {"name": "vm"}, "list": [{"x": 1}]}
    (part,) = Chain(("a",), [link(processor, stage)]).on(Batch.events([{"n": 1}], shared=shared), Taps())
    (event,) = part.batch.whole()

    assert shared == {"host": {"name": "vm"}, "list": [{"x": 1}]}
    assert event == {
        **shared,
        "n": 1,
        "tags": ["processor_error"],
        "error": {"message": f"{type(processor).__name__} failed: ZeroDivisionError"},
    }


@pytest.mark.parametrize("stage", [None, Vandal()], ids=["processor", "stage"])
def test_events_that_pass_a_plugin_by_are_not_tagged_when_it_fails(stage: Stage | None) -> None:
    processor = Vandalism(when=Condition(equals={"n": 2}))
    parts = Chain(("a",), [link(processor, stage)]).on(events(1, 2, 3), Taps())
    found = {event["n"]: "tags" in event for part in parts for event in part.batch.whole()}

    assert found == {1: False, 2: True, 3: False}


class Picky(Processor, frozen=True):
    """Fails on even numbers."""

    def process(self, batch: Batch) -> Batch:
        return batch.replace([{**event, "odd": 1 // (event["n"] % 2)} for event in batch.own()])


def test_an_event_on_which_a_processor_fails_is_tagged_alone() -> None:
    parts = Chain(("a",), [link(Picky())]).on(events(1, 3, 5, 6, 7, 9, 11), Taps())
    made = [event for part in parts for event in part.batch.whole()]

    assert [event["n"] for event in made] == [1, 3, 5, 6, 7, 9, 11]
    assert [event.get("tags", event.get("odd")) for event in made] == [1, 1, 1, ["processor_error"], 1, 1, 1]


@pytest.mark.parametrize("size", [1 << 20, 2000], ids=["whole", "in pieces"])
def test_events_on_which_a_processor_always_fails_stay_one_batch_and_are_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    calls: list[int] = []

    class Broken(Processor, frozen=True):
        def process(self, batch: Batch) -> Batch:
            calls.append(batch.count)
            raise ZeroDivisionError

    monkeypatch.setattr("shipper.pipeline.intake.chain.PIECE", size)
    (part,) = Chain(("a",), [link(Broken())]).on(events(*range(1000)), Taps())

    assert [event["n"] for event in part.batch.whole() if event["tags"] == ["processor_error"]] == [*range(1000)]
    assert len(calls) <= 2 * MOST_FAILURES + 1 + 10_000 // size


def test_the_first_processor_that_fails_gives_the_reason_and_tags_of_the_batch_stay() -> None:
    batch = Batch.events([{"n": 2}], shared={"tags": ["ours"]})
    (part,) = Chain(("a",), [link(Picky()), link(Vandalism())]).on(batch, Taps())
    (event,) = part.batch.whole()

    assert event == {
        "n": 2,
        "tags": ["ours", "processor_error"],
        "error": {"message": "Picky failed: ZeroDivisionError"},
    }


def test_a_flush_that_fails_is_a_fault_that_quotes_nothing() -> None:
    with pytest.raises(PluginFault, match=r"^Mark failed: ZeroDivisionError$"):
        Chain(("a",), [link(Mark(), Failing())]).flush(lambda batch: batch, Taps())


# -- identities of other shippers --------------------------------------------------------------------------------------


class Twice(Processor, frozen=True):
    """All events once more."""

    def process(self, batch: Batch) -> Sequence[Part]:
        return [Part(batch), Part(batch)]


class Passing(Stage):
    def process(self, part: Part) -> Sequence[Part]:
        return [part]


THEIRS = events(1, 2, 3).identified(b"T" * 16, 7)


def identities(chain: Chain, batch: Batch) -> list[tuple[bool, frozenset[str] | None]]:
    return [(part.batch.is_relayed, part.outputs) for part in chain.distinct(chain.on(batch, Taps()))]


def test_parts_of_a_relayed_batch_keep_its_identity() -> None:
    chain = Chain(("a", "b"), [link(Split(frozenset({"a"}), frozenset({"b"})))], {"b": [link(Mark())]})

    assert identities(chain, THEIRS) == [(True, frozenset({"a"})), (True, frozenset({"b"}))]


def test_an_output_gets_no_identity_twice() -> None:
    assert identities(Chain(("a",), [link(Twice())]), THEIRS) == [(True, None), (False, None)]
    assert identities(Chain(("a", "b"), [], {"b": [link(Twice())]}), THEIRS) == [
        (True, frozenset({"a"})),
        (True, frozenset({"b"})),
        (False, frozenset({"b"})),
    ]


def test_an_output_gets_no_identity_twice_of_a_batch_that_passed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.chain.PIECE", 10)
    chain = Chain(("a",), [link(Twice())])
    made = [part.batch for part in chain.distinct(chain.on(THEIRS, Taps()))]

    assert [item for one in made if one.is_relayed for item in one.items or ()] == [0, 1, 2]
    assert sum(one.count for one in made) == 6


def test_what_a_stage_made_is_new() -> None:
    assert identities(Chain(("a",), [link(Mark(), Passing())]), THEIRS) == [(False, None)]


@pytest.mark.parametrize("is_relayed", [False, True])
@pytest.mark.parametrize(
    "batch",
    [
        Batch.documents([b'{"n":%d}' % n for n in range(100)], shared={"a": "x" * 1_000_000}),
        Batch.documents([b'{"n":%d}' % n for n in range(3)], shared={"a": "x" * 9_000_000}),
        Batch.typed([{"n": n, "b": b"b" * 1000 * (n == 0)} for n in range(100)], shared={"a": "x" * 1_000_000}),
        Batch.lines(b"a\n" * 100, offset=5, shared={"log": {"file": {"path": "x" * 1_000_000}}}),
    ],
    ids=["documents", "heavy events", "typed", "lines"],
)
def test_events_that_share_much_are_parted_by_what_they_become(batch: Batch, is_relayed: bool) -> None:
    """A kilobyte names 100 events with a field of 1 MB, which every output writes 100 times."""
    batch = batch.identified(bytes(16), 1) if is_relayed else batch
    parts = list(bounded(batch))

    assert all(part.weight <= MOST_WEIGHT or part.count == 1 for part in parts)
    assert [event for part in parts for event in part.own()] == batch.own()
    if is_relayed:
        assert [id for part in parts for id in part.id_texts()] == batch.id_texts()


class Careless(Processor, frozen=True):
    """Makes a column with a line feed in a cell where its field is 2."""

    def process(self, batch: Batch) -> Batch:
        table = batch.table()
        column = [b"1\n2" if event["n"] == 2 else b"1" for event in batch.own()]
        return batch.tabled(table.put("x", Cells(column)), batch.shared)


def test_the_processor_that_made_an_invalid_table_is_found_when_it_is_written() -> None:
    parts = Chain(("a",), [link(Rename(fields={"m": "k"})), link(Careless())]).on(events(1, 2, 3), Taps())
    made = [event for part in parts for event in part.batch.whole()]

    assert [event.get("x", event.get("error")) for event in made] == [
        1,
        {"message": "Careless failed: it counts 1 events and has 2 lines"},
        1,
    ]


def test_an_invalid_table_before_a_stage_fails_as_a_whole() -> None:
    """The stage has taken its events, and must not get them twice."""
    with pytest.raises(PluginFault, match="counts 3 events and has 4 lines"):
        Chain(("a",), [link(Careless()), link(Mark(), Passing())]).on(events(1, 2, 3), Taps())


def test_documents_are_written_once_by_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    body = Table.body

    def counted(table: Table) -> bytes:
        written.append(table.count)
        return body(table)

    monkeypatch.setattr(Table, "body", counted)
    processors = [Drop(when=Condition(equals={"n": 2})), Rename(fields={"n": "m"}), Copy(fields={"m": "k.l"})]
    (part,) = Chain(("a",), [link(one) for one in processors]).on(events(*range(5)), Taps())

    assert [event["k"]["l"] for event in part.batch.own()] == [0, 1, 3, 4]
    assert written == [4]


def test_a_large_batch_passes_in_pieces_and_is_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.chain.PIECE", 20)
    processors = [Rename(fields={"n": "m"}), Drop(when=Condition(equals={"m": 7}))]
    (part,) = Chain(("a",), [link(one) for one in processors]).on(events(*range(30)), Taps())

    assert [event["m"] for event in part.batch.own()] == [number for number in range(30) if number != 7]


def test_pieces_go_to_outputs_in_sets_that_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.chain.PIECE", 20)
    first: Any = {"a"}
    others: Any = set()
    (part,) = Chain(("a", "b"), [link(Split(first, others))]).on(events(1, 2, 3, 4), Taps())

    assert part.outputs == {"a"}
    assert [event["n"] for event in part.batch.own()] == [1, 3]
