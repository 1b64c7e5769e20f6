"""Versions of keyed state that a principal has stored and answers for later, as with `acknowledge: delivered`. No I/O.

Each call of `send` is a job. It keeps its place among what is on its way until all its versions are answered; others
are sent meanwhile. A version that is sent ends the wait for an older one of its key, which is in no slot any more. What
was stored in a session that has ended is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from shipper.plugin import Answer, Answers, Batch, Outcome, Ranked, Version
from shipper_plugins.outputs.relay_jobs import COUNTED
from shipper_plugins.relay import state
from shipper_plugins.relay.frames import Told, Welcome

AGAIN_SECONDS = 600.0
"""After which versions without an answer are sent again: a principal may have lost what it knew of them."""
_OLDER = Answer(Outcome.SUPERSEDED)


def answer_of(rank: Ranked) -> Answer | None:
    """What follows from the final answer of a principal for a version; None: it is delivered."""
    if rank is Ranked.SUPERSEDED:
        return _OLDER
    return None if rank is Ranked.DELIVERED else COUNTED[rank]


def _confirmed(version: Version, answer: Answer | None) -> int:
    """The place of a version that the principal knows, as this answer says; else 0."""
    is_known = answer is None or answer.outcome not in (Outcome.HELD, Outcome.REJECTED)
    return version.place if is_known else 0


def _is_stored(session: Welcome) -> bool:
    """Whether an answer in this session is not of the end of the way."""
    return session.acknowledge != "delivered"


@dataclass(eq=False, slots=True)
class VersionsJob:
    """One call of `send`, of a batch of versions."""

    batch: Batch
    given: dict[int, Answer | None] = field(default_factory=dict)
    """By position, the final answers; None: delivered, or stored if the principal says no more."""
    names: dict[int, str] = field(default_factory=dict)
    """By position, of those that were sent: the name of the key at the principal."""
    session: Welcome | None = None
    """In which those without an answer were sent last."""
    goes_again: bool = False
    is_stored: bool = False
    """Whether an answer was not of the end of the way."""
    error: Exception | None = None
    _news: trio.Event = field(default_factory=trio.Event)

    @property
    def is_over(self) -> bool:
        """Whether all its versions are answered."""
        return len(self.given) == self.batch.count

    def open(self) -> list[int]:
        """The positions of those that are not."""
        return [at for at in range(self.batch.count) if at not in self.given]

    def version(self, at: int) -> Version:
        """Of a position."""
        assert self.batch.versions is not None
        version = self.batch.versions[at]
        assert version is not None
        return version

    def answers(self) -> Answers:
        """When it is over."""
        others = {at: answer for at, answer in self.given.items() if answer is not None}
        return Answers(self.batch.count, others, is_stored=self.is_stored)

    def answer(self, at: int, answer: Answer | None) -> None:
        """The first answer for a position counts."""
        self.given.setdefault(at, answer)
        if self.is_over:
            self.tell()

    def send_again(self) -> None:
        """Have its open versions sent again."""
        self.goes_again = True
        self.tell()

    def fail(self, error: Exception) -> None:
        """Nobody can ask for its answers."""
        self.error = error
        self.tell()

    def tell(self) -> None:
        self._news.set()

    async def wait(self) -> None:
        """Until it is over, or its open versions are to be sent again. Raises what it failed with."""
        with trio.move_on_after(AGAIN_SECONDS):
            while not (self.is_over or self.goes_again or self.error is not None):
                self._news = trio.Event()
                await self._news.wait()
        self.goes_again = False
        if self.error is not None and not self.is_over:
            raise self.error


class WaitingVersions:
    """Of an open output: what is waited for; `wake` is called when there is something."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._stored: set[VersionsJob] = set()
        """Jobs for whose answers the principal is asked."""
        self._named: dict[str, set[tuple[VersionsJob, int]]] = {}
        """By the name of the key, open versions of it that were sent: their jobs and positions."""
        self._asked: Welcome | None = None
        self._told = 0

    @property
    def is_any(self) -> bool:
        """Whether the principal is to be asked."""
        return bool(self._stored)

    @contextmanager
    def of(self, job: VersionsJob) -> Iterator[None]:
        """The job may wait while the block runs."""
        try:
            yield
        finally:
            for at in job.open():
                self._drop(job, at)
            self._stored.discard(job)

    def begin(self, job: VersionsJob, positions: Sequence[int], session: Welcome) -> None:
        """These versions of a job are sent. Their answers may come before that for the request."""
        job.session, job.goes_again, job.error = session, False, None
        for at in positions:
            version = job.version(at)
            name = job.names[at] = state.name_at(session.edge, version)
            for other, older in list(self._named.get(name, ())):
                if other is not job and other.version(older).place < version.place:
                    self._answer(other, older, _OLDER)
            self._named.setdefault(name, set()).add((job, at))

    def said(self, job: VersionsJob, answers: Mapping[int, Answer | None], session: Welcome) -> int:
        """The principal has answered for these positions of a job; the answers for its other versions follow.

        Returns the highest place that it has confirmed so, 0 if there is none.
        """
        for at, answer in answers.items():
            self._answer(job, at, answer, is_stored=_is_stored(session))
        if not job.is_over:
            self._stored.add(job)
            self._wake()
        return max((_confirmed(job.version(at), answer) for at, answer in answers.items()), default=0)

    def _answer(self, job: VersionsJob, at: int, answer: Answer | None, *, is_stored: bool = False) -> None:
        self._drop(job, at)
        job.is_stored |= is_stored
        job.answer(at, answer)
        if job.is_over:
            self._stored.discard(job)

    def _drop(self, job: VersionsJob, at: int) -> None:
        name = job.names.get(at, "")
        open = self._named.get(name, set())
        open.discard((job, at))
        if not open:
            self._named.pop(name, None)

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def leave_to(self, session: Welcome) -> None:
        """Have what was stored in another session than this one sent again."""
        for job in self._stored:
            if job.session is not session:
                job.send_again()

    def told_in(self, session: Welcome) -> int:
        """Up to where answers were told in this session."""
        return self._told if self._asked is session else session.told

    def note(self, session: Welcome, told: Told) -> int:
        """The principal has answered a request for answers in this session; returns what `said` does."""
        highest = 0
        for one in told.versions:
            for job, at in list(self._named.get(one.name, ())):
                place = job.version(at).place
                if place == one.place:
                    self._answer(job, at, answer_of(one.answer), is_stored=_is_stored(session))
                    highest = max(highest, _confirmed(job.version(at), answer_of(one.answer)))
                elif place < one.place:  # it is fenced, as the answer will say when it comes again
                    job.send_again()
        self._asked, self._told = session, told.versions_upto
        return highest

    def open(self) -> list[Version]:
        """The versions that are waited for."""
        return [job.version(at) for job in self._stored for at in job.open()]

    def forget(self, gone: Iterable[Version]) -> None:
        """They are in no slot any more: no answer for them counts."""
        those = frozenset(gone)
        for job in list(self._stored) if those else ():
            for at in job.open():
                if job.version(at) in those:
                    self._answer(job, at, _OLDER)

    def fail(self, error: Exception) -> None:
        """Nobody can ask for answers."""
        for job in self._stored:
            job.fail(error)
        self._stored.clear()
