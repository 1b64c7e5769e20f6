"""The installed plugins, found by entry points and imported when a policy names them.

The groups are `shipper.inputs`, `shipper.processors` and `shipper.outputs`, an entry point's name is the `type` that a
policy writes. Reading the entry points costs about 0.2 ms for each installed distribution; importing the plugins would
cost hundreds (aiohttp alone 150), so that waits until a type is asked for. Built-in plugins have no privilege.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from shipper.plugin import Input, Output, Processor
from shipper.policy.document import shown, suggest
from shipper.policy.uses import shapes_of
from shipper.process import collector
from shipper.process.groups import contained, named
from shipper.sdk.codes import Code
from shipper.sdk.credentials import Shape
from shipper.sdk.errors import ShipperError

if TYPE_CHECKING:
    from importlib.metadata import SelectableGroups  # until Python 3.12, which has EntryPoints alone

Kind = Literal["inputs", "processors", "outputs"]
_Base = TypeVar("_Base")
Plugin = type[Input] | type[Processor] | type[Output]

BASES: Mapping[Kind, Plugin] = {"inputs": Input, "processors": Processor, "outputs": Output}


class UnknownType(ShipperError):
    """No installed plugin of this kind has this type, or it cannot be loaded."""

    code = Code.UNKNOWN_PLUGIN


class Registry:
    """Maps types to classes; from entry points, or from classes directly."""

    def __init__(self, plugins: Mapping[Kind, Mapping[str, EntryPoint | Plugin]]) -> None:
        self._plugins = {kind: dict(plugins.get(kind, {})) for kind in BASES}

    @classmethod
    def installed(cls) -> Registry:
        """All plugins that are installed in this Python; imports none of them."""
        return cls({kind: points(f"shipper.{kind}") for kind in BASES})

    def types(self, kind: Kind) -> list[str]:
        """Returns the types of this kind, sorted."""
        return sorted(self._plugins[kind])

    @overload
    def find(self, kind: Literal["inputs"], type: str) -> type[Input]: ...
    @overload
    def find(self, kind: Literal["processors"], type: str) -> type[Processor]: ...
    @overload
    def find(self, kind: Literal["outputs"], type: str) -> type[Output]: ...
    @overload
    def find(self, kind: Kind, type: str) -> Plugin: ...
    def find(self, kind: Kind, type: str) -> Plugin:
        """Returns the class of this type, a subclass of Input, Processor or Output; raises UnknownType."""
        found = self._plugins[kind].get(type)
        if found is None:
            hint, installed = suggest(type, self.types(kind)), ", ".join(self.types(kind)) or "none"
            raise UnknownType(f'there is no {kind[:-1]} of type "{shown(type)}"{hint}; installed: {installed}')
        if isinstance(found, EntryPoint):
            found = self._plugins[kind][type] = loaded(found, BASES[kind], kind[:-1])
        return found

    def shapes(self) -> frozenset[Shape]:
        """Returns the shapes of credential that any plugin accepts; imports all of them, except broken ones."""
        for kind in BASES:
            for type in self.types(kind):
                with suppress(UnknownType):
                    self.find(kind, type)
        return self.loaded_shapes()

    def loaded_shapes(self) -> frozenset[Shape]:
        """Returns the shapes of the imported plugins."""
        plugins = [plugin for found in self._plugins.values() for plugin in found.values()]
        return frozenset().union(*(shapes_of(one) for one in plugins if not isinstance(one, EntryPoint)))


def points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by their names."""
    return {point.name: point for point in all_points().select(group=group)}


@cache
def all_points() -> SelectableGroups:
    """Those of all groups, read once: one group alone would need the metadata of every distribution as well."""
    return entry_points()


def loaded(point: EntryPoint, base: type[_Base], noun: str) -> type[_Base]:
    """Returns the class that an entry point names; raises UnknownType.

    A plugin is foreign code: any exception of its import becomes an error that names it.
    """
    try:
        with contained(), collector.importing():
            plugin = point.load()
    except Exception as error:
        cause = f"{type(error).__name__}: {error}" if isinstance(error, ImportError) else named(error)
        raise UnknownType(f"the {noun} {point.name} ({point.value}) cannot be loaded: {cause}") from error
    if not (isinstance(plugin, type) and issubclass(plugin, base)):
        raise UnknownType(f"the {noun} {point.name} ({point.value}) is not a subclass of {base.__name__}")
    return plugin
