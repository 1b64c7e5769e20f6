"""The commands that people are told to copy: each is one that the program takes, whatever names are in it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from shipper.__main__ import shipper
from shipper.commands import order
from shipper.status.remedies import (
    MOMENT_SECONDS,
    OUTAGE_SECONDS,
    PATIENCE_SECONDS,
    all_of_letters,
    of_batch,
    of_drain,
    of_refusal,
    passing,
)

ORDERS = ("rebind", "forward", "dead-letter", "drop", "dead-letters")


def drain(epoch: int = 0, oldest: float = 3600.0, **waiting: Any) -> dict[str, Any]:
    fixed = {"events": 8, "reason": "401, events held", "code": "unauthorized", "rebind_from": ["es-1"], "held": True}
    outputs = {"main": {**fixed, "rebind_to": None, "forward": True, **waiting}}
    return {"epoch": epoch, "revision": 6, "events": 8, "bytes": 9, "oldest_seconds": oldest, "outputs": outputs}


def commands(found: Mapping[str, Any], directory: str = "DIR") -> list[str]:
    return [remedy.command for remedy in of_drain(found, "main", directory, ORDERS)]


def test_what_waits_for_a_lost_key_is_delivered_with_the_one_that_goes_to_the_same_place() -> None:
    assert commands(drain(rebind_to="es-2")) == [
        "shipper order rebind --from es-1 --to es-2 --state DIR",
    ]


def test_what_drains_to_a_place_that_is_left_is_forwarded_to_the_new_one() -> None:
    assert commands(drain(epoch=2, held=False, code="unreachable"))[0] == (
        "shipper order forward --revision 2:6 --output main --state DIR"
    )


def test_of_an_output_that_is_gone_events_can_only_be_given_up() -> None:
    assert [command.split()[2] for command in commands(drain(forward=False))] == ["dead-letter", "drop"]
    assert all(remedy.gives_up for remedy in of_drain(drain(forward=False), "main", "DIR", ORDERS))


@pytest.mark.parametrize(
    "code", ["unreachable", "name_not_found", "tls_failed", "timed_out", "overloaded", "forbidden"]
)
def test_an_outage_says_what_ends_it_and_gives_nothing_up_for_a_day(code: str) -> None:
    held, failing = code == "forbidden", stuck(7200.0) | {"code": code}
    soon = commands(drain(held=held, code=code, forward=False))
    late = commands(drain(held=held, code=code, forward=False, oldest=OUTAGE_SECONDS))

    assert passing(code).startswith("ends when ")
    assert (soon, of_batch(failing, "DIR", ORDERS)) == ([], [])
    assert [command.split()[2] for command in late] == ["dead-letter", "drop"]


@pytest.mark.parametrize(
    "moving",
    [
        drain(held=False, reason="reworded", code="delivering"),
        drain(held=False, reason="reworded", code="not_running"),
        drain(held=False, reason="delivering", code="unavailable", oldest=MOMENT_SECONDS - 1),
    ],
)
def test_nothing_is_proposed_for_what_moves_or_failed_a_moment_ago(moving: Mapping[str, Any]) -> None:
    assert commands(moving) == []


def test_giving_up_is_not_proposed_where_another_order_ends_it() -> None:
    found = drain(held=False, reason="delivering", code="unavailable", oldest=OUTAGE_SECONDS)

    assert [command.split()[2] for command in commands(found)] == ["forward"]


def test_an_order_that_there_is_not_is_not_proposed() -> None:
    found = of_drain(drain(), "main", "DIR", ["drop"])

    assert [remedy.command for remedy in found] == ["shipper order drop --revision 6 --output main --state DIR"]


def stuck(seconds: float = PATIENCE_SECONDS, name: str = "main") -> dict[str, Any]:
    return {"id": f"outputs.{name}", "failing": {"batch": 1207, "seconds": seconds}}


def test_a_batch_that_fails_for_long_can_be_given_up() -> None:
    assert [remedy.command for remedy in of_batch(stuck(), "DIR", ORDERS)] == [
        "shipper order dead-letter --output main --batch 1207 --state DIR",
        "shipper order drop --output main --batch 1207 --state DIR",
    ]
    assert of_batch(stuck(PATIENCE_SECONDS - 1), "DIR", ORDERS) == []
    assert of_batch({"id": "outputs.main"}, "DIR", ORDERS) == []


def refused(code: str, name: str = "main", kind: str = "outputs") -> dict[str, Any]:
    return {"id": f"{kind}.{name}", "code": code}


POLICY = ["/etc/shipper/policy.d"]


@pytest.mark.parametrize(("code", "what"), [("unauthorized", "credential"), ("forbidden", "output")])
def test_a_refused_credential_comes_with_what_asks_the_destination_about_it(code: str, what: str) -> None:
    (remedy,) = of_refusal(refused(code), {"draining": []}, POLICY)

    assert remedy.command == f"shipper test {what} /etc/shipper/policy.d --output main"
    assert shlex.split(*[one.command for one in of_refusal(refused(code, "a b"), {}, POLICY)])[-1] == "a b"


def test_without_the_paths_of_the_policy_it_is_said_what_to_do_and_nothing_is_to_be_copied() -> None:
    assert [remedy.command for remedy in of_refusal(refused("unauthorized"), {}, ())] == [""]


def test_a_refused_credential_that_a_held_drain_tells_of_is_not_told_of_twice() -> None:
    assert of_refusal(refused("unauthorized"), {"draining": [drain()]}, POLICY) == []
    assert of_refusal(refused("unauthorized", "other"), {"draining": [drain()]}, POLICY)
    assert of_refusal(refused("unauthorized"), {"draining": [drain(held=False)]}, POLICY)


def test_a_refused_credential_is_not_the_fault_of_a_batch() -> None:
    assert of_batch(stuck(7200.0) | refused("unauthorized"), "DIR", ORDERS) == []


def test_nothing_is_proposed_for_another_problem_or_an_input_and_no_name_that_no_terminal_can_show() -> None:
    assert of_refusal(refused("unreachable"), {}, POLICY) == of_refusal({"id": "outputs.main"}, {}, POLICY) == []
    assert of_refusal(refused("unauthorized", kind="inputs"), {}, POLICY) == []
    assert [remedy.command for remedy in of_refusal(refused("unauthorized", "a\n"), {}, POLICY)] == [""]


@pytest.mark.parametrize("code", ["unauthorized", "forbidden"])
def test_what_asks_about_a_refused_credential_runs_as_it_is_printed(code: str, tmp_path: Path) -> None:
    """A policy of two paths, one with a space: its only host is asked, and does not answer."""
    output, more = tmp_path / "my policy.d", tmp_path / "input.yaml"
    output.mkdir()
    (tmp_path / "key").write_text("id:hunter2")
    (output / "output.yaml").write_text(
        "version: 1\noutputs:\n  main:\n    type: elasticsearch\n    hosts: ['http://127.0.0.1:1']\n"
        f"    index: a\n    credential: {{file: {tmp_path / 'key'}}}\n"
    )
    more.write_text("version: 1\ninputs: {a: {type: generate, outputs: [main]}}\n")
    (remedy,) = of_refusal(refused(code), {}, [str(output), str(more)])
    program, *arguments = shlex.split(remedy.command)
    ended = CliRunner().invoke(shipper, arguments)

    assert (program, ended.exit_code) == ("shipper", 1), ended.output
    assert "bad      address 127.0.0.1:1: connection refused" in ended.output


def test_the_drain_of_an_older_sidecar_that_tells_less_can_be_given_up() -> None:
    found = drain()
    found["outputs"]["main"] = {"events": 1, "reason": "401"}

    assert [command.split()[2] for command in commands(found)] == ["dead-letter", "drop"]


def test_a_name_that_no_terminal_can_show_is_not_proposed_at_all() -> None:
    assert commands(drain(rebind_to="es\n2"))[0].split()[2] == "dead-letter"
    assert commands(drain(), "/var/\udcff") == []


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PATHS = NAMES.filter(str.isprintable)


@given(NAMES, NAMES, PATHS, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_shell_and_the_program_read_from_a_command_what_was_meant(
    source: str, target: str, directory: str, epoch: int, revision: int
) -> None:
    found = drain(epoch=epoch, rebind_to=target, rebind_from=[source]) | {"revision": revision}
    given: list[tuple[str, str, dict[str, Any]]] = []

    def gave(state: Path, name: str, params: dict[str, Any], *, json: bool) -> None:
        given.append((str(state), name, params))

    lost = drain(epoch=epoch, forward=False) | {"revision": revision}
    of_one = [remedy.command for remedy in of_batch(stuck(name=source), directory, ORDERS)]
    letters = [remedy.command for remedy in all_of_letters(directory)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(order, "_perform", gave)
        for text in [*commands(found, directory), *commands(lost, directory), *letters, *of_one]:
            program, *arguments = shlex.split(text)
            assert program == "shipper"
            CliRunner().invoke(shipper, arguments, standalone_mode=False, catch_exceptions=False)

    params = {"epoch": epoch, "revision": revision, "output": "main"}
    expected = [("dead_letter", params), ("drop", params), ("dead_letters", {"list": True, "after": 0})]
    expected += [("dead_letters", {"export": "rejected.ndjson"}), ("dead_letters", {"requeue": {}})]
    if source.isprintable():
        expected += [(name, {"batch": 1207, "output": source}) for name in ("dead_letter", "drop")]
    if source != target and f"{source}{target}".isprintable():
        expected.insert(0, ("rebind", {"from": source, "to": target}))
    else:
        expected = [("dead_letter", params), ("drop", params), *expected]
    assert given == [(str(Path(directory)), name, params) for name, params in expected]
