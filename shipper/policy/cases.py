"""The section `tests` of a policy file: events that go in at an input, and events that must come out at its outputs.

    tests:
      a line of nginx becomes fields:
        input: access
        events:
          - '192.0.2.7 - - [27/Nov/2026:10:00:00 +0000] "GET /cart HTTP/1.1" 200 512 "-" "curl/8"'
        expect:
          - {http.request.method: GET, http.response.status_code: 200, message: null}

The section is for its author: it is no part of the policy, and is not sent to a sidecar. Nothing in it is replaced, and
no text in it is taken for a secret, since a test of `redact` needs one to remove.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from shipper.policy.document import Mark, Node, below, plain, shown, suggest
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem

SECTION = "tests"
LONGEST_NAME = 200
DEFAULT_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_KEYS = ("input", "events", "expect", "exact", "at")

Fields = dict[str, Any]

SCHEMA: Mapping[str, Any] = {
    "description": "Cases for `shipper test`, by name: events that go in, and events that must come out. They are no "
    "part of the policy.",
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {
            "input": {"description": "The input at which the events go in.", "type": "string"},
            "events": {
                "description": "A text is the `message` of an event; a mapping has its fields, by dotted names or "
                "nested.",
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, {"type": "object"}]},
            },
            "expect": {
                "description": "The events that each output of the input must get, or by output. Fields that are not "
                "named may have any value; null: the event must not have this field.",
                "anyOf": [
                    {"type": "array", "items": {"type": "object"}},
                    {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object"}}},
                ],
            },
            "exact": {
                "description": "Whether an event may have no other field that the processors made or changed.",
                "type": "boolean",
                "default": False,
            },
            "at": {
                "description": "When the events arrive.",
                "type": "string",
                "default": "2026-01-01T00:00:00Z",
            },
        },
        "required": ["input", "events", "expect"],
        "additionalProperties": False,
    },
}
"""The JSON Schema of the section."""


class Case(msgspec.Struct, frozen=True):
    """One test: `expect` has the events by output."""

    name: str
    mark: Mark
    input: str
    events: tuple[str | Fields, ...]
    expect: Mapping[str, tuple[Fields, ...]]
    exact: bool = False
    at: datetime = msgspec.field(default=DEFAULT_TIME)


def split(root: Node) -> tuple[Node, Node | None]:
    """Returns the mapping of a policy file without its tests, and the section of these, if there is one."""
    assert isinstance(root.value, dict)
    if SECTION not in root.value:
        return root, None
    rest = {key: child for key, child in root.value.items() if key != SECTION}
    return replace(root, value=rest), root.value[SECTION]


def read_cases(section: Node, inputs: Mapping[str, Collection[str]]) -> list[Case]:
    """Returns the cases of a section, in order.

    `inputs` has the outputs of each input of the policy. Raises PolicyError with all problems.
    """
    reading = _Reading(inputs)
    cases = list(reading.section(section))
    if reading.problems:
        raise PolicyError(reading.problems)
    return cases


class _Reading:
    """Reads one section, and collects its `problems`."""

    def __init__(self, inputs: Mapping[str, Collection[str]]) -> None:
        self.inputs = inputs
        self.problems: list[Problem] = []

    def problem(self, path: str, mark: Mark, message: str, code: str = Code.BAD_VALUE) -> None:
        self.problems.append(Problem(path, mark.line, mark.column, message, mark.file, code))

    def section(self, section: Node) -> Iterator[Case]:
        if not isinstance(section.value, dict):
            self.problem(SECTION, section.mark, "expected a mapping of tests by name")
            return
        for name, node in section.value.items():
            mark, path = section.keys.get(name, node.mark), below(SECTION, name)
            if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
                self.problem(path, mark, f"the name of a test has 1 to {LONGEST_NAME} printable characters")
            case = self.case(name, node, mark, path)
            if case is not None:
                yield case

    def case(self, name: str, node: Node, mark: Mark, path: str) -> Case | None:
        before = len(self.problems)
        parts = node.value
        if not isinstance(parts, dict):
            self.problem(path, mark, "a test is a mapping with input, events and expect")
            return None
        for key in parts:
            if key not in _KEYS:
                text = f'unknown key "{shown(key)}"{suggest(key, _KEYS)}'
                self.problem(below(path, key), node.keys[key], text, Code.UNKNOWN_KEY)
        for key in ("input", "events", "expect"):
            if key not in parts:
                self.problem(below(path, key), mark, "the key is missing", Code.MISSING_KEY)
        if len(self.problems) > before:
            return None
        input = self.input(parts["input"], below(path, "input"))
        events = self.events(parts["events"], below(path, "events"), texts=True)
        expect = self.expect(parts["expect"], below(path, "expect"), self.inputs.get(input, ()))
        exact = self.exact(parts.get("exact"), below(path, "exact"))
        at = self.at(parts.get("at"), below(path, "at"))
        if len(self.problems) > before:
            return None
        return Case(name, mark, input, events, expect, exact, at)

    def input(self, node: Node, path: str) -> str:
        if not isinstance(node.value, str):
            self.problem(path, node.mark, "expected the name of an input")
            return ""
        if node.value not in self.inputs:
            hint = suggest(node.value, self.inputs)
            self.problem(path, node.mark, f'there is no input "{shown(node.value)}"{hint}')
        return node.value

    def events(self, node: Node, path: str, *, texts: bool) -> tuple[Any, ...]:
        """Returns a list of events: mappings, and, with `texts`, texts."""
        if not isinstance(node.value, list):
            self.problem(path, node.mark, "expected a list of events")
            return ()
        for at, child in enumerate(node.value):
            if not isinstance(child.value, dict) and not (texts and isinstance(child.value, str)):
                text = "an event is a mapping of fields" + (", or the text of its message" if texts else "")
                self.problem(below(path, at), child.mark, text)
        return tuple(plain(child) for child in node.value)

    def expect(self, node: Node, path: str, outputs: Collection[str]) -> dict[str, tuple[Fields, ...]]:
        if not isinstance(node.value, dict):
            same = self.events(node, path, texts=False)
            return dict.fromkeys(outputs, same)
        for name in node.value:
            if name not in outputs:
                text = f'events of this input do not go to an output "{shown(name)}"{suggest(name, outputs)}'
                self.problem(below(path, name), node.keys[name], text, Code.UNKNOWN_OUTPUT)
        return {name: self.events(child, below(path, name), texts=False) for name, child in node.value.items()}

    def exact(self, node: Node | None, path: str) -> bool:
        if node is not None and not isinstance(node.value, bool):
            self.problem(path, node.mark, "expected true or false")
        return node is not None and node.value is True

    def at(self, node: Node | None, path: str) -> datetime:
        if node is None:
            return DEFAULT_TIME
        try:
            found = datetime.fromisoformat(str(node.value))
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            self.problem(path, node.mark, "expected an instant with its zone, such as 2026-01-01T00:00:00Z")
            return DEFAULT_TIME
        return found.astimezone(UTC)
