"""The policy files on a file system that does not answer."""

from __future__ import annotations

import threading
from typing import cast

import trio

from shipper.supervise.desired import Desired
from shipper.supervise.files import Files
from shipper.supervise.watch import Watch


class Silent:
    """Files of which no reading comes back before `go_on`."""

    watched = ()

    def __init__(self) -> None:
        self.began, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()

    def read(self, known: object) -> None:
        self.began.set()
        self.go_on.wait(20)
        self.ended.set()


async def test_a_reading_that_hangs_does_not_hold_up_the_end() -> None:
    silent = Silent()
    with Watch() as watch:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Files(cast(Desired, silent), watch).read, dict)
            await trio.to_thread.run_sync(silent.began.wait, 20)
            nursery.cancel_scope.cancel()
        assert not silent.ended.is_set()
    silent.go_on.set()
    await trio.to_thread.run_sync(silent.ended.wait, 20)
