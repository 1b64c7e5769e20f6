"""The campaign, a short while of each kind; and it must be able to find something wrong."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import trio

from tests.campaign_relay.campaign import Failed, Options, opened
from tests.campaign_relay.things import Thing

SECONDS = 6.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(delivers=True, principals=2),
        Options(delivers=True, far=True),
        Options(delivers=True, principals=2, back="both"),
    ],
    ids=["stored", "delivered", "far", "back"],
)
async def test_every_line_is_at_the_backend_and_the_last_word_of_every_key_whatever_failed(
    tmp_path: Path, options: Options
) -> None:
    async with opened(tmp_path, seed=1, options=options) as campaign:
        await campaign.run(SECONDS)

    assert campaign.lines > 500
    assert campaign.things.seen["versions written"] > 20
    assert sum(party.lives for party in campaign.parties) > len(campaign.parties)


async def test_a_line_that_is_missing_or_there_twice_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path, seed=1) as campaign:
        (berlin, paris), backend = campaign.edges, campaign._backend
        berlin.write(2)
        paris.write(1)
        index = backend.documents.setdefault("logs", {})
        index |= {"a": b'{"message":"canary-event berlin 0"}', "b": b'{"message":"canary-event berlin 0"}'}
        index["c"] = b'{"message":"canary-event paris 0"}'
        await trio.lowlevel.checkpoint()
        with pytest.raises(Failed, match=r"berlin: 1 lines lost \(\[1\]…\), 1 more than once \(\[0\]…\)"):
            campaign._check(berlin)
        campaign._check(paris)


@pytest.mark.parametrize(
    "ledger", [{"accepted": 3, "delivered": 2}, {"accepted": 3, "delivered": 2, "dead_letter": 1}], ids=str
)
async def test_a_ledger_that_does_not_add_up_or_has_a_dead_letter_is_found(
    tmp_path: Path, ledger: dict[str, int]
) -> None:
    async with opened(tmp_path, seed=1) as campaign:
        party = campaign.edges[0].party
        party._hear({"type": "ack", "stage": "drained", "revision": 3, "ledger": {"accepted": 1, "delivered": 1}})
        campaign._check_ledgers(party)
        party._hear({"type": "ack", "stage": "drained", "revision": 4, "ledger": ledger})
        await trio.lowlevel.checkpoint()
        with pytest.raises(Failed, match="berlin: the ledger of revision 4 is wrong"):
            campaign._check_ledgers(party)


async def test_a_key_whose_last_word_is_missing_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path, seed=1) as campaign:
        campaign._check_things()
        campaign.things.put(Thing("berlin", "inventory", "a"))
        await trio.lowlevel.checkpoint()
        with pytest.raises(Failed, match="1 keys are not the last word"):
            campaign._check_things()


@pytest.mark.parametrize(("confirms", "is_early"), [("delivered", True), (None, True), ("stored", False)])
async def test_a_revision_that_is_drained_before_a_key_is_delivered_is_found(
    tmp_path: Path, confirms: str | None, is_early: bool
) -> None:
    async with opened(tmp_path, seed=1) as campaign:
        party, program = campaign.edges[0].party, campaign.edges[0].program
        campaign.things.put(Thing(program.owner, program.collection, "a"))
        said = {"type": "ack", "stage": "drained", "revision": 3}
        party._hear(said if confirms is None else said | {"confirms": confirms})
        await trio.lowlevel.checkpoint()
        with pytest.raises(Failed, match="revision 3 was drained too early") if is_early else nullcontext():
            campaign._check_drained(party, 3, program.standing())


async def test_who_tells_that_a_principal_went_back_which_has_not_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path, seed=1) as campaign:
        campaign._check_told()
        campaign.edges[0].party._told_before = 2
        await trio.lowlevel.checkpoint()
        with pytest.raises(Failed, match="berlin told 2 times"):
            campaign._check_told()
        campaign._have_gone_back = True
        campaign._check_told()
