"""What happens, in order: the processes start, the log grows, the key is rotated, and at the end all is counted."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

import trio

from shipper_demo import leash, revoke
from shipper_demo.access_log import AccessLog
from shipper_demo.destination import Destination, opened
from shipper_demo.key import Key
from shipper_demo.process import Process, Said, launched
from shipper_demo.revoking import Wish, heard
from shipper_demo.rotation import Rotations
from shipper_demo.screen import BAD, COUNT, GOOD, WHAT, Figure, Screen
from shipper_demo.tally import Tally
from shipper_demo.wire import Wire

_PATIENCE = 30.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """How long, how fast, and where; durations in seconds."""

    directory: Path
    seconds: float = 20.0
    every: float = 3.0
    rate: int = 20_000
    at_first: int = 50_000


async def show(options: Options, screen: Screen) -> int:
    """Returns 0 if every figure is as promised, else 1. SIGINT and SIGTERM end it in order, a second one at once.

    Raises ShipperError if a part cannot start or ends before its time, KeyboardInterrupt on the second signal.
    """
    async with trio.open_nursery() as nursery:
        demo = _Demo(options, screen)
        await nursery.start(heed_signals, demo.over)
        good = await demo.run()
        nursery.cancel_scope.cancel("the demo is over")
    return 0 if good else 1


async def heed_signals(over: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Sets `over` on the first signal that ends a program; raises KeyboardInterrupt on the second."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            if over.is_set():
                raise KeyboardInterrupt
            over.set()


class _Demo:
    def __init__(self, options: Options, screen: Screen) -> None:
        self._options = options
        self._screen = screen
        self._directory = options.directory.absolute()
        self.over = trio.Event()
        """Set to end it before its time."""
        self._begun = trio.current_time()
        self._log = AccessLog(self._directory / "access.log")
        self._tally = Tally(self._directory / "destination" / "record.ndjson")
        self._rotations = Rotations()
        self._shown = 0
        self._news = trio.Event()
        self._wire = Wire()
        self._moved = trio.current_time()

    async def run(self) -> bool:
        """Whether everything was as promised."""
        self._screen.tell(WHAT.format(seconds=self._options.seconds, every=self._options.every))
        async with opened(self._directory / "destination") as destination:
            with self._log:
                await self._ship(destination)
        while await trio.to_thread.run_sync(self._tally.read):
            pass
        return self._conclude()

    async def _ship(self, destination: Destination) -> None:
        """Everything between the start of the destination and its end."""
        await trio.to_thread.run_sync(self._log.write, self._options.at_first)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._wire.serve, destination.port)
            await self._rotate(destination)
            self._screen.head()
            async with heard(partial(self._revoke, destination)) as socket, self._agent(socket) as agent:
                nursery.start_soon(agent.listen, self._hear)
                nursery.start_soon(self._look)
                await self._busy(destination)
                await self._settled()
                await agent.end()
            nursery.cancel_scope.cancel("the agent has ended")

    @asynccontextmanager
    async def _agent(self, socket: Path) -> AsyncIterator[Process]:
        """`shipper supervise`, as a user would start it."""
        here = self._directory
        (here / "policy.yaml").write_text((resources.files("shipper_demo") / "policy.yaml").read_text())
        command = [sys.executable, "-I", "-S", revoke.__file__, str(socket)]
        (here / "supervise.yaml").write_text(
            json.dumps({"on_release": {"command": command, "timeout": "10s"}}, indent=2)
        )
        arguments = ["supervise", "policy.yaml", "--config", "supervise.yaml", "--state", "state", "--json"]
        environment = {
            "DEMO_LOG": str(self._log.path),
            "DEMO_URL": f"http://127.0.0.1:{self._wire.port}",
            "DEMO_KEY": "key",
        }
        async with launched(
            "shipper supervise",
            [sys.executable, "-P", "-m", leash.__name__, *arguments, "--grace", "2s"],
            here / "supervise.ndjson",
            os.environ | environment,
        ) as agent:
            yield agent

    # -- while it runs -------------------------------------------------------------------------------------------------

    async def _busy(self, destination: Destination) -> None:
        """Write and rotate for the time that was asked for, or until someone has seen enough.

        The time counts from the first key's use, and all rotations belong to it: a slow machine takes longer.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._log.grow, self._options.rate)
            nursery.start_soon(self._fill_the_time, destination)
            await self.over.wait()
            nursery.cancel_scope.cancel("the time is over, or someone has seen enough")

    async def _fill_the_time(self, destination: Destination) -> None:
        with trio.move_on_after(self._options.seconds + _PATIENCE):
            while not self._rotations.in_use:
                await self._news.wait()
            begun = trio.current_time()
            await self._rotate_again_and_again(destination)
            await trio.sleep_until(begun + self._options.seconds)
        self.over.set()

    async def _rotate_again_and_again(self, destination: Destination) -> None:
        """Each key is used before the next one comes, also on a machine that is slow; nothing else is waited for."""
        for _ in range(int((self._options.seconds - self._options.every / 2) / self._options.every)):
            await trio.sleep(self._options.every)
            while not self._rotations.in_use:
                await self._news.wait()
            await self._rotate(destination)

    async def _rotate(self, destination: Destination) -> None:
        """Admit a new key, and put it where the agent looks. That is all that a rotation is."""
        key = Key.drawn(f"shipper-{len(self._rotations.rows) + 1}")
        with trio.CancelScope(shield=True):
            await destination.admit(key)
        self._rotations.wrote(key, trio.current_time())
        new = self._directory / "key.new"
        new.touch(mode=0o600)
        new.write_text(key.text + "\n")
        new.rename(self._directory / "key")

    def _hear(self, event: Said) -> None:
        """What the agent says, in the instant in which it is read."""
        fields = {key.removeprefix("shipper."): value for key, value in event.items()}
        self._rotations.heard(fields | {"event": event["event.action"]}, trio.current_time())
        self._news.set()
        self._news = trio.Event()
        self._show_rows()

    async def _revoke(self, destination: Destination, wish: Wish) -> bool:
        """What a backend does when `on_release` asks it to revoke a key."""
        row = self._rotations.released(wish.key)
        assert row.replaced is not None
        await destination.revoke(row.replaced)
        row.revoked_at = row.revoked_at or trio.current_time()
        row.answer = await destination.answer_to(row.replaced)
        self._show_rows()
        return True

    async def _look(self) -> None:
        """Read the destination's record while it grows."""
        while True:
            if await trio.to_thread.run_sync(self._tally.read):
                self._moved = trio.current_time()
            else:
                await trio.sleep(_LOOK_SECONDS)
            written, delivered = self._log.written, self._tally.delivered
            self._screen.progress(
                f"    written {written:,}   delivered {delivered:,}   under way {written - delivered:,}"
            )

    async def _settled(self) -> None:
        """Wait until everything has arrived and every old key is revoked, or until nothing moves any more."""
        self._moved = trio.current_time()
        while self._tally.lost(self._log.written) or not self._rotations.complete:
            if trio.current_time() - self._moved > _PATIENCE:
                return
            await trio.sleep(_LOOK_SECONDS)

    def _show_rows(self) -> None:
        while self._shown < len(self._rotations.rows) and self._rotations.rows[self._shown].complete:
            self._screen.rotation(self._rotations.rows[self._shown], self._begun)
            self._shown += 1

    # -- the end -------------------------------------------------------------------------------------------------------

    def _conclude(self) -> bool:
        for row in self._rotations.rows[self._shown :]:
            self._screen.rotation(row, self._begun)
        figures = self._figures()
        good = all(figure.good is not False for figure in figures)
        self._screen.say(COUNT)
        self._screen.figures(figures)
        self._screen.say(GOOD if good else BAD, "bold" if good else "bold red")
        return good

    def _figures(self) -> list[Figure]:
        written, tally, rows = self._log.written, self._tally, self._rotations.rows
        lost, duplicates = tally.lost(written), tally.duplicates + tally.shared_ids + tally.foreign
        refused, requests = self._wire.answers[401] + self._wire.answers[403], self._wire.answers.total()
        revoked = sum(row.good for row in rows if row.replaced is not None)
        return [
            Figure("lines written", written),
            Figure("delivered", tally.delivered),
            Figure("lost", lost, good=lost == 0),
            Figure("duplicates", duplicates, "by id and by line", duplicates == 0),
            Figure("requests refused", refused, f"of {requests:,}, as the destination answered them", refused == 0),
            Figure(
                "keys revoked", revoked, f"of {len(rows) - 1}, each refused since (401)", all(row.good for row in rows)
            ),
        ]
