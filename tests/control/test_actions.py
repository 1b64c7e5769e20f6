"""Actions: whatever happens, there is one result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio

from shipper.control.actions import Actions
from shipper.plugin import Batch, Held, Outcome
from shipper.protocol.messages import MAX_LINE_BYTES, Action, Result
from shipper.sdk.codes import Code
from shipper.spool.revisions import Text
from shipper.status.observer import Observer
from shipper.values import Counts, Revision
from tests.fakes import DESTINATIONS, PATIENCE, SPRINGS, Theatre, events, policy, theatre


def observer(on: Theatre) -> Observer:
    return Observer(
        spool=on.spool,
        intake=on.intake,
        delivery=on.delivery,
        rollout=on.rollout,
        deadline_problem=lambda: None,
        wanted=list,
    )


async def perform(on: Theatre, name: str, **params: Any) -> Result:
    actions = Actions(
        letters=on.spool.letters,
        intake=on.intake,
        delivery=on.delivery,
        rollout=on.rollout,
        orders=on.orders,
        requeuing=on.requeuing,
        look=observer(on).look,
    )
    with trio.fail_after(PATIENCE):
        result = await actions.perform(Action(id="a1", name=name, params=params))
    assert (result.code == Code.OK) is (result.status == "SUCCESS")
    assert result.code in set(Code)
    return result


async def started(on: Theatre) -> None:
    await on.offer(1, policy(credential="k1"), "k1")
    await on.ack(1, "drained")
    await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))


IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    ("fly", {}),
    ("rebind", {}),
    ("rebind", {"from": "k1", "to": 5}),
    ("forward", {}),
    ("forward", {"revision": 1}),
    ("forward", {"revision": 1, "output": "main"}),
    ("drop", {"revision": "one"}),
    ("drop", {"revision": 1}),
    ("tap", {"point": "outputs.nowhere"}),
    ("tap", {"point": "outputs.main", "limit": 10**9}),
    ("dead_letters", {"export": "../letters.ndjson"}),
    ("dead_letters", {"export": "/tmp/letters.ndjson"}),
    ("dead_letters", {"export": "a\0.ndjson"}),
    ("dead_letters", {"export": "a" * 5000 + ".ndjson"}),
    ("dead_letters", {"delete": 2**64}),
    ("dead_letters", {"requeue": {}}),
    ("dead_letters", {"requeue": True}),
    ("dead_letters", {"requeue": {"outputs": "main"}}),
    ("dead_letters", {"requeue": {"ids": [-1]}}),
    ("dead_letters", {"requeue": {"ids": ["1"]}}),
    ("dead_letters", {"requeue": {"upto": 2**64}}),
    ("dead_letters", {"after": -(2**64)}),
    ("drop", {}),
    ("drop", {"batch": 1}),
    ("drop", {"batch": 1, "output": "main"}),
    ("drop", {"batch": 1, "output": "main", "revision": 1}),
    ("drop", {"batch": -1, "output": "main"}),
    ("drop", {"batch": 2**64, "output": "main"}),
    ("drop", {"revision": 2**64}),
    ("drop", {"revision": 1, "epoch": 10**40}),
    ("dead_letters", {"export": "spool-999.db"}),
    ("dead_letters", {"export": "state.key.tmp"}),
    ("dead_letters", {"export": "keyring.copy"}),
    ("dead_letters", {"export": "quarantine-1.ndjson"}),
    ("dead_letters", {"export": "nowhere/x.ndjson"}),
    ("dead_letters", {"export": "lock/x.ndjson"}),
    ("dead_letters", {"export": ""}),
    ("dead_letters", {"export": "sub/.."}),
]


async def test_what_cannot_be_done_is_failed_with_a_message(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        before = sorted(path.name for path in tmp_path.iterdir())  # noqa: ASYNC240 - a test
        for name, params in IMPOSSIBLE:
            result = await perform(on, name, **params)

            assert (result.id, result.status) == ("a1", "FAILED"), (name, params)
            assert result.message
            assert not result.message.startswith("failed: ")  # what nobody foresaw
        assert sorted(path.name for path in tmp_path.iterdir()) == before  # noqa: ASYNC240 - a test


async def test_a_rebind_says_what_it_released(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await SPRINGS["in"].context.emit(events(1))
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "active")
        result = await perform(on, "rebind", **{"from": "k1", "to": "k2"})

        assert (result.status, result.result) == ("SUCCESS", {"released": ["k1"]})


async def test_an_order_for_a_batch_says_how_many_events_it_ended(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await SPRINGS["in"].context.emit(events(1, 2, 3))
        wrong = await perform(on, "dead_letter", batch=10**6, output="main")
        named = re.search(r"waiting first: batch (\d+) of output main$", wrong.message)
        assert named is not None
        done = [await perform(on, "dead_letter", batch=int(named[1]), output="main") for _ in range(2)]

        assert (wrong.status, wrong.code) == ("FAILED", Code.NOTHING_TO_ORDER)
        assert (done[0].status, done[0].result) == ("SUCCESS", {"events": 3})
        assert (done[1].status, done[1].code) == ("FAILED", Code.NOTHING_TO_ORDER)
        assert done[1].message.endswith("waiting first: nothing")
        assert (await on.spool.letters.figures()).events == 3


async def test_a_forward_says_how_many_events_it_moved_and_what_it_released(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await SPRINGS["in"].context.emit(events(1, 2))
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "active")
        result = await perform(on, "forward", revision=1, output="main")

        assert (result.status, result.result) == ("SUCCESS", {"events": 2, "released": ["k1"]})


def written(path: str) -> tuple[int, list[bytes]]:
    return Path(path).stat().st_mode & 0o777, Path(path).read_bytes().splitlines()


@pytest.mark.parametrize("page", [1, 4 << 20])
async def test_dead_letters_are_listed_exported_and_deleted(
    tmp_path: Path, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.spool.dead_letters.PAGE_BYTES", page)
    async with theatre(tmp_path) as on:
        await started(on)
        script = DESTINATIONS["main"]
        script.send = script.refusing(1, 2, outcome=Outcome.REJECTED, reason="400")
        await SPRINGS["in"].context.emit(events(0, 1, 2))
        await script.until(lambda: on.spool.figures.total().events == 0)
        listed = (await perform(on, "dead_letters", list=True)).result["dead_letters"]
        exported = (await perform(on, "dead_letters", export="letters.ndjson")).result
        again = await perform(on, "dead_letters", export="letters.ndjson")
        deleted = (await perform(on, "dead_letters", delete=exported["upto"])).result
        mode, lines = written(exported["path"])

        assert [letter["reason"] for letter in listed] == ["400", "400"]
        assert all("event" not in letter for letter in listed)
        assert mode == 0o600
        assert [orjson.loads(line)["event"]["n"] for line in lines] == [1, 2]
        assert again.status == "FAILED"
        assert deleted == {"deleted": 2}


async def test_dead_letters_are_requeued_by_a_filter(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        script = DESTINATIONS["main"]
        script.send = script.refusing(0, 1, 2, outcome=Outcome.REJECTED, reason="400 mapping")
        await SPRINGS["in"].context.emit(events(0, 1, 2))
        await script.until(lambda: on.spool.figures.total().events == 0)
        script.send = script.deliver
        first = await perform(on, "dead_letters", requeue={"output": "main", "reason": "map", "upto": 2, "ids": [2, 3]})
        await script.until(lambda: script.received == [1])
        gone = await perform(on, "dead_letters", requeue={"ids": [2]})
        others = await perform(on, "dead_letters", requeue={})
        await script.until(lambda: sorted(script.received) == [0, 1, 2])

        assert (first.result, others.result) == ({"requeued": 1, "damaged": 0}, {"requeued": 2, "damaged": 0})
        assert (gone.status, gone.message) == (
            "FAILED",
            "no dead letter matches: nothing was requeued; there are 2 of output main",
        )


async def test_the_events_of_dead_letters_are_exported_as_they_were(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        script = DESTINATIONS["main"]
        script.send = script.refusing(0, 1, outcome=Outcome.REJECTED, reason="400")
        lines = [b'{"n":0,"big":123456789012345678901234567890}', b'{"n":1,"x":1.50}']
        await SPRINGS["in"].context.emit(Batch.documents(lines))
        await script.until(lambda: on.spool.figures.total().events == 0)
        await on.spool.store.do(lambda db: db.execute("UPDATE dead_letter SET body = zeroblob(80) WHERE id = 2"))
        whole = (await perform(on, "dead_letters", export="letters.ndjson")).result
        alone = (await perform(on, "dead_letters", export="events.ndjson", events=True)).result

        assert (whole["exported"], alone["exported"], alone["upto"]) == (2, 1, 2)
        assert lines[0][1:] in written(whole["path"])[1][0]
        mode, (event,) = written(alone["path"])
        assert (mode, event.endswith(lines[0][1:])) == (0o600, True)


@pytest.mark.parametrize("name", ["letters.json", "export", "sub/x.ndjson", "sub/../y", "{state}/z", "{link}/sub/lock"])
async def test_an_export_goes_anywhere_in_the_state_directory(tmp_path: Path, name: str) -> None:
    state, link = tmp_path / "state", tmp_path / "link"
    async with theatre(state) as on:
        (state / "sub").mkdir()
        link.symlink_to(state)
        result = await perform(on, "dead_letters", export=name.format(state=state, link=link))

        assert (result.status, result.message) == ("SUCCESS", "")
        assert written(result.result["path"]) == (0o600, [])
        assert Path(result.result["path"]).is_relative_to(state.resolve())


@pytest.mark.parametrize("name", ["link", "inside/x", "outside/x", "nowhere"])
async def test_an_export_goes_through_no_link(tmp_path: Path, name: str) -> None:
    state, outside = tmp_path / "state", tmp_path / "outside"
    async with theatre(state) as on:
        outside.mkdir()
        for link, target in (("link", outside / "x"), ("inside", state), ("outside", outside), ("nowhere", "gone")):
            (state / link).symlink_to(target)
        result = await perform(on, "dead_letters", export=name)

        assert result.status == "FAILED"
        assert "the path of a new file" in result.message
        assert list(outside.iterdir()) == []


async def test_a_tap_shows_what_passes_and_fits_into_a_line(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        big = Batch.documents([b'{"n":%d,"x":"%s"}' % (n, b"x" * 100_000) for n in range(100)])
        results: list[Result] = []
        async with trio.open_nursery() as nursery:

            async def tap() -> None:
                results.append(await perform(on, "tap", point="outputs.main", limit=100))

            nursery.start_soon(tap)
            await SPRINGS["in"].until(lambda: bool(on.intake.entrance.taps._open))
            await SPRINGS["in"].context.emit(big)

        assert results[0].result["events"][0]["n"] == 0
        assert len(results[0].line()) < MAX_LINE_BYTES


async def test_diagnostics_hold_policies_and_no_secret(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        result = await perform(on, "diagnostics")

        assert result.result["policies"] == {"1": policy(credential="k1")}
        assert b"secret-of-k1" not in result.line()


async def test_diagnostics_hold_the_policies_that_fit_into_a_line_the_active_one_first(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        for number in range(2, 9):
            await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
            await SPRINGS["in"].context.emit(events(number))
            text = policy(credential=f"k{number}", more="# " + '"' * 300_000 + "\n")
            await on.offer(number, text, f"k{number}")
            await on.ack(number, "active")
        result = await perform(on, "diagnostics")

        assert result.status == "SUCCESS"
        assert len(result.line()) < MAX_LINE_BYTES
        assert list(result.result["policies"]) == ["8", "7", "6"]
        assert result.result["policies_left_out"] == 5


async def test_an_answer_that_is_too_long_for_a_line_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.control.actions.MAX_LINE_BYTES", 100)
    async with theatre(tmp_path) as on:
        await started(on)
        result = await perform(on, "diagnostics")

        assert result.status == "FAILED"
        assert "a line has at most 100" in result.message


async def test_to_delete_no_dead_letter_is_a_failure(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        result = await perform(on, "dead_letters", delete=5)

        assert (result.status, result.message) == ("FAILED", "no dead letter has an id up to 5: nothing was deleted")


async def test_a_revision_that_is_given_up_meanwhile_is_not_in_the_diagnostics(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        await on.spool.revisions.receive(Text(Revision(0, 2), "sha", "meaning", "live", [], "version: 1"), {})
        await on.rollout.restore()
        await on.spool.revisions.forget(Revision(0, 2))
        result = await perform(on, "diagnostics")

        assert (result.status, result.message) == ("SUCCESS", "")
        assert list(result.result["policies"]) == ["1"]


async def test_an_order_for_a_revision_ends_its_drain(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await SPRINGS["in"].context.emit(events(1, 2))
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "active")

        assert (await perform(on, "drop", revision=1)).status == "SUCCESS"
        assert (await on.ack(2, "drained")).ledger == Counts(accepted=2, dropped=2)


async def test_an_order_to_an_edge_says_how_many_keys_it_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(edge: str, keys: str, input: str | None) -> int:
        return len([edge, keys, input])

    async with theatre(tmp_path) as on:
        await started(on)
        monkeypatch.setattr(on.intake, "forget_edge", forget)

        assert (await perform(on, "forget_edge", edge="berlin", keys="delete")).result == {"deleted": 3}


async def test_an_action_that_breaks_is_a_failure_that_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        monkeypatch.setattr(on.orders, "rebind", None)
        result = await perform(on, "rebind", **{"from": "k1", "to": "k2"})

        assert (result.status, result.code) == ("FAILED", Code.INTERNAL_ERROR)
        assert result.message.startswith("failed: TypeError")
