"""Assigns modules of the program to units. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

BUILT_IN = "shipper_plugins"
"""The package of the built-in plugins, which are independent of one another."""


def blamed(modules: Sequence[str], plugins: Collection[str]) -> str | None:
    """Returns the first of the modules, innermost of a stack first, that is in the package of a plugin; or None.

    `plugins` are the modules in which the plugins' classes are defined.
    """
    packages = {_package(plugin) for plugin in plugins}
    return next((module for module in modules if module in plugins or _package(module) in packages), None)


def units(module: str, plugins: Mapping[str, Collection[str]]) -> set[str]:
    """Returns the units to which a module may belong; `plugins` has, by unit, the modules of its plugins' classes."""
    exact = {unit for unit, own in plugins.items() if module in own}
    if exact or _package(module) == BUILT_IN:
        return exact
    return {unit for unit, own in plugins.items() if _package(module) in map(_package, own)}


def _package(module: str) -> str:
    return module.partition(".")[0]
