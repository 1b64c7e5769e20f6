"""The supervisor as a process: real files, pipes, signals and a state directory, beside a sidecar that obeys orders."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
import trio

from shipper.supervise import questions
from shipper.supervise.child import Child, Message
from shipper.supervise.questions import Status
from shipper.supervise.report import in_words
from tests.supervise.driver import POLICY, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_changed_secret_is_a_new_revision_and_the_old_one_is_revoked_when_it_has_drained(site: Site) -> None:
    async with site.supervisor() as process:
        await site.until("ack", revision="1", stage="drained")
        (site.fake / "hold").touch()
        site.replace(site.secret, "k2:hunter2\n")
        await site.until("ack", revision="2", stage="active")
        assert site.revoked == []
        (site.fake / "hold").unlink()
        await site.until("revoked")
        process.send_signal(signal.SIGTERM)
        assert await site.ended(process) == 0

    first, second = site.heard("policy")
    (old,), (new,) = first["credentials"], second["credentials"]
    assert site.revoked == [f"{old} k1 file:{site.secret} main"]
    assert old != new
    assert second["credentials"][new] == {"api_key": "k2:hunter2"}
    assert site.heard("stop") == [{"type": "stop", "within_seconds": 20.0}]
    assert "hunter2" not in json.dumps(site.lines) + site.errors.decode()


async def test_a_mistake_is_named_in_one_line_and_the_last_valid_policy_runs_on(site: Site) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.policy, POLICY.replace("hosts", "hots"))
        line = await site.until("invalid")
        site.replace(site.policy, POLICY + "log_level: debug\n")
        await site.until("ack", revision="2", stage="drained")

    places = [(problem["file"], problem["line"], problem["path"]) for problem in line["errors"]]
    assert (str(site.policy), 5, "outputs.main.hots") in places
    assert len(site.heard("policy")) == 2


async def test_a_comment_sends_nothing(site: Site) -> None:
    async with site.supervisor() as process:
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.policy, POLICY + "# a comment\n")
        process.send_signal(signal.SIGHUP)
        await site.until("unchanged")

    assert len(site.heard("policy")) == 1


async def test_with_a_wrong_policy_at_the_start_it_exits_with_78_and_names_the_place(site: Site) -> None:
    site.replace(site.policy, POLICY.replace("hosts", "hots"))
    async with site.supervisor() as process:
        assert await site.ended(process) == 78
        (line,) = await site.when(lambda: site.happened("invalid"))

    assert "outputs.main.hots" in [error["path"] for error in line["errors"]]
    assert 5 in [error["line"] for error in line["errors"]]


async def test_a_secret_that_is_absent_at_the_first_start_is_waited_for_in_sight_of_all(site: Site) -> None:
    """At boot keys may come after the shipper, which nobody starts again once it has ended with 78."""
    site.secret.rename(site.directory / "away")
    async with site.supervisor() as process:
        line = await site.until("absent")
        await site.until("ready")
        waiting = await trio.to_thread.run_sync(questions.ask, site.state, Status())
        (site.directory / "away").rename(site.secret)
        await site.until("ack", revision="1", stage="drained")
        await site.until("present", revision="1")
        shipping = await trio.to_thread.run_sync(questions.ask, site.state, Status())
        process.send_signal(signal.SIGTERM)
        assert await site.ended(process) == 0

    assert (line["state"], line["errors"][0]["line"]) == ("DEGRADED", 6)
    assert "No such file" in line["errors"][0]["message"]
    assert in_words("absent", line | {"errors": []}) == [
        "DEGRADED: nothing runs until every secret is present; waiting"
    ]
    assert waiting["state"] == "DEGRADED"
    assert str(site.secret) in waiting["troubles"][0]["message"]
    assert (shipping["state"], shipping["troubles"]) == ("HEALTHY", [])
    assert [message["revision"] for message in site.heard("policy")] == [1]


async def test_who_waits_for_a_secret_is_told_of_mistakes_that_come_meanwhile(site: Site) -> None:
    site.secret.unlink()
    async with site.supervisor():
        await site.until("watching")
        site.replace(site.policy, POLICY.replace("hosts", "hots"))
        wrong = await site.until("invalid")
        site.replace(site.policy, POLICY)
        await site.when(lambda: len(site.happened("absent")) == 2)
        site.replace(site.secret, "k1:hunter2\n")
        await site.until("ack", revision="1", stage="drained")

    assert wrong["consequence"] == "; there is nothing to run"


async def test_a_secret_that_others_can_read_is_told_once_and_again_when_it_is_so_again(site: Site) -> None:
    site.secret.chmod(0o644)
    async with site.supervisor() as process:
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.policy, POLICY + "log_level: debug\n")
        await site.until("ack", revision="2", stage="drained")
        assert len(site.happened("warning")) == 1
        site.secret.chmod(0o600)
        process.send_signal(signal.SIGHUP)
        await site.until("unchanged")
        site.secret.chmod(0o640)
        await site.when(lambda: len(site.happened("warning")) == 2)

    first, again = site.happened("warning")
    assert first["problem"]["line"] == 6
    assert first["problem"]["message"] == (
        f"the secret file:{site.secret}: other users have rights to it (mode 0644); write: chmod go= {site.secret}"
    )
    assert "mode 0640" in again["problem"]["message"]


async def test_a_part_of_the_policy_without_an_effect_is_told_at_the_start_and_not_again_while_it_stays(
    site: Site,
) -> None:
    site.replace(site.policy, POLICY + "drain: {on_deadline: drop}\n")
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.policy, POLICY + "drain: {on_deadline: drop}\nlog_level: debug\n")
        await site.until("ack", revision="2", stage="drained")

    (told,) = site.happened("warning")
    assert told["problem"]["path"] == "drain.on_deadline"
    assert told["problem"]["code"] == "no_effect"


@pytest.mark.parametrize("credential", ["{env: NOWHERE_SET}", "{systemd: es}"])
async def test_a_secret_that_only_a_restart_can_bring_is_not_waited_for(site: Site, credential: str) -> None:
    site.environment["CREDENTIALS_DIRECTORY"] = str(site.directory / "credentials")
    site.replace(site.policy, POLICY.replace("{file: es}", credential))
    async with site.supervisor() as process:
        assert await site.ended(process) == 78


async def test_an_absent_secret_hides_no_mistake_of_the_first_policy(site: Site) -> None:
    site.secret.unlink()
    site.replace(site.policy, POLICY.replace("hosts", "hots"))
    async with site.supervisor() as process:
        assert await site.ended(process) == 78


async def test_over_a_restart_without_the_secret_the_last_valid_policy_runs_on(site: Site) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
    site.secret.rename(site.directory / "away")

    async with site.supervisor():
        assert (await site.until("invalid"))["consequence"] == "; the last valid policy runs on"
        await site.until("resumed", revision="1")
        assert questions.ask(site.state, Status())["troubles"]
        site.replace(site.secret, "k2:hunter2\n")
        await site.until("valid", revision="2")
        await site.until("revoked", name="k1")

    _, again, newer = site.heard("policy")
    assert list(again["credentials"].values()) == [{"api_key": "k1:hunter2"}]
    assert list(newer["credentials"].values()) == [{"api_key": "k2:hunter2"}]


async def test_once_is_about_the_files_as_they_are(site: Site) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
    site.secret.unlink()
    site.arguments = ["--once"]

    async with site.supervisor() as process:
        assert await site.ended(process) == 78


async def test_a_second_supervisor_exits_with_75(site: Site) -> None:
    async with site.supervisor():
        await site.until("watching")
        second = await trio.run_process(site.command(), check=False, capture_stderr=True, env=site.environment)

    assert second.returncode == 75
    assert b"another `shipper supervise` owns" in second.stderr


async def test_a_sidecar_that_crashes_is_launched_again_with_its_policy_and_credentials(site: Site) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        launched = await site.until("launched")
        os.kill(launched["pid"], signal.SIGKILL)
        assert (await site.until("ended"))["reason"] == "killed by signal 9"
        await site.when(lambda: len(site.heard("policy")) == 2)

    first, again = site.heard("policy")
    assert first == again


async def test_a_supervisor_that_is_killed_between_release_and_revocation_revokes_after_its_restart(site: Site) -> None:
    site.on_release(f"touch {site.directory}/tried; exec sleep 5 >/dev/null 2>&1")
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.secret, "k2:hunter2\n")
        await site.when((site.directory / "tried").exists)

    site.on_release(f"echo $SHIPPER_CREDENTIAL_ID >> {site.directory}/revoked")
    async with site.supervisor():
        await site.when(lambda: site.revoked)
        await site.until("revoked")

    (old,) = site.heard("policy")[0]["credentials"]
    assert site.revoked == [old]


async def test_on_release_is_tried_again_until_it_succeeds(site: Site) -> None:
    site.on_release(f"test -e {site.directory}/ok || exit 3; echo $SHIPPER_CREDENTIAL_ID >> {site.directory}/revoked")
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.secret, "k2:hunter2\n")
        assert (await site.until("revoke_failed"))["reason"] == "exit status 3"
        (site.directory / "ok").touch()
        await site.until("revoked")

    assert len(site.revoked) == 1


async def test_on_release_that_fails_says_why_in_the_last_line_of_its_standard_error(site: Site) -> None:
    """And nothing of what it writes stands in a line of ours, shows a secret or steers a terminal."""
    site.on_release(
        f"printf 'half a line'; echo first >&2; cat {site.secret} >&2; test -e {site.directory}/ok && exit 0;"
        f" printf '\\033[31m403 for %s' \"$(cat {site.secret})\" >&2; exit 22"
    )
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.secret, "k2:hunter2\n")
        failed = await site.until("revoke_failed")
        answer = questions.ask(site.state, Status())
        (site.directory / "ok").touch()
        await site.until("revoked")

    assert failed["reason"] == "exit status 22: \ufffd[31m403 for [hidden]"
    assert [one["message"] for one in answer["troubles"]] == [failed["reason"]]
    assert site.errors == b""


async def test_a_drain_of_long_ago_is_told_once_and_not_after_each_restart(site: Site) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
    async with site.supervisor():
        os.kill((await site.until("launched"))["pid"], signal.SIGKILL)
        await site.when(lambda: len(site.happened("resumed", revision="1")) == 1)
        await site.when(lambda: len(site.heard("policy")) >= 2)
        assert site.happened("ack", stage="drained") == []
        site.replace(site.secret, "k2:hunter2\n")
        await site.until("ack", revision="2", stage="drained")


async def test_a_secret_that_is_replaced_before_the_sidecar_is_ready_is_revoked(site: Site) -> None:
    (site.fake / "slow").touch()
    async with site.supervisor():
        await site.until("launched")
        site.replace(site.secret, "k2:hunter2\n")
        await site.when(lambda: len(questions.ask(site.state, Status())["credentials"]) == 2)
        (site.fake / "slow").unlink()
        await site.until("revoked", name="k1")

    assert [list(message["credentials"].values()) for message in site.heard("policy")] == [[{"api_key": "k2:hunter2"}]]
    assert [line.split()[1] for line in site.revoked] == ["k1"]


async def test_over_a_restart_of_the_supervisor_number_and_ids_stay(site: Site) -> None:
    for what in ("ack", "resumed"):
        async with site.supervisor() as process:
            await site.until(what, revision="1", stage="drained")
            process.send_signal(signal.SIGINT)
            assert await site.ended(process) == 0

    first, again = site.heard("policy")
    assert first == again


async def test_a_credential_that_the_sidecar_wants_is_supplied_at_once(site: Site) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        (id,) = site.heard("policy")[0]["credentials"]
        site.replace(site.fake / "want", id)
        await site.until("supplied", credentials=[id])
        await site.when(lambda: site.heard("credentials"))

    assert site.heard("credentials") == [{"type": "credentials", "credentials": {id: {"api_key": "k1:hunter2"}}}]


def test_of_policies_that_wait_for_the_pipe_the_newest_is_left_and_of_orders_all() -> None:
    child = Child(None)  # type: ignore[arg-type]  # nothing is written before the conversation
    older, newer = ({"type": "policy", "revision": number} for number in (1, 2))
    orders = [{"type": "action", "id": id} for id in "ab"]

    assert [child.send(message) for message in (older, *orders, newer)] == [[], [], [], [older]]


async def test_a_sidecar_that_says_nothing_for_too_long_is_killed_and_that_is_known() -> None:
    async def hear(_: Message | None) -> None: ...

    child = await Child.launch(["sleep", "60"], os.environ)

    assert (await child.converse(hear, lambda: 0.05), child.silent) == (-signal.SIGKILL, True)


async def test_nonsense_on_the_sidecars_standard_output_changes_nothing(site: Site) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        (site.fake / "new").write_bytes(b"\xff\nnull\n" + b"x" * (9 << 20) + b'\n{"type":"ack"}\n')
        (site.fake / "new").rename(site.fake / "say")
        await site.when(lambda: len(site.happened("garbled")) == 4)
        site.replace(site.secret, "k2:hunter2\n")
        await site.until("ack", revision="2", stage="drained")


async def test_a_nack_names_the_place_and_the_first_policy_that_is_refused_ends_it_with_78(site: Site) -> None:
    (site.fake / "refuse").write_text("invalid")
    async with site.supervisor() as process:
        line = await site.until("nack")
        assert await site.ended(process) == 78

    assert (line["errors"][0]["file"], line["errors"][0]["line"]) == (str(site.policy), 5)


async def test_a_policy_that_could_not_start_is_sent_again_and_its_credential_is_not_revoked(site: Site) -> None:
    (site.fake / "refuse").write_text("failed")
    async with site.supervisor():
        await site.until("nack")
        (site.fake / "refuse").unlink()
        await site.until("ack", revision="1", stage="drained")

    assert site.revoked == []


@pytest.mark.parametrize("runs", [True, False])
async def test_a_state_that_cannot_be_saved_does_not_hold_up_the_end(site: Site, runs: bool) -> None:
    site.arguments = ["--grace", "0s"]
    if not runs:
        (site.state / "supervise.json.new").mkdir()
    async with site.supervisor() as process:
        if runs:
            await site.until("ack", revision="1", stage="drained")
            (site.state / "supervise.json.new").mkdir()
            site.replace(site.policy, POLICY + "log_level: debug\n")
        await site.until("save_failed")
        process.send_signal(signal.SIGTERM)
        assert (await site.until("killed"))["reason"] == "the state cannot be saved"
        assert await site.ended(process) == 1


async def test_a_second_signal_stops_at_once(site: Site) -> None:
    async with site.supervisor() as process:
        pid = (await site.until("launched"))["pid"]
        await site.until("ack", stage="active")
        os.kill(pid, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        await site.until("stopping")
        process.send_signal(signal.SIGTERM)
        assert (await site.until("killed"))["reason"] == "a second signal"
        assert await site.ended(process) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_the_environment_of_the_sidecar_and_of_on_release_has_no_secret(site: Site) -> None:
    site.environment["ES_KEY"] = "k1:hunter2"
    site.policy.write_text(POLICY.replace("{file: es}", "{env: ES_KEY}"))
    site.on_release(f"env > {site.directory}/environment; echo $SHIPPER_CREDENTIAL_SOURCE >> {site.directory}/revoked")
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        pid = (await site.until("launched"))["pid"]
        environment = await trio.Path(f"/proc/{pid}/environ").read_bytes()
        site.policy.write_text(POLICY)
        site.replace(site.policy, POLICY.replace("main:", "other:"))
        site.replace(site.secret, "k2:hunter2\n")
        await site.until("revoked")

    assert b"hunter2" not in environment
    assert "hunter2" not in (site.directory / "environment").read_text()


async def test_status_names_a_released_key_that_nothing_revokes_until_that_comes_back(site: Site) -> None:
    """Over restarts, since nothing else remembers it."""
    site.program()
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.secret, "k2:hunter2\n")
        await site.until("released")
        await site.when(lambda: questions.ask(site.state, Status())["credentials"][-1]["released"])
        answer = questions.ask(site.state, Status())
        shown = await trio.run_process(
            [sys.executable, "-m", "shipper", "status", "--state", str(site.state)], capture_stdout=True
        )

    async with site.supervisor():
        await site.until("ready")
        later = questions.ask(site.state, Status())
        site.replace(site.secret, "k1:hunter2\n")
        await site.when(
            lambda: [one["name"] for one in questions.ask(site.state, Status())["credentials"]] == ["k1", "k2"]
        )

    assert [(one["name"], one["released"]) for one in answer["credentials"]] == [("k2", False), ("k1", True)]
    assert later["credentials"] == answer["credentials"]
    assert "  k1  it can be revoked now  " in shown.stdout.decode()


async def test_the_old_password_of_a_user_is_not_revoked_while_the_new_one_is_in_use_over_restarts_too(
    site: Site,
) -> None:
    """A backend ends a user by the name, and the new password with the old one."""
    site.replace(site.secret, "username: ann\npassword: old\n")
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.secret, "username: ann\npassword: new\n")
        waits = await site.until("release_waits", name="ann")
    async with site.supervisor():
        await site.until("release_waits", credential=waits["credential"], used=waits["used"])
        shown = await trio.run_process(
            [sys.executable, "-m", "shipper", "status", "--state", str(site.state)], capture_stdout=True
        )
        assert site.revoked == []
        site.replace(site.secret, "username: bob\npassword: other\n")
        await site.when(lambda: len(site.happened("revoked")) == 2)

    assert f"ann  waits: {waits['used']}, which is in use, has the name ann, too" in shown.stdout.decode()
    assert [line.split()[1] for line in site.revoked] == ["ann", "ann"]
    assert in_words("release_waits", waits)[0].endswith("to have it revoked, replace that one by one with another name")


async def test_status_answers_over_the_socket_and_shows_no_secret(site: Site) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        await site.when(lambda: questions.ask(site.state, Status())["observed"]["revisions"]["drained"] == [0, 1])
        answer = questions.ask(site.state, Status())
        shown = await trio.run_process(
            [sys.executable, "-m", "shipper", "status", "--state", str(site.state)], capture_stdout=True
        )

    assert answer["sidecar"]["state"] == "running"
    assert [one["units"] for one in answer["credentials"]] == [["outputs.main"]]
    assert b"outputs.main  elasticsearch  HEALTHY" in shown.stdout
    assert b"hunter2" not in shown.stdout + json.dumps(answer).encode()
    with pytest.raises(questions.NotRunning):
        questions.ask(site.state, Status())


ORDERS = [
    (
        ["rebind", "--from", "es-1", "--to", "es-2"],
        {"name": "rebind", "params": {"from": "es-1", "to": "es-2"}},
        {"released": ["es-1"]},
        "events that waited for es-1 are now delivered with es-2\nes-1 is released: it can be revoked now\n",
    ),
    (
        ["forward", "--revision", "6", "--output", "main"],
        {"name": "forward", "params": {"epoch": 0, "revision": 6, "output": "main"}},
        {"events": 77000, "released": ["es-1"]},
        "revision 6: 77,000 events forwarded to the current destination of output main\n"
        "es-1 is released: it can be revoked now\n",
    ),
    (
        ["dead-letter", "--revision", "6", "--output", "main"],
        {"name": "dead_letter", "params": {"epoch": 0, "revision": 6, "output": "main"}},
        {},
        "the waiting events of revision 6 of output main are in the dead-letter store\n",
    ),
    (
        ["drop", "--batch", "1207", "--output", "main"],
        {"name": "drop", "params": {"batch": 1207, "output": "main"}},
        {"events": 3},
        "the waiting events of batch 1207 (3 events) of output main are discarded\n",
    ),
    (
        ["drop", "--revision", "1:6"],
        {"name": "drop", "params": {"epoch": 1, "revision": 6}},
        {},
        "the waiting events of revision 1:6 are discarded\n",
    ),
    (
        ["dead-letters"],
        {"name": "dead_letters", "params": {"list": True, "after": 0}},
        {"dead_letters": [{"id": 7, "at": 0, "revision": [0, 6], "output": "main", "reason": "400 \x1b[31m"}]},
        "  revision 6  main  400 \ufffd[31m\n",
    ),
    (
        ["dead-letters", "--export", "all.ndjson"],
        {"name": "dead_letters", "params": {"export": "all.ndjson"}},
        {"exported": 3, "path": "/state/all.ndjson", "upto": 7},
        "3 dead letters are in /state/all.ndjson; once they are safe: --delete 7\n",
    ),
    (
        ["dead-letters", "--delete", "7"],
        {"name": "dead_letters", "params": {"delete": 7}},
        {"deleted": 3},
        "3 dead letters are deleted\n",
    ),
    (
        ["dead-letters", "--export", "all.ndjson", "--events"],
        {"name": "dead_letters", "params": {"export": "all.ndjson", "events": True}},
        {"exported": 0, "path": "/state/all.ndjson", "upto": 0},
        "0 dead letters are in /state/all.ndjson\n",
    ),
    (
        ["dead-letters", "requeue"],
        {"name": "dead_letters", "params": {"requeue": {}}},
        {"requeued": 3, "damaged": 0},
        "3 dead letters are in the queue again\n",
    ),
    (
        ["dead-letters", "requeue", "--output", "main", "--reason", "mapping", "--upto", "9", "--id", "7", "--id", "8"],
        {
            "name": "dead_letters",
            "params": {"requeue": {"output": "main", "reason": "mapping", "upto": 9, "ids": [7, 8]}},
        },
        {"requeued": 1, "damaged": 1},
        "1 dead letters are in the queue again; 1 are damaged, and stay\n",
    ),
]


async def test_an_order_reaches_the_sidecar_and_its_result_is_told_in_words(site: Site) -> None:
    async with site.supervisor():
        await site.until("ready")
        for arguments, action, result, told in ORDERS:
            (site.fake / "result").write_text(json.dumps({"status": "SUCCESS", "result": result}))
            ended = await site.order(*arguments)

            assert ended.returncode == 0, ended.stderr
            assert ended.stdout.decode().endswith(told)
            assert action.items() <= site.heard("action")[-1].items()


async def test_an_order_that_is_refused_exits_with_1_and_says_why(site: Site) -> None:
    refusal = {"status": "FAILED", "message": "nothing drains there", "code": "nothing_to_order"}
    (site.fake / "result").write_text(json.dumps(refusal))
    async with site.supervisor():
        await site.until("ready")
        plain = await site.order("drop", "--revision", "6")
        as_json = await site.order("drop", "--revision", "6", "--json")

    assert (plain.returncode, plain.stdout, plain.stderr) == (1, b"", b"Error: not done: nothing drains there\n")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout) == {**refusal, "result": {}}
    assert (await site.order("drop", "--revision", "six")).returncode == 2


@pytest.mark.parametrize(
    "arguments", [[], ["--batch", "7"], ["--output", "main"], ["--batch", "7", "--output", "main", "--revision", "6"]]
)
async def test_an_order_that_names_neither_a_drain_nor_a_batch_of_an_output_is_wrong_usage(
    site: Site, arguments: list[str]
) -> None:
    assert (await site.order("drop", *arguments)).returncode == 2


async def test_an_order_ends_with_the_sidecar_that_had_it_and_none_is_given_to_one_that_is_not_ready(
    site: Site,
) -> None:
    async with site.supervisor(), trio.open_nursery() as nursery:
        ended: list[bytes] = []

        async def order() -> None:
            ended.append((await site.order("drop", "--revision", "6")).stderr)

        pid = (await site.until("launched"))["pid"]
        await site.until("ready")
        nursery.start_soon(order)
        await site.when(lambda: site.heard("action"))
        (site.fake / "slow").touch()
        os.kill(pid, signal.SIGKILL)
        await site.when(lambda: ended)
        await site.when(lambda: len(site.happened("launched")) == 2)
        await order()

    assert b"the sidecar has ended" in ended[0]
    assert b"the sidecar takes no order now" in ended[1]
    assert b"no `shipper supervise` runs" in (await site.order("drop", "--revision", "6")).stderr


async def test_a_question_that_is_none_gets_no_answer(site: Site) -> None:
    async with site.supervisor():
        await site.until("ready")
        for raw in (b"", b"{}\n", b"\xff\n", b'{"ask":"order"}\n', b"x" * (1 << 17)):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(site.state / questions.NAME))
                peer.sendall(raw)
                peer.shutdown(socket.SHUT_WR)
                try:
                    assert peer.recv(1) == b""
                except ConnectionResetError:
                    continue


async def test_systemd_hears_ready_when_a_policy_is_active_and_stopping_at_the_end(site: Site, tmp_path: Path) -> None:
    site.environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(site.environment["NOTIFY_SOCKET"])
        manager.setblocking(False)
        heard: list[bytes] = []

        def hears(word: bytes) -> bool:
            while True:
                try:
                    heard.append(manager.recv(4096))
                except BlockingIOError:
                    return any(message.startswith(word) for message in heard)

        async with site.supervisor() as process:
            await site.when(lambda: hears(b"READY=1"))
            await site.when(lambda: hears(b"WATCHDOG=1"))
            process.send_signal(signal.SIGTERM)
            assert await site.ended(process) == 0
        assert hears(b"STOPPING=1")
        assert hears(b"EXTEND_TIMEOUT_USEC=15000000")
