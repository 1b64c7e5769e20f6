"""The campaign, a short while of it; and it must be able to find something wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.campaign_relay.campaign import Failed, opened

SECONDS = 20.0


@pytest.mark.timeout(300)
async def test_every_line_is_at_the_backend_once_whatever_happened_to_links_and_processes(tmp_path: Path) -> None:
    async with opened(tmp_path, seed=1) as campaign:
        await campaign.run(SECONDS)

    assert campaign.lines > 1000
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
