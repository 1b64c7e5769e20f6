"""The commands that end a drain, or a batch, which does not move, for people to copy; the gentlest first. No I/O.

held, and its output has the same destination, another credential   rebind: deliver it there with that one
its output has another destination now                              forward: deliver it there
any                                                                 dead-letter: keep it; drop: discard it

A refused credential without such a drain is ended elsewhere; what asks the destination about it is proposed instead.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from shipper.sdk.codes import Code

MOMENT_SECONDS = 5.0
"""The age of a drain from which a forward is proposed for a problem that may pass by itself."""
PATIENCE_SECONDS = 60.0
"""The age from which giving it up is proposed."""
ORDERS = ("rebind", "forward", "dead-letter", "drop", "dead-letters")
"""The orders that the commands give."""
_ENDS = ("dead-letter", "drop")
_MOVES = (Code.DELIVERING, Code.NOT_RUNNING, Code.UNKNOWN)
"""The codes of a drain without a known obstacle."""
_REFUSED = {
    Code.UNAUTHORIZED: ("put a valid credential where the policy names it, and ask whether it is known", "credential"),
    Code.FORBIDDEN: ("grant the privilege to the credential, and ask whether it lacks another", "output"),
}
"""By the code of an output: what to do, and what `shipper test` asks."""


class Remedy(NamedTuple):
    """A command, and its effect in words."""

    words: str
    command: str


def of_drain(drain: Mapping[str, Any], output: str, directory: str, orders: Collection[str]) -> list[Remedy]:
    """Returns the remedies for a drain of one output, among the supported `orders`; none while it moves.

    `drain` is an entry of `observed.draining`. A command with unprintable characters is not proposed.
    """
    waiting = drain["outputs"][output]
    if waiting.get("code", "") in _MOVES and not waiting.get("held"):
        return []
    waited = math.inf if waiting.get("held") else drain["oldest_seconds"]
    return _remedies(_orders(drain, output), waited, directory, orders)


def of_batch(unit: Mapping[str, Any], directory: str, orders: Collection[str]) -> list[Remedy]:
    """The same for the batch that fails again and again; `unit` is an output of `observed`."""
    if not (failing := unit.get("failing")):
        return []
    output = unit["id"].partition(".")[2]
    place = {"output": output, "batch": str(failing["batch"])}
    return _remedies(_ends(place), failing["seconds"], directory, orders)


def of_refusal(unit: Mapping[str, Any], observed: Mapping[str, Any]) -> list[Remedy]:
    """Returns the remedy for a credential that the destination of an output refuses; `unit` is one of `observed`.

    There is none where a drain of that output is held: it has remedies of its own.
    """
    kind, _, output = unit["id"].partition(".")
    drains = observed.get("draining") or ()
    is_held = any(drain["outputs"].get(output, {}).get("held") for drain in drains)
    if kind != "outputs" or is_held or (known := _REFUSED.get(unit.get("code", ""))) is None:
        return []
    words, what = known
    asking = f"shipper test {what} policy.yaml {_option('output', output)}"
    return [Remedy(words, asking)] if asking.isprintable() else []


def _remedies(
    found: Iterable[tuple[str, str, dict[str, str]]], waited: float, directory: str, orders: Collection[str]
) -> list[Remedy]:
    remedies = [
        Remedy(words, command(order, options, directory))
        for order, words, options in found
        if order in orders and waited >= (PATIENCE_SECONDS if order in _ENDS else MOMENT_SECONDS)
    ]
    return [remedy for remedy in remedies if remedy.command.isprintable()]


def _orders(drain: Mapping[str, Any], output: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    waiting = drain["outputs"][output]
    target = waiting.get("rebind_to")
    if waiting.get("held") and target is not None:
        for source in waiting.get("rebind_from", ()):
            if source != target:
                words = f"deliver it with {target} to the same destination"
                yield "rebind", words, {"from": source, "to": target}
    revision = f"{drain['epoch']}:{drain['revision']}" if drain["epoch"] else str(drain["revision"])
    place = {"revision": revision, "output": output}
    if waiting.get("forward") and target is None:
        yield "forward", "deliver it to where the output goes now", place
    yield from _ends(place)


def _ends(place: dict[str, str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    yield "dead-letter", "give it up, and keep it as dead letters", place
    yield "drop", "discard it for ever", place


def of_letters(directory: str) -> Remedy:
    """Returns the remedy for dead letters."""
    return Remedy("after a repair of the cause", command("dead-letters requeue", {}, directory))


def all_of_letters(directory: str) -> list[Remedy]:
    """Returns what can be done with dead letters: look at them, keep them elsewhere, and deliver them."""
    export = command("dead-letters", {"export": "rejected.ndjson"}, directory)
    return [
        Remedy("look at them", command("dead-letters", {}, directory)),
        Remedy("write them to a file, with their events", export),
        of_letters(directory),
    ]


def command(order: str, options: Mapping[str, str], directory: str) -> str:
    """Returns a command line, quoted for a shell."""
    given = (_option(name, value) for name, value in {**options, "state": directory}.items())
    return " ".join(["shipper order", order, *given])


def _option(name: str, value: str) -> str:
    """Joins a value that begins with a dash to its option, since it would be parsed as another option."""
    return shlex.quote(f"--{name}={value}") if value.startswith("-") else f"--{name} {shlex.quote(value)}"
