import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from shipper.plugin import Input, Output
from shipper.policy.registry import Registry, UnknownType


class Tail(Input, frozen=True):
    pass


def registry_of(value, group="inputs"):
    return Registry({group: {"stranger": EntryPoint("stranger", value, f"shipper.{group}")}})


def test_classes_may_be_named_outright():
    assert Registry({"inputs": {"tail": Tail}}).find("inputs", "tail") is Tail
    assert Registry({}).types("outputs") == []


def test_an_unknown_type_is_told_with_what_is_installed_and_the_likely_one():
    registry = Registry({"inputs": {"tail": Tail, "other": Tail}})

    with pytest.raises(
        UnknownType, match=r'no input of type "tial" \(did you mean "tail"\?\); installed: other, tail$'
    ):
        registry.find("inputs", "tial")
    with pytest.raises(UnknownType, match="installed: none"):
        registry.find("outputs", "tail")


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("shipper_no_such_module:X", "No module named 'shipper_no_such_module'"),
        ("shipper.plugin:NoSuchClass", "AttributeError"),
        ("shipper.plugin:Output", "not a subclass of Input"),
        ("shipper.plugin:backoff", "not a subclass of Input"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_named_with_the_cause(value, cause):
    with pytest.raises(UnknownType, match=f"stranger.*{value}.*{cause}"):
        registry_of(value).find("inputs", "stranger")


def test_a_plugin_whose_module_raises_is_an_error_that_names_it(tmp_path, monkeypatch):
    (tmp_path / "stranger_plugin.py").write_text("raise RuntimeError('hunter2')")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(UnknownType, match=r"stranger \(stranger_plugin:X\) cannot be loaded: RuntimeError$"):
        registry_of("stranger_plugin:X").find("inputs", "stranger")


def test_a_plugin_with_a_name_that_is_nearly_a_hook_is_refused_with_the_hook_that_was_meant(tmp_path, monkeypatch):
    text = "from shipper.plugin import Input\nclass Tail(Input, frozen=True):\n    def listen(self): return ()\n"
    (tmp_path / "plugin_with_a_typo.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(UnknownType, match=r"plugin_with_a_typo\.Tail has `listen`, .* `listens` of Input was meant"):
        registry_of("plugin_with_a_typo:Tail").find("inputs", "stranger")


def test_nothing_is_imported_before_a_policy_names_it():
    program = (
        "import sys\n"
        "from shipper.policy.policy import parse\n"
        "from shipper.policy.registry import Registry\n"
        "registry = Registry.installed()\n"
        "parse('version: 1', registry)\n"
        "registry.types('outputs')\n"
        "print([name for name in sys.modules if name.startswith(('shipper_plugins', 'aiohttp'))])\n"
        "registry.find('processors', 'add_fields')\n"
        "print([f'shipper_plugins.processors.{name}' in sys.modules for name in ('add_fields', 'drop')])\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout

    assert out == "[]\n[True, False]\n"


def test_an_output_is_no_input():
    class Sink(Output, frozen=True):
        pass

    assert Registry({"outputs": {"x": Sink}}).find("outputs", "x") is Sink
    with pytest.raises(UnknownType):
        Registry({"outputs": {"x": Sink}}).find("inputs", "x")
