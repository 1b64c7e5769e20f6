"""A lane whose output has several hosts, one of which answers badly: it goes on with the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from shipper.pipeline.plan import lane_keys, lane_settings
from shipper.policy.policy import OutputSpec
from shipper.sdk.aio import open_asyncio
from shipper.spool.revisions import Text
from shipper.testing import open_destination
from shipper.values import Revision
from shipper_plugins.elasticsearch.output import ElasticsearchOutput
from tests.fakes import bench
from tests.raw_http import http, raw_server, read_request


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_lane_goes_on_with_the_other_host_while_one_answers_503(tmp_path: Path, is_first: bool) -> None:
    asked = 0

    async def talk(stream: trio.SocketStream) -> None:
        nonlocal asked
        while True:
            await read_request(stream)
            asked += 1
            await stream.send_all(http(b"", "503 Service Unavailable"))

    with trio.fail_after(60):
        async with (
            open_asyncio() as aio,
            bench(tmp_path) as on,
            raw_server(talk) as bad,
            open_destination(aio) as good,
        ):
            on.delivery.pool.means = replace(on.delivery.pool.means, aio=aio)
            hosts = (bad, good.url) if is_first else (good.url, bad)
            spec = OutputSpec("main", "elasticsearch", ElasticsearchOutput(hosts=hosts, workers=1))
            await on.spool.revisions.receive(Text(Revision(0, 1), "sha", "1", "barrier", [], ""), {})
            cut = await on.spool.revisions.cut(Revision(0, 1), [(key, lane_settings(spec)) for key in lane_keys(spec)])
            on.delivery.take_over(cut.lanes, {"main": spec.config}, cut.retired)
            on.at = Revision(0, 1)
            on.active = {row.key.output: on.delivery.lanes[row.id] for row in cut.lanes}
            for count in range(1, 4):
                await on.enter(to=["main"])
                while good.total < count:  # noqa: ASYNC110
                    await trio.sleep(0.01)

    assert asked
