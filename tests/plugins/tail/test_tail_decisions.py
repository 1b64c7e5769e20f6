"""What is decided about files that are written, rotated, copied, packed and removed: every line comes, and comes once.

There are no files here and no clock: a disk in memory, and each step of the input (a scan, a look, an answer to what a
decision asked for, a transaction) at any time between the steps of the writer; and a crash between any two of them.
"""

from __future__ import annotations

import gzip
import itertools
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shipper_plugins.tail.chunk import Taken
from shipper_plugins.tail.content import WINDOW, Content, File, Look, Moved, Plain, unpacked
from shipper_plugins.tail.copies import Compared, Verdict, with_file, with_memory
from shipper_plugins.tail.discovery import Found, Scan
from shipper_plugins.tail.effects import Ask, Compare, CutUp, IsWhole, Keep, LookAgain, Steps
from shipper_plugins.tail.followed import Clock, Followed
from shipper_plugins.tail.options import Options
from shipper_plugins.tail.queue import Turns
from shipper_plugins.tail.reconcile import Survey
from shipper_plugins.tail.rotated import Search
from shipper_plugins.tail.sight import Sight, Wish, sight_of
from shipper_plugins.tail.stream import Stream
from shipper_plugins.tail.turn import Turning
from tests.examples import examples

PATH = "/log/app.log"
OPTIONS = Options(identity="test", paths=("/log/app.log*",), fields=lambda path: {})
CHUNK = 4096
TURNS = 3


@dataclass(eq=False)
class Node:
    """A file, whatever its names are."""

    number: int
    content: bytes = b""
    written: int = 0
    links: int = 1


class InMemory(Plain):
    """A plain file of this disk."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def look(self, offset: int, size: int) -> Look:
        there, node = self._node.content, self._node
        found, before = there[offset : offset + size], there[max(0, offset - WINDOW) : offset]
        return Look(found, before, offset + len(found) >= len(there), node.links == 0, len(there), node.written)

    def born(self) -> int:
        return self._node.number

    def read(self, offset: int, size: int) -> bytes:
        return self._node.content[offset : offset + size]

    def _status(self) -> Any:
        return SimpleNamespace(st_size=len(self._node.content), st_mtime_ns=self._node.written)


class Disk:
    """A directory, and the time."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.time = 1
        self._numbers = itertools.count(1)

    def now(self) -> int:
        self.time += 1
        return self.time

    def create(self, path: str, content: bytes = b"") -> Node:
        self.names[path] = node = Node(next(self._numbers), content, self.now())
        return node

    def write(self, node: Node, content: bytes) -> None:
        node.content, node.written = content, self.now()

    def rename(self, path: str, to: str) -> None:
        self.names[to] = self.names.pop(path)

    def remove(self, path: str) -> None:
        self.names.pop(path).links = 0

    def scan(self) -> Scan:
        found = (
            Found(path, (1, node.number), len(node.content), node.written, node.written)
            for path, node in sorted(self.names.items())
        )
        return Scan(files={one.path: one for one in found})

    def open(self, path: str, file: File) -> Content:
        node = self.names.get(path)
        if node is None or (1, node.number) != file:
            raise Moved(0, "another file is there")
        plain = InMemory(node)
        return unpacked(plain, node.content[:16])


@dataclass
class Store:
    """What is durable: events, and positions with them."""

    messages: Counter[str] = field(default_factory=Counter)
    positions: dict[str, bytes] = field(default_factory=dict)

    def emit(self, messages: list[str], positions: Any) -> None:
        self.messages.update(messages)
        for key, value in positions.items():
            if value is None:
                self.positions.pop(key, None)
            else:
                self.positions[key] = value


@dataclass(eq=False)
class Going:
    """A turn under way."""

    wish: Wish
    seen: Sight | OSError
    steps: Steps[Taken | bool] | None = None
    ask: Ask[Any] | None = None


class Process:
    """The input from a start to a crash, one step at a time."""

    def __init__(self, disk: Disk, store: Store) -> None:
        self._disk, self._store = disk, store
        self.followed = Followed(OPTIONS, Clock(lambda: disk.time / 1000, disk.now))
        self.followed.restore(store.positions)
        self._survey, self._turning = Survey(self.followed), Turning(self.followed)
        self._turns = Turns[Stream]()
        self._open: dict[Stream, Content] = {}
        self._scan: Scan | None = None
        self.going: list[Going] = []

    def _act(self) -> None:
        decided = self.followed.decided()
        for stream in decided.close:
            self._open.pop(stream, None)
        for stream in decided.wake:
            self._turns.wake(stream)

    def look_at_names(self) -> None:
        self._scan = self._disk.scan()

    def apply(self) -> bool:
        """Returns whether it brought anything."""
        scan, self._scan = self._scan or self._disk.scan(), None
        sought, _ = self._survey.before(self._open.keys()).sought(scan)
        replaced = {one.key for one in sought if one.identity.path in self._disk.names}
        stale = bool(self.followed.stale)
        traces = Search(sought={one.key for one in sought}, replaced=replaced)
        outcome = self._survey.apply(scan, traces, self._open.keys())
        self._act()
        return outcome.changed or outcome.new or stale or self.followed.is_behind(scan)

    def begin(self) -> bool:
        """A thread looks at the file of a stream whose turn it is."""
        for stream in self._turns.take(1) if len(self.going) < TURNS else []:
            wish = Wish.of(stream)
            if wish is None:
                self._turns.done(stream, more=False)
            else:
                self.going.append(Going(wish, self._see(wish)))
            return True
        return False

    def _see(self, wish: Wish) -> Sight | OSError:
        try:
            content, was_open = self._use(wish.stream, wish.path, wish.file)
            return sight_of(wish, content, CHUNK, was_open=was_open)
        except OSError as error:
            return error

    def _use(self, stream: Stream, path: str, file: File) -> tuple[Content, bool]:
        if stream in self._open:
            return self._open[stream], True
        self._open[stream] = content = self._disk.open(path, file)
        return content, False

    def go_on(self, going: Going) -> None:
        """One step of a turn."""
        try:
            if going.steps is None:
                self._decide(going)
            else:
                assert going.ask is not None
                going.ask = going.steps.send(self._answer(going.ask))
        except StopIteration as end:
            self.followed.opened(going.wish.stream)
            self._end(going, end.value)
        except Moved:
            self.followed.missed(going.wish.stream)
            self._end(going, False)
        self._act()

    def _decide(self, going: Going) -> None:
        if not going.wish.is_current:
            if isinstance(going.seen, Sight) and not going.seen.was_open:
                self._open.pop(going.wish.stream, None)
            self._end(going, True, opened=False)
            return
        if isinstance(going.seen, OSError):
            raise going.seen
        going.steps = self._turning.take(going.seen, CHUNK)
        going.ask = going.steps.send(None)

    def _end(self, going: Going, taken: Taken | bool, *, opened: bool = True) -> None:
        self._act()
        more = self._stored(taken) if isinstance(taken, Taken) else taken
        self._act()
        self._turns.done(going.wish.stream, more=more)
        self.going.remove(going)

    def _stored(self, taken: Taken) -> bool:
        tidy = dict(self.followed.tidy)
        if taken.is_stored:
            messages = [own["message"] for batch in taken.cut.batches for own in batch.own()]
            self._store.emit(messages, {**tidy, taken.stream.key: taken.position()})
            self.followed.tidied(tidy)
        return self._turning.stored(taken)

    def _answer(self, ask: Ask[Any]) -> Any:
        match ask:
            case CutUp(cutter, found, place, final, flush):
                return cutter.cut(found, place.offset, skipping=place.skipping, final=final, flush=flush)
            case LookAgain(stream, path, file, offset, size):
                return self._use(stream, path, file)[0].look(offset, size)
            case IsWhole(stream, path, file):
                return self._use(stream, path, file)[0].end() is not None
            case Compare():
                return self._compare(ask)
            case Keep(positions):
                return self._store.emit([], positions)
        raise AssertionError(ask)

    def _compare(self, ask: Compare) -> Compared:
        copy, original = self._disk.open(ask.path, ask.file), ask.original
        if original.identity.file is None:
            return with_memory(copy, original, ask.known)
        try:
            source = self._disk.open(original.identity.path, original.identity.file)
        except Moved:
            return Compared(Verdict.STALE)
        return with_file(copy, source, original, ask.known)

    def work(self) -> None:
        """The next step, whatever it is."""
        if self.going:
            self.go_on(self.going[0])
        elif not self.begin():
            self.apply()

    def has_open(self, node: Node) -> bool:
        return any(stream.file == (1, node.number) for stream in self._open)

    def is_looking_at(self, node: Node) -> bool:
        """Whether a thread looks at a file of which nothing was read."""
        turns = [going.wish for going in self.going if going.wish.file == (1, node.number)]
        return any(not wish.stream.identity.head_length for wish in turns)

    def settle(self) -> None:
        """Until nothing is left to be done, as far as the disk is now."""
        self.apply()
        for _ in range(50):
            came = self.apply()
            while self.going or self.begin():
                for going in list(self.going):
                    self.go_on(going)
            if not came:
                return
        raise AssertionError("it never comes to rest")


class Machine(RuleBasedStateMachine):
    """A writer and what rotates its file, and the input."""

    def __init__(self) -> None:
        super().__init__()
        self.disk, self.store = Disk(), Store()
        self.process = Process(self.disk, self.store)
        self.written: list[str] = []
        self.part = ""
        self.late: Node | None = None
        self.copied: set[Node] = set()
        """Files that were made by copying."""
        self.repeatable: set[str] = set()
        """Lines that may come again."""

    def _append(self, node: Node, count: int) -> None:
        for _ in range(count):
            line = f"{self.part}line {len(self.written)}"
            self.disk.write(node, node.content + line.removeprefix(self.part).encode() + b"\n")
            self.part = ""
            self.written.append(line)

    def _file(self) -> Node:
        return self.disk.names.get(PATH) or self.disk.create(PATH)

    # -- the writer ------------------------------------------------------------------------------------------------

    @rule(count=st.sampled_from([1, 200]))
    def write(self, count: int) -> None:
        self._append(self._file(), count)

    @rule()
    def write_a_part(self) -> None:
        if not self.part:
            self.part = f"part {len(self.written)} "
            node = self._file()
            self.disk.write(node, node.content + self.part.encode())

    @precondition(lambda self: self.late is not None)
    @rule()
    def write_late(self) -> None:
        """The writer still has the file open that was renamed."""
        assert self.late is not None
        self.written.append(f"late {len(self.written)}")
        self.disk.write(self.late, self.late.content + f"{self.written[-1]}\n".encode())

    # -- what rotates ----------------------------------------------------------------------------------------------

    @rule()
    def rename(self) -> None:
        self._append(self._file(), 1)
        self._shift()
        self.late = self.disk.names[PATH]
        self.disk.rename(PATH, f"{PATH}.1")

    @rule()
    def copy_and_truncate(self) -> None:
        node, self.late = self._file(), None
        self._append(node, 1)
        self._shift()
        self.copied.add(self.disk.create(f"{PATH}.1", node.content))
        self.disk.write(node, b"")

    @rule()
    def pack(self) -> None:
        """What was copied, and is packed and removed while a thread looks at it for the first time, may be read from
        both: the packed one takes over what the original had, and the open one has no name by which to compare it."""
        self.late = None
        for path in [path for path in self.disk.names if path[-1].isdigit()]:
            node = self.disk.names[path]
            if node in self.copied and self.process.is_looking_at(node):
                self.repeatable.update(node.content.decode().splitlines())
            self.disk.create(f"{path}.gz", gzip.compress(node.content, 1))
            self.disk.remove(path)

    @rule()
    def truncate_what_was_read(self) -> None:
        self.process.settle()
        if PATH in self.disk.names and not self.part:
            self.disk.write(self.disk.names[PATH], b"")

    @rule()
    def rename_within_a_line(self) -> None:
        """The last line of a file that is followed needs no end, once there is another file with content."""
        self.process.settle()
        if self.part and self.disk.names[PATH].content.endswith(self.part.encode()):
            self.written.append(self.part)
            self.part, self.late = "", None
            self._shift()
            self.disk.rename(PATH, f"{PATH}.1")
            self._append(self._file(), 1)
            self.settle()

    @rule(count=st.sampled_from([1, 200]))
    def remove_what_is_open(self, count: int) -> None:
        self.process.settle()
        node = self.disk.names.get(PATH)
        if node is not None and self.process.has_open(node):
            self._append(node, count)
            self.disk.remove(PATH)
            self.settle()

    @rule()
    def remove_what_was_read(self) -> None:
        self.process.settle()
        if not self.part:
            self.late = None
            for path in list(self.disk.names):
                self.disk.remove(path)

    def _shift(self) -> None:
        number = {path: int(path.split(".")[2]) for path in self.disk.names if path != PATH}
        for path in sorted(number, key=lambda path: -number[path]):
            self.disk.rename(path, path.replace(f".{number[path]}", f".{number[path] + 1}"))

    # -- the input -------------------------------------------------------------------------------------------------

    @rule()
    def look_at_names(self) -> None:
        self.process.look_at_names()

    @rule()
    def apply(self) -> None:
        self.process.apply()

    @rule()
    def begin_a_turn(self) -> None:
        self.process.begin()

    @rule(which=st.integers(0, TURNS - 1), steps=st.integers(1, 4))
    def go_on(self, which: int, steps: int) -> None:
        for _ in range(steps):
            if which < len(self.process.going):
                self.process.go_on(self.process.going[which])

    @rule(steps=st.integers(1, 30))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.process.work()

    @rule()
    def settle(self) -> None:
        self.process.settle()
        assert not Counter(self.written) - self.store.messages, "a line is missing"

    @rule()
    def crash(self) -> None:
        self.process = Process(self.disk, self.store)

    @invariant()
    def no_line_comes_twice(self) -> None:
        assert (self.store.messages - Counter(self.written)).keys() <= self.repeatable

    def teardown(self) -> None:
        self.write(1)
        self.settle()
        self.no_line_comes_twice()


Machine.TestCase.settings = settings(
    max_examples=examples(3), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
test_every_line_comes_once_whatever_happens_between_two_steps = Machine.TestCase
