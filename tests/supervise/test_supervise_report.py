from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO

import pytest

from shipper.process import log
from shipper.sdk.errors import Problem
from shipper.supervise.report import Report


def test_a_reader_that_pauses_costs_lines_and_no_time_and_is_told_how_many() -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream:
        report = Report(stream.fileno(), json=True)
        for number in range(5000):
            report.say("unchanged", {"revision": str(number)})
        assert not report.flush()

        with os.fdopen(reads) as reader:
            lines = []
            while not lines or lines[-1]["event.action"] != "lost":
                lines.append(json.loads(reader.readline()))
            report.flush()

    assert len(lines) - 1 + lines[-1]["shipper.lines"] == 5000


def test_a_disk_that_is_full_and_a_reader_that_has_gone_stop_nothing() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with open("/dev/full", "w") as full, os.fdopen(writes, "w") as gone:
        for stream in (full, gone):
            report = Report(stream.fileno(), json=False)
            report.say("unchanged", {"revision": "1"})
            assert report.flush()


def test_a_path_that_is_not_utf8_is_told_with_a_mark(tmp_path: Path) -> None:
    for as_json in (True, False):
        with (tmp_path / "out").open("w+") as stream:
            report = Report(stream.fileno(), json=as_json)
            report.say("watching", {"paths": ["/d\udcff/p.yaml"], "method": "inotify"})
            assert report.flush()

        assert ("/d?/p.yaml" if as_json else "/d\ufffd/p.yaml") in (tmp_path / "out").read_text()


def lines_of(report: Report, stream: IO[str], what: str, fields: dict[str, object]) -> list[str]:
    report.say(what, fields)
    assert report.flush()
    stream.seek(0)
    return stream.read().splitlines()


def test_a_line_has_the_names_of_ecs_as_those_of_the_sidecar(tmp_path: Path) -> None:
    problem = Problem("outputs.main.hots", 3, 5, "unknown key", "p.yaml")
    with (tmp_path / "out").open("w+") as stream:
        fields = {"revision": "2", "reason": "invalid", "errors": [problem]}
        (line,) = map(json.loads, lines_of(Report(stream.fileno()), stream, "nack", fields))

    assert (line["log.level"], line["event.action"], line["log.logger"]) == ("error", "nack", "shipper.supervise")
    assert line["message"] == f"revision 2 refused: invalid\n{problem}"
    assert line["shipper.errors"][0]["line"] == 3
    assert {"@timestamp", "ecs.version", "service.name", "service.version"} < line.keys()


@pytest.mark.parametrize(("until", "level"), [("accepted", "info"), ("released", "warning")])
def test_what_each_rotation_waits_for_is_no_warning(tmp_path: Path, until: str, level: str) -> None:
    with (tmp_path / "out").open("w+") as stream:
        fields = {"credential": "es-1", "name": "key1", "sources": ["file:es"], "used": "es-2", "until": until}
        (line,) = map(json.loads, lines_of(Report(stream.fileno()), stream, "release_waits", fields))

    assert line["log.level"] == level


@pytest.mark.parametrize("as_json", [True, False])
def test_a_secret_that_was_read_is_never_told(tmp_path: Path, as_json: bool) -> None:
    log.hide("id:correct-horse")
    with (tmp_path / "out").open("w+") as stream:
        fields = {"state": "DEGRADED", "message": "the key id:correct-horse"}
        (line,) = lines_of(Report(stream.fileno(), json=as_json), stream, "save_failed", fields)

    assert "[hidden]" in line
    assert "horse" not in line
