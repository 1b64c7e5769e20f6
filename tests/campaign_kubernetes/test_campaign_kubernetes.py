"""The campaign, for a short while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.kubernetes import Kubernetes, Unavailable
from tests.campaign_kubernetes.campaign import open_campaign
from tests.campaign_kubernetes.stage import open_kubernetes


@pytest.fixture
def audited() -> Iterator[Kubernetes]:
    """A server of its own, for it is killed."""
    try:
        with open_kubernetes() as kubernetes:
            yield kubernetes
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.mark.backend
@pytest.mark.timeout(600)
async def test_members_keep_their_word_while_all_objects_change(tmp_path: Path, audited: Kubernetes) -> None:
    async with open_campaign(tmp_path, audited, seed=3, members=3) as campaign:
        await campaign.run(edits=40, rotations=6, restarts=1)

    assert campaign.done["edits"] >= 40
    assert campaign.seen.released
    assert campaign.seen.revoked
