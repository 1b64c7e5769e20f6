"""Which regular expressions of a policy are taken: those that cannot stop the process.

Python's `re` backtracks, and holds the interpreter while it does: a bad expression over a hostile line would stop the
whole process. So an expression in which a group with a repeat or an alternative is repeated without end, or many times,
such as `(a+)+` or `(a|ab)*`, is refused (those take exponential time), and whoever searches looks at some thousand
characters of a text only. The limit of this guard: what is left is polynomial, with a degree as high as the number of
repeats in a row that can match the same text, so `.*a.*b.*c` over a line made for it still takes seconds. Time-outs
inside a match do not exist in `re`; a linear engine (RE2) would be one more compiled dependency for one option.
"""

from __future__ import annotations

import math
import re

from shipper.plugin import BadOption

_TOKEN = re.compile(
    r"""\\.                                                # an escaped character
    | \[\^?\]?(?:\\.|[^\]\\])*\]                          # a class
    | \(\?(?:[a-zA-Z]+|P=\w+|\#[^)]*)\)                   # flags, a back-reference, a comment
    | \((?:\?(?:P<\w+>|[:=!>]|<[=!]|[a-zA-Z-]+:|\(\w+\)))? # a group opens
    | [*+?] | \{\d*,?\d*\}                               # a repeat
    | .""",
    re.DOTALL | re.VERBOSE,
)
_BOUNDED = re.compile(r"\{(?:\d*,)?(\d+)\}")
_HEAVIEST = 4.0
_TOO_SLOW = (
    "a repeated group holds a repeat or an alternative (this may be too slow): "
    "repeat a class instead, such as [a-z.]+ for ([a-z]+[.]?)+"
)


def check(pattern: str, *at: str) -> None:
    """Raises BadOption (`at` are the keys that lead to it) unless it compiles and takes no exponential time."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadOption(f"no regular expression: {error}", *at) from None
    if re.search(r"\(\?[a-z]*x", pattern):
        raise BadOption("the flag x is not supported", *at)
    weights, closed = [0.0], 0.0
    for token in _TOKEN.findall(pattern):
        closed = _weigh(at, token, weights, closed)


def _weigh(at: tuple[str, ...], token: str, weights: list[float], closed: float) -> float:
    """Take one token of a pattern; the weight of the group that it closes is returned (0: it closes none).

    A group weighs what its repeats weigh, an endless one 1, another or an alternative a quarter: about the degree of
    the time that it takes. Repeating the group multiplies that. `weights` are those of the groups that are open.
    """
    if token[0] == "(" and (token[-1] != ")" or token.startswith("(?(")):
        weights.append(0.0)
    elif token == ")":
        inner = weights.pop()
        weights[-1] += inner
        return inner
    elif token == "|" or token[0] in "*+?{":
        times = _most(token)
        weights[-1] += closed * (times - 1) if closed else 1.0 if times == math.inf else 0.25
        if closed and closed * times > _HEAVIEST and times > 1:
            raise BadOption(_TOO_SLOW, *at)
    return 0.0


def _most(token: str) -> float:
    """How often a repeat allows what is before it."""
    if bounded := _BOUNDED.fullmatch(token):
        return float(bounded[1])
    return math.inf if token[0] in "*+{" else 1.0
