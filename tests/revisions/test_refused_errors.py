"""What is said of a policy that is refused."""

from __future__ import annotations

from shipper.revisions.offer import some_errors
from shipper.sdk.codes import Code
from shipper.sdk.errors import Problem


def test_errors_without_room_in_a_message_are_counted() -> None:
    every = [Problem("outputs", line, 1, "x" * 500) for line in range(5000)]
    *listed, last = some_errors(every)

    assert listed == every[: len(listed)]
    assert (last.code, last.message) == (Code.ERRORS_LEFT_OUT, f"{5000 - len(listed)} more errors are left out")
