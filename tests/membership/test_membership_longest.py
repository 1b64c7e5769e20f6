from __future__ import annotations

from shipper.membership.longest import LONGEST_REQUEST, longest_request
from shipper.policy.registry import Registry

OUTPUTS = "version: 1\noutputs:\n  a: {{type: elasticsearch, hosts: [x]{}}}\n  b: {{type: otlp{}}}\n"


def test_the_longest_request_is_that_of_the_slowest_output() -> None:
    for policy, seconds in [
        (OUTPUTS.format(", timeout: 90s", ""), 90.0),
        (OUTPUTS.format(", timeout: 5s", ", timeout: 2m"), 120.0),
        (OUTPUTS.format("", ""), 60.0),
        (OUTPUTS.format(", timeout: {}", ""), LONGEST_REQUEST),
        ("version: 1\noutputs: {a: {type: nothing}}", LONGEST_REQUEST),
        ("version: 1\noutputs: {a: 1}", LONGEST_REQUEST),
        ("not: [a policy", LONGEST_REQUEST),
        ("version: 1", 0.0),
        ("", 0.0),
    ]:
        assert longest_request(policy, Registry.installed()) == seconds
