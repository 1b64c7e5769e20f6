"""A stranger's plugins, written with nothing but `shipper.plugin`, do their work and keep the contract."""

import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
import pytest
import trio

import shipper.plugin
from shipper.plugin import (
    Answer,
    Answers,
    Batch,
    Credential,
    DataStream,
    Duration,
    Input,
    InputContext,
    Outcome,
    Output,
    OutputContext,
    Processor,
    Sender,
    Size,
    Source,
    merged,
    nested,
    tagged,
)
from shipper.policy.uses import uses
from shipper.sdk.aio import open_asyncio
from shipper.testing import RecordingInputContext, check_output, check_processor


class Ticker(Input, frozen=True, kw_only=True):
    """Counts."""

    until: int
    """The last number."""

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        yield _Ticking(self, context)


class _Ticking:
    def __init__(self, settings: Ticker, context: InputContext) -> None:
        self.settings = settings
        self.context = context

    async def run(self) -> None:
        stored = await self.context.positions()
        for n in range(int(stored.get("n", b"0")), self.settings.until):
            await self.context.emit(Batch.events([{"n": n}]), positions={"n": b"%d" % (n + 1)})
        self.context.report(None)

    def change(self, settings: Ticker, credentials: Mapping[str, Credential]) -> None:
        self.settings = settings


class Double(Processor, frozen=True):
    """Doubles a field."""

    field: str = "n"

    def __post_init__(self) -> None:
        if "." in self.field:
            raise ValueError("field: must be at the top")

    def process(self, batch: Batch) -> Batch:
        return batch.replace([self.doubled(event) for event in batch.own()])

    def doubled(self, event: dict[str, Any]) -> dict[str, Any]:
        value = event.get(self.field)
        return merged(event, {self.field: 2 * value}) if isinstance(value, int) else tagged(event, "no number")


class Memory(Output, frozen=True):
    """Keeps what it gets."""

    refuse: str = ""

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        yield _Remembering(self, context)


class _Remembering:
    def __init__(self, settings: Memory, context: OutputContext) -> None:
        self.settings = settings
        self.kept: list[dict[str, Any]] = []

    async def send(self, batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        refused = {i: e for i, e in enumerate(batch.whole()) if self.settings.refuse in e}
        self.kept += [event for i, event in enumerate(batch.whole()) if i not in refused]
        return Answers(batch.count, {i: Answer(Outcome.REJECTED, "refused by its key") for i in refused})


async def test_a_strangers_input_emits_and_goes_on_where_it_was() -> None:
    context = RecordingInputContext(positions={"n": b"2"})
    async with Ticker(until=4).open(context) as source:
        await source.run()

    assert context.events == [{"n": 2}, {"n": 3}]
    assert context.stored == {"n": b"4"}
    assert context.problem is None


def test_a_strangers_processor_changes_events() -> None:
    result = check_processor(Double(), Batch.events([{"n": 4}, {"x": 1}]))

    assert result.whole()[0] == {"n": 8}
    assert result.whole()[1] == {"x": 1, "tags": ["processor_error"], "error": {"message": "no number"}}


async def test_a_strangers_output_answers_for_each_event() -> None:
    async with open_asyncio() as aio:
        context = OutputContext("memory", aio)
        (answers,) = await check_output(Memory(refuse="x"), context, [Batch.events([{"x": 1}, {"n": 2}])])

    assert answers == Answers(2, {0: Answer(Outcome.REJECTED, "refused by its key")})


def test_settings_are_frozen_and_strict() -> None:
    for plugin, setting in ((Ticker(until=1), "until"), (Double(), "field"), (Memory(), "refuse")):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(plugin, setting, "y")
        with pytest.raises(msgspec.ValidationError, match="unknown field `nmae`"):
            msgspec.convert({"nmae": 1, **msgspec.to_builtins(plugin, enc_hook=str)}, type(plugin))


def test_what_is_wrong_with_settings_is_said_by_the_plugin() -> None:
    with pytest.raises(msgspec.ValidationError, match="field: must be at the top"):
        msgspec.convert({"field": "a.b"}, Double)


def test_a_class_becomes_a_schema_with_its_words() -> None:
    schema = msgspec.json.schema(Double)["$defs"]["Double"]

    assert schema["description"] == "Doubles a field."
    assert schema["properties"]["field"] == {"type": "string", "default": "n"}


def test_an_input_is_at_the_same_place_if_nothing_differs() -> None:
    assert Ticker(until=1).identity() == Ticker(until=1).identity()
    assert Ticker(until=1).identity() != Ticker(until=2).identity()


def test_an_output_has_defaults_that_do_no_harm() -> None:
    output = Memory()

    assert (output.workers, uses(output)) == (2, ())
    assert Output.live == {"workers", "flush"}


def test_a_part_of_a_data_stream_is_a_good_name() -> None:
    for name in ["Upper", "a b", "a-b", "-x", "", "x" * 101, "a/b"]:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"dataset": name}, DataStream)


def test_no_part_of_a_data_stream_is_longer_than_a_backend_takes() -> None:
    for part in ("type", "dataset", "namespace"):
        msgspec.convert({part: "x" * 100}, DataStream)
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({part: "x" * 101}, DataStream)


def test_a_part_of_a_data_stream_has_no_control_characters() -> None:
    for name in ["nginx\n", "\n", "ngi\x00nx", "a\tb", "a\x7f", "é\r"]:
        for part in ("type", "dataset", "namespace"):
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert({part: name}, DataStream)


def test_answers_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Answers(1).count = 2  # type: ignore[misc]


def test_values_are_written_with_their_units() -> None:
    class Limits(msgspec.Struct):
        size: Size
        wait: Duration
        few: Annotated[int, msgspec.Meta(le=3)] = 1

    made = msgspec.convert({"size": "1MiB", "wait": "250ms"}, Limits, dec_hook=lambda kind, text: kind.parse(text))

    assert (made.size, made.wait) == (1 << 20, 0.25)


def test_every_name_that_is_offered_is_there() -> None:
    assert sorted(shipper.plugin.__all__, key=lambda name: (not name.isupper(), name)) == shipper.plugin.__all__
    assert all(hasattr(shipper.plugin, name) for name in shipper.plugin.__all__)
    assert nested({"a.b": 1}) == {"a": {"b": 1}}


async def test_the_example_of_the_docstring_works() -> None:
    documentation = shipper.plugin.__doc__ or ""
    _, _, rest = documentation.partition("    class ConsoleOutput")
    code = textwrap.dedent("    class ConsoleOutput" + rest.partition("\n\nValues of")[0])
    names: dict[str, Any] = {**vars(shipper.plugin), "asynccontextmanager": asynccontextmanager, "Console": _Console}
    names |= {"AsyncIterator": AsyncIterator, "__name__": "example"}
    exec(code, names)
    output = names["ConsoleOutput"](pretty=True)
    async with open_asyncio() as aio:
        (answers,) = await check_output(output, OutputContext("console", aio), [Batch.events([{"n": 1}])])

    assert answers == Answers(1)
    assert output == msgspec.convert({"pretty": True}, type(output))


class _Console:
    def __init__(self, settings: Any) -> None:
        assert settings.pretty

    async def send(self, batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        return Answers(batch.count)
