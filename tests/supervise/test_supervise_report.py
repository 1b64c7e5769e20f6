from __future__ import annotations

import json
import os
from pathlib import Path

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
            while not lines or lines[-1]["event"] != "lost":
                lines.append(json.loads(reader.readline()))
            report.flush()

    assert len(lines) - 1 + lines[-1]["lines"] == 5000


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
