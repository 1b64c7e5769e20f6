"""Variables in the values of policy files: `${NAME}`, `${NAME:-default}`, `${NAME:?message}`; `$$` is one `$`.

They are replaced after the YAML was parsed, so a value can never become structure, and replacements are not expanded
again. As in a shell with `:-`, an empty variable counts as not set. Any other `$` is literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_REFERENCE = re.compile(r"\$\$|\$\{([^{}]*)\}|\$\{")
_INSIDE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::([-?])(.*))?", re.DOTALL)


def replaced(text: str, environment: Mapping[str, str]) -> str:
    """Returns the text with its variables replaced; raises ValueError with the name of the variable, never a value."""
    return _REFERENCE.sub(lambda match: _value(match, environment), text)


def imagined(text: str, value: Callable[[str], str]) -> str:
    """Returns the text with each variable replaced by its default, or by `value` of its name; raises ValueError as
    `replaced`."""

    def one(match: re.Match[str]) -> str:
        inside = None if match[1] is None else _INSIDE.fullmatch(match[1])
        if inside is None:
            return _value(match, {})
        return str(inside[3]) if inside[2] == "-" else value(inside[1])

    return _REFERENCE.sub(one, text)


def _value(match: re.Match[str], environment: Mapping[str, str]) -> str:
    if match[0] == "$$":
        return "$"
    inside = _INSIDE.fullmatch(match[1]) if match[1] is not None else None
    if inside is None:
        raise ValueError("a variable is written ${NAME}, ${NAME:-default} or ${NAME:?message}; write $$ for one $")
    name, operator, rest = inside.groups()
    found = environment.get(name, "")
    if found or (operator is None and name in environment):
        return found
    if operator == "-":
        return str(rest)
    if operator == "?":
        raise ValueError(f"the variable {name} is not set: {rest or 'it is required'}")
    raise ValueError(f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
