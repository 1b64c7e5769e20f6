"""Finds the place in the user's file of an error of the sidecar.

The sidecar saw the merged text, with lines of its own; its path (`outputs.main.hosts[0]`) leads through the merged
tree, whose nodes know where they came from.
"""

from __future__ import annotations

import re

from shipper.policy.document import Mark, Node
from shipper.protocol.messages import NackError
from shipper.sdk.errors import Problem

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def located(tree: Node | None, error: NackError) -> Problem:
    """Returns the error at the deepest place of its path that the user wrote; unchanged if there is no tree."""
    if tree is None:
        return Problem(error.path, error.line, error.column, error.message, code=error.code)
    mark = _mark(tree, error.path)
    return Problem(error.path, mark.line, mark.column, error.message, mark.file, error.code)


def _mark(node: Node, path: str) -> Mark:
    """Keys may hold dots (`service.name`), so the longest key that fits is taken at each step."""
    mark = node.mark
    while path:
        if isinstance(node.value, dict):
            keys = [key for key in node.value if path == key or path.startswith((f"{key}.", f"{key}["))]
            if not keys:
                break
            key = max(keys, key=len)
            child, mark = node.value[key], node.keys.get(key, node.value[key].mark)
            path = path[len(key) :].removeprefix(".")
        else:
            step = _STEP.match(path)
            if not isinstance(node.value, list) or step is None or step[2] is None or int(step[2]) >= len(node.value):
                break
            child = node.value[int(step[2])]
            mark = child.mark
            path = path[step.end() :].removeprefix(".")
        node = child
    return mark
