"""Answers of a principal that come later than its confirmation, as with `acknowledge: delivered`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import trio

from shipper.plugin import Code, Later, backoff
from shipper.plugin.state import RoutedState
from shipper_plugins.relay import frames
from shipper_plugins.relay.edge.jobs import Job
from shipper_plugins.relay.edge.refusals import Refused
from shipper_plugins.relay.edge.sessions import JSON, Sessions, Talk
from shipper_plugins.relay.edge.versions import WaitingVersions
from shipper_plugins.relay.frames import FrameError, Outcomes, Poll, Told, Welcome

POLL_SECONDS = frames.MOST_WAIT
"""The longest wait of a request for answers, in seconds."""
LOOK_SECONDS = 5.0
"""The same while versions of keyed state wait: between two looks whether they are still in their slots."""
MOST_LOOKING = 20
"""The wait until the next look, in durations of the last one."""
PAUSES = 0.05, 1.0
"""The first and the longest pause, in seconds, after a request for answers that was answered at once, and by none that
is waited for: a principal, or a proxy before it, may not hold such requests, or tell of others."""


class Awaited:
    """Jobs of an open output, and the final answers that are known for them.

    `send_again` takes jobs to send once more; a request waits for half of `timeout` at most. `taken` is called when the
    principal has stored what it answers later. `routed` is the keyed state of the lane.
    """

    def __init__(
        self,
        sessions: Sessions,
        timeout: float,
        send_again: Callable[[Sequence[Job]], None],
        taken: Callable[[], None],
        routed: RoutedState | None = None,
    ) -> None:
        self._routed, self._taken = routed, taken
        self._looked = trio.current_time()
        self.versions = WaitingVersions(self._stored_versions)
        """Jobs of keyed state: the same requests ask for them."""
        self._sessions, self._timeout, self._send_again = sessions, timeout, send_again
        self._stored: dict[Job, Welcome] = {}
        """What the principal has stored, in which session, and answers later."""
        self._news = trio.Event()
        self._jobs: dict[tuple[str, int], list[Job]] = {}
        """All jobs, by the identity of their batches."""
        self._taken_answers = 0
        """How many answers for events have come."""
        self._asked: Welcome | None = None
        self._told = 0
        """The end of the answers in the session that was asked last."""

    @property
    def is_under_way(self) -> bool:
        """Whether any job is awaited."""
        return bool(self._jobs)

    def add(self, job: Job) -> None:
        """From now on a job ends when all its answers are known."""
        self._jobs.setdefault(job.identity, []).append(job)

    def remove(self, job: Job) -> None:
        """Nobody waits for a job any more."""
        self._stored.pop(job, None)
        same = self._jobs[job.identity]
        same.remove(job)
        if not same:
            del self._jobs[job.identity]

    def stored(self, job: Job, session: Welcome) -> None:
        """The principal has stored a part, and answers later."""
        if not job.ended.is_set():
            self._stored[job], job.request = session, None
            self._taken()
            self._wake()

    def _stored_versions(self) -> None:
        self._taken()
        self._wake()

    def _wake(self) -> None:
        self._news.set()

    async def listen(self) -> None:
        """Asks for answers, while some are awaited; with a pause between requests that bring none of these."""
        pauses = backoff(*PAUSES)
        while True:
            while not (self._stored or self.versions.is_any):
                self._news = trio.Event()
                await self._news.wait()
            begun, known = trio.current_time(), self._known
            try:
                await self._sessions.within(self._poll)
            except Exception as error:
                self.give_up(_later(error))
            if self._known > known or trio.current_time() >= begun + PAUSES[1]:
                pauses = backoff(*PAUSES)
            else:
                await trio.sleep(next(pauses))

    @property
    def _known(self) -> int:
        """Returns how many of the answers that were waited for have come."""
        return self._taken_answers + self.versions.answered

    def give_up(self, error: Exception) -> None:
        """Ends everything that waits for answers with this error; it may be sent again, and is known there."""
        for job in self._stored:
            job.end(error=error)
        self._stored.clear()
        self.versions.fail(error)

    async def _poll(self, talk: Talk) -> None:
        """Asks for the awaited answers. In another session everything is sent again first, so that the principal,
        perhaps another one, knows of it."""
        self._leave_to(talk.session)
        self.versions.leave_to(talk.session)
        if not (self._stored or self.versions.is_any):
            return
        after = self._told if self._asked is talk.session else 0
        wait = min(LOOK_SECONDS if self.versions.is_any else POLL_SECONDS, POLL_SECONDS, self._timeout / 2)
        poll = Poll(talk.head(), after, wait, self.versions.told_in(talk.session))
        told = await talk.ask("answers", JSON, [msgspec.json.encode(poll)], Told)
        self._note(told.answers, talk.session)
        self._sessions.lineage.confirmed(talk.session.lineage, state=self.versions.note(talk.session, told))
        self._asked, self._told = talk.session, told.upto
        await self._look()

    async def _look(self) -> None:
        """Ends, now and then, the wait for what is in no slot any more, since a newer version of its key waits
        elsewhere."""
        if self._routed is not None and trio.current_time() >= self._looked + LOOK_SECONDS:
            begun = trio.current_time()
            self.versions.forget(await self._routed.gone(self.versions.open()))
            now = trio.current_time()
            self._looked = now + MOST_LOOKING * (now - begun)

    def _note(self, answers: Sequence[Outcomes], session: Welcome) -> None:
        """Takes answers. Raises FrameError."""
        for one in answers:
            final = one.by_item()
            for job in self._jobs.get((one.origin, one.seq), ()):
                self._taken_answers -= len(job.final)
                job.told(final, is_stored=session.acknowledge != "delivered")
                self._taken_answers += len(job.final)
                if job.ended.is_set() and job in self._stored:
                    self._sessions.lineage.confirmed(self._stored[job].lineage, events=job.part.place)
        self._stored = {job: at for job, at in self._stored.items() if not job.ended.is_set()}

    def _leave_to(self, session: Welcome) -> None:
        """Sends again what was stored in another session than this one."""
        again = [job for job, at in self._stored.items() if at is not session]
        for job in again:
            del self._stored[job]
        if again:
            self._send_again(again)


def _later(error: Exception) -> Exception:
    if isinstance(error, FrameError | Refused):
        return Later("the principal sends answers that are invalid", code=Code.BAD_ANSWER)
    return error
