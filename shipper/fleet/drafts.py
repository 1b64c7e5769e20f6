"""Reads a policy that is to be published, and what it would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from shipper.fleet import changes, publishing
from shipper.fleet.changes import Candidate, Plan
from shipper.fleet.errors import Refused
from shipper.fleet.publisher import Publisher
from shipper.fleet.publishing import Publishing
from shipper.fleet.records import MEMBERS, Report, Version
from shipper.fleet.seal import Seals, Unauthentic
from shipper.fleet.store import Store
from shipper.policy import document
from shipper.policy.document import Node
from shipper.policy.registry import Registry
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem
from shipper.supervise.reading import content
from shipper.supervise.sources import merged, policy_files, without_inputs


@dataclass(frozen=True, slots=True)
class Draft:
    """A checked policy and its plan."""

    candidate: Candidate
    plan: Plan


def read(paths: Sequence[Path], registry: Registry) -> Candidate:
    """Returns the candidate of files, or of directories of *.yaml; raises PolicyError. Reads the files."""
    problems: list[Problem] = []
    files = policy_files(paths, problems)
    raw = [_content(file, problems) for file in files]
    if problems:
        raise PolicyError(problems)
    if len(files) == 1:
        return changes.read(raw[0].decode(), registry, file=str(files[0]))
    trees = [document.read(text, file=str(file)) for text, file in zip(raw, files, strict=True)]
    if problems := [problem for tree in trees for problem in _variables(tree, "")]:
        raise PolicyError(problems)
    candidate = changes.read(document.write(document.plain(merged(trees))), registry)
    return replace(candidate, warnings=(*map(str, without_inputs(trees)), *candidate.warnings))


def _content(file: Path, problems: list[Problem]) -> bytes:
    try:
        raw = content(file, document.LARGEST)
        document.read(raw, file=str(file))
    except OSError as error:
        problems.append(Problem("", 1, 1, f"cannot be read: {error.strerror}", str(file), Code.FILE_UNREADABLE))
        return b""
    except PolicyError as error:
        problems += error.problems
        return b""
    return raw


def _variables(node: Node, path: str) -> Iterator[Problem]:
    """Yields a problem for each variable: the type of its value depends on quotes, which merging does not keep."""
    for key, child in document.children_of(node):
        yield from _variables(child, document.below(path, key))
    if isinstance(node.value, str) and "${" in node.value:
        text = "a policy of several files is merged, and has no variables then; write it as one file"
        yield Problem(path, node.mark.line, node.mark.column, text, node.mark.file, Code.BAD_VALUE)


async def planned(
    paths: Sequence[Path], publisher: Publisher, store: Store, seals: Seals, if_version: str | None
) -> Draft:
    """Returns the draft of files against the newest version; raises PolicyError, Refused or StoreError."""
    registry = Registry.installed()
    candidate = await trio.to_thread.run_sync(read, paths, registry)
    head, _ = await publisher.head()
    publishing.publish(head, candidate.text, candidate.names, Publishing("", 0.0, ""), if_version=if_version)
    before = None
    if head.newest is not None:
        before = await _policy(publisher, head.history[-1].version)
    pinned = head.history[-1].secrets if head.newest is not None else {}
    pins = {name: head.secrets[name] for name in candidate.names}
    found = changes.plan(before, pinned, candidate, pins, registry)
    return Draft(candidate, Plan(str(head.newest) if head.newest else None, found, await _members(store, seals)))


async def _policy(publisher: Publisher, version: Version) -> str | None:
    """Returns the text of a version; None if it cannot be known: a newer one may be published all the same."""
    try:
        return (await publisher.text(version)).policy
    except (Refused, Unauthentic):
        return None


async def _members(store: Store, seals: Seals) -> int:
    """Returns the number of members that have not left."""
    count = 0
    for entry in (await store.list(MEMBERS)).entries:
        try:
            report = seals.open(entry.key, entry.value, Report)
        except Unauthentic:
            continue
        count += report.state in ("joining", "member")
    return count
