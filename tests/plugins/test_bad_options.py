"""What is wrong with an option of a plugin that comes along is named at that option's place."""

from __future__ import annotations

import pytest

from shipper.policy.policy import parse
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError

REGISTRY = Registry.installed()
INPUTS = "version: 1\ninputs:\n  a: "
OUTPUTS = "version: 1\noutputs:\n  a: "
PROCESSORS = "version: 1\nprocessors:\n  - "

FILE = INPUTS + "{type: file, "
TAIL = FILE + "paths: [/x], "
BULK = INPUTS + "{type: elasticsearch, "
SEARCH = OUTPUTS + "{type: elasticsearch, "
POSTED = INPUTS + "{type: http, "
OTLP = INPUTS + "{type: otlp, "
TO_OTLP = OUTPUTS + "{type: otlp, endpoint: "
HOSTS = SEARCH + "hosts: [http://a], "


def test_an_option_that_cannot_be_so_is_named_at_its_place() -> None:
    for before, option, wrong, path in [
        (FILE, "paths: [/x, ", "logs/*.log]", "inputs.a.paths[1]"),
        (TAIL, "exclude: [", "a/b]", "inputs.a.exclude[0]"),
        (TAIL, "max_line_bytes: ", "1B", "inputs.a.max_line_bytes"),
        (TAIL, "encoding: ", "nope", "inputs.a.encoding"),
        (TAIL, "exclude_lines: [a, ", "'(']", "inputs.a.exclude_lines[1]"),
        (TAIL, "multiline: {pattern: ", "'('}", "inputs.a.multiline.pattern"),
        (INPUTS, "{type: journald, matches: [A=1, ", "b]", "inputs.a.matches[1]"),
        (BULK, "address: ", "'9200'", "inputs.a.address"),
        (BULK, "address: ", "'0.0.0.0:9200'", "inputs.a.address"),
        (BULK, "address: '127.0.0.1:1', max_body_bytes: ", "0B", "inputs.a.max_body_bytes"),
        (BULK, "address: '127.0.0.1:1', max_decompressed_bytes: ", "0B", "inputs.a.max_decompressed_bytes"),
        (POSTED, "address: ", "'0.0.0.0:8080'", "inputs.a.address"),
        (POSTED, "address: '127.0.0.1:1', path: ", "events", "inputs.a.path"),
        (POSTED, "address: '127.0.0.1:1', path: ", "'/a?b'", "inputs.a.path"),
        (POSTED, "address: '127.0.0.1:1', max_body_bytes: ", "0B", "inputs.a.max_body_bytes"),
        (POSTED, "address: '127.0.0.1:1', max_decompressed_bytes: ", "2GiB", "inputs.a.max_decompressed_bytes"),
        (OTLP, "grpc: ", "'0.0.0.0:4317'", "inputs.a.grpc"),
        (OTLP, "http: ", "'127.0.0.1:4317'", "inputs.a.http"),
        (OTLP, "max_body_bytes: ", "0B", "inputs.a.max_body_bytes"),
        (TO_OTLP, "", "'http://a:99999'", "outputs.a.endpoint"),
        (TO_OTLP, "http://a, headers: {host: ", "b}", "outputs.a.headers.host"),
        (TO_OTLP, "http://a, encoding: ", "json", "outputs.a.encoding"),
        (TO_OTLP, "http://a, request_max_bytes: ", "5B", "outputs.a.request_max_bytes"),
        (SEARCH, "hosts: [http://a, ", "'http://a:99999']", "outputs.a.hosts[1]"),
        (SEARCH, "hosts: [http://a, ", "http://a]", "outputs.a.hosts[1]"),
        (HOSTS, "index: ", "é" * 128, "outputs.a.index"),
        (HOSTS, "timeout: ", "2h", "outputs.a.timeout"),
        (HOSTS, "backoff: {first: ", "2m}", "outputs.a.backoff.first"),
        (HOSTS, "bulk_max_bytes: ", "5B", "outputs.a.bulk_max_bytes"),
        (HOSTS, "flush: ", "6s", "outputs.a.flush"),
        (OUTPUTS, "{type: console, flush: ", "1h", "outputs.a.flush"),
        (OUTPUTS, "{type: file, path: /x, flush: ", "5001ms", "outputs.a.flush"),
        (PROCESSORS, "{type: add_fields, fields: ", "{}", "processors[0].fields"),
        (PROCESSORS, "{type: add_fields, fields: {a: 1, b: ", "{a..b: 1}}", "processors[0].fields.b"),
        (PROCESSORS, "{type: add_fields, fields: {a: 1, a.b: ", "2}", "processors[0].fields.a.b"),
        (PROCESSORS, "{type: drop, when: {equals: ", "{}}", "processors[0].when.equals"),
        (PROCESSORS, "{type: drop, when: {regexp: {message: ", "'('}}", "processors[0].when.regexp.message"),
        (PROCESSORS, "{type: drop, when: {regexp: {message: ", "'(?=a)b'}}", "processors[0].when.regexp.message"),
        (PROCESSORS, "{type: parse, format: nginx, target: ", "a", "processors[0].target"),
        (PROCESSORS, "{type: parse, format: json, field: ", "a..b", "processors[0].field"),
        (PROCESSORS, "{type: parse, format: json, dashboards: ", "true", "processors[0].dashboards"),
        (PROCESSORS, "{type: parse, format: syslog, timezone: ", "Nowhere", "processors[0].timezone"),
        (PROCESSORS, "{type: parse, format: csv, columns: [a, ", "b..c]", "processors[0].columns[1]"),
        (PROCESSORS, "{type: parse, format: regex, pattern: ", "'(a)'", "processors[0].pattern"),
    ]:
        with pytest.raises(PolicyError) as caught:
            parse(f"{before}{option}{wrong}}}\n", REGISTRY)

        (problem,) = caught.value.problems
        column = len(f"{before}{option}".rpartition("\n")[2]) + 1

        assert (problem.path, problem.line, problem.column) == (path, 3, column)


def test_options_that_do_not_fit_together_are_named_where_they_stand() -> None:
    with pytest.raises(PolicyError) as caught:
        parse(f"{PROCESSORS}{{type: drop, when: {{equals: {{a: 1}}, has_fields: [a]}}}}\n", REGISTRY)

    assert [problem.path for problem in caught.value.problems] == ["processors[0].when"]


def test_a_quantity_out_of_bounds_is_told_with_its_bounds_and_as_it_was_given() -> None:
    for text, told in [
        (HOSTS + "timeout: 2h}", "must be above 0 and at most 1h, not 2h"),
        (HOSTS + "backoff: {first: 2m}}", "must be above 0 and at most backoff.longest (1m), not 2m"),
        (HOSTS + "bulk_max_bytes: 5B}", "must be at least 1KiB, not 5B"),
        (TAIL + "max_line_bytes: 1B}", "must be from 16B to 1GiB, not 1B"),
        (PROCESSORS + "{type: dedupe, fields: [a], window: 0s}", "must be above 0, not 0ms"),
    ]:
        with pytest.raises(PolicyError) as refused:
            parse(text, REGISTRY)
        assert [problem.message for problem in refused.value.problems] == [told]
