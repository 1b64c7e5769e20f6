"""Label selectors: which members run a policy. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shipper.kubernetes.kinds import Requirement, Selector


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether labels meet all of a selector; an empty one selects everything."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _meets(requirement, labels) for requirement in selector.match_expressions
    )


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":  # of what has no such label, too, as the API server has it
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":  # pragma: no branch - the last one of all
            return value is None
