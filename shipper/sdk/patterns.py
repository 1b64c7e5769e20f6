r"""PUBLIC: regular expressions of a policy, searched for in linear time.

Python's `re` backtracks, and holds the interpreter lock meanwhile: a bad expression over one hostile line stops the
whole process, and a bad one cannot be recognized by its text. So expressions of a policy are run by RE2
(https://github.com/google/re2/wiki/Syntax, the syntax of Go and of Beats). The time of its automata grows with the
expression times the text, and other threads run meanwhile. Both factors are bounded: an expression has at most 3000
instructions, and callers search some thousand characters of a text.

Differences from `re`: `\d`, `\w`, `\s` and `\b` match ASCII only (`\p{L}` is any letter), `$` is the very end of the
text, and there are neither back-references nor look-around. An expression with different meanings in both (`a{,3}`,
`\10`) is refused.

Cost: 0.5 to 1.1 µs a search in a line of 150 bytes; 0.1 to 0.3 with `re`, but 0.9 to 3.9 if case is ignored. The
shipper's own patterns, which are linear, use `re`. RE2 is imported for the first pattern: that takes 10 ms, and most
policies have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from shipper.sdk.errors import BadOption

_LONGEST = 4096
_MOST_INSTRUCTIONS = 3000
"""One takes about 5 ns a byte at worst: 15 ms for a KiB of text. A class such as `\\p{L}` has 1200."""
_MEMORY = 512 << 10
"""Bytes for an automaton; RE2 keeps the last 128 expressions."""

# Skips escapes and classes, each as a whole.
_AMBIGUOUS = re.compile(r"(\\[1-9](?![0-7]{2})|\{,\d*\})|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEATED = "a repeat without a lowest number is not known: write {0,3} for {,3}"
_REFERENCE = r"a back-reference needs backtracking: write out what it may repeat, such as aa|bb for (a|b)\1"
_AROUND = "look-around needs backtracking: match the text around it as well, or use not or negate"
_WHY = {
    "missing )": r"a group is not closed: write ) at its end, or \( for a parenthesis of the text",
    "unexpected )": r"a ) closes no group: write \) for a parenthesis of the text",
    "missing ]": r"a class is not closed: write ] at its end, or \[ for a bracket of the text",
    "trailing \\": r"a backslash is the last character: write \\ for one of the text",
    "no argument for repetition operator": r"there is nothing to repeat before *, + or ?: write \*, \+ or \? for text",
    "bad repetition operator": "a repeat is repeated: write one, or (?:a{2})* for a{2}*; none can be possessive",
    "invalid repetition size": "a repeat has at most 1000 times, multiplied where repeats are nested: write less",
    "invalid character class range": r"a range or a class is not known: write a-z, [:alpha:] or \p{L}",
    "invalid escape sequence": r"an escape is not known: write \z for the end, \x{e9} for a character, a letter alone",
    "invalid named capture group": "the name of a group is invalid: write (?P<name>…) with letters, digits and _",
    "pattern too large - compile failed": "it is too large: repeat less often, or fewer classes such as \\p{L}",
}
_GROUPS = {
    "(?=": _AROUND,
    "(?!": _AROUND,
    "(?<=": _AROUND,
    "(?<!": _AROUND,
    "(?P": _REFERENCE,
    "(?>": "an atomic group is not known: write (?:…), as there is no backtracking",
    "(?#": "a comment is not known: leave it out",
    "(?(": "a condition in a group is not known: write both cases, such as (?:ab|c)",
}
_NO_GROUP = "a group or its flags are not known: write (?:…), (?P<name>…), or flags out of i, m, s and U, such as (?i)"


def check_pattern(pattern: str, *at: str | int) -> None:
    """Raises BadOption, at these keys, unless the pattern can be searched for in linear time.

    The message quotes nothing of the pattern.
    """
    if why := _problem(pattern):
        raise BadOption(f"invalid regular expression: {why}", *at)


def searcher(pattern: str) -> Callable[[str], bool]:
    """Returns a function that searches a text for a checked pattern; reuse it for many texts."""
    found = finder(pattern)
    return lambda text: found(text.encode(errors="replace"))


def finder(pattern: str) -> Callable[[bytes], bool]:
    """Returns a function that searches a text, as UTF-8, for a checked pattern; reuse it for many texts."""
    match, anywhere = _matcher(_compiled(pattern))
    return lambda text: match(anywhere, text, 0, len(text))[0][0] >= 0


def replacer(pattern: str, replacement: str) -> Callable[[str], str]:
    """Returns a function that replaces each occurrence of a checked pattern in a text; reuse it for many texts.

    The replacement is taken literally. A text without an occurrence is returned as it is.
    """
    expression, literal = _compiled(pattern), replacement.replace("\\", "\\\\").encode()
    found = finder(pattern)

    def replaced(text: str) -> str:
        raw = text.encode(errors="replace")
        if not found(raw):
            return text
        return bytes(expression.sub(literal, raw)).decode(errors="replace")

    return replaced


def check_groups(pattern: str, *at: str | int) -> None:
    """Raises BadOption, at these keys, unless `check_pattern` passes and the pattern has a named group."""
    check_pattern(pattern, *at)
    if not _compiled(pattern, captures=True).groupindex:
        raise BadOption("no group of it has a name: write (?P<name>…) for each field", *at)


def grouper(pattern: str) -> Callable[[bytes], dict[str, bytes] | None]:
    """Returns a function that searches a text, as UTF-8, for a checked pattern, and returns what its named groups hold;
    reuse it for many texts.

    Groups that hold nothing are left out. None: the pattern is not found.
    """
    expression = _compiled(pattern, captures=True)
    match, anywhere = _matcher(expression)
    named = [(number, name) for name, number in expression.groupindex.items()]

    def groups(text: bytes) -> dict[str, bytes] | None:
        spans = match(anywhere, text, 0, len(text))
        if spans[0][0] < 0:
            return None
        return {name: text[slice(*spans[number])] for number, name in named if spans[number][0] < spans[number][1]}

    return groups


def _matcher(expression: Any) -> tuple[Callable[..., Any], Any]:
    """Returns what searches a text, and its first argument, to search for it anywhere.

    Not `search`, which takes 1 µs more, and whose matches ask RE2 for the number of groups again for each group (4 of
    them: 12 µs a line, not 5).
    """
    import re2  # type: ignore[import-untyped]

    return expression._regexp.Match, re2._Anchor.UNANCHORED


def _compiled(pattern: str, *, captures: bool = False) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY
    options.never_capture = not captures
    options.log_errors = False  # they would go to standard error, with the pattern
    return re2.compile(pattern, options)


def _problem(pattern: str) -> str | None:
    if len(pattern) > _LONGEST:
        return f"it is longer than {_LONGEST} characters"
    import re2

    try:
        size = _compiled(pattern).programsize
    except UnicodeEncodeError:
        return "it is not Unicode"
    except re2.error as error:
        return _why(error.args[0].decode(errors="replace"))
    if size > _MOST_INSTRUCTIONS:
        return _WHY["pattern too large - compile failed"]
    for other in filter(None, _AMBIGUOUS.findall(pattern)):
        return _REFERENCE if other.startswith("\\") else _REPEATED
    return None


def _why(message: str) -> str:
    """Returns the remedy for an error of RE2, whose own message quotes the pattern."""
    error, _, part = message.partition(": ")
    if error == "invalid perl operator":
        return _GROUPS.get(part, _NO_GROUP)
    if error == "invalid escape sequence" and part[1:2] in tuple("123456789"):
        return _REFERENCE
    return _WHY.get(error, "it does not follow https://github.com/google/re2/wiki/Syntax")
