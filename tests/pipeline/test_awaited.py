"""Batches whose answers an input awaits: it is told when all outputs have answered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from shipper.plugin import Answer, Answers, Batch, InputContext, Outcome, PluginFault
from shipper.plugin.relay import Ranked
from shipper.spool.parts.queue import Noted
from shipper.spool.queue import Settlement
from tests.fakes import DESTINATIONS, PATIENCE, SPRINGS, Theatre, theatre

OUTPUTS = "outputs:\n  main: {type: scripted, to: main}\n  other: {type: scripted, to: other}\n"
RELAYING = "version: 1\ninputs:\n  in: {type: relaying}\n"
BATCH = Batch.events([{"n": n} for n in range(4)]).identified(b"o" * 16, 9).pick([1, 2, 3])


async def begun(on: Theatre, number: int = 1, text: str = RELAYING + OUTPUTS) -> InputContext:
    await on.offer(number, text)
    await on.ack(number, "active")
    await SPRINGS["in"].until(lambda: "run" in SPRINGS["in"].log)
    return SPRINGS["in"].context


async def silent(batch: Batch) -> Answers:
    await trio.sleep_forever()
    raise AssertionError


async def told(*keys: str) -> None:
    await SPRINGS["in"].until(lambda: set(keys) <= set(SPRINGS["in"].answered))


async def test_an_input_is_told_when_all_outputs_have_answered(tmp_path: Path) -> None:
    go = trio.Event()

    async def reject_two(batch: Batch) -> Answers:
        await go.wait()
        return Answers(batch.count, {1: Answer(Outcome.REJECTED, "no"), 2: Answer(Outcome.DUPLICATE)})

    async with theatre(tmp_path) as on:
        context = await begun(on)
        DESTINATIONS["other"].send = reject_two
        await context.emit(BATCH, awaited=["k"])
        before = await context.answers(["k", "unknown"])
        go.set()
        await told("k")
        after = await context.answers(["k"])
        await context.emit(forgotten=["k"])

        assert (before, after) == ({"k": None}, {"k": bytes([0, Ranked.DEAD_LETTER, Ranked.DUPLICATE])})
        assert await context.answers(["k"]) == {}


async def test_a_batch_that_is_stored_in_parts_has_the_answers_of_all(tmp_path: Path) -> None:
    """What its events share is written once for each of them, so they are parted."""
    heavy = Batch.events([{"n": n} for n in range(20)], shared={"a": "x" * 1_000_000}).identified(b"o" * 16, 9)
    sent: list[list[str]] = []

    async def reject_last(batch: Batch) -> Answers:
        sent.append(batch.id_texts())
        last = [at for at, event in enumerate(batch.own()) if event["n"] == 19]
        return Answers(batch.count, dict.fromkeys(last, Answer(Outcome.REJECTED, "no")))

    async with theatre(tmp_path) as on:
        context = await begun(on)
        DESTINATIONS["other"].send = reject_last
        await context.emit(heavy, awaited=["k"])
        await told("k")

        assert await context.answers(["k"]) == {"k": bytes(19) + bytes([Ranked.DEAD_LETTER])}
    assert len(sent) > 1
    assert sorted(id for ids in sent for id in ids) == sorted(heavy.id_texts())


async def test_answers_that_an_input_awaits_do_not_wait_for_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        context, settle, waits = await begun(on), on.spool.queue.settle, list[float]()

        async def seen(lane: int, settlements: Mapping[int, Settlement], *, patience: float, **more: Any) -> Noted:
            waits.append(patience)
            return await settle(lane, settlements, patience=patience, **more)

        monkeypatch.setattr(on.spool.queue, "settle", seen)
        await context.emit(BATCH, awaited=["k"])
        await told("k")
        await context.emit(BATCH.identified(b"p" * 16, 1))
        with trio.fail_after(PATIENCE):
            while len(waits) < 4:
                await trio.testing.wait_all_tasks_blocked(0.01)

        assert waits[:2] == [0, 0]
        assert all(waits[2:])


async def test_answers_outlive_the_process_and_a_revision_that_moves_the_output(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        context = await begun(on)
        answering, DESTINATIONS["other"].send = DESTINATIONS["other"].send, silent
        await context.emit(BATCH, awaited=["k"])
    DESTINATIONS["other"].send = answering
    async with theatre(tmp_path) as on:
        context = await begun(on, 2, RELAYING + OUTPUTS.replace("to: other", "to: third"))
        with trio.fail_after(PATIENCE):
            while (await context.answers(["k"]))["k"] is None:
                await trio.testing.wait_all_tasks_blocked(0.01)

        assert await context.answers(["k"]) == {"k": bytes(3)}


async def test_what_processors_dropped_is_answered_at_once(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        context = await begun(on, text=RELAYING + "processors: [{type: scripted, does: drop}]\n" + OUTPUTS)
        await context.emit(BATCH, BATCH.identified(b"p" * 16, 1), awaited=["k", None])

        assert SPRINGS["in"].answered == ["k"]
        assert await context.answers(["k"]) == {"k": bytes(3)}


async def test_keys_that_are_none_are_refused(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        context = await begun(on)
        for keys in (["a", "b"], ["a"] * 2, [b"a"]):
            with pytest.raises(PluginFault):
                await context.emit(*[BATCH] * (1 if len(set(keys)) > 1 else len(keys)), awaited=keys)  # type: ignore[arg-type]
