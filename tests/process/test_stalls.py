"""Who holds up the event loop is named, while it lasts and for a while after."""

import threading

import pytest
import trio
import trio.testing

from shipper.process import stalls
from shipper.process.stalls import Modules, Stalls

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(stalls, "LONG_SECONDS", 0.2)


def this_one(modules: Modules) -> str | None:
    return next((module for module in modules if module == __name__), None)


async def test_a_module_that_holds_up_the_loop_is_named_while_it_does() -> None:
    noticed = threading.Event()
    watch = Stalls(this_one, lambda module: noticed.set())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.testing.wait_all_tasks_blocked()
        assert watch.module is None
        assert noticed.wait(PATIENCE)  # this is what holds up the loop

        assert (watch.module, watch.seconds >= 0.2) == (__name__, True)
        nursery.cancel_scope.cancel()


async def test_what_is_no_plugins_is_not_named() -> None:
    asked = threading.Event()

    def nobody(modules: Modules) -> None:
        assert __name__ in modules
        asked.set()

    watch = Stalls(nobody)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.testing.wait_all_tasks_blocked()
        assert asked.wait(PATIENCE)

        assert watch.module is None
        nursery.cancel_scope.cancel()


async def test_a_plugin_is_named_for_some_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "REMEMBERED_SECONDS", 0.0)
    noticed = threading.Event()
    watch = Stalls(this_one, lambda module: noticed.set())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.testing.wait_all_tasks_blocked()
        assert noticed.wait(PATIENCE)

        assert watch.module is None
        nursery.cancel_scope.cancel()
