"""What keeps a leader from its work, one sentence a cause, however many objects it concerns. Pure."""

from __future__ import annotations

from collections.abc import Callable

from shipper.apiserver.reflector import uncounted


class Troubles:
    """Passes on the trouble of a cause when it is new or another one, and None when it is over."""

    def __init__(self, show: Callable[[str, str | None], None]) -> None:
        self._show = show
        self._texts: dict[str, dict[str, str]] = {}
        self._shown: dict[str, str] = {}

    def failed(self, cause: str, of: str, text: str) -> None:
        """Notes the trouble of an object."""
        self._texts.setdefault(cause, {})[of] = uncounted(text)
        self._tell(cause)

    def over(self, of: str) -> None:
        """Notes that all is well with an object."""
        for cause, texts in [*self._texts.items()]:
            if texts.pop(of, None) is not None:
                self._tell(cause)

    def clear(self) -> None:
        """Notes that somebody else has to see to all of this now."""
        for cause in [*self._texts]:
            self._texts[cause].clear()
            self._tell(cause)

    def _tell(self, cause: str) -> None:
        texts = self._texts[cause]
        if not texts:
            if self._shown.pop(cause, None) is not None:
                self._show(cause, None)
            return
        more = len(texts) - 1
        text = next(iter(texts.values())) + (f" (and {more} more like it)" if more else "")
        if self._shown.get(cause) != text:
            self._shown[cause] = text
            self._show(cause, text)
