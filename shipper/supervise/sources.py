"""Origins of policies: a text, or files that are merged into one tree; each node has its place in the user's file.

Inputs and outputs of all files are collected; a name may be in one file only. The `processors` of a file are appended
to those of each of its inputs. Every other key may be in one file only. Variables are replaced in scalar values. A
single file is its own tree. The `tests` of a file are no part of its policy: `Read` has them beside the tree.

The merged tree lacks the processors of a file without inputs, since no file acts on what another one reads. Each such
file is a warning: its author expected an effect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec

from shipper.policy import cases, document
from shipper.policy.document import Node, Quoted, below
from shipper.policy.idle import warning
from shipper.sdk.codes import Code
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import PolicyError, Problem
from shipper.sdk.unshown import Unshown
from shipper.supervise.reading import content
from shipper.supervise.variables import replaced

SUFFIXES = (".yaml", ".yml")
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")

Replace = Callable[[Node, str, bool], str]
"""Returns the text of a scalar at a path, which is quoted or not, with its variables replaced; raises ValueError."""


class Origin(Protocol):
    """Where a policy comes from."""

    def paths(self) -> Collection[Path]:
        """Returns the paths of its text that may change; blocks on files."""
        ...

    def read(self, environment: Mapping[str, str]) -> Read:
        """Returns what it says, with variables replaced; raises PolicyError. Blocks on files."""
        ...


class Read(Unshown, frozen=True):
    """What files say: the tree of their policy; the section `tests` of each file that has one; and a warning for each
    part that is not in the tree, since it has no effect."""

    tree: Node
    tests: Sequence[Node] = ()
    idle: Sequence[Problem] = ()


class PolicyFiles(msgspec.Struct, frozen=True):
    """Files, and directories of files, that are merged."""

    given: tuple[Path, ...]

    def paths(self) -> Collection[Path]:
        return [*self.given, *policy_files(self.given, [])]

    def read(self, environment: Mapping[str, str]) -> Read:
        return read(self.given, environment)


class PolicyText(Unshown, frozen=True):
    """One text that never changes; `name` stands for a file's name in problems, such as `version 7`."""

    text: str
    name: str

    def paths(self) -> Collection[Path]:
        return ()

    def read(self, environment: Mapping[str, str]) -> Read:
        return Read(tree_of(self.text, self.name, lambda node, path, quoted: replaced(str(node.value), environment)))


def read_tree(paths: Sequence[Path], environment: Mapping[str, str]) -> Node:
    """Returns the merged tree of all files; raises PolicyError with the problems of all of them."""
    return read(paths, environment).tree


def read(paths: Sequence[Path], environment: Mapping[str, str]) -> Read:
    """Returns what all files say, merged; raises PolicyError with the problems of all of them."""
    found = _parsed_files(paths, lambda node, path, quoted: replaced(str(node.value), environment))
    tests = [file.tests for file in found if file.tests is not None]
    if len(found) == 1:
        return Read(found[0].root, tests)
    roots = [file.root for file in found]
    return Read(merged(roots), tests, list(without_inputs(roots)))


def without_inputs(roots: Iterable[Node]) -> Iterator[Problem]:
    """Yields a warning for the processors of each file that has no inputs."""
    for root in roots:
        assert isinstance(root.value, dict)
        inputs, processors = root.value.get("inputs"), root.value.get("processors")
        if processors is not None and processors.value and not (inputs is not None and inputs.value):
            at = root.keys.get("processors", processors.mark)
            text = "they act on the inputs of this file alone, and it has none; move them to the files of the "
            yield warning("processors", at, text + "inputs, or to the `processors` of an output")


def read_text(paths: Sequence[Path]) -> str:
    """Returns one text for all files, with their variables and without their tests; that of a single file without tests
    is returned as it is. Raises PolicyError."""
    found = _parsed_files(paths, lambda node, path, quoted: Quoted(node.value) if quoted else str(node.value))
    if len(found) == 1:
        return found[0].text if found[0].tests is None else document.write(found[0].root)
    return document.write(merged([file.root for file in found]))


class _File(Unshown, frozen=True):
    """Text and tree of a file, and its tests."""

    text: str
    root: Node
    tests: Node | None


def _parsed_files(paths: Sequence[Path], replace: Replace) -> list[_File]:
    problems: list[Problem] = []
    found: list[_File] = []
    for file in policy_files(paths, problems):
        try:
            raw = content(file, document.LARGEST)
            found.append(_File(raw.decode(errors="replace"), *_split_of(raw, str(file), replace)))
        except OSError as error:
            text = f"cannot be read: {in_words(error)}"
            problems.append(Problem("", 1, 1, text, str(file), Code.FILE_UNREADABLE))
        except PolicyError as error:
            problems += error.problems
    if problems:
        raise PolicyError(problems)
    return found


def policy_files(paths: Sequence[Path], problems: list[Problem]) -> list[Path]:
    """Returns the files of the paths, those of a directory by name; adds a problem for a directory without files."""
    files: dict[Path, None] = {}
    for path in paths:
        files.update(dict.fromkeys(_inside(path, problems) if os.path.isdir(path) else [path]))
    return list(files)


def _inside(directory: Path, problems: list[Problem]) -> list[Path]:
    try:
        found = sorted(
            entry
            for entry in directory.iterdir()
            if entry.suffix in SUFFIXES and not entry.name.startswith(".") and not os.path.isdir(entry)
        )
    except OSError as error:
        problems.append(Problem("", 1, 1, f"cannot be read: {in_words(error)}", str(directory), Code.FILE_UNREADABLE))
        return []
    if not found:
        text = "there is no *.yaml or *.yml file in this directory"
        problems.append(Problem("", 1, 1, text, str(directory), Code.FILE_MISSING))
    return found


def tree_of(text: bytes | str, file: str | None, replace: Replace) -> Node:
    """Returns the tree of one text without its tests, with its variables replaced; raises PolicyError."""
    return _split_of(text, file, replace)[0]


def _split_of(text: bytes | str, file: str | None, replace: Replace) -> tuple[Node, Node | None]:
    root = document.read(text, file=file)
    if not isinstance(root.value, dict):
        raise PolicyError([_problem("", root, "a policy is a mapping that starts with `version: 1`")])
    root, tests = cases.split(root)
    return _Variables(text if isinstance(text, str) else text.decode(), replace).in_all(root), tests


def _problem(path: str, node: Node, message: str) -> Problem:
    return Problem(path, node.mark.line, node.mark.column, message, node.mark.file, Code.BAD_VALUE)


class _Variables:
    """Replaces the variables of one text."""

    def __init__(self, text: str, replaced: Replace) -> None:
        self.lines = _LINE_END.split(text)
        self.replaced = replaced
        self.problems: list[Problem] = []

    def in_all(self, root: Node) -> Node:
        node = self.node(root, "")
        if self.problems:
            raise PolicyError(self.problems)
        return node

    def node(self, node: Node, path: str) -> Node:
        if isinstance(node.value, dict):
            return replace(node, value={key: self.node(child, below(path, key)) for key, child in node.value.items()})
        if isinstance(node.value, list):
            return replace(node, value=[self.node(child, below(path, at)) for at, child in enumerate(node.value)])
        if not isinstance(node.value, str) or "$" not in node.value:
            return node
        try:
            quoted = self.quoted(node)
            text = self.replaced(node, path, quoted)
            return replace(node, value=text if quoted else document.resolve(text))
        except ValueError as error:
            self.problems.append(_problem(path, node, str(error)))
            return node

    def quoted(self, node: Node) -> bool:
        """Whether the value is quoted, and so a string; a plain one has the type of its text with variables
        replaced."""
        line = self.lines[node.mark.line - 1] if node.mark.line <= len(self.lines) else ""
        return line[node.mark.column - 1 : node.mark.column] in ("'", '"', "|", ">")


# -- merging -----------------------------------------------------------------------------------------------------------


def merged(roots: Sequence[Node]) -> Node:
    """Returns one tree for several files' trees (mappings); raises PolicyError with both places of a duplicate."""
    merging = _Merging(roots[0])
    for root in roots:
        merging.add(root)
    if merging.problems:
        raise PolicyError(merging.problems)
    return merging.root


class _Merging:
    def __init__(self, first: Node) -> None:
        self.root = Node({}, first.mark, {})
        self.problems: list[Problem] = []

    def add(self, root: Node) -> None:
        assert isinstance(root.value, dict)
        own = root.value.get("processors", Node([], root.mark))
        for key, child in root.value.items():
            if key == "inputs":
                self.section(root, key, _with_processors(child, own))
            elif key == "outputs":
                self.section(root, key, child)
            elif key == "version":
                self.version(root, child)
            elif key != "processors":
                self.put(self.root, root, key, child, key)
        if not isinstance(own.value, list):
            self.problems.append(_problem("processors", own, "processors are a list"))

    def version(self, root: Node, child: Node) -> None:
        assert isinstance(self.root.value, dict)
        known = self.root.value.get("version")
        if known is None:
            self.put(self.root, root, "version", child, "version")
        elif known.value != child.value:
            self.problems.append(_problem("version", child, f"another version than in {_place(known)}"))

    def section(self, root: Node, key: str, named: Node) -> None:
        assert isinstance(self.root.value, dict)
        if not isinstance(named.value, dict):
            self.problems.append(_problem(key, named, f"{key} are a mapping of names"))
            return
        if key not in self.root.value:
            self.put(self.root, root, key, Node({}, named.mark, {}), key)
        for name, child in named.value.items():
            self.put(self.root.value[key], named, name, child, below(key, name))

    def put(self, into: Node, source: Node, key: str, child: Node, path: str) -> None:
        """Puts a child into a mapping of the merged tree; adds a problem for a duplicate."""
        assert isinstance(into.value, dict)
        mark = source.keys.get(key, child.mark)
        if key in into.value:
            first = into.keys[key]
            again = f"defined in two files (first in {first.file}:{first.line}:{first.column}); keep one"
            self.problems.append(Problem(path, mark.line, mark.column, again, mark.file, Code.BAD_VALUE))
            return
        into.value[key] = child
        into.keys[key] = mark


def _place(node: Node) -> str:
    return f"{node.mark.file}:{node.mark.line}:{node.mark.column}"


def _with_processors(inputs: Node, own: Node) -> Node:
    """Returns the inputs, each with the processors of its file after its own; malformed ones stay for the schema."""
    if not isinstance(inputs.value, dict) or not isinstance(own.value, list) or not own.value:
        return inputs
    return replace(inputs, value={name: _appended(child, own.value) for name, child in inputs.value.items()})


def _appended(config: Node, processors: list[Node]) -> Node:
    if not isinstance(config.value, dict):
        return config
    first = config.value.get("processors", Node([], processors[0].mark))
    if not isinstance(first.value, list):
        return config
    every = replace(first, value=[*first.value, *processors])
    return replace(config, value={**config.value, "processors": every})
