"""A wake-up that is never lost."""

import trio

from shipper.process.signal import Signal


async def test_a_signal_set_before_the_wait_is_not_lost() -> None:
    signal = Signal()
    signal.set()
    signal.set()
    with trio.fail_after(60):
        await signal.wait()


async def test_a_wait_takes_the_signal_with_it() -> None:
    signal = Signal()
    signal.set()
    await signal.wait()
    with trio.move_on_after(0.01) as timeout:
        await signal.wait()

    assert timeout.cancelled_caught


async def test_a_cancelled_wait_takes_nothing() -> None:
    signal = Signal()
    signal.set()
    with trio.CancelScope() as scope:
        scope.cancel()
        await signal.wait()
    with trio.fail_after(60):
        await signal.wait()
