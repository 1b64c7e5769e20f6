"""The life of revisions in the process: over a real spool, with scripted inputs and outputs."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.pipeline import libraries
from shipper.pipeline.plan import Plan, digest, make
from shipper.plugin import Held, InputContext, Later, StartFailed
from shipper.policy.registry import Registry
from shipper.protocol import bounds
from shipper.protocol.messages import Ack, Nack, Released
from shipper.revisions import machine, rollout
from shipper.revisions.offer import Offer
from shipper.revisions.statements import Statement
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import CredentialError
from shipper.sdk.tls import Material
from shipper.spool.credentials import Forgotten
from shipper.spool.dead_letters import Limits
from shipper.spool.limits import SpoolLimits
from shipper.spool.parts.revisions import Standing
from shipper.spool.report import Report
from shipper.spool.revisions import Cut, Known
from shipper.spool.store import StoreFailed
from shipper.values import Counts, Receipt, Revision
from tests import fakes
from tests.fakes import DESTINATIONS, GATE, PATIENCE, SPRINGS, ScriptedOutput, Theatre, events, poke, policy, theatre


async def fails(context: InputContext) -> None:
    raise StartFailed("port 9200 is taken")


async def hangs(context: InputContext) -> None:
    await trio.sleep_forever()


async def started(on: Theatre, credential: str = "k1") -> None:
    """Revision 1 runs and is drained."""
    await on.offer(1, policy(credential=credential), credential)
    await on.ack(1, "drained")


async def emit(*numbers: int) -> None:
    with trio.fail_after(PATIENCE):
        await SPRINGS["in"].context.emit(events(*numbers))


# -- three stages ------------------------------------------------------------------------------------------------------


async def test_a_revision_goes_through_its_three_stages(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        await emit(1, 2)
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [1, 2])

        assert on.lines() == ["1 received", "1 active", "1 drained"]
        assert on.rollout.stages.drained == Revision(0, 1)


async def test_a_key_is_released_when_the_last_event_under_it_has_its_answer(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        await started(on)
        script.send = script.raising(Held("401"))
        await emit(1, 2)
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "active")
        await script.until(lambda: script.log.count("close k1") > 1)
        assert "2 drained" not in on.lines()

        script.send = script.deliver
        ack = await on.ack(2, "drained")

    assert ack.change == "barrier"
    assert ack.ledger == Counts(accepted=2, delivered=2)
    assert ack.credentials is not None
    assert (ack.credentials.in_use, ack.credentials.released) == (["k2"], ["k1"])


async def test_no_connection_is_open_under_a_key_in_the_instant_it_is_released(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        await started(on)
        opened: list[int] = []
        say = on.rollout._say

        def spy(statement: Statement, delivered: Callable[[], None]) -> None:
            if isinstance(statement, Receipt):
                opened.append(script.log.count("open k1") - script.log.count("close k1"))
            say(statement, delivered)

        on.rollout._say = spy
        await emit(1, 2, 3)
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "drained")

    assert opened == [0]


async def test_the_same_meaning_is_no_change(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        await on.offer(2, policy(credential="k1") + "# a comment\n", "k1")

        assert (await on.ack(2, "drained")).change == "none"
        assert SPRINGS["in"].log == ["open ", "run"]


async def test_one_dead_output_does_not_keep_the_keys_of_another(tmp_path: Path) -> None:
    two = "version: 1\noutputs:\n  main: {{type: scripted, credential: {}}}\n"
    two += "  other: {{type: scripted, to: other, credential: {}}}\n"
    inputs = "inputs:\n  in: {type: scripted}\n"
    async with theatre(tmp_path) as on:
        await on.offer(1, two.format("k1", "o1") + inputs, "k1", "o1")
        await on.ack(1, "drained")
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await emit(1)
        await on.offer(2, two.format("k2", "o2") + inputs, "k2", "o2")
        released = await on.released()

        assert released.credentials == ["o1"]
        assert "2 drained" not in on.lines()
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        ack = await on.ack(2, "drained")
        assert ack.credentials is not None
        assert ack.credentials.released == ["k1", "o1"]


# -- nacks -------------------------------------------------------------------------------------------------------------


async def refused(on: Theatre, number: int, text: str, *ids: str, **more: object) -> Nack:
    before = len(on.said)
    await on.offer(number, text, *ids, **more)  # type: ignore[arg-type]
    (message,) = on.said[before:]
    assert isinstance(message, Nack)
    return message


async def test_a_text_that_is_no_policy_is_invalid_and_its_secrets_are_forgotten(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        nack = await refused(on, 2, "version: 1\noutput: {}\n", "k1", "k2")

        assert nack.reason == "invalid"
        assert nack.errors[0].line == 2
        assert nack.released == ("k2",)
        assert "k2" not in on.keyring


async def test_a_nack_releases_nothing_that_a_revision_on_its_way_refers_to(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
    async with theatre(tmp_path) as on:
        resumes = trio.Event()
        SPRINGS["in"].on_open = lambda context: resumes.wait()
        await on.offer(1, policy(credential="k1"), "k1")
        await on.offer(2, policy(credential="k2"), "k2")
        nack = await refused(on, 3, "version: 1\noutput: {}\n", "k2", "k3")
        resumes.set()
        await on.ack(2, "drained")

        assert nack.released == ("k3",)
        assert "k2" in on.keyring


async def test_policies_that_arrive_while_the_disk_hangs_have_no_room_after_some(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        receive, hung = on.spool.revisions.receive, trio.Event()

        async def hanging(*args: Any, **more: Any) -> list[Known]:
            await hung.wait()
            return await receive(*args, **more)

        on.spool.revisions.receive = hanging  # type: ignore[method-assign]
        await on.offer(1, policy())
        await trio.testing.wait_all_tasks_blocked(0.05)
        number = 1
        while not on.rollout.is_full and number < 1000:
            number += 1
            await on.offer(number, policy())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on.rollout.has_room)
            await trio.testing.wait_all_tasks_blocked(0.05)
            hung.set()
        await on.ack(number, "active")

        assert 2 < number <= machine.FULL + 2
        assert not on.rollout.is_full


async def test_a_long_policy_takes_the_room_of_many(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        receive, begun, goes_on = on.spool.revisions.receive, trio.Event(), trio.Event()

        async def hanging(*args: Any, **more: Any) -> list[Known]:
            begun.set()
            await goes_on.wait()
            return await receive(*args, **more)

        on.spool.revisions.receive = hanging  # type: ignore[method-assign]
        full = []
        for number in (1, 2, 3):
            full.append(on.rollout.is_full)
            await on.offer(number, policy() + "#" * (machine.FULL_CHARACTERS // 2))
            await begun.wait()
        full.append(on.rollout.is_full)
        goes_on.set()
        await on.ack(3, "active")

        assert full == [False, False, False, True]


async def test_more_ids_than_a_message_has_room_for_do_not_come_into_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "IDS_BYTES", 200)
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        await started(on, "k" * 90)
        script.send = script.raising(Held("401"))
        await emit(1)
        await on.offer(2, policy(credential="l" * 90), "l" * 90)
        await on.ack(2, "active")
        await on.offer(3, policy(credential="m" * 90), "m" * 90)
        nack = await on.nack(3)
        assert (nack.reason, nack.released) == ("failed", ("m" * 90,))
        assert "wait until some are released" in nack.errors[0].message
        assert on.rollout.in_use == ["k" * 90, "l" * 90]

        on.said.clear()
        script.send = script.deliver
        await on.ack(2, "drained")
        await on.offer(3, policy(credential="m" * 90), "m" * 90)
        await on.ack(3, "drained")


async def test_what_a_drained_has_no_room_for_is_released_beside_it_and_listed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        await started(on, "k" * 90)
        script.send = script.raising(Held("401"))
        await emit(1)
        for number, id in enumerate(("l" * 90, "m" * 90), start=2):
            await on.offer(number, policy(credential=id), id)
            await on.ack(number, "active")
            await emit(number)
        await on.offer(4, policy(credential="n"), "n")
        await on.ack(4, "active")
        monkeypatch.setattr(bounds, "IDS_BYTES", 100)
        on.said.clear()
        monkeypatch.setattr(on.rollout, "advance", trio.lowlevel.checkpoint)
        script.send = script.deliver
        await script.until(lambda: len(on.delivery.lanes) == 1)
        monkeypatch.undo()
        monkeypatch.setattr(bounds, "IDS_BYTES", 100)
        await on.rollout.advance()
        ack, *released = [message for message in on.said if isinstance(message, Ack | Released)]
        assert isinstance(ack, Ack)
        assert ack.credentials is not None
        assert (ack.revision, ack.credentials.released) == (4, ["k" * 90])
        assert [message.credentials for message in released] == [["l" * 90], ["m" * 90]]  # type: ignore[union-attr]

        await on.offer(5, policy(credential="n") + "# again\n", "n")
        again = await on.ack(5, "drained")
        assert again.credentials is not None
        assert again.credentials.released == ["l" * 90]


async def test_an_id_that_is_too_long_is_invalid_and_never_taken_in(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(credential="k1"), "k1", "ö" * 513)
        nack = await on.nack(1)

        assert (nack.reason, nack.released) == ("invalid", ("k1",))
        assert nack.errors[0].message == "a credential has an id of 513 characters; it has 1024 bytes at most"


async def test_what_a_nack_has_no_room_for_is_released_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "IDS_BYTES", 10)
    async with theatre(tmp_path) as on:
        await on.offer(1, "no policy", "k1", "k2", "k3")
        nack = await on.nack(1)

        assert list(nack.released) == ["k1", "k2"]
        assert on.said[-1] == Released(credentials=("k3",))


async def test_received_is_said_when_it_is_stored(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        receive, hung = on.spool.revisions.receive, trio.Event()

        async def hanging(*args: Any, **more: Any) -> list[Known]:
            await hung.wait()
            return await receive(*args, **more)

        on.spool.revisions.receive = hanging  # type: ignore[method-assign]
        await on.offer(1, policy())
        await trio.testing.wait_all_tasks_blocked(0.05)
        said_before = on.lines()
        hung.set()
        await on.ack(1, "received")

        assert said_before == []


async def test_a_released_secret_is_held_no_longer(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        await on.offer(2, policy(credential="k2"), "k2")
        ack = await on.ack(2, "drained")

        assert ack.credentials is not None
        assert ack.credentials.released == ["k1"]
        assert ("k1" in on.keyring, "k2" in on.keyring) == (False, True)


async def test_a_wrong_digest_is_invalid(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.rollout.offer(Offer(Revision(0, 1), policy(), sha256="00"))

        assert on.lines() == ["1 invalid"]


async def test_a_missing_secret_and_a_misshapen_one_are_nacked(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        assert (await refused(on, 1, policy(credential="k1"))).reason == "credential_missing"
        assert (await refused(on, 1, policy(credential="k1"), secrets={"k1": {"api": "no"}})).reason == "invalid"
        assert (await refused(on, 1, policy(credential="k1"), secrets={"k1": {"token": "t"}})).reason == "invalid"
        for secrets in ({}, {"k1": {"token": "t"}}):
            (error,) = (await refused(on, 1, policy(credential="k1"), secrets=secrets)).errors
            assert (error.path, error.line, error.column) == ("outputs.main.credential", 5, 38)
        nack = await refused(on, 1, policy(credential="k1"), secrets={"k1": "top secret"})

        assert "top secret" not in str(nack)
        assert "k1" not in on.keyring


@pytest.mark.parametrize(
    "secret",
    [{"api_key": "not base64, top-secret"}, {"bearer_token": "töp-secret"}, {"certificate": "top-secret", "key": "y"}],
)
async def test_a_secret_that_nobody_can_use_is_invalid_and_the_old_key_stays(
    tmp_path: Path, secret: dict[str, str]
) -> None:
    """Else the old key would be released, and the new output held for ever."""
    async with theatre(tmp_path) as on:
        await started(on)
        nack = await refused(on, 2, policy(credential="k2"), secrets={"k2": secret})

        assert (nack.reason, nack.released) == ("invalid", ("k2",))
        assert [(error.path, error.message.partition(":")[0]) for error in nack.errors] == [
            ("credentials.k2", "credential `k2`")
        ]
        assert "p-secret" not in str(nack)
        assert on.rollout.in_use == ["k1"]


async def test_a_secret_that_is_supplied_and_that_nobody_can_use_is_refused(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
    async with theatre(tmp_path) as on:
        with pytest.raises(CredentialError) as raised:
            await on.rollout.supply({"k1": {"api_key": "not base64, top-secret"}})

        assert raised.value.reason == "invalid"
        assert "k1" not in on.keyring


async def test_an_id_names_one_secret_for_ever(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        nack = await refused(on, 2, policy(credential="k1"), secrets={"k1": {"api_key": "other:secret"}})
        assert nack.reason == "credential_conflict"
        assert nack.released == ()
    async with theatre(tmp_path) as on:
        nack = await refused(on, 2, policy(credential="k1"), secrets={"k1": {"api_key": "other:secret"}})
        assert nack.reason == "credential_conflict"


@pytest.mark.parametrize("reason", ["failed", "superseded"])
async def test_an_id_that_was_once_active_names_its_secret_though_a_later_revision_with_it_is_nacked(
    tmp_path: Path, reason: str
) -> None:
    """Free again in memory alone, another secret would become active, and be a conflict after a restart."""
    async with theatre(tmp_path) as on:
        await started(on)
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "drained")
        SPRINGS["more"].on_open = fails if reason == "failed" else hangs
        await on.offer(3, policy(credential="k1", inputs="inputs:\n  more: {type: scripted, of: more}\n"), "k1")
        if reason == "superseded":
            await on.ack(3, "received")
            await on.offer(4, policy(credential="k2"), "k2")
            await on.ack(4, "drained")
        nack = await on.nack(3)

        assert (nack.reason, nack.released) == (reason, ("k1",))
        other = {"k1": {"api_key": "other:secret"}}
        await on.offer(5, policy(credential="k1"), secrets=other)
        assert (await on.nack(5)).reason == "credential_conflict"


async def test_two_policies_on_their_way_cannot_give_one_id_two_secrets(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = hangs
        more = "inputs:\n  more: {type: scripted, of: more}\n"
        await on.offer(2, policy(credential="k2", inputs=more), "k2")
        nack_or_none = len(on.said)
        await on.offer(3, policy(credential="k2"), secrets={"k2": {"api_key": "k2:another"}})

        assert [m.reason for m in on.said[nack_or_none:] if isinstance(m, Nack)][:1] == ["credential_conflict"]


async def test_older_ones_are_stale_and_other_texts_a_conflict(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(5, policy(), epoch=1)
        await on.ack(5, "drained")

        assert (await refused(on, 9, policy(), epoch=0)).reason == "stale"
        assert (await refused(on, 4, policy(), epoch=1)).reason == "stale"
        assert (await refused(on, 5, policy(flavour="x"), epoch=1)).reason == "conflict"


async def test_what_cannot_start_is_failed_its_number_is_not_spent_and_the_old_pipeline_runs_on(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = fails
        more = "inputs:\n  in: {type: scripted}\n  more: {type: scripted, of: more}\n"
        await on.offer(2, policy(credential="k2", inputs=more), "k2")
        nack = await on.nack(2)

        assert (nack.reason, list(nack.released)) == ("failed", ["k2"])
        assert nack.errors[0].message == "port 9200 is taken"
        assert on.rollout.stages.active == Revision(0, 1)
        assert on.rollout.stages.received == Revision(0, 1)
        await emit(1)
        SPRINGS["more"].on_open = hangs_not
        on.said.clear()
        await on.offer(2, policy(credential="k2", inputs=more), secrets={"k2": {"api_key": "new:content"}})
        await on.ack(2, "drained")


def missing(output: ScriptedOutput) -> None:
    raise ModuleNotFoundError("No module named 'aiokafka'", name="aiokafka")


async def test_an_output_whose_library_is_missing_is_failed_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "_loaded", set())
    async with theatre(tmp_path) as on:
        with monkeypatch.context() as patched:
            patched.setattr(ScriptedOutput, "load", missing)
            await on.offer(1, policy(), "k1")
            nack = await on.nack(1)
        assert (nack.reason, nack.errors[0].message) == ("failed", "output main: aiokafka is not installed")
        on.said.clear()
        await on.offer(1, policy(), "k1")
        await on.ack(1, "drained")


async def test_after_a_restart_a_lane_whose_library_is_missing_holds_its_events_until_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        await emit(1)
    monkeypatch.setattr(libraries, "_loaded", set())
    with monkeypatch.context() as patched:
        patched.setattr(ScriptedOutput, "load", missing)
        async with theatre(tmp_path) as on:
            await on.rollout.supply({"k1": {"api_key": "k1:secret-of-k1"}})
            (lane,) = on.delivery.lanes.values()
            with trio.fail_after(PATIENCE):
                while "aiokafka is not installed" not in (lane.problem or ""):  # noqa: ASYNC110 - nobody tells when
                    await trio.sleep(0.005)
            patched.undo()
            await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [1])


async def hangs_not(context: InputContext) -> None:
    await trio.lowlevel.checkpoint()


async def test_a_revision_that_comes_again_while_it_fails_keeps_the_key_that_it_is_tried_again_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nack is written last: a key that the nack released would be revoked, and then used."""
    async with theatre(tmp_path) as on:
        forget = on.spool.revisions.forget_credentials
        reached, gate = trio.Event(), trio.Event()

        async def forget_and_wait(*arguments: Any) -> Forgotten:
            forgotten = await forget(*arguments)
            reached.set()
            await gate.wait()
            return forgotten

        monkeypatch.setattr(on.spool.revisions, "forget_credentials", forget_and_wait)
        SPRINGS["in"].on_open = fails
        await on.offer(1, policy(credential="k1"), "k1")
        await reached.wait()
        SPRINGS["in"].on_open = hangs_not
        await on.offer(1, policy(credential="k1"), "k1")
        gate.set()

        nack = await on.nack(1)
        on.said.remove(nack)

        assert nack.released == ()
        await on.ack(1, "drained")
        assert "k1" in on.keyring


async def test_a_revision_that_is_looked_at_again_while_it_fails_keeps_its_key_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:
        take, looked_at, go_on = on.keyring.take, trio.Event(), trio.Event()

        async def take_late(values: object) -> dict[str, Credential]:
            looked_at.set()
            await go_on.wait()
            return await take(values)

        failing = trio.Event()

        async def fails_late(context: InputContext) -> None:
            await failing.wait()
            raise StartFailed("the port is taken")

        SPRINGS["in"].on_open = fails_late
        await on.offer(1, policy(credential="k1"), "k1")
        await on.ack(1, "received")
        monkeypatch.setattr(on.keyring, "take", take_late)
        nursery.start_soon(on.offer, 1, policy(credential="k1"), "k1")
        await looked_at.wait()
        failing.set()
        nack = await on.nack(1)
        on.said.remove(nack)
        SPRINGS["in"].on_open = hangs_not
        go_on.set()

        assert nack.released == ()
        await on.ack(1, "drained")
        assert "k1" in on.keyring


async def test_an_input_that_fails_by_a_bug_is_failed_too(tmp_path: Path) -> None:
    async def bug(context: InputContext) -> None:
        raise ZeroDivisionError("a secret")

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_open = bug
        await on.offer(1, policy())
        nack = await on.nack(1)

        assert nack.reason == "failed"
        assert "a secret" not in str(nack)


# -- bursts ------------------------------------------------------------------------------------------------------------


async def test_a_burst_of_revisions_ends_with_the_newest_and_every_other_one_is_superseded(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = hangs
        more = "inputs:\n  more: {type: scripted, of: more}\n"
        for number in range(2, 8):
            await on.offer(number, policy(credential=f"k{number}", inputs=more), f"k{number}")
        await on.offer(8, policy(credential="k8"), "k8")
        ack = await on.ack(8, "drained")

        nacks = {m.revision: m for m in on.said if isinstance(m, Nack)}
        assert sorted(nacks) == [2, 3, 4, 5, 6, 7]
        assert {m.reason for m in nacks.values()} == {"superseded"}
        released = [id for m in nacks.values() for id in m.released]
        assert sorted(released) == [f"k{n}" for n in range(2, 8)]
        assert ack.credentials is not None
        assert ack.credentials.released == ["k1"]
        assert not any(f"k{n}" in on.keyring for n in range(2, 8))


async def test_a_revision_on_its_way_is_answered_again_and_its_number_has_one_text(tmp_path: Path) -> None:
    text = policy(inputs="inputs:\n  more: {type: scripted, of: more}\n")
    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = hangs
        await on.offer(2, text)
        await on.ack(2, "received")
        await on.offer(2, text)
        assert on.lines()[-2:] == ["2 received"] * 2

        assert (await refused(on, 2, text + "log_level: debug\n")).reason == "conflict"


async def test_what_is_offered_twice_before_it_is_stored_is_received_once_and_its_secrets_stay(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        async with on.rollout._in_order:
            for _ in range(2):
                await on.offer(2, policy(credential="k2"), "k2")
            await on.offer(3, policy(credential="k2"), secrets={"k2": {"api_key": "k2:of-another"}})
        await on.ack(2, "drained")
        assert on.lines()[3:] == ["3 credential_conflict", "2 received", "2 active", "2 drained"]


async def test_a_revision_that_is_replaced_before_it_is_stored_was_never_received(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        async with on.rollout._in_order:
            await on.offer(2, policy(flavour="two"))
            await SPRINGS["in"].until(lambda: on.rollout._in_order.statistics().tasks_waiting == 1)
            await on.offer(3, policy(flavour="three"))
        await on.ack(3, "drained")
        assert on.lines()[3:] == ["2 superseded", "3 received", "3 active", "3 drained"]


async def test_what_was_opened_for_a_revision_that_is_replaced_right_before_its_cut_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        prepare = on.intake.prepare

        async def prepared_too_late(plan: Plan) -> Any:
            prepared = await prepare(plan)
            if plan.at == Revision(0, 2):
                await on.offer(3, policy())
            return prepared

        monkeypatch.setattr(on.intake, "prepare", prepared_too_late)
        await on.offer(2, policy(inputs="inputs:\n  more: {type: scripted, of: more}\n"))
        await on.ack(3, "drained")
        await SPRINGS["more"].until(lambda: SPRINGS["more"].log == ["open ", "close"])
        assert on.rollout.stages.active == Revision(0, 3)
        assert "2 active" not in on.lines()


async def test_a_superseded_number_is_spent_though_the_newer_revision_failed(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = hangs
        await on.offer(2, policy(inputs="inputs:\n  more: {type: scripted, of: more}\n"))
        await SPRINGS["more"].until(lambda: bool(SPRINGS["more"].log))
        SPRINGS["more"].on_open = fails
        await on.offer(3, policy(inputs="inputs:\n  more: {type: scripted, of: more, flavour: other}\n"))
        assert (await on.nack(3)).reason == "failed"
        on.said.clear()

        nack = await refused(on, 2, policy(inputs="inputs:\n  more: {type: scripted, of: more}\n"))
        assert nack.reason == "superseded"
        assert nack.errors[0].message == "revision 2 was superseded, so its number is spent"


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_superseded_number_is_spent_though_it_was_never_stored(tmp_path: Path, restarted: bool) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = fails
        async with on.rollout._in_order:
            await on.offer(2, policy(flavour="two"))
            await on.offer(3, policy(inputs="inputs:\n  more: {type: scripted, of: more}\n"))
        assert (await on.nack(3)).reason == "failed"
        if not restarted:
            assert (await refused(on, 2, policy(flavour="two"))).reason == "superseded"
    if restarted:
        async with theatre(tmp_path) as on:
            assert (await refused(on, 2, policy(flavour="two"))).reason == "superseded"


async def test_a_start_that_fails_when_it_is_given_up_is_superseded_and_not_failed_too(tmp_path: Path) -> None:
    async def fails_when_cancelled(context: InputContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            await fails(context)

    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = fails_when_cancelled
        await on.offer(2, policy(inputs="inputs:\n  more: {type: scripted, of: more}\n"))
        await on.ack(2, "received")
        await SPRINGS["more"].until(lambda: "open " in SPRINGS["more"].log)
        await on.offer(3, policy())
        await on.ack(3, "drained")

        assert [line for line in on.lines() if line.startswith("2")] == ["2 received", "2 superseded"]


async def test_a_revision_that_has_failed_is_not_superseded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        forget, failed = on.spool.revisions.forget, trio.Event()

        async def forget_when_the_newer_one_is_here(at: Revision) -> None:
            failed.set()
            await SPRINGS["in"].until(lambda: len(on.rollout._machine.pending) == 2 or bool(on.rollout._machine.spent))
            await forget(at)

        monkeypatch.setattr(on.spool.revisions, "forget", forget_when_the_newer_one_is_here)
        SPRINGS["more"].on_open = fails
        more = "inputs:\n  more: {type: scripted, of: more}\n"
        await on.offer(2, policy(credential="k2", inputs=more), "k2")
        await failed.wait()
        await on.offer(3, policy(credential="k1"), "k1")
        await on.ack(3, "drained")

        nacks = [(m.revision, m.reason, m.released) for m in on.said if isinstance(m, Nack)]
        assert nacks == [(2, "failed", ("k2",))]


async def test_the_same_revision_again_is_answered_by_its_highest_ack(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        first = on.said[-1]
        await on.offer(1, policy(credential="k1"), "k1")

        assert on.said[-1] == first


async def test_the_active_text_is_accepted_though_a_file_that_it_names_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Trusting(ScriptedOutput, frozen=True):
        ca: Material | None = None

    monkeypatch.setattr(fakes, "REGISTRY", Registry({"outputs": {"trusting": Trusting}}))
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN 1")
    async with theatre(tmp_path / "state") as on:
        text = f"version: 1\noutputs:\n  main: {{type: trusting, ca: {authority}}}\n"
        await on.offer(1, text)
        first = await on.ack(1, "drained")
        authority.unlink()
        await on.offer(1, text)

        assert on.said[-1] == first


async def test_what_an_output_warns_of_is_logged_when_it_becomes_active_and_not_at_each_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(ScriptedOutput, frozen=True):
        def warnings(self) -> list[str]:
            return [f"the credential goes to {self.to} unencrypted"]

    logged: list[str] = []
    monkeypatch.setattr(fakes, "REGISTRY", Registry({"outputs": {"plain": Plain}}))
    monkeypatch.setattr(rollout._log, "warning", lambda message, **fields: logged.append(message))
    async with theatre(tmp_path / "state") as on:
        for revision, (to, credential) in enumerate([("main", "k1"), ("main", "k2"), ("other", "k2")], 1):
            text = f"version: 1\noutputs:\n  main: {{type: plain, to: {to}, credential: {credential}}}\n"
            await on.offer(revision, text, credential)
            await on.ack(revision, "active")

    assert logged == [f"output main: the credential goes to {to} unencrypted" for to in ("main", "other")]


async def test_after_a_cut_that_fails_inputs_go_on_until_the_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    went_on: list[str] = []

    async def fail(*arguments: Any) -> Cut:
        raise StoreFailed("no disk")

    with pytest.RaisesGroup(StoreFailed, flatten_subgroups=True, allow_unwrapped=True):
        async with theatre(tmp_path) as on:
            await started(on)
            monkeypatch.setattr(on.spool.revisions, "cut", fail)
            monkeypatch.setattr(on.intake, "resume", lambda: went_on.append("resumed"))
            await on.offer(2, policy(credential="k2"), "k2")
            await trio.sleep_forever()

    assert went_on == ["resumed"]


async def test_an_older_revision_is_stale_also_in_the_moment_after_the_cut_of_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        cut, standing = on.spool.revisions.cut, on.spool.revisions.standing
        reached, gate = trio.Event(), trio.Event()

        async def cut_and_wait(*arguments: Any) -> Cut:
            done = await cut(*arguments)
            monkeypatch.setattr(on.spool.revisions, "standing", standing_later)
            return done

        async def standing_later(still_used: Collection[str], since: Revision | None) -> Standing:
            reached.set()
            await gate.wait()
            return await standing(still_used, since)

        monkeypatch.setattr(on.spool.revisions, "cut", cut_and_wait)
        await on.offer(3, policy(credential="k3"), "k3")
        await reached.wait()
        await on.offer(2, policy(credential="k2"), "k2")
        gate.set()

        assert (await on.nack(2)).reason == "stale"
        await on.ack(3, "drained")


# -- after a restart ---------------------------------------------------------------------------------------------------


async def test_after_a_restart_the_active_text_starts_its_inputs_again(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
    async with theatre(tmp_path) as on:
        assert on.rollout.stages.drained == Revision(0, 1)
        await on.offer(1, policy(credential="k1"), "k1")
        await on.ack(1, "drained")
        await emit(1)
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [1])


async def test_an_active_text_that_cannot_start_again_stays_active_and_may_come_again(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_open = fails
        await on.offer(1, policy(credential="k1"), "k1")
        nack = await on.nack(1)
        assert (nack.reason, nack.released) == ("failed", ())
        assert on.rollout.stages.active == Revision(0, 1)
        on.said.clear()

        SPRINGS["in"].on_open = hangs_not
        await on.offer(1, policy(credential="k1"), "k1")
        await on.ack(1, "drained")
        await emit(1)
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [1])


async def test_a_file_that_changed_does_not_change_a_lane_that_a_restart_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are part of where events go; a new content comes with a new revision, behind a barrier."""

    class Trusting(ScriptedOutput, frozen=True):
        ca: Material | None = None

    monkeypatch.setattr(fakes, "REGISTRY", Registry({"outputs": {"trusting": Trusting}}))
    text = f"version: 1\noutputs:\n  main: {{type: trusting, ca: {tmp_path / 'ca.pem'}}}\n"
    found = []
    for content in ("-----BEGIN 1", "-----BEGIN 2"):
        (tmp_path / "ca.pem").write_text(content)
        async with theatre(tmp_path / "state") as on:
            await on.offer(1, text)
            await on.ack(1, "drained")
            (lane,) = on.delivery.lanes.values()
            found.append(lane.link.output.ca)  # type: ignore[attr-defined]

    assert [material.pem for material in found] == ["-----BEGIN 1"] * 2


async def test_events_of_before_wait_for_their_key_and_drain_without_a_policy(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        await emit(1, 2)
    async with theatre(tmp_path) as on:
        assert on.rollout.in_use == ["k1"]
        await on.rollout.supply({"k1": {"api_key": "k1:secret-of-k1"}})
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [1, 2])


async def test_after_a_restart_the_active_revision_runs_though_a_newer_one_right_behind_it_fails(
    tmp_path: Path,
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
    async with theatre(tmp_path) as on:
        SPRINGS["more"].on_open = fails
        more = "inputs:\n  more: {type: scripted, of: more}\n"
        await on.offer(1, policy(credential="k1"), "k1")
        await on.offer(2, policy(credential="k1", inputs=more), "k1")
        assert (await on.nack(2)).reason == "failed"

        assert "1 superseded" not in on.lines()
        await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
        await emit(1)
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [1])


async def test_after_a_restart_the_active_revision_runs_though_it_came_behind_a_newer_one_that_fails(
    tmp_path: Path,
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
    async with theatre(tmp_path) as on:
        gate = trio.Event()

        async def fails_late(context: InputContext) -> None:
            await gate.wait()
            raise StartFailed("port 9200 is taken")

        SPRINGS["more"].on_open = fails_late
        more = "inputs:\n  more: {type: scripted, of: more}\n"
        await on.offer(2, policy(credential="k1", inputs=more), "k1")
        await on.ack(2, "received")
        await on.offer(1, policy(credential="k1"), "k1")
        gate.set()
        assert (await on.nack(2)).reason == "failed"

        await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
        await emit(1)


async def test_a_revision_that_waited_to_resume_does_not_run_over_a_newer_one_that_became_active_meanwhile(
    tmp_path: Path,
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
    async with theatre(tmp_path) as on:
        gate = trio.Event()

        async def opens_late(context: InputContext) -> None:
            await gate.wait()

        SPRINGS["more"].on_open = opens_late
        more = "inputs:\n  more: {type: scripted, of: more}\n"
        await on.offer(2, policy(credential="k2", inputs=more), "k2")
        await on.ack(2, "received")
        await on.offer(1, policy(credential="k1"), "k1")
        gate.set()
        await on.ack(2, "drained")

        assert (await on.nack(1)).reason == "stale"
        assert on.rollout.plan is not None
        assert on.rollout.plan.at == Revision(0, 2)
        assert list(on.intake.running) == ["more"]


async def test_a_text_that_was_the_active_one_when_it_came_is_stale_if_a_newer_one_was_quicker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_late(at: Revision, text: str, registry: Registry) -> Plan:
        plan = make(at, text, registry)
        if at.number == 1:
            GATE.wait(PATIENCE)
        return plan

    async with theatre(tmp_path) as on:
        await started(on)
    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:
        monkeypatch.setattr("shipper.revisions.rollout.make", make_late)
        await on.offer(2, policy(credential="k2"), "k2")
        nursery.start_soon(on.offer, 1, policy(credential="k1"), "k1")
        await on.ack(2, "drained")
        GATE.set()

        assert (await on.nack(1)).reason == "stale"
        assert on.rollout.stages.received == Revision(0, 2)


async def test_a_received_revision_waits_to_be_sent_again(tmp_path: Path) -> None:
    more = "inputs:\n  more: {type: scripted, of: more}\n"
    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = hangs
        await on.offer(2, policy(credential="k2", inputs=more), "k2")
        await on.ack(2, "received")
    async with theatre(tmp_path) as on:
        assert on.rollout.stages.received == Revision(0, 2)
        assert on.rollout.in_use == ["k1", "k2"]
        await on.offer(1, policy(credential="k1"), "k1")
        await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
        await on.offer(2, policy(credential="k2", inputs=more), "k2")
        await on.ack(2, "drained")


async def test_after_a_restart_what_inputs_and_queued_events_need_is_wanted_until_it_is_supplied(
    tmp_path: Path,
) -> None:
    inputs = "inputs:\n  in: {type: scripted, credentials: [w1]}\n"
    async with theatre(tmp_path) as on:
        assert on.rollout.wanted() == []
        await on.offer(1, policy(credential="k1", inputs=inputs), "k1", "w1")
        await on.ack(1, "drained")
        assert on.rollout.wanted() == []
    async with theatre(tmp_path) as on:
        assert on.rollout.wanted() == ["w1"]
        await on.offer(1, policy(credential="k1", inputs=inputs), "k1", "w1")
        await on.ack(1, "drained")
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        await emit(1)
    async with theatre(tmp_path) as on:
        assert on.rollout.wanted() == ["k1", "w1"]
        await on.rollout.supply({"w1": {"api_key": fakes.secret("w1").fields["api_key"]}})
        assert on.rollout.wanted() == ["k1"]


async def test_what_an_ack_released_that_was_never_written_is_listed_by_the_first_one_after_a_restart(
    tmp_path: Path,
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        on.is_read = False
        for number in (2, 3):
            await on.offer(number, policy(credential=f"k{number}"), f"k{number}")
            await on.ack(number, "drained")
    async with theatre(tmp_path) as on:
        released = []
        for number in (4, 5):
            await on.offer(number, policy(credential=f"k{number}"), f"k{number}")
            ack = await on.ack(number, "drained")
            assert ack.credentials is not None
            released.append(ack.credentials.released)
    async with theatre(tmp_path) as on:
        await on.offer(6, policy(credential="k6"), "k6")
        ack = await on.ack(6, "drained")
        assert ack.credentials is not None
        released.append(ack.credentials.released)

    assert released == [["k1", "k2", "k3"], ["k4"], ["k4", "k5"]]


async def test_a_newer_revision_supersedes_one_that_an_earlier_process_received(tmp_path: Path) -> None:
    more = "inputs:\n  more: {type: scripted, of: more}\n"
    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = hangs
        await on.offer(2, policy(credential="k2", inputs=more), "k2")
        await on.ack(2, "received")
    async with theatre(tmp_path) as on:
        await on.offer(3, policy(credential="k3"), "k3")
        ack = await on.ack(3, "drained")
        nack = await on.nack(2)

        assert (nack.reason, nack.sha256, nack.released) == (
            "superseded",
            digest(policy(credential="k2", inputs=more)),
            ("k2",),
        )
        assert on.lines() == ["2 superseded", "3 received", "3 active", "3 drained"]
        assert ack.credentials is not None
        assert ack.credentials.released == ["k1"]


async def test_a_plugin_that_is_gone_holds_its_events_and_the_process_goes_on(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        await emit(1)
        await on.spool.store.do(lambda db: db.execute("UPDATE lane SET type = 'gone'"))
    async with theatre(tmp_path) as on:
        assert "main" in on.delivery.unreadable
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "active")
        assert "2 drained" not in on.lines()

        await on.orders.end("drop", Revision(0, 1), None)
        ack = await on.ack(2, "drained")
        assert ack.ledger == Counts(accepted=1, dropped=1)
        assert on.delivery.unreadable == {}


async def test_a_lane_that_a_revision_can_open_again_is_told_of_no_more(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        await on.spool.store.do(lambda db: db.execute("UPDATE lane SET settings = zeroblob(80)"))
    async with theatre(tmp_path) as on:
        assert "main" in on.delivery.unreadable
        await on.offer(2, policy(credential="k1"), "k1")
        await on.ack(2, "drained")

        assert on.delivery.unreadable == {}


async def test_a_credential_that_is_supplied_though_it_is_held_makes_nobody_try(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        script = DESTINATIONS["main"]
        script.send = script.raising(Later("429", 3600))
        await emit(1)
        await script.until(lambda: next(iter(on.delivery.lanes.values())).problem == "429")
        for _ in range(3):
            await on.rollout.supply({"k1": {"api_key": fakes.secret("k1").fields["api_key"]}})
        await trio.testing.wait_all_tasks_blocked(0.1)

        assert script.log.count("open k1") == 1


async def test_a_lane_whose_settings_are_damaged_does_not_stop_the_process(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        await emit(1)
        await on.spool.store.do(lambda db: db.execute("UPDATE lane SET settings = zeroblob(80)"))
    async with theatre(tmp_path) as on:
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "active")
        await emit(2)
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [2])


# -- inputs' credentials, and inputs that close slowly -----------------------------------------------------------------


async def test_drained_waits_until_a_replaced_input_is_closed(tmp_path: Path) -> None:
    inputs = 'inputs:\n  in: {{type: scripted, at: "{}", credentials: [{}]}}\n'
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(inputs=inputs.format("a", "w1")), "w1")
        await on.ack(1, "drained")
        closed = trio.Event()
        SPRINGS["in"].on_close = closed.wait
        await on.offer(2, policy(inputs=inputs.format("b", "w2")), "w2")
        await on.ack(2, "active")
        await trio.testing.wait_all_tasks_blocked(0.05)
        said_before = list(on.said)
        closed.set()
        ack = await on.ack(2, "drained")

        assert ack not in said_before
        assert not any(isinstance(m, Released) for m in said_before)
        assert ack.credentials is not None
        assert (ack.credentials.in_use, ack.credentials.released) == (["w2"], ["w1"])


async def test_a_replaced_input_whose_task_fails_when_it_is_cancelled_does_no_harm(
    tmp_path: Path,
) -> None:
    async def fails_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("a secret")

    async def on_run(context: InputContext) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_when_cancelled)
            await trio.sleep_forever()

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_run = on_run
        await started(on)
        await SPRINGS["in"].until(lambda: "run" in SPRINGS["in"].log)
        await on.offer(2, policy(credential="k1", at="elsewhere"), "k1")

        await on.ack(2, "drained")


async def test_keys_that_became_free_beside_the_one_of_an_order_are_released_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order's result releases its own; a replaced input that does not close keeps `drained` from being said."""

    def two(number: int) -> str:
        outputs = "".join(f"  {name}: {{type: scripted, credential: {name}{number}}}\n" for name in ("main", "other"))
        return f"version: 1\ninputs:\n  in: {{type: scripted, at: '{number}'}}\noutputs:\n{outputs}"

    async with theatre(tmp_path) as on:
        script, closed = DESTINATIONS["main"], trio.Event()

        async def closing() -> None:
            with trio.move_on_after(PATIENCE):
                await closed.wait()

        SPRINGS["in"].on_close = closing
        await on.offer(1, two(1), "main1", "other1")
        await on.ack(1, "drained")
        script.send = script.raising(Held("401"))
        await emit(1)
        await on.offer(2, two(2), "main2", "other2")
        await on.ack(2, "active")
        with monkeypatch.context() as only_the_order:
            only_the_order.setattr(on.rollout, "advance", trio.lowlevel.checkpoint)
            async with on.rollout._in_order:
                script.send = script.deliver
                poke(on.delivery)
            await script.until(lambda: len(on.delivery.lanes) == 2)
            released = await on.rollout.release_now("main1")

        assert released == ["main1"]
        assert (await on.released()).credentials == ["other1"]
        closed.set()
        on.settled.set()
        assert (await on.ack(2, "drained")).credentials is not None


async def test_a_secret_that_an_input_cannot_use_is_refused_before_its_old_one_is_released(tmp_path: Path) -> None:
    inputs = "inputs:\n  in: {{type: scripted, credentials: [{}]}}\n"
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(inputs=inputs.format("w1")), "w1")
        await on.ack(1, "drained")
        nack = await refused(on, 2, policy(inputs=inputs.format("w2")), secrets={"w2": {"bearer_token": "b"}})

        assert (nack.reason, nack.errors[0].path) == ("invalid", "inputs.in.credentials[0]")
        assert (
            "credential `w2` has the shape bearer_token; this input takes {api_key} or {username, password} here"
            in nack.errors[0].message
        )
        assert on.rollout.in_use == ["w1"]


async def test_an_input_changed_in_place_gives_up_its_old_key_at_the_cut(tmp_path: Path) -> None:
    inputs = "inputs:\n  in: {{type: scripted, credentials: [{}]}}\n"
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(inputs=inputs.format("w1")), "w1")
        await on.ack(1, "drained")
        await on.offer(2, policy(inputs=inputs.format("w2")), "w2")
        ack = await on.ack(2, "drained")

        assert SPRINGS["in"].log == ["open ", "run", "change  w2"]
        assert ack.credentials is not None
        assert ack.credentials.released == ["w1"]
        assert list(SPRINGS["in"].context.credentials) == ["w2"]


IN_PLACE = "inputs:\n  in: {{type: scripted, credentials: [{}]}}\n"


async def test_the_old_key_of_an_input_changed_in_place_is_released_when_nothing_uses_it(tmp_path: Path) -> None:
    closed = trio.Event()
    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_changed = closed.wait
        await on.offer(1, policy(inputs=IN_PLACE.format("w1")), "w1")
        await on.ack(1, "drained")
        await on.offer(2, policy(inputs=IN_PLACE.format("w2")), "w2")
        await on.ack(2, "active")
        await on.rollout.advance()
        assert "w1" in on.rollout.in_use
        assert on.rollout.stages.drained == Revision(0, 1)
        closed.set()
        ack = await on.ack(2, "drained")

        assert ack.credentials is not None
        assert ack.credentials.released == ["w1"]


async def test_where_an_input_cannot_say_that_its_old_key_is_unused_it_is_released_when_that_is_closed(
    tmp_path: Path,
) -> None:
    async def fails() -> None:
        raise OSError("a socket failed")

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_changed = fails
        await on.offer(1, policy(inputs=IN_PLACE.format("w1")), "w1")
        await on.ack(1, "drained")
        await on.offer(2, policy(inputs=IN_PLACE.format("w2")), "w2")
        await on.ack(2, "active")
        await on.rollout.advance()
        assert "w1" in on.rollout.in_use
        assert on.rollout._intake.running["in"].failure == "a socket failed"
        await on.offer(3, policy(at="elsewhere"))
        ack = await on.ack(3, "drained")

        assert ack.credentials is not None
        assert "w1" in ack.credentials.released


async def test_a_key_that_comes_back_is_not_released(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        await emit(1)
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "active")
        await on.offer(3, policy(credential="k1"), "k1")
        await on.ack(3, "active")
        poke(on.delivery)
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        async with on.delivery.lanes[1].suspended():
            pass
        ack = await on.ack(3, "drained")

        assert ack.credentials is not None
        assert (ack.credentials.in_use, ack.credentials.released) == (["k1"], ["k2"])


@pytest.mark.parametrize("table", ["lane", "revision", "credential"])
async def test_an_active_revision_of_which_damage_took_something_is_made_active_again(
    tmp_path: Path, table: str
) -> None:
    """The supervisor sends it at every start: if that ended the process, no start would ever succeed."""

    def lose(db: sqlite3.Connection) -> None:
        db.execute(f"DELETE FROM {table}")
        Report(lost=Counter({table: 1})).store(db)

    async with theatre(tmp_path) as on:
        await on.offer(1, policy(credential="k1"), "k1")
        await on.ack(1, "drained")
        await on.spool.store.do(lose, urgent=True)
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(credential="k1"), "k1")
        await on.wait(lambda m: isinstance(m, Ack) and m.revision == 1 and m.stage in ("active", "drained"))
        await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
        await SPRINGS["in"].context.emit(events(7))
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [7])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("credential: k1", "credential: hunter2-canary"),
        ("scripted, credential", "scripted, hunter2-canary: 1, credential"),
        ("main:", "hunter2-canary: 1\n  main:"),
        ("version: 1", "version: 1\nhunter2-canary: 1"),
    ],
)
async def test_a_secret_in_the_place_of_a_name_is_not_told_if_it_came_beside_the_policy(
    tmp_path: Path, before: str, after: str
) -> None:
    async with theatre(tmp_path) as on:
        beside = {"k1": {"username": "main", "password": "hunter2-canary"}}
        await on.offer(1, policy(credential="k1").replace(before, after), secrets=beside)
        nack = await on.nack(1)

        assert nack.errors
        assert b"hunter2" not in nack.line()
        assert "…" in str(nack.errors)


async def test_the_terms_of_the_active_policy_hold_after_a_restart_before_it_has_come_again(tmp_path: Path) -> None:
    limits = SpoolLimits(Limits(1 << 16, "hold"), 8.0, "drop")
    more = "dead_letters: {max_bytes: 64KiB, when_full: hold}\ndrain: {deadline: 8s, on_deadline: drop}\n"
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(more=more))
        await on.ack(1, "drained")
        assert on.spool.limits == limits
        await on.spool.store.do(lambda db: db.execute("DELETE FROM meta WHERE key = 'letters_max_bytes'"))
    async with theatre(tmp_path) as on:
        assert on.spool.limits == SpoolLimits()
        await on.offer(1, policy(more=more))
        await SPRINGS["in"].until(lambda: on.rollout.plan is not None)
    async with theatre(tmp_path) as on:
        assert on.spool.limits == limits


async def test_of_what_is_supplied_at_once_a_secret_that_nobody_can_use_costs_no_other(tmp_path: Path) -> None:
    inputs = "inputs:\n  in: {type: scripted, credentials: [kx]}\n"
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(credential="k1", inputs=inputs), "k1", "kx")
        await on.ack(1, "drained")
    async with theatre(tmp_path) as on:
        with pytest.raises(CredentialError):
            await on.rollout.supply({"kx": {"api_key": "not base64"}, "k1": {"api_key": "k1:secret-of-k1"}})

        assert "k1" in on.keyring


async def test_a_superseded_revision_releases_nothing_that_one_needs_which_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        SPRINGS["more"].on_open = hangs
        await on.offer(2, policy(credential="x", inputs="inputs:\n  more: {type: scripted, of: more}\n"), "x")
        await on.ack(2, "received")
        forget, later = on.spool.revisions.forget_credentials, [4]

        async def slow(*arguments: Any) -> Any:
            forgotten = await forget(*arguments)
            if later:
                await on.offer(later.pop(), policy(credential="x"), "x")
            return forgotten

        monkeypatch.setattr(on.spool.revisions, "forget_credentials", slow)
        await on.offer(3, policy(credential="k3"), "k3")

        assert "x" not in (await on.nack(2)).released
        await on.ack(4, "drained")


async def test_a_key_that_came_free_is_kept_for_a_revision_that_names_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held when that came, and so it did not bring it."""
    two = "version: 1\ninputs:\n  in: {{type: scripted}}\noutputs:\n  main: {{type: scripted, credential: {}}}\n"
    two += "  other: {{type: scripted, to: other, credential: {}}}\n"
    async with theatre(tmp_path) as on:
        await on.offer(1, two.format("a1", "b1"), "a1", "b1")
        await on.ack(1, "drained")
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await SPRINGS["in"].context.emit(events(1, 2, 3))
        advance, later = on.spool.revisions.advance, [3]

        async def slow(*arguments: Any) -> Any:
            answer = await advance(*arguments)
            if answer[1] and later:
                await on.offer(later.pop(), two.format("a2", "b1"))
            return answer

        monkeypatch.setattr(on.spool.revisions, "advance", slow)
        await on.offer(2, two.format("a2", "b2"), "a2", "b2")
        await on.ack(3, "active")

        assert not later
        assert "b1" in on.keyring
        assert not [said for said in on.said if isinstance(said, Released) and "b1" in said.credentials]


# -- withdrawn credentials ---------------------------------------------------------------------------------------------

K1 = {"api_key": "k1:secret-of-k1"}


async def test_a_withdrawn_credential_is_wanted_until_the_same_secret_is_supplied_again(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        await started(on)
        await on.rollout.supply({"k1": None})
        await emit(1)
        await script.until(lambda: next(iter(on.delivery.lanes.values())).is_held)
        assert on.rollout.wanted() == ["k1"]
        with pytest.raises(CredentialError) as raised:
            await on.rollout.supply({"k1": {"api_key": "other:secret"}})
        assert raised.value.reason == "credential_conflict"
        await on.rollout.supply({"k1": K1})
        await script.until(lambda: script.received == [1])

        assert on.rollout.wanted() == []


async def test_a_withdrawn_credential_is_wanted_though_nothing_waits_for_it(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        await on.rollout.supply({"k1": None})

        assert on.rollout.wanted() == ["k1"]


@pytest.mark.parametrize(
    ("beside", "reason"),
    [
        ({"unknown": None}, "invalid"),
        ({"x" * 5000: None}, "invalid"),
        ({"w1": {"api_key": "other:top-secret"}}, "credential_conflict"),
        ({"w1": {"api_key": "top-secret"}}, "invalid"),
        ({"w1": {"top-secret": "top-secret"}}, "invalid"),
    ],
)
async def test_supplying_and_withdrawing_in_one_message_is_all_or_nothing(
    tmp_path: Path, beside: dict[str, Any], reason: str
) -> None:
    inputs = "inputs:\n  in: {type: scripted, credentials: [w1]}\n"
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(credential="k1", inputs=inputs), "k1", "w1")
        await on.ack(1, "drained")
        with pytest.raises(CredentialError) as raised:
            await on.rollout.supply({"k1": None, **beside})

        assert raised.value.reason == reason
        assert "top-secret" not in str(raised.value)
        assert len(str(raised.value)) < 300
        assert ("k1" in on.keyring, on.rollout.wanted()) == (True, [])


async def test_one_credential_is_supplied_and_another_withdrawn_by_one_message(tmp_path: Path) -> None:
    inputs = "inputs:\n  in: {type: scripted, credentials: [w1]}\n"
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(credential="k1", inputs=inputs), "k1", "w1")
        await on.ack(1, "drained")
        await on.rollout.supply({"w1": None})
        await on.rollout.supply({"k1": None, "w1": {"api_key": "w1:secret-of-w1"}})

        assert on.rollout.wanted() == ["k1"]


async def test_what_is_withdrawn_while_its_revision_is_on_its_way_is_not_held_when_it_is_active(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        gate, opening = trio.Event(), trio.Event()

        async def waits(context: InputContext) -> None:
            opening.set()
            await gate.wait()

        SPRINGS["more"].on_open = waits
        await on.offer(2, policy(credential="k2", inputs="inputs:\n  more: {type: scripted, of: more}\n"), "k2")
        await on.rollout.supply({"k2": None})  # not stored yet, or not held yet
        await opening.wait()
        gate.set()
        await on.ack(2, "active")

        assert "k2" not in on.keyring
        assert on.rollout.wanted() == ["k2"]


async def test_a_policy_supplies_again_what_was_withdrawn(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        await on.rollout.supply({"k1": None})
        nack = await refused(on, 2, policy(credential="k1"))
        assert nack.reason == "credential_missing"
        await on.offer(1, policy(credential="k1"), "k1")

        assert on.rollout.wanted() == []


async def test_a_withdrawn_credential_is_released_as_any_other(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await started(on)
        await on.rollout.supply({"k1": None})
        await on.offer(2, policy(credential="k2"), "k2")
        ack = await on.ack(2, "drained")

        assert ack.credentials is not None
        assert ack.credentials.released == ["k1"]
        assert (on.rollout.wanted(), on.keyring.withdrawn) == ([], set())


async def test_a_withdrawn_credential_that_its_input_still_uses_is_not_released(tmp_path: Path) -> None:
    begun, unused = trio.Event(), trio.Event()

    async def slow() -> None:
        begun.set()
        await unused.wait()

    async with theatre(tmp_path) as on:
        await on.offer(1, policy(inputs=IN_PLACE.format("w1")), "w1")
        await on.ack(1, "drained")
        SPRINGS["in"].on_changed = slow
        await on.rollout.supply({"w1": None})
        await begun.wait()
        SPRINGS["in"].on_changed = trio.lowlevel.checkpoint
        await on.offer(2, policy(inputs=IN_PLACE.format("w2")), "w2")
        await on.ack(2, "active")
        await on.rollout.advance()
        assert ("w1" in on.rollout.in_use, "2 drained" in on.lines()) == (True, False)
        unused.set()
        ack = await on.ack(2, "drained")

        assert ack.credentials is not None
        assert ack.credentials.released == ["w1"]


# -- outputs with several credentials ----------------------------------------------------------------------------------


def nested(sasl: str, client: str) -> str:
    """A policy of an output that has one credential in nested settings, and one in a union in a list."""
    output = f"{{type: nested, sasl: {{secret: {sasl}}}, tls: [{{kind: any}}, {{kind: own, client: {client}}}]}}"
    return f"version: 1\ninputs:\n  in: {{type: scripted}}\noutputs:\n  main: {output}\n"


async def test_drained_waits_for_each_of_several_credentials_and_releases_them_all(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.send = script.raising(Held("401"))
        await on.offer(1, nested("s1", "c1"), "s1", "c1")
        first = await on.ack(1, "drained")
        await emit(1, 2)
        await on.offer(2, nested("s2", "c2"), "s2", "c2")
        await on.ack(2, "active")
        await script.until(lambda: script.log.count("close c1+s1") > 0)
        assert (on.rollout.in_use, "2 drained" in on.lines()) == (["c1", "c2", "s1", "s2"], False)

        script.send = script.deliver
        ack = await on.ack(2, "drained")

    assert first.credentials is not None
    assert ack.credentials is not None
    assert first.credentials.in_use == ["c1", "s1"]
    assert (ack.credentials.in_use, ack.credentials.released) == (["c2", "s2"], ["c1", "s1"])
    assert "open c2+s2" in script.log or script.received == [1, 2]


async def test_one_of_several_credentials_is_rotated_by_a_barrier_that_releases_it_alone(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(1, nested("s1", "c1"), "s1", "c1")
        await on.ack(1, "drained")
        await emit(1)
        await on.offer(2, nested("s2", "c1"), "s2", "c1")
        ack = await on.ack(2, "drained")

        assert ack.change == "barrier"
        assert ack.credentials is not None
        assert (ack.credentials.in_use, ack.credentials.released) == (["c1", "s2"], ["s1"])
        assert ("s1" in on.keyring, "c1" in on.keyring) == (False, True)


async def test_a_withdrawn_credential_holds_a_lane_that_has_others_too(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(1, nested("s1", "c1"), "s1", "c1")
        await on.ack(1, "active")
        await on.rollout.supply({"c1": None})
        await emit(1)
        (lane,) = on.delivery.lanes.values()
        await DESTINATIONS["main"].until(lambda: lane.code == "credential_withdrawn")
        assert on.rollout.wanted() == ["c1"]

        await on.rollout.supply({"c1": {"api_key": "c1:secret-of-c1"}})
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [1])


async def test_after_a_restart_a_lane_wants_each_of_its_credentials(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.send = script.raising(Held("401"))
        await on.offer(1, nested("s1", "c1"), "s1", "c1")
        await on.ack(1, "active")
        await emit(1)
    async with theatre(tmp_path, keep=True) as on:
        script.send = script.deliver
        assert on.rollout.wanted() == ["c1", "s1"]
        await on.rollout.supply({"s1": {"api_key": "s1:secret-of-s1"}})
        assert on.rollout.wanted() == ["c1"]
        assert script.received == []
        await on.rollout.supply({"c1": {"api_key": "c1:secret-of-c1"}})
        await script.until(lambda: script.received == [1])


async def test_each_secret_has_a_shape_that_its_setting_takes(tmp_path: Path) -> None:
    basic = {"username": "u", "password": "secret"}
    async with theatre(tmp_path) as on:
        nack = await refused(on, 1, nested("s1", "c1"), secrets={"s1": basic, "c1": basic})
        assert (nack.reason, nack.errors[0].path) == ("invalid", "outputs.main.tls[1].client")

        await on.offer(2, nested("s1", "c1"), "c1", secrets={"s1": basic})
        await on.ack(2, "active")
