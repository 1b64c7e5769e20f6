"""Versions of keyed state that a principal has stored and answers later, as with `acknowledge: delivered`. No I/O.

Each call of `send` is a job. It keeps its place among what is on its way until all its versions are answered; others
are sent meanwhile. A version that is sent ends the wait for an older one of its key, which is in no slot any more. What
was stored in a session that has ended is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from shipper.plugin import Answer, Answers, Batch, Outcome, anew
from shipper.plugin.relay import Ranked
from shipper.plugin.state import Version
from shipper_plugins.relay import state
from shipper_plugins.relay.edge.jobs import COUNTED
from shipper_plugins.relay.frames import Told, Welcome

AGAIN_SECONDS = 600.0
"""Seconds after which versions without an answer are sent again: a principal may have lost what it knew of them."""
_OLDER = Answer(Outcome.SUPERSEDED)


def answer_of(rank: Ranked) -> Answer | None:
    """Returns the answer that follows from the principal's final answer for a version; None: it is delivered."""
    if rank is Ranked.SUPERSEDED:
        return _OLDER
    return None if rank is Ranked.DELIVERED else COUNTED[rank]


def _confirmed(version: Version, answer: Answer | None) -> int:
    """Returns the place of a version that the principal knows, by this answer; else 0."""
    is_known = answer is None or answer.outcome not in (Outcome.HELD, Outcome.REJECTED)
    return version.place if is_known else 0


def _is_stored(session: Welcome) -> bool:
    """Whether an answer in this session does not come from the end of the way."""
    return session.acknowledge != "delivered"


@dataclass(eq=False, slots=True)
class VersionsJob:
    """One call of `send`, of a batch of versions."""

    batch: Batch
    given: dict[int, Answer | None] = field(default_factory=dict)
    """By position, the final answers; None: delivered, or stored if the principal does not say more."""
    names: dict[int, str] = field(default_factory=dict)
    """By position of a sent version, the name of its key at the principal."""
    session: Welcome | None = None
    """The session in which those without an answer were sent last."""
    goes_again: bool = False
    is_stored: bool = False
    """Whether some answer did not come from the end of the way."""
    error: Exception | None = None
    _news: trio.Event = field(default_factory=trio.Event)

    @property
    def is_over(self) -> bool:
        """Whether all its versions are answered."""
        return len(self.given) == self.batch.count

    def open(self) -> list[int]:
        """Returns the positions without an answer."""
        return [at for at in range(self.batch.count) if at not in self.given]

    def version(self, at: int) -> Version:
        """Returns the version at a position."""
        assert self.batch.versions is not None
        version = self.batch.versions[at]
        assert version is not None
        return version

    def answers(self) -> Answers:
        """Returns the answers of the batch, once all its versions have one."""
        others = {at: answer for at, answer in self.given.items() if answer is not None}
        return Answers(self.batch.count, others, is_stored=self.is_stored)

    def answer(self, at: int, answer: Answer | None) -> None:
        """Takes an answer; the first one for a position counts."""
        self.given.setdefault(at, answer)
        if self.is_over:
            self.tell()

    def send_again(self) -> None:
        """Sends its open versions again."""
        self.goes_again = True
        self.tell()

    def fail(self, error: Exception) -> None:
        """Ends it: nobody can ask for its answers."""
        self.error = anew(error)
        self.tell()

    def tell(self) -> None:
        self._news.set()

    async def wait(self) -> None:
        """Waits until it is over, or its open versions must be sent again. Raises what it failed with."""
        with trio.move_on_after(AGAIN_SECONDS):
            while not (self.is_over or self.goes_again or self.error is not None):
                self._news = trio.Event()
                await self._news.wait()
        self.goes_again = False
        if self.error is not None and not self.is_over:
            raise anew(self.error)


class WaitingVersions:
    """The jobs of an open output; `wake` is called when there is something to wait for."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._stored: set[VersionsJob] = set()
        """Jobs for whose answers the principal is asked."""
        self.answered = 0
        """How many answers were taken."""
        self._named: dict[str, set[tuple[VersionsJob, int]]] = {}
        """By the name of the key, its open sent versions: their jobs and positions."""
        self._asked: Welcome | None = None
        self._told = 0

    @property
    def is_any(self) -> bool:
        """Whether the principal must be asked."""
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
        """Takes versions of a job that are sent now. Their answers may come before that for the request."""
        job.session, job.goes_again, job.error = session, False, None
        for at in positions:
            version = job.version(at)
            name = job.names[at] = state.name_at(session.edge, version)
            for other, older in list(self._named.get(name, ())):
                if other is not job and other.version(older).place < version.place:
                    self._answer(other, older, _OLDER)
            self._named.setdefault(name, set()).add((job, at))

    def said(self, job: VersionsJob, answers: Mapping[int, Answer | None], session: Welcome) -> int:
        """Takes the principal's answers for these positions of a job; those for its other versions follow.

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
        self.answered += 1
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
        """Sends again what was stored in another session than this one."""
        for job in self._stored:
            if job.session is not session:
                job.send_again()

    def told_in(self, session: Welcome) -> int:
        """Returns the end of the answers in this session."""
        return self._told if self._asked is session else session.told

    def note(self, session: Welcome, told: Told) -> int:
        """Takes an answer to a request for answers in this session; returns what `said` does."""
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
        """Returns the versions that are waited for."""
        return [job.version(at) for job in self._stored for at in job.open()]

    def forget(self, gone: Iterable[Version]) -> None:
        """Ends the wait for versions that are in no slot any more: no answer for them counts."""
        those = frozenset(gone)
        for job in list(self._stored) if those else ():
            for at in job.open():
                if job.version(at) in those:
                    self._answer(job, at, _OLDER)

    def fail(self, error: Exception) -> None:
        """Ends all jobs: nobody can ask for answers."""
        for job in self._stored:
            job.fail(error)
        self._stored.clear()
