"""`shipper test` with the cases of a policy."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from shipper.commands.test import command
from shipper.commands.validate import command as validate
from shipper.supervise.sources import read_text, read_tree

DOCUMENT = Path(__file__).parents[1] / "docs" / "testing-policies.md"
POLICY = """
version: 1
inputs:
  access: {type: file, paths: [/a.log], processors: [{type: parse, format: nginx}]}
  app: {type: file, paths: [/b.log], processors: [{type: dedupe, fields: [message], window: 10s}], outputs: [main]}
processors:
  - {type: add_fields, fields: {service.name: "${SERVICE:-shop}"}}
outputs:
  main: {type: elasticsearch, hosts: ["https://es:9200"], credential: {file: /no/such/secret}}
  audit: {type: console, processors: [{type: drop, when: {equals: {http.request.method: GET}}}]}
"""
LINE = '192.0.2.7 - - [27/Nov/2026:10:00:00 +0000] "GET /cart HTTP/1.1" 200 512 "-" "curl/8"'
GOOD = f"""
tests:
  a line of nginx becomes fields, and its answer is a number:
    input: access
    events: ['{LINE}']
    expect:
      main: [{{http.request.method: GET, http.response.status_code: 200, labels: null}}]
      audit: []
  the second of equal events is dropped:
    input: app
    events: [one, one, {{message: "two\\nlines", a: {{b: 1}}}}, one]
    expect: [{{message: one, log.offset: 0}}, {{message: "two\\nlines", a.b: 1, service.name: shop}}]
    exact: false
"""


def asked(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def policy(tmp_path):
    def write(tests, text=POLICY):
        path = tmp_path / "policy.yaml"
        path.write_text(text + tests)
        return path

    return write


def test_good_cases_are_told_and_the_status_is_0(policy):
    path = policy(GOOD)
    result = asked(path)

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"good    {path}:13: a line of nginx becomes fields, and its answer is a number",
        f"good    {path}:19: the second of equal events is dropped",
        "2 good",
    ]


def test_a_failed_case_shows_what_was_expected_and_what_came(policy):
    path = policy(GOOD.replace("status_code: 200", 'status_code: "200", url.path: null, source.ip: 192.0.2.8'))
    result = asked(path)

    assert result.exit_code == 1
    assert result.stdout.splitlines()[:6] == [
        f"failed  {path}:13: a line of nginx becomes fields, and its answer is a number",
        "    outputs.main, event 1: - expected, + came",
        '      - http.response.status_code: "200"',
        "      + http.response.status_code: 200",
        '      - source.ip: "192.0.2.8"',
        '      + source.ip: "192.0.2.7"',
    ]
    assert result.stdout.endswith("1 good, 1 failed\n")


def test_events_that_did_not_come_or_were_not_expected_are_shown(policy):
    result = asked(
        policy("tests: {a: {input: app, events: [x], expect: []}, b: {input: app, events: [], expect: [{m: 1}]}}")
    )
    lines = result.stdout.splitlines()

    assert result.exit_code == 1
    assert "    outputs.main, event 1: came, and was not expected" in lines
    assert '      + message: "x"' in lines
    assert lines[-3:] == ["    outputs.main, event 1: expected, and did not come", "      - m: 1", "0 good, 2 failed"]


def test_where_all_fields_count_one_that_a_processor_added_is_a_difference(policy):
    result = asked(policy("tests: {a: {input: app, events: [x], expect: [{message: x}], exact: true}}"))

    assert result.stdout.splitlines()[1:4] == [
        "    outputs.main, event 1: - expected, + came",
        "      - service.name: (no such field)",
        '      + service.name: "shop"',
    ]


def test_events_arrive_when_the_case_says(policy):
    text = "tests: {a: {input: app, events: [x], at: 2020-02-02T02:02:02Z, expect: [{'@timestamp': '%s'}]}}"

    assert asked(policy(text % "2020-02-02T02:02:02.000Z")).exit_code == 0
    assert asked(policy(text % "2020-02-02T02:02:03.000Z")).exit_code == 1


def test_a_policy_without_tests_is_not_good(policy):
    path = policy("")
    result = asked(path)

    assert (result.exit_code, result.stdout) == (1, f"{path}: there are no tests; write some below `tests:`\n")


def test_a_refused_policy_or_test_has_its_places_and_the_status_is_78(policy):
    result = asked(policy("tests: {a: {input: ap, events: [], expect: []}}"))

    assert result.exit_code == 78
    assert 'tests.a.input: there is no input "ap" (did you mean "app"?)' in result.stdout
    assert asked(policy("quue: {}")).exit_code == 78
    assert "cannot be read" in asked("/no/such/policy.yaml").stdout


def test_validate_finds_mistakes_in_tests_too(policy):
    result = CliRunner().invoke(validate, [str(policy("tests: {a: {input: ap, events: [], expect: []}}"))])

    assert result.exit_code == 78
    assert "tests.a.input" in result.stdout


def test_tests_are_no_part_of_the_policy_and_hold_what_a_policy_must_not(policy):
    """A test of `redact` needs a password to remove, and a line of a shell script has variables."""
    path = policy("tests: {a: {input: app, events: ['https://joe:secret@es/ ${HOME}', {password: x}], expect: []}}")

    assert "tests" not in read_tree([path], {}).value
    assert "tests" not in read_text([path])
    assert "${SERVICE:-shop}" in read_text([path])
    assert "joe:secret@es/ ${HOME}" in asked(path).stdout


def test_the_text_of_a_file_without_tests_stays_as_it_is(policy):
    path = policy("# a comment\n")

    assert read_text([path]) == path.read_text()


def test_the_tests_of_a_directory_see_the_whole_policy(tmp_path):
    (tmp_path / "a.yaml").write_text(POLICY + "tests: {a: {input: app, events: [x], expect: [{message: x}]}}")
    (tmp_path / "b.yaml").write_text("tests: {a: {input: access, events: [x], expect: {audit: [{message: x}]}}}")
    result = asked(tmp_path)

    assert result.exit_code == 0, result.output
    assert [line.split(":")[0] for line in result.stdout.splitlines()[:2]] == [
        f"good    {tmp_path}/a.yaml",
        f"good    {tmp_path}/b.yaml",
    ]


def test_the_example_of_the_documentation_is_good(tmp_path):
    (text,) = re.findall(r"^```yaml file=shop.yaml\n(.*?)^```$", DOCUMENT.read_text(), re.S | re.M)
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    result = asked(path)

    assert result.exit_code == 0, result.output
    assert result.stdout.replace(str(path), "shop.yaml") in DOCUMENT.read_text()


def test_outputs_are_asked_and_their_findings_are_told(policy):
    result = asked("output", policy("", POLICY.replace("https://es:9200", "http://127.0.0.1:1")))

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "outputs.main",
        "  bad      secret file:/no/such/secret: cannot be read: No such file or directory",
        "outputs.audit",
        "  unknown  destination audit: outputs of the type console cannot be asked without events",
        "1 bad",
    ]


def test_a_credential_is_asked_with_a_given_secret_and_told_to_programs(policy, tmp_path):
    (tmp_path / "new").write_text("id:hunter2")
    path = policy("", POLICY.replace("https://es:9200", "http://127.0.0.1:1"))
    result = asked("credential", path, "--secret", tmp_path / "new", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout) == [
        {
            "unit": "outputs.main",
            "asked": "secret",
            "of": "the given one",
            "verdict": "good",
            "text": "id",
            "code": "ok",
        },
        {
            "unit": "outputs.main",
            "asked": "address",
            "of": "127.0.0.1:1",
            "verdict": "bad",
            "text": "connection refused",
            "code": "unreachable",
        },
    ]


def test_what_cannot_be_asked_is_refused_with_a_reason(policy, tmp_path):
    path = policy("")

    assert "there is no output nope; there are: main, audit" in str(asked("output", path, "--output", "nope").exception)
    assert "No such file" in str(asked("output", path, "--secret", tmp_path / "none").exception)
    assert asked("output", policy("quue: 1")).exit_code == 78


def test_a_certificate_of_the_host_is_not_needed_for_tests(policy):
    text = POLICY.replace('hosts: ["https', 'tls: {ca: /no/such/ca.pem}, hosts: ["https')
    path = policy(GOOD, text)

    assert asked(path).exit_code == 0
    assert "cannot read this file" in asked("output", path).stdout


def test_a_given_secret_that_fits_several_outputs_is_sent_to_none_that_is_not_named(policy, tmp_path):
    """Each destination would get to know the secret of another one."""
    (tmp_path / "new").write_text("own:hunter2")
    two = POLICY.replace(
        "  audit:",
        '  other: {type: otlp, protocol: http, endpoint: "http://127.0.0.1:1", credential: {file: /no}}\n  audit:',
    )
    path = policy("", two)

    for question in ("output", "credential"):
        refused = asked(question, path, "--secret", tmp_path / "new")
        assert "fits several outputs, and each would get it: name the one by --output (main, other)" in str(
            refused.exception
        )
    named = asked("credential", path, "--output", "other", "--secret", tmp_path / "new", "--timeout", "5")
    assert "outputs.other\n  good     secret the given one: own" in named.stdout


def test_programs_get_each_case_and_the_events_that_came(policy):
    good = CliRunner().invoke(command, ["--json", str(policy(GOOD))])
    (told,) = json.loads(good.stdout)
    bad = CliRunner().invoke(command, ["--json", str(policy("quue: 1"))])

    assert good.exit_code == 0
    assert [one["good"] for one in told["cases"]] == [True] * len(told["cases"]) != []
    assert told["cases"][0]["came"]["main"]
    assert (bad.exit_code, json.loads(bad.stdout)[0]["valid"]) == (78, False)
