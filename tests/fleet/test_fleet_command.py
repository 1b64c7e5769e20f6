"""`shipper fleet` over a real etcd, with members whose reports a test writes."""

from __future__ import annotations

import base64
import json
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from shipper import __main__ as program
from shipper.fleet.etcd.store import open_etcd
from shipper.fleet.records import (
    ALIVE,
    HEAD,
    MEMBERS,
    RESTORED,
    Alive,
    Head,
    Refusal,
    Report,
    Restored,
    Undelivered,
    Version,
)
from shipper.fleet.seal import Seals
from tests.backends import etcd as server
from tests.readme import ROOT

KEY = b"k" * 32
PATIENCE = 60
POLICY = """\
version: 1
inputs:
  logs: {type: file, paths: [/var/log/app.log]}
outputs:
  main: {type: elasticsearch, hosts: ["https://es:9200"], credential: {fleet: es}}
"""


class Site:
    """A fleet of one test: its files, and its records."""

    def __init__(self, path: Path, urls, name: str, capfd) -> None:
        self.path, self.urls, self.name, self.capfd = path, urls, name, capfd
        self.config = self.write("supervise.yaml", self.section())
        key = self.write("fleet.key", base64.b64encode(KEY).decode())
        key.chmod(0o600)
        self.policy = self.write("policy.yaml", POLICY)
        self.secret = self.write("es.key", "the first content")

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.write_text(text)
        return path

    def section(self, **more) -> str:
        fields = {"name": self.name, "etcd": list(self.urls), "keys": [{"file": str(self.path / "fleet.key")}]} | more
        return json.dumps({"fleet": fields})

    def run(self, *arguments) -> tuple[int, str, str]:
        """Exit status, standard output and standard error of `shipper fleet …`."""
        with pytest.raises(SystemExit) as ended:
            program.main(["fleet", "--config", str(self.config), *map(str, arguments)])
        said = self.capfd.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    def process(self, *arguments) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "shipper", "fleet", *map(str, arguments), "--config", str(self.config)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def published(self) -> None:
        assert self.run("secret", "set", "es", "--file", self.secret)[0] == 0
        assert self.run("publish", self.policy)[0] == 0

    @asynccontextmanager
    async def store(self):
        async with open_etcd(self.urls, f"/shipper/{self.name}/") as store:
            yield store, Seals(self.name, [KEY])

    def member(self, name: str, reached: int = 1, **more) -> None:
        """Writes the report of a member that has drained a version."""

        async def work():
            async with self.store() as (store, seals):
                head = seals.open(HEAD, (await store.read(HEAD)).entry.value, Head)
                version = next(line.version for line in head.history if line.version.number == reached)
                stages = dict.fromkeys(("received", "active", "drained"), version)
                fields = {"state": "member", "stages": stages} | more
                if "refusal" in fields:
                    fields["refusal"] = Refusal(head.newest, *fields["refusal"])
                report = Report(name, f"d-{name}", "b", "i", 1, head.epoch, **fields)
                for key, record in ((ALIVE + name, Alive(f"d-{name}", "b", "i")), (MEMBERS + name, report)):
                    found = (await store.read(key)).entry
                    lease = await store.grant(86400) if key.startswith(ALIVE) else None
                    expected = found.revision if found else 0
                    await store.swap(key, seals.seal(key, record), expected=expected, lease=lease)

        trio.run(work)

    def away(self, name: str) -> None:
        async def work():
            async with self.store() as (store, _):
                found = (await store.read(ALIVE + name)).entry
                await store.swap(ALIVE + name, None, expected=found.revision)

        trio.run(work)


@pytest.fixture
def site(etcd, tmp_path, request, capfd) -> Site:
    return Site(tmp_path, etcd.urls, re.sub(r"[^A-Za-z0-9]+", "-", request.node.name), capfd)


def test_a_publish_says_what_changes_and_prints_the_version(site):
    site.published()
    site.member("web-1")
    site.member("web-2")
    site.policy.write_text(POLICY.replace("es:9200", "es2:9200"))
    status, out, _ = site.run("publish", site.policy)

    assert status == 0
    assert out.splitlines() == ["changes outputs.main", "drains outputs.main on 2 members", "version 2"]


def test_what_is_published_is_not_published_again_and_that_is_said(site):
    site.published()
    status, out, _ = site.run("publish", site.policy)
    again = site.run("publish", site.policy, "--json")[1]

    assert (status, out.splitlines()[-1]) == (0, "version 1 is this policy: nothing was published")
    assert json.loads(again)["version"] == "1"
    assert "version 2" not in site.run("history")[1]


def test_a_dry_run_changes_nothing(site):
    site.published()
    site.policy.write_text(POLICY.replace("es:9200", "es2:9200"))
    status, out, _ = site.run("publish", site.policy, "--dry-run")

    assert status == 0
    assert out.endswith("nothing was published\n")
    assert json.loads(site.run("history", "--json")[1])["newest"] == "1"


def test_a_publish_for_programs_is_one_json_object(site):
    site.published()
    site.policy.write_text(POLICY.replace("es:9200", "es2:9200"))
    answer = json.loads(site.run("publish", site.policy, "--json")[1])

    assert answer["version"] == "2"
    assert answer["triple"][:2] == [0, 2]
    assert answer["plan"]["changes"]["drained"] == ["outputs.main"]


def test_a_publish_against_another_version_than_the_expected_one_is_refused(site):
    site.published()
    status, _, err = site.run("publish", site.policy, "--if-version", "7")

    assert status == 1
    assert "the newest version is 1" in err


def test_a_policy_that_is_not_valid_is_not_published(site):
    site.policy.write_text(POLICY.replace("elasticsearch", "elastic"))
    status, _, err = site.run("publish", site.policy)

    assert status == 78
    assert "policy.yaml:5" in err


def test_a_part_without_an_effect_is_told_and_published_all_the_same(site):
    assert site.run("secret", "set", "es", "--file", site.secret)[0] == 0
    folder = site.path / "policy.d"
    folder.mkdir()
    (folder / "10.yaml").write_text(POLICY + "drain: {on_deadline: drop}\n")
    (folder / "20.yaml").write_text("version: 1\nprocessors: [{type: add_fields, fields: {a: b}}]\n")
    status, out, _ = site.run("publish", folder)
    warnings = [line for line in out.splitlines() if line.startswith("warning: ")]

    assert status == 0
    assert "version 1" in out
    assert warnings[0].startswith(
        f"warning: {folder}/20.yaml:2:1: processors: they act on the inputs of this file alone"
    )
    assert "drain.on_deadline: there is no deadline" in warnings[1]
    assert len(warnings) == 2


def test_variables_in_several_files_are_refused(site):
    folder = site.path / "policy.d"
    folder.mkdir()
    (folder / "10.yaml").write_text('version: 1\ninputs:\n  logs: {type: file, paths: ["${LOGS}"]}\n')
    (folder / "20.yaml").write_text("version: 1\n")
    status, _, err = site.run("publish", folder)

    assert status == 78
    assert "write it as one file" in err


def test_wait_is_0_when_every_member_has_reached_the_version(site):
    site.published()
    site.member("web-1")
    status, out, _ = site.run("wait", "1")

    assert status == 0
    assert out.startswith("version 1, drained: every member has reached it\n  members  1 of 1 reached\n")


def test_wait_is_6_while_nobody_has_accepted_a_restored_store(site):
    site.published()
    site.member("web-1")

    async def work():
        async with site.store() as (store, seals):
            one = Restored("web-1", "d-web-1", 1, 0, Version(0, 9, "lost"), 1, "store")
            await store.swap(RESTORED + "web-1", seals.seal(RESTORED + "web-1", one), expected=0)

    trio.run(work)
    status, out, _ = site.run("wait", "1", "--timeout", "1m")

    assert status == 6
    assert "web-1 has seen version 9" in out


def test_t152_12_wait_without_members_is_0_with_a_warning(site):
    site.published()
    status, out, _ = site.run("wait", "1")

    assert status == 0
    assert "the fleet has no members" in out


def test_wait_is_3_when_the_time_is_over_and_names_who_is_missing(site):
    site.published()
    site.member("web-1")
    site.member("web-2", stages={}, undelivered=Undelivered(812, 4000))
    status, out, _ = site.run("wait", "1", "--timeout", "100ms")

    assert status == 3
    assert "web-2  waiting" in out
    assert "812 events" in out


def test_t152_11_wait_is_4_at_once_with_who_refuses_and_why(site):
    site.published()
    site.member("web-1")
    site.member("web-2", stages={}, refusal=("invalid", ["outputs.main: no such index"]))
    status, out, _ = site.run("wait", "1", "--timeout", "60s", "--nack-grace", "0s", "--json")
    (member,) = json.loads(out)["members"]

    assert status == 4
    assert (member["name"], member["kind"], member["problems"]) == ("web-2", "refused", ["outputs.main: no such index"])


@pytest.mark.parametrize("version", ["2", "99", "3.1"])
def test_t152_12_wait_is_5_for_a_version_that_is_not_there(site, version):
    site.published()

    assert site.run("wait", version, "--timeout", "60s")[0] == 5


@pytest.mark.parametrize(
    "arguments",
    [
        *(["wait", "x"], ["wait", "-1"], ["wait"], ["wait", "1", "--stage", "done"], ["wait", "9" * 19]),
        *(["publish", "policy.yaml", "--if-version", "x"], ["rollback", "9" * 400], ["publish"]),
    ],
)
def test_wrong_usage_is_2(site, arguments):
    assert site.run(*arguments)[0] == 2


@pytest.mark.parametrize("arguments", [["wait", "1"], ["status"], ["publish", "POLICY"]])
def test_a_store_that_cannot_be_reached_is_69_and_one_line(site, arguments):
    site.config.write_text(site.section(etcd=["http://127.0.0.1:9"]))
    status, out, err = site.run(*(str(site.policy) if one == "POLICY" else one for one in arguments))

    assert (status, out) == (69, "")
    assert err == "shipper: the store of the fleet: 127.0.0.1:9: connection refused\n"


@pytest.fixture
def hung(tmp_path, capfd):
    """A fleet with one version, whose etcd hangs."""
    with server.cluster() as etcd:
        site = Site(tmp_path, etcd.urls, "prod", capfd)
        site.published()
        etcd.nodes[0].stop()
        try:
            yield site
        finally:
            etcd.nodes[0].go_on()


@pytest.mark.parametrize("arguments", [["wait", "1"], ["rollback", "1"]])
def test_a_store_that_hangs_is_69_and_one_line_in_a_few_seconds(hung, arguments):
    status, out, err = hung.run(*arguments)

    assert (status, out) == (69, "")
    assert err.startswith("shipper: the store of the fleet: 127.0.0.1:")
    assert re.search(r"no answer within (2\.9|3) s", err)
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "http: 127.0.0.1:6780", "fleet: {}", "fleet: [", "fleet: 7"])
def test_a_configuration_without_a_good_fleet_is_78(site, text):
    site.config.write_text(text)
    status, _, err = site.run("status")

    assert status == 78
    assert err.startswith("shipper: ")


def test_the_configuration_is_taken_from_the_verb_then_from_before_it_then_from_the_environment(site, monkeypatch):
    site.published()
    other = site.write("other.yaml", site.section(name="other"))
    monkeypatch.setenv("SHIPPER_CONFIG", str(other))

    def named(*arguments):
        with pytest.raises(SystemExit):
            program.main(["fleet", *arguments])
        return json.loads(site.capfd.readouterr().out)["name"]

    assert named("history", "--json") == "other"
    assert named("--config", str(site.config), "history", "--json") == site.name
    assert named("--config", str(other), "history", "--json", "--config", str(site.config)) == site.name


def test_status_members_and_history_show_the_fleet(site):
    site.published()
    site.member("web-1")
    site.member("web-2", stages={})
    shown = {verb: site.run(verb)[1] for verb in ("status", "members", "history")}

    assert shown["status"].startswith(f"fleet {site.name}: version 1, behind\n")
    assert "web-1" not in shown["status"]
    assert "web-1" in shown["members"]
    assert "version 1" in shown["history"]


def test_the_same_for_programs_has_the_revision_of_the_store(site):
    site.published()
    site.member("web-1")

    assert all(json.loads(site.run(verb, "--json")[1])["at"] > 0 for verb in ("status", "members", "history"))


def test_status_that_is_watched_is_shown_again_after_a_change(site):
    site.published()
    site.member("web-1", stages={})
    with site.process("status", "--watch", "--json") as process:
        try:
            first = json.loads(process.stdout.readline())
            site.member("web-1")
            second = json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)

    assert (first["state"], second["state"]) == ("behind", "consistent")
    assert process.returncode == 130
    assert err == ""


def test_a_watch_goes_on_while_the_store_is_away(tmp_path, capfd):
    with server.cluster() as etcd:
        site = Site(tmp_path, etcd.urls, "prod", capfd)
        site.published()
        site.member("web-1", stages={})
        with site.process("status", "--watch", "--json") as process:
            try:
                json.loads(process.stdout.readline())
                etcd.kill()
                said = process.stderr.readline()
                etcd.start()
                site.member("web-1")
                states = iter(lambda: json.loads(process.stdout.readline())["state"], "consistent")
                assert {*states} <= {"behind"}
            finally:
                process.send_signal(signal.SIGINT)
            _, again = process.communicate(timeout=PATIENCE)

    assert said.startswith("warning: the store does not answer")
    assert said not in again
    assert process.returncode == 130


def test_a_wait_says_a_line_at_the_start_and_ends_with_the_last_member(site):
    site.published()
    site.member("web-1", stages={})
    with site.process("wait", "1") as process:
        first = process.stdout.readline()
        site.member("web-1")
        out, err = process.communicate(timeout=PATIENCE)

    assert first.startswith("version 1, drained: not yet; 0 of 1 reached, 1 waiting; web-1 (")
    assert out.startswith("version 1, drained: every member has reached it\n")
    assert (process.returncode, err) == (0, "")


def test_a_wait_for_programs_has_its_lines_on_standard_error(site):
    site.published()
    site.member("web-1", stages={})
    with site.process("wait", "1", "--json") as process:
        process.stderr.readline()
        site.member("web-1")
        out, _ = process.communicate(timeout=PATIENCE)

    assert json.loads(out)["state"] == "open"


def test_publish_can_wait(site):
    site.published()
    site.member("web-1")
    site.policy.write_text(POLICY.replace("es:9200", "es2:9200"))
    status, out, _ = site.run("publish", site.policy, "--wait", "drained", "--timeout", "100ms")

    assert status == 3
    assert "version 2\n" in out


def test_a_rollback_is_a_new_version_with_the_text_of_an_earlier_one(site):
    site.published()
    site.policy.write_text(POLICY.replace("es:9200", "es2:9200"))
    site.run("publish", site.policy)
    status, out, _ = site.run("rollback", "1")

    assert (status, out) == (0, "version 3, with the text of 1\n")
    assert "rollback to 1" in site.run("history")[1]


def test_new_content_of_a_secret_is_a_new_id_and_a_new_version(site):
    site.published()
    site.secret.write_text("the second content")
    status, out, _ = site.run("secret", "set", "es", "--file", site.secret)
    listed = json.loads(site.run("secret", "list", "--json")[1])

    assert status == 0
    assert re.fullmatch(r"es is es-[0-9a-f]+; version 2\n", out)
    assert listed["secrets"]["es"] in out
    assert "second" not in site.run("secret", "list")[1]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_line_end_behind_a_secret_is_not_its_content(site, end):
    site.published()
    site.secret.write_bytes(f"the first content{end}".encode())
    status, out, _ = site.run("secret", "set", "es", "--file", site.secret)

    assert status == 0
    assert "version" not in out


def test_who_delays_a_release_is_listed_with_the_reason(site):
    site.published()
    old = json.loads(site.run("secret", "list", "--json")[1])["secrets"]["es"]
    site.member("web-1", using=[old])
    site.secret.write_text("the second content")
    site.run("secret", "set", "es", "--file", site.secret)
    text, (one,) = site.run("secret", "list")[1], json.loads(site.run("secret", "list", "--json")[1])["retired"]

    assert re.search(rf"these delay a release\n  {old} +web-1 +using +its sidecar uses it", text)
    assert (one["id"], one["obstacles"][0]["member"], one["obstacles"][0]["why"]) == (old, "web-1", "using")


@pytest.mark.parametrize(
    ("verb", "end", "expected"), [("history", ">&-", 0), ("wait 1", "| true; exit ${PIPESTATUS[0]}", 141)]
)
def test_a_closed_standard_output_is_no_traceback(site, verb, end, expected):
    """A reader that ends at once may still leave time for the first line."""
    site.published()
    command = f"{sys.executable} -m shipper fleet --config {site.config} {verb} {end}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE)

    assert (ended.returncode, ended.stderr) == (expected, "")


def test_settings_are_shown_and_changed(site):
    before = site.run("settings")
    site.published()
    status, out, _ = site.run("settings", "--history", "2", "--release-grace", "48h")
    for number in range(2):
        site.policy.write_text(POLICY.replace("app.log", f"app-{number}.log"))
        assert site.run("publish", site.policy)[0] == 0

    assert before == (
        0,
        f"fleet {site.name}: settings\n  history        50 versions\n  release_grace  24h\n  release_when   accepted\n",
        "",
    )
    assert (status, out) == (
        0,
        f"fleet {site.name}: settings\n  history        2 versions\n  release_grace  48h\n  release_when   accepted\n",
    )
    assert json.loads(site.run("settings", "--json")[1]) == {
        "history": 2,
        "release_grace": 172800.0,
        "release_when": "accepted",
    }
    assert [each["version"] for each in json.loads(site.run("history", "--json")[1])["versions"]] == ["3", "2"]
    assert site.run("wait", "1")[0] == 5


def test_settings_out_of_bounds_change_nothing(site):
    status, out, err = site.run("settings", "--history", "1")

    assert (status, out) == (1, "")
    assert "the history has 2 to 500 versions, not 1" in err
    assert json.loads(site.run("settings", "--json")[1]) == {
        "history": 50,
        "release_grace": 86400.0,
        "release_when": "accepted",
    }


def test_files_that_other_users_can_read_are_warned_of(site):
    site.secret.chmod(0o644)
    (site.path / "fleet.key").chmod(0o644)
    status, _, err = site.run("secret", "set", "es", "--file", site.secret)

    assert status == 0
    assert [line for line in err.splitlines() if line.startswith("warning:") and f"chmod go= {site.secret}" in line]
    assert [line for line in err.splitlines() if line.startswith("warning:") and "fleet.key" in line]


def test_the_commands_of_the_document_publish_a_policy_and_rotate_a_key_that_all_share(site, monkeypatch):
    blocks = re.findall(r"(?m)(?:^    .*\n|^\n(?=    ))+", (ROOT / "docs/fleet.md").read_text())
    first, rotation = (next(block for block in blocks if word in block) for word in ("SHIPPER_CONFIG", "new.key"))
    policy = next(textwrap.dedent(block) for block in blocks if "version: 1" in block)
    for name, text in (("es.key", "id:one"), ("new.key", "id:two"), ("policy.yaml", policy)):
        site.write(name, text)
    monkeypatch.chdir(site.path)

    assert [site.run(*command)[0] for command in commands(first)] == [0, 0, 0]
    for _ in range(6):
        site.run("rollback", "1")
    rotate, ask = commands(rotation)
    out = site.run(*rotate)[1]
    site.member("web-1", reached=8)

    assert re.fullmatch(r"es is es-[0-9a-f]{16}; version 8\n", out)
    assert site.run(*ask)[0] == 0


def commands(block: str) -> list[list[str]]:
    """The arguments of each `shipper fleet` of a block."""
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    return [line[2:] for line in lines if line[:2] == ["shipper", "fleet"]]


def test_a_secret_that_the_newest_version_names_is_not_removed(site):
    site.published()
    status, _, err = site.run("secret", "rm", "es")

    assert status == 1
    assert "es" in err


def test_a_secret_that_nobody_names_is_removed(site):
    site.run("secret", "set", "es", "--file", site.secret)

    assert site.run("secret", "rm", "es")[:2] == (0, "es is removed\n")


@pytest.mark.parametrize("content", [None, "a directory", b"x" * ((1 << 20) + 1), b"", b"\n", b"\xff"])
def test_a_secret_that_cannot_be_read_is_78(site, content):
    site.secret.unlink()
    if content == "a directory":
        site.secret.mkdir()
    elif content is not None:
        site.secret.write_bytes(content)
    status, out, err = site.run("secret", "set", "es", "--file", site.secret)

    assert (status, out) == (78, "")
    assert err.startswith(f"shipper: --file {site.secret}: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("given", "expected"), [("<&-", 78), ("< /dev/null", 78), ("<<< 'a:b'", 0)])
def test_a_secret_is_read_from_standard_input(site, given, expected):
    command = f"{sys.executable} -m shipper fleet --config {site.config} secret set es --file - {given}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE)

    assert ended.returncode == expected
    assert "Traceback" not in ended.stderr


def test_a_member_whose_lease_holds_is_not_forgotten_without_force(site):
    site.published()
    site.member("web-1", stages={}, undelivered=Undelivered(3, 30))
    refused = site.run("forget", "web-1")
    status, out, err = site.run("forget", "web-1", "--force")

    assert refused[0] == 1
    assert (status, out) == (0, "web-1 is forgotten, with 3 events undelivered\n")
    assert "may still send" in err
    assert site.run("wait", "1", "--timeout", "1s")[0] == 0


def test_a_forgotten_member_delays_the_release_of_an_id_until_an_order(site):
    site.published()
    old = json.loads(site.run("secret", "list", "--json")[1])["secrets"]["es"]
    site.member("web-1", using=[old], undelivered=Undelivered(3, 30))
    site.secret.write_text("the second content")
    site.run("secret", "set", "es", "--file", site.secret)
    refused = site.run("release", old, "--despite", "web-1")
    site.run("forget", "web-1", "--force")
    status, out, _ = site.run("release", old, "--despite", "web-1")

    assert refused[0] == 1
    assert (status, out) == (0, f"web-1 no longer delays the release of {old}\n")


def test_another_key_opens_nothing(site):
    site.published()
    (site.path / "fleet.key").write_text(base64.b64encode(b"x" * 32).decode())
    status, out, err = site.run("status")

    assert (status, out) == (1, "")
    assert "head" in err


def test_leave_without_a_supervisor_is_an_error(site):
    state = site.path / "state"
    state.mkdir()
    status, _, err = site.run("leave", "--state", state)

    assert status == 1
    assert err
