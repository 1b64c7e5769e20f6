r"""`redact`: replaces what regular expressions find in texts.

    type: redact
    fields: [message, url.query]
    patterns:
      - '(?i)(?:password|token|secret)=[^&\s]+'
      - '\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b'
    replacement: "[redacted]"

Every occurrence in the whole text is replaced. Searched is all that a field holds, in each of its spellings (nested,
dotted, in the objects of a list): the texts, numbers and names in lists and objects, and bytes. A number in which
something is found becomes a text. A regular expression has the syntax of RE2 (see `shipper.sdk.patterns`) and takes
linear time.

What is not searched must not pass: a text of more than 64 KiB, bytes that are not UTF-8, and what is more than 100
levels deep in a field are replaced as a whole.

Events are redacted before they are stored, so what was replaced is neither in the queue nor in a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any

import msgspec
import orjson

from shipper.plugin import Batch, Fields, Processor, edited
from shipper.sdk.fields import changed, check_names
from shipper.sdk.patterns import check_pattern, replacer
from shipper.sdk.table import Table

LONGEST_TEXT = 64 << 10
"""Characters of a text that is searched."""
DEEPEST = 100
"""Levels of a field that are searched."""


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

        def replaced(text: str) -> str:
            return self._replaced(text, replacers)

        def edit(event: Fields) -> Fields:
            for name in self.fields:
                event = changed(event, name, lambda value: self._redacted(value, replaced, DEEPEST))
            return event

        def by_columns(table: Table) -> tuple[Table, Collection[int]]:
            for name in self.fields:
                table, _ = table.opened(name).changed(name, lambda value: self._redacted(value, replaced, DEEPEST))
            return table, ()

        return edited(batch, self.fields, edit, by_columns)

    def _redacted(self, value: Any, replaced: Callable[[str], str], levels: int) -> Any:
        if isinstance(value, str):
            return replaced(value)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, bytes):
            return self._redacted_bytes(value, replaced)
        if isinstance(value, int | float):
            text = orjson.dumps(value).decode()
            return value if (found := replaced(text)) == text else found
        if not levels:
            return self.replacement
        if isinstance(value, list):
            return [self._redacted(one, replaced, levels - 1) for one in value]
        return {replaced(key): self._redacted(one, replaced, levels - 1) for key, one in value.items()}

    def _redacted_bytes(self, value: bytes, replaced: Callable[[str], str]) -> bytes:
        try:
            return replaced(value.decode()).encode()
        except UnicodeDecodeError:
            return self.replacement.encode()

    def _replaced(self, text: str, replacers: list[Callable[[str], str]]) -> str:
        if len(text) > LONGEST_TEXT:
            return self.replacement
        for replace in replacers:
            text = replace(text)
        return text

    @property
    def is_slow(self) -> bool:
        """Many expressions over long lines take seconds, in which RE2 lets other threads run."""
        return True
