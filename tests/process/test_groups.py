"""Whatever a plugin raises stays with its unit; a cancel of ours goes on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from shipper.plugin import Held, Later, PluginFault, TooLarge
from shipper.process.groups import contained, failures_apart

ENDS = [SystemExit(1), GeneratorExit(), asyncio.CancelledError(), BaseExceptionGroup("", [SystemExit(1), ValueError()])]


@contextmanager
def noted(found: list[Exception]) -> Iterator[None]:
    with failures_apart(found.append):
        yield


@pytest.mark.parametrize("error", ENDS, ids=repr)
async def test_what_ends_a_program_elsewhere_is_a_failure_that_names_it(error: BaseException) -> None:
    found: list[Exception] = []
    with noted(found):
        raise error
    with pytest.raises(PluginFault) as raised, contained():
        raise error

    name = "SystemExit" if isinstance(error, BaseExceptionGroup) else type(error).__name__
    assert [str(one).startswith(f"the plugin raised {name}") for one in (*found, raised.value)] == [True, True]


@pytest.mark.parametrize("error", [Later("a", 3.0, code="mine"), Held("b"), TooLarge("c"), ZeroDivisionError("d")])
async def test_an_error_that_is_alone_in_groups_is_this_error(error: Exception) -> None:
    found: list[Exception] = []
    with noted(found):
        raise ExceptionGroup("", [ExceptionGroup("", [error])])
    with pytest.raises(type(error), match=str(error)) as raised, contained():
        raise ExceptionGroup("", [ExceptionGroup("", [error])])

    assert found == [error]
    assert vars(raised.value) == vars(error)


async def kept() -> trio.Cancelled:
    """A cancel whose scope has ended."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            return error
    raise AssertionError


async def test_a_cancel_that_nobody_asked_for_is_a_failure() -> None:
    found: list[Exception] = []
    old = await kept()
    with noted(found):
        raise old
    with pytest.raises(PluginFault, match="the plugin raised Cancelled"), contained():
        raise old

    assert str(found[0]).startswith("the plugin raised Cancelled")


async def test_a_cancel_of_ours_goes_on_and_a_failure_beside_it_is_told() -> None:
    found: list[Exception] = []
    for border in (contained(), noted(found)):
        with trio.CancelScope() as scope, border:
            scope.cancel()
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
    assert found == []

    async def fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit

    with trio.CancelScope() as scope, noted(found), contained():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()

    assert [str(one).startswith("the plugin raised SystemExit") for one in found] == [True]


async def test_an_interrupt_is_a_persons_only_where_the_key_raises_it() -> None:
    with pytest.raises(KeyboardInterrupt), contained():
        raise KeyboardInterrupt
    with pytest.raises(BaseExceptionGroup), contained():
        raise BaseExceptionGroup("", [ValueError(), KeyboardInterrupt()])
    with trio.open_signal_receiver(signal.SIGINT), pytest.raises(PluginFault), contained():
        raise KeyboardInterrupt


def test_in_a_thread_of_its_own_a_plugin_is_contained_as_well() -> None:
    with pytest.raises(PluginFault, match="SystemExit"), contained():
        raise SystemExit
