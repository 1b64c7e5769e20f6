"""The examples of docs/parsing.md: each line becomes the fields that stand there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shipper.plugin import Batch, Fields, Part, Processor, StageContext
from shipper.policy.policy import parse
from shipper.policy.registry import Registry
from shipper.sdk.aio import open_asyncio

PAGE = (Path(__file__).parents[1] / "docs/parsing.md").read_text()
BLOCKS = re.findall(r"^```(\w+) (\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
POLICIES = [text for _, kind, text in BLOCKS if kind == "policy"]
EXAMPLES = [
    tuple(text for _, _, text in BLOCKS[at : at + 3]) for at, (_, kind, _) in enumerate(BLOCKS) if kind == "processor"
]
REGISTRY = Registry.installed()
READ = "2026-05-20T00:00:00.000Z"


def processor_of(text: str) -> Processor:
    policy = parse(f"version: 1\nprocessors: [{text.strip()}]\n", REGISTRY)
    (processor,) = policy.processors
    return processor


def events_of(text: str) -> list[Fields]:
    decoder, at, events = json.JSONDecoder(), 0, []
    while at < len(text):
        event, at = decoder.raw_decode(text, at)
        at = len(text) - len(text[at:].lstrip())
        events.append(event)
    return events


async def test_lines_become_the_fields_that_the_page_shows() -> None:
    for processor, lines, events in EXAMPLES:
        made = processor_of(processor)
        batch = Batch.lines(lines.encode(), offset=0, shared={"@timestamp": READ})
        if made.is_stage:
            async with open_asyncio() as aio, made.open(StageContext("a", aio)) as stage:
                batches = [part.batch for part in stage.process(Part(batch))]
        else:
            result = made.process(batch)
            assert isinstance(result, Batch)
            batches = [result]
        shown = []
        for event in [event for batch in batches for event in batch.whole()]:
            del event["log"]["offset"]
            shown.append({name: value for name, value in event.items() if value not in ({}, READ)})

        assert shown == events_of(events)


@pytest.mark.parametrize("text", POLICIES)
def test_a_policy_of_the_page_is_valid(text: str) -> None:
    assert parse(text, REGISTRY).inputs


def test_the_page_has_an_example_of_each_format() -> None:
    formats = set(re.findall(r"format: (\w+)", "".join(processor for processor, _, _ in EXAMPLES)))
    named = set(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE))

    assert formats >= set(re.findall(r"`(\w+)`", " ".join(named))) - {"json"}
