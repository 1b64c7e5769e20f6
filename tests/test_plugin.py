"""`shipper.plugin`, the door of plugin authors: settings are frozen and strict, and what its documentation shows works.

That plugins made by it do their work is tested with those of another distribution (`tests/test_stranger.py`).
"""

import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio

import shipper.plugin
from shipper.plugin import (
    Answers,
    Batch,
    DataStream,
    Input,
    Output,
    OutputContext,
    Processor,
    Sender,
    asking,
    relay,
    secrets,
    state,
)
from shipper.policy.uses import uses
from shipper.sdk.aio import open_asyncio
from shipper.testing import check_output


class Ticker(Input, frozen=True, kw_only=True):
    until: int


class Double(Processor, frozen=True):
    field: str = "n"

    def __post_init__(self) -> None:
        if "." in self.field:
            raise ValueError("field: must be at the top")


class Memory(Output, frozen=True):
    refuse: str = ""


def test_settings_are_frozen_and_strict() -> None:
    for plugin, setting in ((Ticker(until=1), "until"), (Double(), "field"), (Memory(), "refuse")):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(plugin, setting, "y")
        with pytest.raises(msgspec.ValidationError, match="unknown field `nmae`"):
            msgspec.convert({"nmae": 1, **msgspec.to_builtins(plugin, enc_hook=str)}, type(plugin))


def test_what_is_wrong_with_settings_is_said_by_the_plugin() -> None:
    with pytest.raises(msgspec.ValidationError, match="field: must be at the top"):
        msgspec.convert({"field": "a.b"}, Double)


def test_an_input_is_at_the_same_place_if_nothing_differs() -> None:
    assert Ticker(until=1).identity() == Ticker(until=1).identity()
    assert Ticker(until=1).identity() != Ticker(until=2).identity()


def test_an_output_has_defaults_that_do_no_harm() -> None:
    output = Memory()

    assert (output.workers, uses(output)) == (2, ())
    assert Output.live == {"workers", "flush"}


@pytest.mark.parametrize("part", ["type", "dataset", "namespace"])
def test_a_part_of_a_data_stream_is_a_name_that_a_backend_takes(part: str) -> None:
    msgspec.convert({part: "x" * 100}, DataStream)
    for name in ["Upper", "a b", "a-b", "-x", "", "x" * 101, "a/b", "nginx\n", "ngi\x00nx", "a\tb", "a\x7f"]:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({part: name}, DataStream)


def test_answers_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Answers(1).count = 2  # type: ignore[misc]


@pytest.mark.parametrize("door", [shipper.plugin, asking, relay, secrets, state])
def test_every_name_that_is_offered_is_there(door: Any) -> None:
    assert sorted(door.__all__, key=lambda name: (not name.isupper(), name)) == door.__all__
    assert all(hasattr(door, name) for name in door.__all__)


def test_inputs_processors_and_outputs_need_few_names_and_no_table() -> None:
    assert len(shipper.plugin.__all__) <= 60
    assert not {"Table", "Cells", "Change", "Edge"}.intersection(shipper.plugin.__all__)


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


class _Console(Sender):
    def __init__(self, settings: Any) -> None:
        assert settings.pretty

    async def send(self, batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        return Answers(batch.count)
