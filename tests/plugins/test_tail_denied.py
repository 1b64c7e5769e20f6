"""What people are told of a file that may not be read."""

from __future__ import annotations

import errno
import os
import pwd

import pytest

from shipper_plugins.inputs.tail.denied import reason


def test_a_missing_right_names_the_user_that_needs_it_and_how_to_give_it() -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name
    text = reason(PermissionError(errno.EACCES, "Permission denied"))

    assert text.startswith(f"Permission denied for the user {user}: ")
    assert text.endswith(f"group of the file (often adm), or run setfacl -m u:{user}:rX on it")


def test_a_user_without_a_name_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 3_999_999_999)

    assert "setfacl -m u:3999999999:rX" in reason(PermissionError(errno.EACCES, "Permission denied"))


def test_another_error_stays_as_it_is() -> None:
    assert reason(OSError(errno.EIO, "Input/output error")) == "Input/output error"
