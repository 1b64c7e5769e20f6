"""What ends a drain, or a batch, which does not move: in words, and as commands for people to copy. No I/O.

The order is that in which a careful person tries things:

by itself       what has to happen elsewhere (`passing`): the host answers, the credential gets its privilege
held, and its output has the same destination, another credential   rebind: deliver it there with that one
its output has another destination now                              forward: deliver it there
any             dead-letter: keep it; drop: discard it; they give events up (`gives_up`)

Orders that give events up are proposed only where nothing else ends the wait: neither an outage that passes, unless it
has lasted for a day, nor another order.

A refused credential without such a drain is ended elsewhere; what asks the destination about it is proposed instead.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shipper.sdk.codes import Code

MOMENT_SECONDS = 5.0
"""The age of a drain from which a forward is proposed for a problem that may pass by itself."""
PATIENCE_SECONDS = 60.0
"""The age from which giving it up is proposed."""
OUTAGE_SECONDS = 86400.0
"""The same of what passes by itself: an outage that is longer than an ordinary one."""
ORDERS = ("rebind", "forward", "dead-letter", "drop", "dead-letters")
"""The orders that the commands give."""
_ENDS = ("dead-letter", "drop")
_MOVES = (Code.DELIVERING, Code.NOT_RUNNING, Code.UNKNOWN)
"""The codes of a drain without a known obstacle."""
_PASSING: Mapping[str, str] = {
    Code.UNREACHABLE: "the host answers",
    Code.NO_ANSWER: "the host answers",
    Code.TIMED_OUT: "the host answers in time",
    Code.NAME_NOT_FOUND: "the name is found",
    Code.TLS_FAILED: "TLS succeeds: see `ca` in the policy, and the certificate of the host",
    Code.OVERLOADED: "the destination takes more",
    Code.UNAVAILABLE: "the destination works again",
    Code.BAD_ANSWER: "the destination itself answers, and not something before it",
    Code.FORBIDDEN: "the credential has the privilege",
    Code.LEASE_LAPSED: "the lease is renewed",
}
"""What ends a problem of an output without any order."""
_REFUSED = {
    Code.UNAUTHORIZED: ("put a valid credential where the policy names it, and ask whether it is known", "credential"),
    Code.FORBIDDEN: ("grant the privilege to the credential, and ask whether it lacks another", "output"),
}
"""By the code of an output: what to do, and what `shipper test` asks."""


class Remedy(NamedTuple):
    """A command, and its effect in words; empty where there is nothing to copy."""

    words: str
    command: str
    gives_up: bool = False
    """Whether events are not delivered then."""


def passing(code: str) -> str:
    """Returns in words what ends a problem without an order, such as `ends when the host answers`; empty: nothing
    does."""
    return f"ends when {_PASSING[code]}" if code in _PASSING else ""


def of_drain(drain: Mapping[str, Any], output: str, directory: str, orders: Collection[str]) -> list[Remedy]:
    """Returns the remedies for a drain of one output, among the supported `orders`; none while it moves.

    `drain` is an entry of `observed.draining`. A command with unprintable characters is not proposed.
    """
    waiting = drain["outputs"][output]
    code, is_held, age = waiting.get("code", ""), bool(waiting.get("held")), drain["oldest_seconds"]
    if code in _MOVES and not is_held:
        return []
    gives_up = age >= _patience(code) or (is_held and not passing(code))
    due = {order for order in orders if (gives_up if order in _ENDS else is_held or age >= MOMENT_SECONDS)}
    return _remedies(_orders(drain, output), directory, due)


def of_batch(unit: Mapping[str, Any], directory: str, orders: Collection[str]) -> list[Remedy]:
    """The same for the batch that fails again and again; `unit` is an output of `observed`.

    There is none while the destination refuses the credential: that is not the fault of a batch.
    """
    if not (failing := unit.get("failing")) or unit.get("code") in _REFUSED:
        return []
    output = unit["id"].partition(".")[2]
    place = {"output": output, "batch": str(failing["batch"])}
    is_due = failing["seconds"] >= _patience(unit.get("code", ""))
    return _remedies(_ends(place), directory, orders if is_due else ())


def _patience(code: str) -> float:
    """Returns the age from which events may be given up."""
    return OUTAGE_SECONDS if passing(code) else PATIENCE_SECONDS


def of_refusal(unit: Mapping[str, Any], observed: Mapping[str, Any], policy: Sequence[str]) -> list[Remedy]:
    """Returns the remedy for a credential that the destination of an output refuses; `unit` is one of `observed`.

    `policy` are the paths of the supervisor's policy; without them there is no command, since nobody knows the file.
    There is no remedy where a drain of that output is held: it has remedies of its own.
    """
    kind, _, output = unit["id"].partition(".")
    drains = observed.get("draining") or ()
    is_held = any(drain["outputs"].get(output, {}).get("held") for drain in drains)
    if kind != "outputs" or is_held or (known := _REFUSED.get(unit.get("code", ""))) is None:
        return []
    words, what = known
    asking = " ".join(["shipper test", what, *map(shlex.quote, policy), _option("output", output)])
    return [Remedy(words, asking if policy and asking.isprintable() else "")]


def _remedies(
    found: Iterable[tuple[str, str, dict[str, str]]], directory: str, orders: Collection[str]
) -> list[Remedy]:
    """Returns those of the orders that can be printed; those that give events up only where there is no other."""
    given = (
        Remedy(words, command(order, options, directory), order in _ENDS)
        for order, words, options in found
        if order in orders
    )
    remedies = [remedy for remedy in given if remedy.command.isprintable()]
    return [remedy for remedy in remedies if not remedy.gives_up] or remedies


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
