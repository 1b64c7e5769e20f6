"""What `observed` says, from real parts."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from shipper.plugin import Held, InputContext, Later, PluginFault
from shipper.plugin.state import Change
from shipper.process.environment import boottime
from shipper.protocol.messages import Failing, Observed
from shipper.sdk.codes import Code, Why
from shipper.sdk.event import Batch
from shipper.status.observer import Observer
from shipper.values import Revision, StateFigures
from tests.disks import small_disk
from tests.fakes import DESTINATIONS, PATIENCE, SPRINGS, Spring, Theatre, active_again, events, policy, theatre

POLICY = policy()


def observing(on: Theatre, deadline: str | None = None) -> Observer:
    return Observer(
        spool=on.spool,
        intake=on.intake,
        delivery=on.delivery,
        rollout=on.rollout,
        deadline_problem=lambda: None if deadline is None else Why(deadline, Code.DEADLINE_PASSED),
        wanted=list,
    )


async def look(on: Theatre, deadline: str | None = None) -> Observed:
    observed = await observing(on, deadline).look()
    assert {observed.code, *(unit.code for unit in observed.units)} <= set(Code)
    assert all(waiting.code in set(Code) for drain in observed.draining for waiting in drain.outputs.values())
    return observed


def codes(observed: Observed) -> dict[str, str]:
    return {unit.id: unit.code for unit in observed.units}


def states(observed: Observed) -> dict[str, str]:
    return {unit.id: f"{unit.state} {unit.message}".rstrip() for unit in observed.units}


@asynccontextmanager
async def running(path: Path, text: str = POLICY, *credentials: str, stage: str = "drained") -> AsyncIterator[Theatre]:
    """A shipper whose first policy has reached this stage."""
    async with theatre(path) as on:
        await on.offer(1, text, *credentials)
        await on.ack(1, stage)
        yield on


async def test_before_a_policy_it_is_starting(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        assert (await look(on)).state == "STARTING"


async def test_an_input_that_goes_on_after_a_batch_that_cannot_be_is_degraded(tmp_path: Path) -> None:
    async with running(tmp_path, stage="active") as on:
        await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
        with pytest.raises(PluginFault):
            await SPRINGS["in"].context.emit(Batch.documents([b"1"]))
        fault = "input in (scripted) emitted what cannot be stored: a document is no JSON object"
        assert states(await look(on))["inputs.in"].startswith(f"DEGRADED {fault}")

        await SPRINGS["in"].context.emit(events(1))
        assert states(await look(on))["inputs.in"] == "HEALTHY"


async def test_a_plugin_that_held_up_all_others_is_degraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.process.stalls.TICK_SECONDS", 0.05)
    monkeypatch.setattr("shipper.process.stalls.LONG_SECONDS", 0.2)
    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:
        observer = observing(on)
        nursery.start_soon(observer.stalls.run)
        computed = trio.Event()

        async def computing(context: InputContext) -> None:
            gives_up = time.monotonic() + 60
            while observer.stalls.module is None and time.monotonic() < gives_up:
                pass
            computed.set()
            await trio.sleep_forever()

        async def starting(context: InputContext) -> None:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(computing, context)

        SPRINGS["in"].on_run = starting
        SPRINGS["same"] = Spring()
        await on.offer(1, policy(inputs="inputs:\n  in: {type: scripted}\n  same: {type: scripted, of: same}\n"))
        await on.ack(1, "active")
        await computed.wait()
        units = {unit.id: unit for unit in (await observer.look()).units}

        assert (units["inputs.in"].state, units["inputs.in"].code) == ("DEGRADED", Code.PLUGIN_FAULT)
        assert units["inputs.in"].message.startswith("tests.status.test_observer held up all others for ")
        assert units["inputs.same"].state == "HEALTHY"
        nursery.cancel_scope.cancel()


async def test_what_drains_is_named_with_its_reason(tmp_path: Path) -> None:
    async with running(tmp_path, policy(credential="k1"), "k1") as on:
        script = DESTINATIONS["main"]
        script.send = script.raising(Held("401"))
        await SPRINGS["in"].context.emit(events(1, 2, 3))
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "active")
        await script.until(lambda: any(lane.problem for lane in on.delivery.lanes.values()))
        observed = await look(on, "late")
        (draining,) = observed.draining

        assert observed.state == "DEGRADED"
        assert states(observed)["outputs.main"].startswith("DEGRADED")
        assert states(observed)["outputs.main"].endswith("draining: 401, events held")
        assert (draining.revision, draining.events) == (1, 3)
        assert draining.outputs["main"].reason == "401, events held"
        assert (draining.outputs["main"].code, codes(observed)["outputs.main"]) == ("refused", "refused")
        assert (observed.queue.events, list(observed.credentials_in_use)) == (3, ["k1", "k2"])


async def test_what_drains_on_an_output_that_is_active_again_is_named_until_it_is_ended(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await active_again(on)
        observed = await look(on, "late")
        (draining,) = observed.draining

        assert (draining.revision, draining.events, observed.queue.events) == (1, 1, 4)
        assert states(observed)["outputs.main"].startswith("DEGRADED late")
        await on.orders.end("drop", Revision(0, draining.revision), None)
        await on.ack(3, "drained")
        ended = await look(on, None)
        assert (list(ended.draining), ended.queue.events) == ([], 3)


async def test_an_output_whose_order_made_old_letters_give_way_is_degraded(tmp_path: Path) -> None:
    store = "dead_letters: {max_bytes: 400B}\n"
    async with running(tmp_path, policy(credential="k1", more=store), "k1") as on:
        script = DESTINATIONS["main"]
        script.send = script.raising(Held("401"))
        await SPRINGS["in"].context.emit(events(*range(9)))
        await on.offer(2, policy(credential="k2", more=store), "k2")
        await on.ack(2, "active")
        await on.orders.end("dead_letter", Revision(0, 1), None)
        await on.ack(2, "drained")
        observed = await look(on)
        kept = observed.dead_letters.events

        assert states(observed)["outputs.main"] == (
            f"DEGRADED the dead-letter store is full: {9 - kept} old letters were dropped"
        )
        assert [(one.output, one.events) for one in observed.dead_letter_reasons] == [("main", kept)]


async def test_a_full_queue_names_who_holds_it(tmp_path: Path) -> None:
    async with running(tmp_path, policy(more="queue: {max_bytes: 1B}\n")) as on:
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        await SPRINGS["in"].context.emit(events(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(SPRINGS["in"].context.emit, events(2))
            await SPRINGS["in"].until(lambda: on.intake.entrance.is_full)
            observed = await look(on)
            nursery.cancel_scope.cancel()

        message = "DEGRADED the queue is full, output main holds the most; intake waits"
        assert states(observed)["inputs.in"] == message
        assert codes(observed)["inputs.in"] == "queue_full"


async def test_an_input_that_failed_is_failed_and_one_that_ended_is_stopped(tmp_path: Path) -> None:
    async def bug(context: InputContext) -> None:
        raise ZeroDivisionError("a secret")

    async def ends(context: InputContext) -> None:
        await trio.lowlevel.checkpoint()

    inputs = (
        "inputs:\n  in: {type: scripted}\n  more: {type: scripted, of: more}\n  idle: {type: scripted, outputs: []}\n"
    )
    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_run, SPRINGS["more"].on_run = bug, ends
        await on.offer(1, policy(inputs=inputs))
        await on.ack(1, "drained")
        await SPRINGS["in"].until(lambda: on.intake.running["in"].failure is not None)
        observed = await look(on)

        assert observed.state == "FAILED"
        assert states(observed)["inputs.in"].startswith("FAILED ZeroDivisionError at test_observer.py")
        assert states(observed)["inputs.more"] == "STOPPED read to the end"
        assert codes(observed) | {"outputs.main": ""} == {
            "inputs.in": "internal_error",
            "inputs.more": "end_of_input",
            "inputs.idle": "no_output",
            "outputs.main": "",
        }
        assert states(observed)["inputs.idle"] == "DEGRADED it has no output, so it reads nothing"
        assert b"a secret" not in observed.line()


@pytest.mark.root
async def test_an_input_that_waits_for_a_full_disk_is_degraded_and_one_that_has_nothing_to_store_is_not(
    tmp_path: Path,
) -> None:
    more = "inputs:\n  in: {type: scripted}\n  more: {type: scripted, of: more}\n"
    with small_disk(tmp_path, "20m"):
        (tmp_path / "spare").write_bytes(bytes(4 << 20))
        async with theatre(tmp_path / "state") as on, trio.open_nursery() as nursery:
            DESTINATIONS["main"].send = DESTINATIONS["main"].hang
            await on.offer(1, policy(inputs=more))
            await on.ack(1, "drained")
            nursery.start_soon(fill)
            await SPRINGS["in"].until(lambda: on.spool.store.problem is not None)
            observed = await look(on)
            (tmp_path / "spare").unlink()  # what is under way can be stored, or the end would be a failure
            nursery.cancel_scope.cancel()

    assert observed.state == "FAILED"
    assert states(observed)["inputs.in"] == f"DEGRADED {observed.message}"
    assert states(observed)["inputs.more"] == "HEALTHY"
    assert "disk full" in observed.message


async def fill() -> None:
    """Emit, for ever, what no compression makes small."""
    while True:
        await SPRINGS["in"].context.emit(Batch.documents([b'{"n":"%s"}' % os.urandom(1 << 19).hex().encode()]))


async def test_what_an_input_says_in_numbers_stands_at_its_unit(tmp_path: Path) -> None:
    async with running(tmp_path, stage="active") as on:
        SPRINGS["in"].on_figures = lambda: {"files": 3, "unread_bytes": 120}
        units = {unit.id: unit for unit in (await look(on)).units}

        assert units["inputs.in"].figures == {"files": 3, "unread_bytes": 120}
        assert b"figures" not in msgspec.json.encode(units["outputs.main"])


async def test_what_plugins_count_stands_at_their_units_and_goes_on_over_revisions(tmp_path: Path) -> None:
    async with running(tmp_path, stage="active") as on:
        SPRINGS["in"].context.meters.counter("lost", "Lost.").add(2)
        SPRINGS["in"].on_figures = lambda: {"files": 3}
        await SPRINGS["in"].context.emit(Batch.events([{"n": 1}]))
        await DESTINATIONS["main"].until(lambda: bool(DESTINATIONS["main"].contexts))
        DESTINATIONS["main"].contexts[0].meters.gauge("open", "Open.").set(4)
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "drained")
        SPRINGS["in"].context.meters.counter("lost", "Lost.").add(1)
        units = {unit.id: unit for unit in (await look(on)).units}

        assert units["inputs.in"].figures == {"lost": 3, "files": 3}
        assert units["outputs.main"].figures == {"open": 4}


async def test_an_input_that_fails_to_say_its_numbers_is_looked_at_all_the_same(tmp_path: Path) -> None:
    def fail() -> dict[str, int]:
        raise ZeroDivisionError("a secret")

    async with running(tmp_path, stage="active") as on:
        SPRINGS["in"].on_figures = fail
        units = {unit.id: unit for unit in (await look(on)).units}

        assert (units["inputs.in"].state, units["inputs.in"].figures) == ("HEALTHY", msgspec.UNSET)


async def test_what_is_left_of_a_lease_is_said_and_its_lapse_is_the_output_s(tmp_path: Path) -> None:
    async with running(tmp_path) as on:
        assert (await look(on)).lease_seconds is None
        on.delivery.pool.renew_lease(boottime() + 3600)
        assert 3590 < msgspec.to_builtins(await look(on))["lease_seconds"] <= 3600
        on.delivery.pool.renew_lease(boottime())
        await DESTINATIONS["main"].until(lambda: any(lane.problem for lane in on.delivery.lanes.values()))
        observed = await look(on)

        assert observed.lease_seconds == 0
        assert states(observed)["outputs.main"] == "DEGRADED lease lapsed, events held"


async def test_an_input_whose_credential_was_withdrawn_is_degraded(tmp_path: Path) -> None:
    text = policy(inputs="inputs:\n  in: {type: scripted, credentials: [w1, w2]}\n")
    async with running(tmp_path, text, "w1", "w2") as on:
        await on.rollout.supply({"w2": None})

        assert states(await look(on))["inputs.in"] == "DEGRADED credential w2 was withdrawn"


async def test_no_lease_is_said_as_null(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        assert b'"lease_seconds":null' in (await look(on)).line()


async def test_a_batch_that_fails_again_and_again_is_named_until_an_order_ends_it(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.send = script.raising(ZeroDivisionError("a bug"))
        await on.offer(1, policy())
        await on.ack(1, "drained")
        await SPRINGS["in"].context.emit(events(1, 2))
        await script.until(lambda: any(lane.failing for lane in on.delivery.lanes.values()))
        (unit,) = [unit for unit in (await look(on)).units if unit.kind == "output"]
        assert isinstance(unit.failing, Failing)
        with trio.fail_after(PATIENCE):
            await on.orders.end_batch("drop", "main", unit.failing.batch)
        (after,) = [unit for unit in (await look(on)).units if unit.kind == "output"]

        assert (unit.state, unit.code) == ("DEGRADED", Code.INTERNAL_ERROR)
        assert after.failing is msgspec.UNSET


async def test_keyed_state_is_counted_where_there_is_some(tmp_path: Path) -> None:
    text = "version: 1\ninputs: {in: {type: state}}\noutputs: {main: {type: shelf}}\n"
    async with theatre(tmp_path) as on:
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Later("down"))
        await on.offer(1, text)
        await on.ack(1, "active")
        await SPRINGS["in"].until(lambda: "run" in SPRINGS["in"].log)
        assert b'"keyed"' not in (await look(on)).line()
        await SPRINGS["in"].context.keep([Change("things", "a", b"{}"), Change("things", "b", b"{}")])
        observed = await look(on)

        assert observed.keyed == StateFigures(2, 2)
        assert observed.queue.events == 2
