r"""`dissect`: cuts a text into fields at fixed delimiters, without regular expressions.

    type: dissect
    tokenizer: '%{source.ip} - %{user.name} [%{time}] "%{request}" %{status|integer}'
    target_prefix: ""

    %{name}           what is before the next delimiter, as the field `name` below `target_prefix`
    %{name|integer}   the same, converted: integer, float, boolean, string or ip, as by `convert`
    %{}, %{?name}     skipped
    %{+name}          joined to the field of an earlier `name`, with the delimiter before it
    %{name->}         the delimiter after it may be repeated: for columns that are padded

The text between two keys is a delimiter, and taken literally. A text is read once from left to right. The last key
takes the rest, if no delimiter follows it.

An event that has no such text, or has one of the fields already (unless `overwrite_keys`), stays as it is and is
tagged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, get_args

from shipper.plugin import BadOption, Batch, Fields, Processor, edited
from shipper.sdk.columns import escaped
from shipper.sdk.fields import check_name, find, put
from shipper.sdk.table import Cells, Table, Unfit, is_full
from shipper_plugins.processors.convert import Type, converted

_KEY = re.compile(r"%\{([^}]*)\}")
_MOST_KEYS = 256


class Key(NamedTuple):
    """A key of a tokenizer, and the delimiter after it."""

    name: str
    """Empty: skipped."""
    type: Type | None
    is_joined: bool
    is_padded: bool
    delimiter: str


class Tokenizer(NamedTuple):
    """A tokenizer: what a text begins with, and the keys."""

    begins: str
    keys: tuple[Key, ...]


class Dissect(Processor, frozen=True):
    """Cuts a text into fields at fixed delimiters."""

    tokenizer: str
    """The keys, and the delimiters between them."""
    field: str = "message"
    """The (dotted) name of the field that holds the text."""
    target_prefix: str = "dissect"
    """The (dotted) name of the field below which to put the fields; empty: the event itself."""
    overwrite_keys: bool = False
    """Whether a field that the event has already is replaced."""

    def __post_init__(self) -> None:
        check_name(self.field, "field")
        if self.target_prefix:
            check_name(self.target_prefix, "target_prefix")
        try:
            parsed(self.tokenizer)
        except ValueError as error:
            raise BadOption(str(error), "tokenizer") from None

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the fields of each event whose text fits."""
        return edited(batch, [self.field, *self._targets()], self._dissected, self._columns)

    def _columns(self, table: Table) -> tuple[Table, Collection[int]]:
        table = table.opened(self.field, *self._targets())
        if (texts := table.cells(self.field)) is None:
            raise Unfit
        found, left = cut_all(parsed(self.tokenizer), texts.lines(table.count))
        for name, cells in found.items():
            target = self._target(name)
            there = table.node(target)
            if there is not None and not (self.overwrite_keys and is_full(there)):
                raise Unfit
            table = table.put(target, cells)
        return table, left

    def _targets(self) -> list[str]:
        return [self._target(key.name) for key in parsed(self.tokenizer).keys if key.name]

    def _target(self, name: str) -> str:
        return f"{self.target_prefix}.{name}" if self.target_prefix else name

    def _dissected(self, event: Fields) -> Fields:
        text = find(event, self.field)
        if not isinstance(text, str):
            raise ValueError(f"dissect: there is no text in {self.field}")
        for name, value in cut(parsed(self.tokenizer), text).items():
            target = self._target(name)
            if not self.overwrite_keys and find(event, target) is not None:
                raise ValueError(f"dissect: the event has {target} already")
            event = put(event, target, value)
        return event


@lru_cache(maxsize=256)
def parsed(text: str) -> Tokenizer:
    """Returns a tokenizer; raises ValueError with the reason."""
    begins, *parts = _KEY.split(text)
    keys = [_key(written, delimiter) for written, delimiter in zip(parts[::2], parts[1::2], strict=True)]
    if not any(key.name for key in keys):
        raise ValueError("it has no key with a name: write %{name} for each part of the text")
    if len(keys) > _MOST_KEYS:
        raise ValueError(f"it has more than {_MOST_KEYS} keys")
    for before in keys[:-1]:
        if not before.delimiter:
            raise ValueError("two keys follow each other: write the delimiter between them")
    _check_joined(keys)
    return Tokenizer(begins, tuple(keys))


def _key(written: str, delimiter: str) -> Key:
    name, bar, type = written.removesuffix("->").partition("|")
    if bar and type not in get_args(Type):
        raise ValueError(f"a type is one of {', '.join(get_args(Type))}")
    is_joined, is_skipped = name.startswith("+"), name.startswith("?")
    name = name.removeprefix("+") if is_joined else "" if is_skipped else name
    if name and (not all(name.split(".")) or name[0] in "&*+?/"):
        raise ValueError("a key is %{name}, %{+name} or %{?name}, and a name has no empty part")
    if is_joined and not name:
        raise ValueError("%{+} needs the name of an earlier key")
    return Key(name, type or None, is_joined, written.endswith("->"), delimiter)  # type: ignore[arg-type]


def _check_joined(keys: list[Key]) -> None:
    seen = set[str]()
    for key in keys:
        if key.is_joined and key.name not in seen:
            raise ValueError(f"%{{+{key.name}}} has no %{{{key.name}}} before it")
        if key.name in seen and not key.is_joined:
            raise ValueError(f"%{{{key.name}}} is there twice: write %{{+{key.name}}} to join it")
        if key.name:
            seen.add(key.name)


def cut(tokenizer: Tokenizer, text: str) -> Fields:
    """Returns the values of the keys, by name; raises ValueError if the text does not fit."""
    if not text.startswith(tokenizer.begins):
        raise ValueError("dissect: the text does not begin as the tokenizer does")
    at, before = len(tokenizer.begins), ""
    found: dict[str, str] = {}
    for key in tokenizer.keys:
        end = text.find(key.delimiter, at) if key.delimiter else len(text)
        if end < 0:
            raise ValueError("dissect: a delimiter of the tokenizer is not in the text")
        value = text[at:end]
        if key.name:
            found[key.name] = found[key.name] + before + value if key.is_joined else value
        at, before = end + len(key.delimiter), key.delimiter
        while key.is_padded and key.delimiter and text.startswith(key.delimiter, at):
            at += len(key.delimiter)
    return {name: _typed(tokenizer, name, value) for name, value in found.items()}


def _typed(tokenizer: Tokenizer, name: str, value: str) -> object:
    type = _type(tokenizer, name)
    return value if type is None else converted(type, name, value)


def _type(tokenizer: Tokenizer, name: str) -> Type | None:
    return next((key.type for key in tokenizer.keys if key.name == name and key.type), None)


# -- many texts --------------------------------------------------------------------------------------------------------


def cut_all(tokenizer: Tokenizer, lines: bytes) -> tuple[dict[str, Cells], set[int]]:
    """Returns the values of the keys in all texts, by name, and the places of those that do not fit, or are empty."""
    rows = _pattern(tokenizer).findall(lines)
    first = next((row for row in rows if row[0]), None)
    if first is None:
        raise Unfit
    left = {place for place, row in enumerate(rows) if not row[0]}
    _, *parts = zip(*[row if row[0] else first for row in rows] if left else rows, strict=True)
    found: dict[str, Sequence[bytes]] = {}
    before = b""
    for key, part in zip(tokenizer.keys, parts, strict=True):
        if key.is_joined:
            found[key.name] = [one + before + other for one, other in zip(found[key.name], part, strict=True)]
        elif key.name:
            found[key.name] = part
        before = key.delimiter.encode()
    made = {}
    for name, texts in found.items():
        cells = Cells(b'"', escaped(b"\n".join(texts) + b"\n"), b'"')
        type = _type(tokenizer, name)
        made[name], refused = (cells, ()) if type is None else cells.changed(len(rows), partial(converted, type, name))
        left.update(refused)
    return made, left


@lru_cache(maxsize=256)
def _pattern(tokenizer: Tokenizer) -> re.Pattern[bytes]:
    """Returns a pattern of every line: a group of all that is cut, empty if the line does not fit, and one of each key.

    It is possessive, so it ends each value where `cut` does, and takes linear time.
    """
    parts = "".join(map(_value, tokenizer.keys))
    return re.compile(rb"(%b%b)?+[^\n]*+\n" % (re.escape(tokenizer.begins.encode()), parts.encode()))


def _value(key: Key) -> str:
    if not key.delimiter:
        return r"([^\n]*+)"
    first, whole = re.escape(key.delimiter[0]), re.escape(key.delimiter)
    again = rf"(?:(?!{whole}){first}[^{first}\n]*+)*+" if len(key.delimiter) > 1 else ""
    return rf"([^{first}\n]*+{again}){whole}" + (rf"(?:{whole})*+" if key.is_padded else "")
