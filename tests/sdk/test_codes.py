"""The list of codes is documented, and each has the shape of one."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from shipper.plugin import Answer, Backpressure, Held, Later, Outcome, StartFailed, TooLarge
from shipper.sdk.codes import LONGEST, of_os_error, page

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_documentation_is_the_list() -> None:
    assert (ROOT / "docs/codes.md").read_text() == page()


def test_a_plugin_may_give_a_code_of_its_own() -> None:
    assert Later("no", code="quota_spent").code == "quota_spent"
    assert Answer(Outcome.HELD, "no", code="quota_spent").code == "quota_spent"


def test_what_is_no_code_is_refused() -> None:
    for code in ["", "Upper", "two words", "1st", "a-b", "a" * (LONGEST + 1), "a\n"]:
        for kind in (Later, Held, TooLarge, StartFailed):
            with pytest.raises(ValueError, match="a code is"):
                kind("no", code=code)


def test_what_gives_no_code_has_that_of_its_kind() -> None:
    assert [error("no").code for error in (Later, Held, TooLarge, StartFailed, Backpressure)] == [
        "unavailable",
        "refused",
        "too_large",
        "start_failed",
        "queue_full",
    ]
    assert {outcome.value: Answer(outcome).code for outcome in Outcome} == {
        "delivered": "ok",
        "duplicate": "ok",
        "superseded": "ok",
        "rejected": "rejected",
        "later": "unavailable",
        "held": "refused",
        "dead_letter": "rejected",
        "dropped": "rejected",
        "damaged": "damaged",
    }


def test_what_the_system_says_has_a_code() -> None:
    assert of_os_error(OSError(errno.EADDRINUSE, "in use"), "failed") == "port_taken"
    assert of_os_error(OSError(errno.EDQUOT, "quota"), "failed") == "disk_full"
    assert of_os_error(socket.gaierror(socket.EAI_NONAME, "who?"), "failed") == "name_not_found"
    assert of_os_error(OSError("no number"), "failed") == "failed"
