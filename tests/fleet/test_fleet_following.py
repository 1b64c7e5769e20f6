"""A wait that is shown while it goes on, over a store in memory."""

import pytest
import trio
import trio.testing

from shipper.fleet.following import follow
from shipper.fleet.judge import Verdict
from shipper.fleet.store import StoreUnreachable
from tests.fleet.test_fleet_questions import NEW, OLD, SEALS, fleet


class Shown:
    def __init__(self):
        self.found = []

    def __call__(self, found, seconds):
        self.found.append((found, seconds))

    @property
    def states(self):
        return {found.state for found, _ in self.found if isinstance(found, Verdict)}


async def followed(made, shown, *, number=7, seconds=60.0, client=None):
    store = client or made.server.client()
    return await follow(store, SEALS, number, "drained", seconds, 10.0, shown)


async def test_an_answer_that_is_open_at_once_is_not_shown_before(autojump_clock):
    shown = Shown()
    async with fleet() as made:
        verdict = await followed(made, shown)

    assert verdict.state == "open"
    assert shown.found == []


async def test_a_closed_answer_is_shown_at_the_start_and_once_a_second(autojump_clock):
    shown = Shown()
    async with fleet(members=(("web-1", OLD),)) as made:
        verdict = await followed(made, shown, seconds=10.0)

    assert verdict.state == "closed"
    assert shown.states == {"closed"}
    assert [round(seconds) for _, seconds in shown.found][:9] == list(range(9))


async def test_a_wait_for_a_triple_is_not_opened_by_the_same_number_of_another(autojump_clock):
    async with fleet() as made:
        verdict = await followed(made, Shown(), number=NEW._replace(sha256="other"))

    assert verdict.state == "gone"


async def test_a_store_that_is_away_at_the_start_is_an_error_at_once(autojump_clock):
    async with fleet() as made:
        client = made.server.client()
        client.set(cut=True)
        began = trio.current_time()
        with pytest.RaisesGroup(StoreUnreachable, flatten_subgroups=True):
            await followed(made, Shown(), client=client, seconds=600.0)
        assert trio.current_time() - began < 30


async def test_a_store_that_is_away_later_is_shown_and_waited_for(autojump_clock):
    shown, verdicts = Shown(), []
    async with fleet(members=(("web-1", OLD),)) as made:
        client = made.server.client()

        async def ask():
            verdicts.append(await followed(made, shown, client=client, seconds=300.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            client.set(cut=True)
            await trio.sleep(60)
            await made.report("web-1")
            client.set(cut=False)

    assert verdicts[0].state == "open"
    assert any(isinstance(found, str) for found, _ in shown.found)
