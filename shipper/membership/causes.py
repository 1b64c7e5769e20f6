"""What keeps a member from taking part, as its host shows it: one message a cause."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

Failure = TypeVar("Failure", bound=Exception)


class Causes(ABC, Generic[Failure]):
    """Passes each trouble on when it is new, and when it is over."""

    of_failures: ClassVar[Sequence[str]]
    """Causes of failed calls, in the order in which they are shown."""

    def __init__(self, show: Callable[[str, str | None], None]) -> None:
        """`show` gets a cause, and a message or None."""
        self._show = show
        self._failures: dict[str, Failure] = {}
        self._messages: dict[str, str] = {}

    @staticmethod
    @abstractmethod
    def cause_of(error: Failure) -> str:
        """Returns the cause of a failed call, one of `of_failures`."""

    @staticmethod
    def in_words(error: Failure) -> str:
        """Returns what happened, and the remedy."""
        return str(error)

    def all(self) -> dict[str, str]:
        """Returns the messages by cause."""
        return dict(self._messages)

    def failed(self, task: str, error: Failure | None) -> None:
        """Notes the failed call of a task; None: it is over. Of one cause, the oldest is shown."""
        self._failures.pop(task, None)
        if error is not None:
            self._failures[task] = error
        for cause in self.of_failures:
            texts = [self.in_words(one) for one in self._failures.values() if self.cause_of(one) == cause]
            self._put(cause, texts[0] if texts else None)

    def _put(self, cause: str, message: str | None) -> None:
        if self._messages.get(cause) == message:
            return
        if message is None:
            del self._messages[cause]
        else:
            self._messages[cause] = message
        self._show(cause, message)
