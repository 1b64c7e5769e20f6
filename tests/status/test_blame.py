"""The unit that a module of the program belongs to."""

import pytest

from shipper.status.blame import blamed, units

PLUGINS = {"inputs.a": {"stranger.lines"}, "outputs.b": {"shipper_plugins.file.output"}, "outputs.c": {"other"}}
MODULES = set().union(*PLUGINS.values())


@pytest.mark.parametrize(
    ("modules", "module"),
    [
        (("re", "stranger.parsing", "stranger.lines", "trio._core._run"), "stranger.parsing"),
        (("time", "shipper_plugins.file.output", "shipper.pipeline.delivery.session"), "shipper_plugins.file.output"),
        (("shipper.spool.spool", "trio._core._run"), None),
        ((), None),
    ],
)
def test_the_innermost_module_of_a_plugins_package_is_blamed(modules: tuple[str, ...], module: str | None) -> None:
    assert blamed(modules, MODULES) == module


def test_a_module_belongs_to_the_units_of_its_package_or_to_that_of_its_class() -> None:
    for module, found in [
        ("stranger.parsing", {"inputs.a"}),
        ("shipper_plugins.file.output", {"outputs.b"}),
        ("shipper_plugins.elasticsearch.client.encoding", set()),
        ("other", {"outputs.c"}),
        ("nobody", set()),
    ]:
        assert units(module, PLUGINS) == found
