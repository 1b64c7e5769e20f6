from __future__ import annotations

import pytest

from shipper.fleet.host import LONGEST_REQUEST, longest_request, successors
from shipper.policy.registry import Registry
from shipper.protocol.messages import Draining, Observed, QueueFigures, Waiting
from shipper.values import DeadLetterFigures, Revisions

OUTPUTS = "version: 1\noutputs:\n  a: {{type: elasticsearch, hosts: [x]{}}}\n  b: {{type: otlp{}}}\n"


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (OUTPUTS.format(", timeout: 90s", ""), 90.0),
        (OUTPUTS.format(", timeout: 5s", ", timeout: 2m"), 120.0),
        (OUTPUTS.format("", ""), 60.0),
        (OUTPUTS.format(", timeout: {}", ""), LONGEST_REQUEST),
        ("version: 1\noutputs: {a: {type: nothing}}", LONGEST_REQUEST),
        ("version: 1\noutputs: {a: 1}", LONGEST_REQUEST),
        ("not: [a policy", LONGEST_REQUEST),
        ("version: 1", 0.0),
        ("", 0.0),
    ],
)
def test_the_longest_request_is_that_of_the_slowest_output(policy: str, seconds: float) -> None:
    assert longest_request(policy, Registry.installed()) == seconds


def observed(*waiting: Waiting) -> Observed:
    drains = [Draining(0, at, 1, 1, 0.0, {"main": one}) for at, one in enumerate(waiting)]
    queue = QueueFigures(events=1, bytes=1, limit_bytes=1, oldest_seconds=0, disk_bytes=0)
    return Observed(
        state="DEGRADED",
        message="",
        revisions=Revisions(),
        draining=drains,
        units=(),
        queue=queue,
        dead_letters=DeadLetterFigures(),
        credentials_in_use=(),
        credentials_wanted=(),
    )


def test_only_held_events_of_a_withdrawn_secret_go_with_the_one_that_replaces_it_at_the_same_destination() -> None:
    held = Waiting(1, "", held=True, rebind_to="es-2", rebind_from=["es-1", "other"])

    assert successors(observed(held), {"es-1"}) == [("es-1", "es-2")]
    assert successors(observed(held), {"es-3"}) == []
    assert successors(observed(Waiting(1, "", rebind_to="es-2", rebind_from=["es-1"])), {"es-1"}) == []
    assert successors(observed(Waiting(1, "", held=True, rebind_from=["es-1"])), {"es-1"}) == []
    assert successors(None, {"es-1"}) == []
