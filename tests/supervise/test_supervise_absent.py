"""What is said of a state directory whose supervisor gives no answer: who runs there all the same, and since when."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from shipper.commands.status import exit_status
from shipper.commands.top import command as top
from shipper.protocol.messages import encoded
from shipper.supervise import absent
from shipper.supervise.show import of_status, show
from shipper.supervise.vault import Vault
from tests.fakes import bench


def headline(told: dict[str, object]) -> str:
    return of_status(told)[0][0]


async def test_a_sidecar_of_another_supervisor_is_no_one_that_does_not_run(tmp_path: Path) -> None:
    async with bench(tmp_path / "state") as on:
        await on.activate(1, main="k1")
        told = absent.status(tmp_path / "state", None)

    assert (told["state"], told["running"], exit_status(told)) == ("UNKNOWN", True, 1)
    assert f"the sidecar (pid {os.getpid()}) runs, and answers its supervisor alone" in headline(told)
    assert told["observed"]["credentials_in_use"] == ("k1",)


def test_a_supervisor_that_only_begins_is_no_one_that_does_not_run(tmp_path: Path) -> None:
    with Vault(tmp_path):
        told = absent.status(tmp_path, None)
    ended = absent.status(tmp_path, None)

    assert (told["state"], exit_status(told)) == ("UNKNOWN", 1)
    assert (ended["state"], exit_status(ended)) == ("STOPPED", 3)
    assert headline(ended).startswith("shipper: not running")


async def test_figures_that_cannot_be_read_are_told_and_the_rest_is_said(tmp_path: Path) -> None:
    async with bench(tmp_path / "state") as on:
        await on.activate(1, main="k1")
    (tmp_path / "state" / "spool-1.db").write_bytes(b"x" * 40000)
    told = absent.status(tmp_path / "state", None)

    assert exit_status(told) == 3
    assert headline(told).startswith("shipper: not running since 20")
    assert told["troubles"][0]["message"] == "the stored data cannot be read: SQLITE_NOTADB"
    assert told["observed"] is None


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE meta SET value = x'ff'",
        "UPDATE barrier SET epoch = 'a', revision = x'00'",
        "UPDATE todo SET at = 'x', epoch = x'01'",
        "UPDATE todo SET count = 'x', bytes = x'01'",
        "UPDATE lane SET output = x'ff00', credentials = 7, type = -1",
        "UPDATE lane SET active = 'x', id = -id",
        "ALTER TABLE lane DROP COLUMN reached",
        "DROP TABLE lane",
    ],
)
async def test_rows_of_another_kind_or_schema_are_shown_or_told_but_end_nothing(tmp_path: Path, damage: str) -> None:
    async with bench(tmp_path / "state") as on:
        await on.activate(1, main="missing-1")
        await on.enter(2)
        await on.activate(2, main="k2")
    with closing(sqlite3.connect(tmp_path / "state" / "spool-1.db")) as db:
        db.execute(damage)
        db.commit()
    told = json.loads(encoded(absent.status(tmp_path / "state", None)))
    show(of_status(told), StringIO())

    assert (exit_status(told), headline(told).startswith("shipper: not running")) == (3, True)
    assert told["troubles"] or told["observed"]["queue"]["events"]


async def test_who_listens_and_gives_no_answer_has_failed_and_what_waits_is_not_said_to_wait_for_a_start(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path / "state") as on:
        await on.activate(1, main="missing-1")
        await on.enter(2)
        await on.activate(2, main="k2")
        told = absent.status(tmp_path / "state", "the supervisor of X does not answer")

    (drain,) = told["observed"]["draining"]
    assert (told["state"], exit_status(told)) == ("FAILED", 2)
    assert drain["outputs"]["main"]["reason"] == "not known"
    assert drain["outputs"]["main"]["rebind_to"] == "k2"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look after another user")
async def test_root_reads_the_directory_of_the_service_while_that_is_stopped(tmp_path: Path) -> None:
    async with bench(tmp_path / "state") as on:
        await on.activate(1, main="k1")
    for path in [tmp_path / "state", *(tmp_path / "state").iterdir()]:
        os.chown(path, 65534, 65534)
    told = absent.status(tmp_path / "state", None)

    assert (told["state"], told["troubles"]) == ("STOPPED", [])
    assert told["observed"]["credentials_in_use"] == ("k1",)


async def test_top_gives_programs_the_document_that_it_draws(tmp_path: Path) -> None:
    async with bench(tmp_path / "state") as on:
        await on.activate(1, main="k1")
    ended = CliRunner().invoke(top, ["--json", "--state", str(tmp_path / "state")], standalone_mode=False)
    told = json.loads(ended.stdout)

    assert (ended.return_value, told["state"]) == (3, "STOPPED")
    assert told["observed"]["credentials_in_use"] == ["k1"]
