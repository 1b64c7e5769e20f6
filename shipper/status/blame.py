"""Which unit a module of the program belongs to. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

BUILT_IN = "shipper_plugins"
"""The package of plugins that have nothing in common but that they come with the program."""


def blamed(modules: Sequence[str], plugins: Collection[str]) -> str | None:
    """The first of the modules, the innermost of a stack, that is in the package of a plugin; None if none is.

    `plugins` are the modules in which the plugins' classes are defined.
    """
    packages = {_package(plugin) for plugin in plugins}
    return next((module for module in modules if module in plugins or _package(module) in packages), None)


def units(module: str, plugins: Mapping[str, Collection[str]]) -> set[str]:
    """The units that a module may belong to; `plugins` has, by unit, the modules of its plugins' classes."""
    exact = {unit for unit, own in plugins.items() if module in own}
    if exact or _package(module) == BUILT_IN:
        return exact
    return {unit for unit, own in plugins.items() if _package(module) in map(_package, own)}


def _package(module: str) -> str:
    return module.partition(".")[0]
