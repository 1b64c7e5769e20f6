"""`parse` of container logs: of CRI and of Docker, and of lines that were divided."""

import functools
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Fields, Part, Stage, StageContext
from shipper.sdk.aio import open_asyncio
from shipper_plugins.processors.formats.containers import LARGEST, LONGEST_HELD, LONGEST_UNSTORED, Containers
from shipper_plugins.processors.parse import Parse
from tests.plugins.processors.parsing import sorted_json

SHARED: Fields = {"@timestamp": "2026-01-01T00:00:00.000Z", "log": {"file": {"path": "/a"}}, "host": {"name": "h"}}
TIME = "2026-05-17T12:34:56.789012345Z"


class Clock:
    now = 100.0


@pytest.fixture(autouse=True)
def _clock_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "now", 100.0)


class Opened:
    """A stage, and what it has passed on."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def take(self, *lines: str, path: str = "/a", **columns: Any) -> list[Fields]:
        shared = {**SHARED, "log": {"file": {"path": path}}}
        batch = replace(
            Batch.lines("".join(f"{line}\n" for line in lines).encode(), offset=10, shared=shared), **columns
        )
        return [event for part in self.stage.process(Part(batch)) for event in part.batch.whole()]

    def flush(self) -> list[Fields]:
        return [event for part in self.stage.flush() for event in part.batch.whole()]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with open_asyncio() as aio, Parse(format="cri").open(StageContext("a", aio, now=lambda: Clock.now)) as stage:
        yield Opened(stage)


def messages(events: list[Fields]) -> list[str]:
    return [event["message"] for event in events]


def docker(text: str, stream: str = "stdout", **more: Any) -> str:
    return json.dumps({"log": text, "stream": stream, "time": TIME, **more})


async def test_a_line_of_cri_becomes_an_event(opened: Opened) -> None:
    (event,) = opened.take(f"{TIME} stderr F hé  llo")

    assert event == {
        **SHARED,
        "@timestamp": TIME,
        "message": "hé  llo",
        "stream": "stderr",
        "log": {"file": {"path": "/a"}, "offset": 10},
    }


async def test_a_line_of_docker_becomes_an_event(opened: Opened) -> None:
    plain, with_attrs = opened.take(docker("a\r\n"), docker("b\n", "stderr", attrs={"tag": "x"}))

    assert (plain["message"], plain["stream"], plain["@timestamp"]) == ("a", "stdout", TIME)
    assert (with_attrs["message"], with_attrs["docker"]) == ("b", {"attrs": {"tag": "x"}})


@pytest.mark.parametrize(
    "text",
    [
        *("", "hello", f"{TIME} stdin F x", "2026-02-30T00:00:00Z stdout F x", f"{TIME} stdout", "{", '{"log":"x\\n"}'),
        "{}",
    ],
)
async def test_another_line_is_tagged_and_kept(opened: Opened, text: str) -> None:
    first, event, last = opened.take(f"{TIME} stdout F 1", text, f"{TIME} stdout F 2")

    assert event["error"]["message"].startswith("parse: the t")
    assert messages([first, event, last]) == ["1", text, "2"]


@pytest.mark.parametrize(
    "lines",
    [
        [f"{TIME} stdout P a", f"{TIME} stdout P:x b", f"{TIME} stdout F c"],
        [docker("a"), docker("b"), docker("c\n")],
    ],
)
async def test_the_parts_of_a_line_become_one_event(opened: Opened, lines: list[str]) -> None:
    (event,) = opened.take(*lines)

    assert event["message"] == "abc"
    assert event["log"]["offset"] == 10
    assert opened.stage.due is None


async def test_parts_may_come_in_several_batches(opened: Opened) -> None:
    assert opened.take(f"{TIME} stdout F 0", f"{TIME} stdout P a")[0]["message"] == "0"
    assert opened.stage.due == Clock.now + LONGEST_HELD
    assert opened.take(f"{TIME} stdout P b") == []

    assert messages(opened.take(f"{TIME} stdout F c", f"{TIME} stdout F d")) == ["abc", "d"]
    assert opened.stage.due is None
    assert opened.flush() == []


async def test_streams_and_files_do_not_mix(opened: Opened) -> None:
    assert opened.take(f"{TIME} stdout P a", f"{TIME} stderr P x") == []
    assert messages(opened.take(f"{TIME} stdout F 1", path="/b")) == ["1"]
    (error,) = opened.take(f"{TIME} stderr F y")
    (out,) = opened.take(f"{TIME} stdout F b")

    assert (error["message"], error["stream"]) == ("xy", "stderr")
    assert (out["message"], out["stream"]) == ("ab", "stdout")


async def test_a_beginning_whose_end_does_not_come_is_an_event_of_its_own(opened: Opened) -> None:
    opened.take(f"{TIME} stdout P a")
    (event,) = opened.flush()

    assert event["message"] == "a"
    assert event["log"] == {"file": {"path": "/a"}, "offset": 10, "flags": ["partial"]}
    assert event["host"] == {"name": "h"}
    assert messages(opened.take(f"{TIME} stdout F b")) == ["b"]


async def test_a_line_that_waits_too_long_is_let_go_alone(opened: Opened) -> None:
    opened.take(f"{TIME} stdout P slow", path="/slow")
    Clock.now += LONGEST_HELD - 1
    opened.take(f"{TIME} stdout P be", path="/b")
    assert opened.stage.due == Clock.now + LONGEST_HELD

    Clock.now += 1
    whole, cut = opened.take(f"{TIME} stdout F x", path="/c")
    assert (cut["message"], cut["log"]["flags"], cut["log"]["file"]["path"]) == ("slow", ["partial"], "/slow")
    assert cut["host"] == {"name": "h"}
    assert whole["message"] == "x"

    assert messages(opened.take(f"{TIME} stdout F gin", path="/b")) == ["begin"]
    assert messages(opened.take(f"{TIME} stdout F end", path="/slow")) == ["end"]
    assert opened.stage.due is None


async def test_a_line_whose_end_is_late_but_comes_first_is_whole(opened: Opened) -> None:
    opened.take(f"{TIME} stdout P a")
    Clock.now += 2 * LONGEST_HELD

    assert messages(opened.take(f"{TIME} stdout F b")) == ["ab"]


async def test_lines_that_are_held_without_a_break_are_stored_in_time(opened: Opened) -> None:
    begun = Clock.now
    for number in range(20):
        opened.take(f"{TIME} stdout P a", path=f"/{number}")
        Clock.now += 1
        opened.take(f"{TIME} stdout F b", path=f"/{number - 1}")

    assert opened.stage.due == begun + LONGEST_UNSTORED
    assert messages(opened.flush()) == ["a"]
    opened.take(f"{TIME} stdout P a")
    assert opened.stage.due == Clock.now + LONGEST_HELD


async def test_where_too_much_is_held_the_oldest_goes(opened: Opened) -> None:
    part = f"{TIME} stdout P {'x' * LARGEST}"
    let_go = [opened.take(part, path=f"/{number}") for number in range(17)]

    assert [len(events) for events in let_go] == [0] * 16 + [1]
    assert let_go[-1][0]["log"]["file"]["path"] == "/0"


async def test_a_line_is_let_go_to_its_own_outputs(opened: Opened) -> None:
    lines = Batch.lines(f"{TIME} stdout P a\n".encode(), offset=0, shared=SHARED)
    opened.stage.process(Part(lines))
    Clock.now += LONGEST_HELD

    assert opened.stage.process(Part(lines, frozenset({"one"}))) == []
    (first, *_) = opened.stage.flush()
    assert first.outputs is None


async def test_a_rollback_forgets_what_will_come_again(opened: Opened) -> None:
    opened.take(f"{TIME} stdout P a")
    opened.stage.rollback()

    assert messages(opened.take(f"{TIME} stdout P a", f"{TIME} stdout F b")) == ["ab"]


async def test_a_line_without_an_end_is_let_go_in_pieces(opened: Opened) -> None:
    part = "x" * (LARGEST // 2 + 1)
    (event,) = opened.take(*[f"{TIME} stdout P {part}"] * 3)
    (rest,) = opened.take(f"{TIME} stdout F y")

    assert (event["message"], event["log"]["flags"]) == (part * 2, ["partial"])
    assert rest["message"] == part + "y"


async def test_ids_and_columns_stay_with_the_last_part(opened: Opened) -> None:
    batch = Batch.lines(f"{TIME} stdout P a\n{TIME} stdout F b\n".encode(), offset=0, shared={}).with_columns(
        ids=["1", "2"]
    )
    (part,) = opened.stage.process(Part(batch))

    assert part.batch.ids == ("2",)


PIECES = st.tuples(
    st.sampled_from([TIME, "2026-05-17T12:34:56+02:00", "2026-05-17 12:34:56Z", "2026-13-17T12:34:56Z", "x"]),
    st.sampled_from([" stdout ", " stderr ", " stdin "]),
    st.sampled_from(["F ", "F", "P ", "F:a ", "F  "]),
    st.sampled_from(["text", "", 'é"\\', "\x7f", "{", "\r"]),
)
DOCKER = st.builds(
    lambda text, stream, more: json.dumps({"log": text, "stream": stream, "time": TIME, **more}),
    st.sampled_from(["a\n", "a", "\n", "a\nb\n", "é\x7f\n", "a\r\n", ""]),
    st.sampled_from(["stdout", "stderr", "x"]),
    st.sampled_from([{}, {}, {"attrs": {"a": "b"}}, {"time": "x"}, {"log": 1}]),
)


@given(
    st.lists(PIECES.map("".join) | DOCKER | st.sampled_from(["", "[1]", "{}"]), max_size=6)
    | st.lists(DOCKER, max_size=4)
)
def test_lines_become_what_they_become_in_batches_of_one(lines: list[str]) -> None:
    def events(*batches: list[str]) -> list[Fields]:
        opened = Opened(Containers("message", StageContext("a", None)))  # type: ignore[arg-type]
        made = [event for batch in batches for event in opened.take(*batch)] + opened.flush()
        return [{**event, "log": {**event["log"], "offset": 0}} for event in made]

    alone = events(*[[line] for line in lines])

    assert sorted_json(events(lines) if lines else []) == sorted_json(alone)


# -- what would fail all lines with it, or lose the parts that are held ------------------------------------------------

DEEP: Any = functools.reduce(lambda inner, _: {"a": inner}, range(300), {})


@pytest.mark.parametrize("attrs", [{"a": DEEP}, {"a": 1}, ["a"], "a"])
async def test_attributes_that_are_no_texts_are_refused_and_harm_no_other_line(opened: Opened, attrs: Any) -> None:
    assert opened.take(docker("begin, ")) == []
    whole, odd = opened.take(docker("end\n"), docker("part", attrs=attrs))

    assert whole["message"] == "begin, end"
    assert (json.loads(odd["message"])["log"], odd["tags"]) == ("part", ["processor_error"])
    assert opened.flush() == []


async def test_names_of_attributes_that_do_not_fit_become_labels(opened: Opened) -> None:
    (event,) = opened.take(docker("x\n", attrs={"a": "1", "a.b": "2", "": "3", "com.shop.tier": "4"}))

    assert event["docker"] == {"attrs": {"a": "1", "com": {"shop": {"tier": "4"}}}}
    assert sorted(event["labels"].values()) == ["2", "3"]


async def test_documents_with_another_log_than_a_file_has_are_joined(opened: Opened) -> None:
    rows = [{"log": {"file": {"path": ["/a"]}, "flags": 5}, "message": f"{TIME} stdout {tag} x"} for tag in "PFP"]
    (made,) = opened.stage.process(Part(Batch.events(rows, shared={})))
    (held,) = opened.flush()

    assert [event["message"] for event in made.batch.whole()] == ["xx"]
    assert (held["message"], held["log"]["flags"]) == ("x", ["partial"])


@pytest.mark.parametrize(
    "lines",
    [
        [f"{TIME} stdout F a", f"{TIME} stdout P  b", f"{TIME} stdout F b", "c", f"{TIME} stdout F d"],
        [docker("a\n"), docker(" b"), docker("b\n"), "c", docker("d\n")],
    ],
)
async def test_lines_that_multiline_has_joined_are_one_message_without_their_prefixes(
    opened: Opened, lines: list[str]
) -> None:
    batch = Batch.events([{"message": "\n".join(lines)}, {"message": f"{TIME} stdout F e"}], shared=SHARED)
    made = [event for part in opened.stage.process(Part(batch)) for event in part.batch.whole()]

    assert messages(made) == ["a\n bb\nc\nd", "e"]
    assert made[0]["@timestamp"] == TIME
