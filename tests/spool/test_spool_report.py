"""Reports of what was lost, which may be damaged themselves."""

from __future__ import annotations

from shipper.spool import database
from shipper.spool.report import Report
from tests.databases import in_memory


def test_a_damaged_report_says_that_one_was_lost() -> None:
    for stored in ["{", "[]", "[1, 2, 3]", "[{}, 7, true]", "[" * 100_000]:
        db = in_memory()
        database.with_damage(lambda db: None)(db)
        Report(lost={"batch": 2}).store(db)  # type: ignore[arg-type]
        db.execute("INSERT INTO damage VALUES (?)", (stored,))
        report = Report.load(db)

        assert report is not None
        assert (report.lost["batch"], report.lost["damage"]) == (2, 1)
