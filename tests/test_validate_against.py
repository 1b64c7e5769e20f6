"""`shipper validate --against`: what a policy changes, and which outputs drain."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from shipper.commands.validate import command

OLD = """
version: 1
inputs:
  app: {type: file, paths: [/a.log], outputs: [main]}
  all: {type: generate}
outputs:
  main: {type: elasticsearch, hosts: ["https://es-1:9200"], credential: {file: es-1}}
  audit: {type: elasticsearch, hosts: ["https://es-9:9200"]}
"""


def validate(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def against(tmp_path):
    """What changes from OLD to another text: the class, the changed parts, and those that drain."""
    (tmp_path / "old.yaml").write_text(OLD)
    for number in (1, 2):
        (tmp_path / f"es-{number}").write_text("id:the same hunter2".replace(" ", "-"))
        (tmp_path / f"es-{number}").chmod(0o600)

    def change(text, *options):
        (tmp_path / "new.yaml").write_text(text)
        old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
        result = validate("--format", "json", *options, "--against", old, new)
        assert result.exit_code == 0, result.output
        (told,) = json.loads(result.stdout)
        return told["changes"]

    return change


def drains(changes):
    return [part["name"] for part in changes["parts"] if part["drains"]]


def parts(changes):
    return {part["name"]: (part["what"], part["settings"]) for part in changes["parts"]}


def test_comments_order_and_defaults_change_nothing(against):
    assert against(OLD.replace("type: generate", "data_stream: {}, type: generate"))["change"] == "none"
    assert against("# a comment\n" + OLD)["change"] == "none"
    assert against(OLD + "log_level: info\nqueue: {max_bytes: 1GiB}\n")["change"] == "none"


def test_another_host_or_credential_drains_that_output_only(against):
    changes = against(OLD.replace("es-1:9200", "es-2:9200"))

    assert (changes["change"], drains(changes), parts(changes)) == (
        "barrier",
        ["outputs.main"],
        {"outputs.main": ("changed", ["hosts"])},
    )
    assert changes["released"] == []


def test_another_reference_drains_and_the_old_secret_may_be_revoked_then(against):
    changes = against(OLD.replace("file: es-1", "file: es-2"))

    assert (drains(changes), changes["released"]) == (["outputs.main"], ["file:es-1"])


def test_two_references_to_one_content_are_one_secret_where_it_is_read(against):
    changes = against(OLD.replace("file: es-1", "file: es-2"), "--secrets")

    assert (changes["change"], drains(changes), changes["released"]) == ("none", [], [])


def test_what_does_not_matter_to_queued_events_drains_nothing(against):
    fast = OLD.replace("credential:", "workers: 5, timeout: 5s, credential:").replace(
        "generate}", "generate, bytes: 9}"
    )
    changes = against(fast + "drain: {deadline: 4h}\nlog_level: debug\n")

    assert (changes["change"], drains(changes)) == ("live", [])
    assert parts(changes)["outputs.main"] == ("changed", ["workers", "timeout"])
    assert changes["settings"] == ["drain.deadline", "log_level"]


def test_a_removed_output_drains_and_an_added_one_does_not(against):
    changes = against(OLD.replace("audit:", "other:"))

    assert drains(changes) == ["outputs.audit"]
    assert parts(changes)["outputs.audit"] == ("removed", [])
    assert parts(changes)["outputs.other"] == ("added", [])


def test_an_input_of_other_files_is_replaced_and_one_with_other_processors_is_not(against):
    changes = against(OLD.replace("/a.log", "/b.log") + "processors: [{type: drop_fields, fields: [a]}]\n")

    assert parts(changes) == {
        "inputs.app": ("replaced", ["paths", "processors"]),
        "inputs.all": ("changed", ["processors"]),
    }


def test_an_old_policy_that_is_refused_has_its_places_and_the_status_is_78(tmp_path):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("version: 1\nquue: {}\n")
    new.write_text(OLD)
    result = validate("--against", old, new)

    assert result.exit_code == 78
    assert result.stdout.startswith(f"{old}:2:1: quue: unknown key")


def test_no_content_of_a_secret_is_told(against):
    assert "hunter2" not in json.dumps(against(OLD.replace("file: es-1", "file: es-2"), "--secrets"))


def test_an_old_version_from_a_pipe_is_compared_as_if_it_was_at_the_same_place(tmp_path):
    """As in `--against <(git show main:policy.yaml)`: relative references do not count from the pipe's directory."""
    (tmp_path / "new.yaml").write_text(OLD)
    read, write = os.pipe()
    os.write(write, OLD.encode())
    os.close(write)
    result = validate("--against", f"/dev/fd/{read}", tmp_path / "new.yaml")
    os.close(read)

    assert result.stdout.splitlines()[:2] == [f"{tmp_path}/new.yaml: ok, 2 inputs, 2 outputs", "  changes nothing"]


def test_changes_are_told_as_the_page_shows_them(tmp_path, monkeypatch):
    page = (Path(__file__).parents[1] / "docs" / "testing-policies.md").read_text()
    (shown,) = re.findall(
        r"^```console\n\$ shipper validate --against old.yaml new.yaml\n(.*?)^```$", page, re.S | re.M
    )
    old = "version: 1\ninputs: {app: {type: file, paths: [/a.log]}}\noutputs:\n"
    output = "  main: {type: elasticsearch, hosts: ['https://a:1'], credential: {env: ES_%d}%s}\n"
    (tmp_path / "old.yaml").write_text(old + output % (1, ""))
    (tmp_path / "new.yaml").write_text(
        old + output % (2, ", workers: 4") + "  audit: {type: console}\nqueue: {max_bytes: 2GiB}\n"
    )
    monkeypatch.chdir(tmp_path)

    assert validate("--against", "old.yaml", "new.yaml").stdout.replace("env:ES_1", "file:/run/keys/es-1") == shown
