"""What is in use without being proven: it is announced, looked for, and withdrawn if it is not the current content."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from shipper.kubernetes.member.contents import Contents
from shipper.kubernetes.member.memory import Content
from shipper.kubernetes.member.secrets import Current, Secrets
from shipper.kubernetes.member.using import Usage


class Proving:
    """The contents that a read has not shown as current."""

    def __init__(self, contents: Contents, usage: Usage, secrets: Secrets) -> None:
        self._contents, self._usage, self._secrets = contents, usage, secrets
        self._failed: set[str] = set()

    @property
    def is_open(self) -> bool:
        """Whether something in use has to be withdrawn."""
        return bool(self._failed - self._usage.withdrawn or self._usage.again)

    def begin_anew(self) -> None:
        """What the API server has is another thing now: all is looked for again."""
        self._failed.clear()

    def confirmed(self, names: Collection[str]) -> None:
        """These Secrets were read, after what is announced was."""
        for one in [*self._contents.by_id.values()]:
            if one.secret not in names or self._usage.is_usable(one):
                continue
            if self._is_current(one):
                self._usage.confirmed(one)
            if not self._usage.is_usable(one) and self._usage.is_announced(one):
                self._failed.add(one.id)

    def retain(self, used: Collection[str], ledger: Collection[str]) -> None:
        """Forgets what is not in use any more, or was not brought back."""
        self._failed &= set(used)
        self._usage.again &= set(ledger)

    def has_failed(self, one: Content) -> bool:
        return one.id in self._failed

    def to_withdraw(self, ledger: Collection[str], used: Iterable[str]) -> set[str]:
        """Returns what is in use and must not be: what was not current, and what nobody here knows."""
        unknown = {id for id in ledger if id not in self._contents.by_id}
        found = (unknown | (self._failed & {*ledger, *used})) - self._usage.withdrawn
        return found | (self._usage.again & set(ledger))

    def withdrew(self, ids: Iterable[str]) -> None:
        """The sidecar has these no more."""
        self._failed -= set(ids)

    def _is_current(self, one: Content) -> bool:
        answer = self._secrets.answer(one.secret, one.key)
        return isinstance(answer, Current) and answer.uid == one.uid and one.is_sent_as(answer.content)
