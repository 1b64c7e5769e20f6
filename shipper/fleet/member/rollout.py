"""Which version a member fetches and offers: always the newest one, and never an older one than before."""

from __future__ import annotations

from shipper.fleet.member.order import is_newer
from shipper.fleet.records import Version


class Rollout:
    """The version on its way from the store to the sidecar."""

    def __init__(self, running: Version | None) -> None:
        self.running = running
        """The newest version that was offered."""
        self.fetched: Version | None = None
        """The version that was read, and is authentic, but was not offered yet."""
        self.again_at = 0.0
        """Nothing is read before this instant, unless the head names another version."""
        self._refused: tuple[Version, str] | None = None
        """The version whose records the last attempt found to be of no use, and why."""
        self._missing: Version | None = None
        """The version of which a record was missing at the last attempt."""
        self._has_turn = False
        """Whether a report was written since the last attempt."""

    def wanted(self, current: Version | None) -> Version | None:
        """Returns the version to offer if this one is the newest of the head; None if there is none."""
        return current if is_newer(current, self.running) else None

    def goes_first(self, version: Version, now: float) -> bool:
        """Whether this version is read or offered before another report is written. They take turns: where a report
        takes longer than a third of the lease the next one is always due, and no version would ever be read."""
        return self.fetched == version or (self._has_turn and now >= self.again_at)

    def gets_turn(self) -> None:
        """A report was written."""
        self._has_turn = True

    def had_turn(self) -> None:
        """An attempt is over, whatever came of it."""
        self._has_turn = False

    def named_another(self) -> None:
        """The head names another version as the newest."""
        self.again_at = 0.0

    def was_read(self, version: Version) -> None:
        """The text and the secrets of a version were read, and are authentic."""
        self.fetched, self._missing, self._refused = version, None, None
        self.had_turn()

    def lacks(self, version: Version) -> bool:
        """A record of a version is missing; returns whether one was at the last attempt, too."""
        again = self._missing == version
        self._missing = version
        self.had_turn()
        return again

    def problem_of(self, current: Version | None) -> str:
        """Returns what is wrong with the records of the newest version of the head; empty if nothing is known."""
        if self._refused is None or self._refused[0] != current:
            return ""
        version, problem = self._refused
        return f"version {version} cannot be used: {problem}"

    def refused(self, version: Version, until: float, problem: str) -> None:
        """The records of a version are of no use; it is tried again at this instant."""
        self.again_at, self._refused = until, (version, problem)
        self.had_turn()

    def offered(self, version: Version) -> None:
        """A version was kept and offered."""
        self.running, self.fetched = version, None

    def begin_anew(self) -> None:
        """The directory has another id: it has been offered nothing."""
        self.running = None
