"""What people are told of a file that may not be read."""

from __future__ import annotations

import errno
import os
import pwd

import pytest

from shipper_plugins.tail.denied import reason

DENIED = PermissionError(errno.EACCES, "Permission denied")


def test_a_missing_right_names_the_user_that_needs_it_and_how_to_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f" setfacl -m u:{pwd.getpwuid(os.geteuid()).pw_name}:rX " in reason(DENIED)
    monkeypatch.setattr(os, "geteuid", lambda: 3_999_999_999)  # which has no name

    assert " setfacl -m u:3999999999:rX " in reason(DENIED)


def test_another_error_stays_as_it_is() -> None:
    assert reason(OSError(errno.EIO, "Input/output error")) == "Input/output error"
