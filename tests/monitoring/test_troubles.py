"""docs/troubles.md has a section for each code of a unit, each kind of trouble of a supervisor, and each alert.

A section says what to do, with a command. The commands of shipper are read by their own parsers.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml

from shipper.__main__ import shipper
from shipper.fleet.membership import troubles as of_fleets
from shipper.kubernetes.membership import troubles as of_members
from shipper.protocol.messages import TROUBLES
from shipper.sdk.codes import Code
from shipper.supervise import standing
from shipper.supervise.config import read_config
from tests.monitoring.prometheus import RULES

DOCS = RULES.parents[2] / "docs"
TEXT = (DOCS / "troubles.md").read_text()  # docs/troubles.md
SECTIONS = dict(re.findall(r"^### `?(\w+)`?\n(.*?)(?=^##|\Z)", TEXT, re.M | re.S))
COMMANDS = [
    (name, line)
    for name, body in [("", TEXT.partition("## Alerts")[0]), *SECTIONS.items()]
    for block in re.findall(r"^```sh\n(.*?)^```$", body, re.M | re.S)
    for line in block.splitlines()
]
ALERTS = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
WELL = {Code.OK, Code.END_OF_INPUT, Code.DELIVERING}
ANSWERS = {
    *(Code.MALFORMED, Code.UNKNOWN_TYPE, Code.LINE_TOO_LONG, Code.HELLO_FIRST, Code.SECOND_HELLO),
    *(Code.UNKNOWN_PROTOCOL, Code.STATE_KEYS_INVALID, Code.STOPPING, Code.UNKNOWN_ACTION, Code.BAD_PARAMS),
    *(Code.NOTHING_TO_ORDER, Code.NOT_FORWARDED, Code.TOO_MANY_ACTIONS, Code.NOT_RUNNING, Code.INVALID, Code.SYNTAX),
    *(Code.UNKNOWN_KEY, Code.MISSING_KEY, Code.BAD_VALUE, Code.BAD_OPTION, Code.UNKNOWN_PLUGIN, Code.UNKNOWN_OUTPUT),
    *(Code.NO_EFFECT, Code.SECRET_IN_POLICY, Code.SECRET_UNAVAILABLE, Code.SHA256_MISMATCH, Code.STALE, Code.CONFLICT),
    *(Code.SUPERSEDED, Code.ERRORS_LEFT_OUT, Code.CREDENTIAL_CONFLICT, Code.CREDENTIAL_RELEASED),
    *(Code.TOO_MANY_CREDENTIALS, Code.STATE_BUSY, Code.STATE_NEWER, Code.STATE_UNUSABLE),
}
"""Codes of errors, nacks and results alone; a message comes with each, to whoever asked."""
PROGRAMS = {
    *("curl", "df", "du", "fuser", "getent", "grep", "ip", "journalctl", "kubectl", "ls", "openssl", "ss", "sudo"),
    *("sysctl", "systemctl", "usermod"),
}


def test_every_code_of_a_unit_every_trouble_and_every_alert_has_a_section_and_no_other_has() -> None:
    codes = set(Code) - WELL - ANSWERS

    assert SECTIONS.keys() == {*map(str, codes), *TROUBLES, *ALERTS}


def test_a_section_has_a_command() -> None:
    assert [name for name, body in SECTIONS.items() if not body.partition("```sh\n")[2].strip()] == []


def words_of(module: ModuleType) -> set[str]:
    """The causes among the constants of a module."""
    values = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    return {value for value in values if re.fullmatch("[a-z_]+", value)}


def test_what_keeps_a_member_from_taking_part_is_in_a_table() -> None:
    rows = {
        kind: set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", SECTIONS[kind], re.M))))
        for kind in ("fleet", "kubernetes")
    }

    assert rows["fleet"] == words_of(of_fleets)
    assert rows["kubernetes"] == words_of(of_members)


def test_causes_of_a_supervisor_are_found_by_their_words() -> None:
    causes = {value for name, value in vars(standing).items() if name.isupper() and isinstance(value, str)}
    words = TEXT.replace("\n", " ")

    assert len(causes) >= 6
    assert [cause for cause in causes if cause not in words] == []


def is_command(line: str) -> bool:
    """Whether it exists; those of shipper are parsed by the verbs themselves, up to where they would run."""
    program, *arguments = shlex.split(line)
    if program != "shipper":
        return program in PROGRAMS
    command: click.Command | None = shipper
    context: click.Context | None = None
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        context = click.Context(command, parent=context)
        command = command.get_command(context, arguments.pop(0))
    if command is None:
        return False
    try:
        return bool(command.make_context(command.name, arguments, parent=context).params)
    except click.UsageError:
        return False


def test_a_command_is_one_that_exists() -> None:
    assert [(name, line) for name, line in COMMANDS if not is_command(line)] == []
    assert not any(map(is_command, ("shipper nothing", "shipper status --nothing", "nothing")))


def test_links_lead_to_sections() -> None:
    headings = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in re.findall(r"^##+ (.*)", TEXT, re.M)}

    assert set(re.findall(r"\]\(#([^)]*)\)", TEXT)) - headings == set()


def test_commands_of_a_page_are_commands_of_a_shell() -> None:
    """docs/monitoring.md, docs/troubles.md"""
    text = "".join((DOCS / page).read_text() for page in ("monitoring.md", "troubles.md"))
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    ended = subprocess.run(["sh", "-n"], input="\n".join(blocks), text=True, capture_output=True, check=False)

    assert (blocks != [], ended.returncode, ended.stderr) == (True, 0, "")


@pytest.mark.needs("promtool")
def test_the_examples_of_monitoring_are_configurations(tmp_path: Path) -> None:
    """docs/monitoring.md"""
    from tests.monitoring.test_rules import promtool

    files = dict(re.findall(r"^```yaml file=(\S+)\n(.*?)^```$", (DOCS / "monitoring.md").read_text(), re.M | re.S))
    (tmp_path / "prometheus.yml").write_text(files["prometheus.yml"])
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    promtool("check", "config", str(tmp_path / "prometheus.yml"))

    (tmp_path / "supervise.yaml").write_text(files["supervise.yaml"])

    assert read_config(tmp_path / "supervise.yaml", {}).otlp == "http://127.0.0.1:4318"
    assert yaml.safe_load(files["alertmanager.yml"])["inhibit_rules"][0]["equal"] == ["instance"]
