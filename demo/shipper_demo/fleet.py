"""`shipper demo fleet`: five hosts replace the key that they share, while most of them fail.

log ──> shipper supervise ──> wire ──┐
  … five members, one policy in etcd ├──> destination: a second shipper ──> record ──> a tally for each member
log ──> shipper supervise ──> wire ──┘        ▲
              │ the elected one: on_release   │
              └────────> revoke ──────────────┘ of the old key
"""

from __future__ import annotations

import base64
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from shipper.sdk.errors import ShipperError
from shipper_demo import revoke
from shipper_demo.destination import Destination, opened
from shipper_demo.etcd import running
from shipper_demo.host import Host, configure
from shipper_demo.key import Key
from shipper_demo.operator import Operator
from shipper_demo.process import Said
from shipper_demo.replacement import Replacement
from shipper_demo.revoking import Wish, heard
from shipper_demo.screen import BAD, Figure, Row, Screen
from shipper_demo.show import heed_signals

WHAT = """\
shipper demo fleet: five hosts ship their logs with one key, and the key is replaced while most of them fail.

  Each host is a `shipper supervise` with a state directory of its own, a member of a fleet in etcd; paris and lima send
  nothing without a lease (`on_lapse: hold`). `shipper fleet` publishes the policy and the key, and waits until all have
  drained. Meanwhile one host is killed, one hangs, and the one that is elected for `on_release` is killed as well.
  When the fleet has released the old key, the newly elected host has it revoked at the destination.

  It takes less than a minute; Ctrl-C ends it earlier, with the same count at the end.
"""
COUNT = "\nThe lines of each host's log, against the destination's own record of what it took:\n"
WAITED = "\nVersion {version} was drained {drained}, and its old key revoked {revoked}. Meanwhile the answer:\n"
GOOD = """
As promised: no event was lost, none came twice, and no request showed the old key after the fleet had released it.
"""
HOSTS = {"berlin": False, "paris": True, "rome": False, "oslo": False, "lima": True}
"""By name, whether it sends nothing without a lease."""
CANDIDATES = ("rome", "oslo")
"""Those that have an `on_release`."""
_KILLED, _HANGING = "berlin", "paris"
_POLICY = """\
version: 1
inputs:
  access:
    type: file
    paths: ["${DEMO_LOG:-/var/log/nginx/access.log}"]
    data_stream: {type: logs, dataset: "${DEMO_HOST:-host}", namespace: demo}
outputs:
  main:
    type: elasticsearch
    hosts: ["${DEMO_URL:-http://127.0.0.1:9200}"]
    credential: {fleet: es}
    timeout: 2s                  # a host that hangs is certain to send nothing so long after its lease
"""
_LEASE = "3s"
_GROWS_SECONDS = 1.0
_PATIENCE = 40.0
_LOOK_SECONDS = 0.1


async def show(directory: Path, rate: int, etcd: str, screen: Screen) -> int:
    """Returns 0 if every figure is as promised, else 1; see `shipper_demo.show.show`."""
    async with trio.open_nursery() as nursery:
        over = trio.Event()
        await nursery.start(heed_signals, over)
        screen.tell(WHAT)
        story = Story(directory, rate, screen, over)
        async with running(etcd, directory) as url, opened(directory / "destination") as destination:
            await story.run(url, destination)
        good = await story.conclude()
        nursery.cancel_scope.cancel("the demo is over")
    return 0 if good else 1


class Story:
    """What happens, and what is counted at the end."""

    def __init__(self, directory: Path, rate: int, screen: Screen, over: trio.Event) -> None:
        self._directory, self._rate, self._screen, self._over = directory, rate, screen, over
        record = directory / "destination" / "record.ndjson"
        self.hosts = {name: Host(name, directory, record, holds=holds) for name, holds in HOSTS.items()}
        self.replacement = Replacement(Key.drawn("fleet-key-1"), Key.drawn("fleet-key-2"))
        self._operator = Operator(directory)
        self.sent_while_fenced: int | None = None
        """How many requests the host made that hung, after it was seen as fenced."""
        self._sent = 0
        """How many it had made by then."""
        self._fleet: Said = {}
        self._begun = self._moved = trio.current_time()
        self._doing = "the fleet starts"
        self._news = trio.Event()
        """Set, and made anew, whenever there is anything new to look at."""
        self._destination: Destination
        self._nursery: trio.Nursery

    async def run(self, etcd: str, destination: Destination) -> None:
        """Everything between the start of the destination and its end."""
        self._destination = destination
        async with heard(self._revoke) as socket, trio.open_nursery() as self._nursery:
            with ExitStack() as logs:
                for host in self.hosts.values():
                    logs.enter_context(host.log)
                    await self._nursery.start(host.wire.serve, destination.port)
                self._nursery.start_soon(self._look)
                await self._start(etcd, socket)
                async with self._growing():
                    await self._tell_the_story()
                    await self._mend()
                await self._settled()
            async with trio.open_nursery() as ends:
                for host in self.hosts.values():
                    ends.start_soon(host.end)
            self._nursery.cancel_scope.cancel("the demo is over")

    async def _start(self, etcd: str, socket: Path) -> None:
        """The fleet begins with its first version."""
        self._configure(etcd, socket)
        await self._destination.admit(self.replacement.old)
        await self._operator.set_secret(self.replacement.old)
        await self._operator.publish(_POLICY)
        for host in self.hosts.values():
            await self._nursery.start(host.run)
        self._nursery.start_soon(self._operator.watch, self._hear)

    def _configure(self, etcd: str, socket: Path) -> None:
        key = self._directory / "fleet.key"
        key.touch(mode=0o600)
        key.write_bytes(base64.b64encode(secrets.token_bytes(32)))
        fleet: dict[str, Any] = {"name": "demo", "etcd": [etcd], "keys": [{"file": str(key)}]}
        configure(self._directory, fleet)
        for host in self.hosts.values():
            command = [sys.executable, "-I", "-S", revoke.__file__, str(socket), host.name]
            release = {"on_release": {"command": command, "timeout": "10s"}} if host.name in CANDIDATES else {}
            host.configure({**fleet, "lease": _LEASE, **release})

    @asynccontextmanager
    async def _growing(self) -> AsyncIterator[None]:
        """The logs grow as long as the block runs."""
        async with trio.open_nursery() as nursery:
            for host in self.hosts.values():
                nursery.start_soon(host.log.grow, self._rate)
            yield
            nursery.cancel_scope.cancel("the story is told")

    # -- what happens --------------------------------------------------------------------------------------------------

    async def _tell_the_story(self) -> None:
        """Returns before its end if someone has seen enough."""
        async with trio.open_nursery() as nursery:

            async def tell() -> None:
                await self._run_version_1()
                leader = await self._fail()
                await self._wait_for_the_fence()
                await self._restart(leader)
                await self._until("version 2 drains", lambda: self.replacement.drained_at is not None)
                await self._go_on()
                await self._until("the fleet releases the old key", lambda: self.replacement.refused is not None)
                self._over.set()

            nursery.start_soon(tell)
            await self._over.wait()
            nursery.cancel_scope.cancel("it is told, or someone has seen enough")

    async def _run_version_1(self) -> None:
        await self._until("version 1 drains", lambda: self._fleet.get("counts") == {"reached": len(self.hosts)})
        await self._until("one host is elected", lambda: self._fleet["leader"] in CANDIDATES)
        self._say("five hosts run version 1", f"{self._fleet['leader']} is elected for on_release")
        await trio.sleep(_GROWS_SECONDS)

    async def _fail(self) -> Host:
        """A host is killed, one hangs, the new key is published, and the elected host is killed; returns that one."""
        self._doing = "the new key comes"
        leader = self.hosts[self._fleet["leader"]]
        await self.hosts[_KILLED].kill()
        await self._nursery.start(self.hosts[_HANGING].hang)
        self._say(f"{_KILLED} is killed, and {_HANGING} hangs", "by kill -9, and by SIGSTOP of its supervisor")
        await self._destination.admit(self.replacement.new)
        version = await self._operator.set_secret(self.replacement.new)
        assert version is not None
        self.replacement.published(version, trio.current_time())
        await leader.kill()
        self._nursery.start_soon(self._wait_for_drained, version)
        self._say(f"version {version} brings the new key", f"and {leader.name}, the elected host, is killed")
        return leader

    async def _wait_for_drained(self, version: str) -> None:
        status, answer = await self._operator.wait(version)
        self.replacement.drained(status, answer, trio.current_time())
        counts = ", ".join(f"{count} {kind}" for kind, count in answer.get("counts", {}).items() if count)
        self._say(f"version {version} is drained", f"fleet wait ends with status {status}: {counts}")

    async def _wait_for_the_fence(self) -> None:
        waits = self.replacement.waits
        assert waits is not None
        await self._until("version 2 drains", lambda: waits.kind(_HANGING) == "fenced")
        self._sent = self._sent_by_the_fenced
        self._say(f"{_HANGING} is fenced", "its sidecar sends nothing any more: no answer waits for it")

    async def _restart(self, leader: Host) -> None:
        names = [_KILLED, leader.name]
        for name in names:
            await self._nursery.start(self.hosts[name].run)
        self._say(f"{' and '.join(names)} are started again", "with what they had")

    async def _go_on(self) -> None:
        self.sent_while_fenced = self._sent_by_the_fenced - self._sent
        self.hosts[_HANGING].go_on()
        self._say(f"{_HANGING} goes on", "and reads version 2 before it sends anything")

    async def _revoke(self, wish: Wish) -> bool:
        """What the destination does when `on_release` asks it to revoke a key."""
        replacement = self.replacement
        if not replacement.may_revoke(wish):
            return False
        replacement.released(wish, self._uses_of_the_old_key)
        await self._destination.revoke(replacement.old)
        replacement.revoked(await self._destination.answer_to(replacement.old), trio.current_time())
        self._say("the old key is revoked", f"by {wish.by}, which is elected with token {wish.token}")
        self._changed()
        return True

    async def _mend(self) -> None:
        """Whoever was killed or hangs is so no longer."""
        for host in self.hosts.values():
            if host.is_killed:
                await self._nursery.start(host.run)
            host.go_on()

    # -- what is seen --------------------------------------------------------------------------------------------------

    def _hear(self, fleet: Said) -> None:
        """What `shipper fleet status --watch` says."""
        self._fleet = fleet
        self.replacement.heard(fleet, trio.current_time())
        self._changed()

    def _changed(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def _until(self, what: str, condition: Callable[[], object]) -> None:
        """Wait for something; raises ShipperError if it does not happen for long."""
        self._doing = what
        with trio.move_on_after(_PATIENCE):
            while not condition():
                await self._news.wait()
            return
        raise ShipperError(f"it has not happened within {_PATIENCE:g} s that {what}")

    def _say(self, what: str, more: str) -> None:
        self._screen.say(f"  {trio.current_time() - self._begun:>5.1f} s  {what:<35}{more}", hang=46)

    @property
    def _sent_by_the_fenced(self) -> int:
        return self.hosts[_HANGING].wire.uses.total()

    @property
    def _uses_of_the_old_key(self) -> int:
        return sum(host.wire.uses[self.replacement.old.authorization] for host in self.hosts.values())

    async def _look(self) -> None:
        """Read the record while it grows."""
        while True:
            if any([await trio.to_thread.run_sync(host.tally.read) for host in self.hosts.values()]):
                self._moved = trio.current_time()
            self._changed()
            await trio.sleep(_LOOK_SECONDS)
            delivered = sum(host.tally.delivered for host in self.hosts.values())
            written = sum(host.log.written for host in self.hosts.values())
            self._screen.progress(f"    {self._doing}{self._missing}: {delivered:,} of {written:,} lines arrived")

    @property
    def _missing(self) -> str:
        """For whom the answer waits now."""
        names = self.replacement.waited_for
        return f"; the answer waits for {', '.join(names)}" if names else ""

    async def _settled(self) -> None:
        """Wait until everything has arrived and the old key is revoked, or until nothing moves any more."""
        self._doing = "the last of them arrives"
        self._moved = trio.current_time()
        while self._is_under_way and trio.current_time() < self._moved + _PATIENCE:
            await self._news.wait()

    @property
    def _is_under_way(self) -> bool:
        lost = any(host.tally.lost(host.log.written) for host in self.hosts.values())
        return lost or self.replacement.is_under_way

    # -- the end -------------------------------------------------------------------------------------------------------

    async def conclude(self) -> bool:
        """Show the tables; whether everything was as promised."""
        for host in self.hosts.values():
            while await trio.to_thread.run_sync(host.tally.read):
                pass
        rows, figures = self._rows(), self._figures()
        good = all(row.good is not False for row in rows) and all(figure.good is not False for figure in figures)
        self._show_waits()
        self._screen.say(COUNT)
        self._screen.columns(list(self.hosts), rows)
        self._screen.say("")
        self._screen.figures(figures)
        self._screen.say(GOOD if good else BAD, "bold" if good else "bold red")
        return good

    def _show_waits(self) -> None:
        replacement = self.replacement
        if replacement.waits is None:
            return
        drained, revoked = replacement.after(replacement.drained_at), replacement.after(replacement.revoked_at)
        self._screen.say(WAITED.format(version=replacement.waits.version, drained=drained, revoked=revoked))
        for name, spell, waited in replacement.waits.rows():
            what = "waited for" if waited else "did not wait for"
            line = f"  {what:<17}{name:<8}{spell.seconds:>5.1f} s  {spell.kind:<9}{spell.why}"
            self._screen.say(line.rstrip(), hang=45)

    def _rows(self) -> list[Row]:
        """A column for each host."""
        tallies = [host.tally for host in self.hosts.values()]
        written = [host.log.written for host in self.hosts.values()]
        lost = [tally.lost(lines) for tally, lines in zip(tallies, written, strict=True)]
        twice = [tally.double + tally.shared_ids + tally.foreign for tally in tallies]
        return [
            Row("lines written", written),
            Row("arrived", [tally.delivered for tally in tallies]),
            Row("lost", lost, not any(lost)),
            Row("twice", twice, not any(twice)),
        ]

    def _figures(self) -> list[Figure]:
        replacement = self.replacement
        answers = [host.wire.answers for host in self.hosts.values()]
        refused, requests = sum(a[401] + a[403] for a in answers), sum(a.total() for a in answers)
        figures = [Figure("requests refused", refused, f"of {requests:,}", refused == 0)]
        if self.sent_while_fenced is not None:
            remark = f"requests of {_HANGING}, until it went on"
            figures.append(Figure("sent while fenced", self.sent_while_fenced, remark, self.sent_while_fenced == 0))
        if replacement.published_at is None:
            return figures
        late = self._uses_of_the_old_key - replacement.used if replacement.wish is not None else 0
        revoked = int(replacement.refused == 401)
        status = -1 if replacement.status is None else replacement.status
        return [
            *figures,
            Figure("fleet wait", status, "its exit status; 0: the answer waits for nobody", status == 0),
            Figure("late uses", late, f"of the old key after its release; {replacement.used:,} before it", late == 0),
            Figure("keys revoked", revoked, "of 1, refused since (401)", revoked == 1),
        ]
