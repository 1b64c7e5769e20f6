"""How long a request of a policy may last: a fence waits for that after the end of a lease."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from shipper.policy import document
from shipper.policy.document import Node
from shipper.policy.registry import Registry, UnknownType
from shipper.policy.settings import fields_of
from shipper.sdk.errors import PolicyError
from shipper.sdk.units import Duration

LONGEST_REQUEST = 60.0
"""Seconds, for an output whose settings do not show its own."""


@functools.lru_cache(maxsize=2)
def longest_request(policy: str, registry: Registry) -> float:
    """Returns the seconds of the longest request of a policy's outputs; 0 for a policy without outputs."""
    try:
        tree = document.read(policy)
    except PolicyError:
        return LONGEST_REQUEST
    outputs = tree.value.get("outputs") if isinstance(tree.value, dict) else None
    nodes = outputs.value if outputs is not None and isinstance(outputs.value, dict) else {}
    return max((_timeout(node, registry) for node in nodes.values()), default=0.0)


def _timeout(output: Node, registry: Registry) -> float:
    """Returns the `timeout` of an output, or that of its plugin."""
    settings: Mapping[str, Node] = output.value if isinstance(output.value, dict) else {}
    try:
        if "timeout" in settings:
            return float(Duration.parse(str(settings["timeout"].value)))
        plugin = registry.find("outputs", str(settings["type"].value))
        return float(fields_of(plugin)["timeout"].default)
    except (KeyError, TypeError, ValueError, UnknownType):
        return LONGEST_REQUEST
