"""Writes a page for each installed plugin: `python -m tests.docs.plugin_pages`, into docs/reference.

A page is made of the plugin's class (its docstring and that of its module, its options with types, defaults and texts)
and of its example in docs/reference/examples: a policy, and for a processor lines of a log and the events that come of
them. Paragraphs of a module's docstring that are for readers of the code are left out.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from shipper.policy.registry import BASES, Kind, Registry
from shipper.policy.schema import json_schema

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
EXAMPLES = REFERENCE / "examples"
TITLES = {"inputs": "Input", "processors": "Processor", "outputs": "Output"}
CONDITION = "shipper.sdk.conditions.Condition"
COMMON = {
    "processors": "[processors](../../policies.md#processors)",
    "when": "[condition](../../policies.md#conditions)",
}
"""What every plugin has, and other pages tell of."""
OF_MODULES = re.compile(
    r"[Tt]his (module|file) |The modules|Only the first |`shipper(_plugins)?\.|^`[a-z_]+` (describes|makes|has) "
)
POINTS = {point.name for kind in BASES for point in entry_points(group=f"shipper.{kind}")}

Schema = dict[str, Any]


def write(target: Path = REFERENCE) -> None:
    """Writes all pages, and removes those of plugins that are gone."""
    for kind in BASES:
        shutil.rmtree(target / kind, ignore_errors=True)
    for name, text in pages().items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)


def pages() -> dict[str, str]:
    """Returns the pages by their paths below docs/reference."""
    registry = Registry.installed()
    definitions: Schema = json_schema(registry)["$defs"]
    made = {
        f"{kind}/{type}.md": page(kind, type, registry, definitions) for kind in BASES for type in registry.types(kind)
    }
    return {**made, "index.md": index(registry, definitions)}


def index(registry: Registry, definitions: Schema) -> str:
    """Returns the page with all plugins, and what each is for."""
    lines = [
        "# Plugins",
        "",
        "Each page is made from the class of its plugin. `shipper schema` prints the same for editors.",
    ]
    for kind in BASES:
        lines += ["", f"## {TITLES[kind]}s", "", "| type | |", "|---|---|"]
        for type in registry.types(kind):
            lines.append(f"| [{type}]({kind}/{type}.md) | {_cell(_summary(definitions[f'{kind[:-1]}.{type}']))} |")
    return "\n".join(lines) + "\n"


def page(kind: Kind, type: str, registry: Registry, definitions: Schema) -> str:
    """Returns the page of a plugin."""
    schema = definitions[f"{kind[:-1]}.{type}"]
    parts = [f"# {TITLES[kind]} `{type}`", schema.get("description", "")]
    parts += example(kind, type)
    parts += paragraphs(registry.find(kind, type))
    parts += ["## Options", table(schema)]
    for name in _nested(schema, definitions):
        nested = definitions[name]
        parts += [f"### {_short(name)}", nested.get("description", ""), table(nested)]
    return "\n\n".join(filter(None, parts)) + "\n"


# -- the example -------------------------------------------------------------------------------------------------------


def example(kind: Kind, type: str) -> list[str]:
    """Returns the parts of a page that show the example, if there is one."""
    policy, log, events = (EXAMPLES / kind / f"{type}.{end}" for end in ("yaml", "log", "ndjson"))
    if not policy.exists():
        return []
    parts = ["## Example", f"```yaml\n{policy.read_text()}```"]
    if log.exists():
        shown = "\n".join(map(_written, events.read_text().splitlines()))
        parts += ["These lines", f"```text\n{log.read_text()}```", "become", f"```json\n{shown}\n```"]
        parts += ["(besides what every event has: its time, host, agent and place in the log)."]
    return parts


def _written(event: str) -> str:
    """Returns an event on one line if it fits there, else on several."""
    short = json.dumps(json.loads(event), ensure_ascii=False)
    return short if len(short) <= 100 else json.dumps(json.loads(event), ensure_ascii=False, indent=2)


# -- the docstring -----------------------------------------------------------------------------------------------------


def paragraphs(plugin: type) -> list[str]:
    """Returns the paragraphs of a module's docstring that a user needs; examples are blocks."""
    module = inspect.getmodule(plugin)
    told = inspect.cleandoc((module and module.__doc__) or "").split("\n\n")[1:]
    return list(filter(None, (_for_users(text, _modules(plugin)) for text in told)))


def _modules(plugin: type) -> set[str]:
    """Returns the names of modules, alone and with their room: `frames`, `syslog.frames`."""
    paths = list(Path(inspect.getfile(plugin)).parent.parent.rglob("*.py"))
    return {path.stem for path in paths} - POINTS | {f"{path.parent.name}.{path.stem}" for path in paths}


def _for_users(text: str, modules: set[str]) -> str:
    """Returns a paragraph without what it says of modules, or nothing; of a list, each point is judged by itself."""
    if text.startswith("    "):
        return "" if "──" in text else text
    if text.startswith("- "):
        points = [_for_users(point, modules) for point in text.removeprefix("- ").split("\n- ")]
        return "\n".join(f"- {point}" for point in points if point)
    names = "|".join(map(re.escape, modules))
    text = re.sub(rf" \((?:see )?`(?:{names})`\)|[:;]\s+(?:see )?`(?:{names})`(?: has [^.;]*)?(?=[.;])", "", text)
    sentences = re.split(r"(?<=\.)(?=\s+[A-Z`])", text)
    text = "".join(one for one in sentences if not OF_MODULES.search(one)).strip()
    words = re.findall(r"(?<![\w.])\w+(?:\.\w+)*", text)
    named = {word for word in words if "_" in word or "." in word} & modules
    return "" if named or re.search(r"\bmodules?\b|\blanes?\b|^Speed:", text) else text


# -- the options -------------------------------------------------------------------------------------------------------


def table(schema: Schema) -> str:
    """Returns the table of the options of a struct."""
    required = schema.get("required", ())
    rows = ["| option | type | default | |", "|---|---|---|---|"]
    options = {name: option for name, option in schema["properties"].items() if "const" not in option}
    if not options:
        return "It has no options."
    for name, option in options.items():
        default = "required" if name in required else _default(option)
        rows.append(f"| `{name}` | {COMMON.get(name) or kind_of(option)} | {default} | {_cell(_text(option))} |")
    return "\n".join(rows)


def kind_of(schema: Schema) -> str:
    """Returns the type of an option in words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return COMMON["when"] if name == CONDITION else f"[{_short(name)}](#{_short(name).lower()})"
    if arms := schema.get("anyOf"):
        if any("file" in arm.get("properties", ()) for arm in arms):
            return "[credential](../../policies.md#secrets)"
        kinds = [kind_of(arm) for arm in arms if arm != {"type": "null"} and arm.get("pattern") != r"\$\{"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array":
            return f"list of {kind_of(schema.get('items', {}))}"
        case "object":
            values = schema.get("additionalProperties")
            return f"map of {kind_of(values)}" if isinstance(values, dict) else "map"
        case "string":
            return _string(schema)
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return "`true`, `false`"
    return "any value"


def _string(schema: Schema) -> str:
    pattern = schema.get("pattern", "")
    if pattern.endswith("?B$"):
        return "size"
    if "(ms|s|m|h|d)" in pattern:
        return "duration"
    if schema.get("description") == "The path of a PEM file.":
        return "path of a PEM file"
    return "text"


def _number(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    word = "integer" if schema["type"] == "integer" else "number"
    if low is not None and low == high:
        return str(low)
    if low is not None and high is not None:
        return f"{word}, {low} to {high}"
    return f"{word}, {low} or more" if low is not None else word


def _default(option: Schema) -> str:
    if "default" not in option or option["default"] in ({}, []):
        return ""
    value = option["default"]
    written = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return _cell(f"`{written}`")


def _text(option: Schema) -> str:
    return str(option.get("description", ""))


def _nested(schema: Schema, definitions: Schema) -> list[str]:
    """Returns the structs within a struct, each once, the nearest first."""
    found: list[str] = []
    waiting = [schema]
    while waiting:
        for name in _references({key: part for key, part in waiting.pop(0).items() if key != "allOf"}):
            if name not in found and name.rpartition(".")[2] not in ("processor", "Condition"):
                found.append(name)
                waiting.append(definitions[name])
    return found


def _references(part: Any) -> Iterator[str]:
    match part:
        case {"$ref": str(reference)}:
            yield reference.removeprefix("#/$defs/")
        case dict():
            for value in part.values():
                yield from _references(value)
        case list():
            for value in part:
                yield from _references(value)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _summary(schema: Schema) -> str:
    return str(schema.get("description", "")).partition("\n\n")[0]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
