"""Names of hooks: what a class of a contract offers, and a plugin's class may define.

A hook with a typo is never called, and nothing says so. So a class with a public name that is nearly that of a hook is
refused when it is defined, which is when the plugin is found.
"""

from __future__ import annotations

from itertools import takewhile
from types import MemberDescriptorType

from shipper.sdk.errors import PluginFault

_SHORT = 5
"""Letters below which a name is near another one by accident, such as `end` and `send`."""


def check(plugin: type, contract: type) -> None:
    """Raises PluginFault, which names the class, its method and the hook that was meant, if there is such a name.

    Options of a policy may have any name. So may what begins with an underscore.
    """
    hooks = [name for name in dir(contract) if not name.startswith("_")]
    for one in plugin.__mro__:
        if one in contract.__mro__:
            continue
        for name, value in vars(one).items():
            if name.startswith("_") or name in hooks or isinstance(value, MemberDescriptorType):
                continue
            meant = next((hook for hook in hooks if is_near(name, hook)), None)
            if meant is not None:
                where = f"{plugin.__module__}.{plugin.__qualname__}"
                raise PluginFault(
                    f"{where} has `{name}`, which is never called: `{meant}` of {contract.__name__} was meant, "
                    "or it needs another name"
                )


def is_near(name: str, hook: str) -> bool:
    """Whether they differ by one letter, by two neighbours that changed places, or by capitals and underscores."""
    name, hook = _letters(name), _letters(hook)
    start = _alike(name, hook)
    end = _alike(name[start:][::-1], hook[start:][::-1])
    ours, theirs = name[start : len(name) - end], hook[start : len(hook) - end]
    if max(len(ours), len(theirs)) <= 1:
        return ours == theirs or len(hook) >= _SHORT
    return len(ours) == 2 and ours == theirs[::-1]


def _alike(one: str, other: str) -> int:
    """How many letters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _letters(name: str) -> str:
    return name.replace("_", "").lower()
