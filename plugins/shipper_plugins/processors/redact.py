r"""`redact`: replaces what regular expressions find in texts.

    type: redact
    fields: [message, url.query]
    patterns:
      - '(?i)(?:password|token|secret)=[^&\s]+'
      - '\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b'
    replacement: "[redacted]"

Every occurrence in the whole text is replaced, in each text of a list too. A regular expression has the syntax of RE2
(see `shipper.sdk.patterns`) and takes linear time. A text of more than 64 KiB is replaced as a whole: what is not
searched must not pass.

Events are redacted before they are stored, so what was replaced is neither in the queue nor in a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from shipper.plugin import Batch, Fields, Processor
from shipper.sdk.fields import check_names, edited, find, put
from shipper.sdk.patterns import check_pattern, replacer

LONGEST_TEXT = 64 << 10
"""Characters of a text that is searched."""


class Redact(Processor, frozen=True):
    """Replaces what regular expressions find in texts."""

    patterns: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)]
    """Regular expressions (RE2: no look-around)."""
    fields: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("message",)
    """The (dotted) names of the fields that are searched."""
    replacement: str = "[redacted]"
    """The text in place of each occurrence."""

    def __post_init__(self) -> None:
        check_names("fields", self.fields)
        for number, pattern in enumerate(self.patterns):
            check_pattern(pattern, "patterns", number)

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the occurrences replaced."""
        replacers = [replacer(pattern, self.replacement) for pattern in self.patterns]

        def redacted(value: Any) -> Any:
            if isinstance(value, list):
                return [redacted(one) for one in value]
            return self._redacted(value, replacers) if isinstance(value, str) else value

        def edit(event: Fields) -> Fields:
            for name in self.fields:
                value = find(event, name)
                if (changed := redacted(value)) != value:
                    event = put(event, name, changed)
            return event

        return edited(batch, self.fields, edit)

    def _redacted(self, text: str, replacers: list[Callable[[str], str]]) -> str:
        if len(text) > LONGEST_TEXT:
            return self.replacement
        for replace in replacers:
            text = replace(text)
        return text

    @property
    def is_slow(self) -> bool:
        """Many expressions over long lines take seconds, in which RE2 lets other threads run."""
        return True
