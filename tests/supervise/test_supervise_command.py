"""What the command line of `shipper supervise` refuses before anything starts."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from shipper.commands.supervise import command
from shipper.process import hardening, log
from shipper.sdk import descriptors


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--state", ""], 2, "--state is empty (an unset variable?)"),
        (["--state", "s", "--grace", "9000h"], 78, "--grace: at most 8760h"),
        (["--state", "s", "--grace", "soon"], 78, "--grace: expected a duration"),
    ],
)
def test_an_option_that_cannot_be_obeyed_is_named(
    tmp_path: Path, arguments: list[str], status: int, expected: str
) -> None:
    line = [sys.executable, "-m", "shipper", "supervise", "policy.yaml", *arguments]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    assert (ended.returncode, expected in ended.stderr) == (status, True), ended.stderr
    assert list(tmp_path.iterdir()) == []


FLEET = "fleet: {name: prod, member: web-1, etcd: ['http://127.0.0.1:1'], keys: [{file: fleet.key}]}\n"


@pytest.mark.parametrize(
    ("config", "arguments", "status", "expected"),
    [
        ("", [], 2, "missing PATH…"),
        ("{}\n", ["--config", "c.yaml"], 2, "missing PATH…"),
        (FLEET, ["policy.yaml", "--config", "c.yaml"], 78, "c.yaml:1: fleet: the policy comes from the fleet"),
        (FLEET, ["--once", "--config", "c.yaml"], 78, "c.yaml:1: fleet: --once ends"),
        (FLEET, ["--kubernetes", "--config", "c.yaml"], 78, "c.yaml:1: fleet: the policy comes from one place"),
        ("kubernetes: {}\n", ["policy.yaml", "--config", "c.yaml"], 78, "c.yaml:1: kubernetes: add --kubernetes"),
        ("kubernetes: {lease: 1s}\n", ["--kubernetes", "--config", "c.yaml"], 78, "c.yaml:1:21: kubernetes.lease: "),
        ("", ["--kubernetes", "policy.yaml"], 78, "--kubernetes: the policy comes from ShipperPolicy objects"),
        ("", ["--kubernetes", "--once"], 78, "--kubernetes: --once ends"),
    ],
)
def test_the_policy_comes_from_files_or_from_a_fleet_or_from_kubernetes(
    tmp_path: Path, config: str, arguments: list[str], status: int, expected: str
) -> None:
    (tmp_path / "c.yaml").write_text(config)
    line = [sys.executable, "-m", "shipper", "supervise", "--state", "s", *arguments]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    assert (ended.returncode, expected in ended.stderr) == (status, True), ended.stderr
    assert not (tmp_path / "s").exists()


def test_a_reload_does_not_kill_a_supervisor_that_just_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    at_the_start: list[object] = []
    monkeypatch.setattr(hardening, "harden", lambda: None)
    monkeypatch.setattr(descriptors, "raise_limit", lambda: None)
    monkeypatch.setattr(log, "configure", lambda **_: None)
    monkeypatch.setattr(trio, "run", lambda *_: at_the_start.append(signal.getsignal(signal.SIGHUP)))
    before = signal.getsignal(signal.SIGHUP)
    try:
        command.main(["policy.yaml", "--state", "s"], standalone_mode=False)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert at_the_start == [signal.SIG_IGN]


def test_with_its_standard_channels_closed_it_does_what_it_does(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "shipper", "supervise", "absent.yaml", "--state", "s"]
    line = ["sh", "-c", '"$@" <&- >&-', "sh", *program]
    ended = subprocess.run(line, cwd=tmp_path, stderr=subprocess.PIPE, check=False, timeout=60)

    assert (ended.returncode, ended.stderr) == (78, b"")
