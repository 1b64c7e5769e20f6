"""The command line as a process: what it says, its exit status, and how little it imports."""

import json
import os
import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from shipper import __main__ as program
from shipper import commands
from shipper.__main__ import FOR_MACHINES, FOR_PEOPLE
from shipper.sdk.errors import OptionError, PolicyError, Problem, ShipperError, StartFailed, StateBusy, StateLocked


def run(*arguments, **more):
    more = {"capture_output": True} | more
    return subprocess.run([sys.executable, "-m", "shipper", *arguments], text=True, timeout=60, **more)


def test_nothing_of_a_verb_is_imported_before_it_is_chosen():
    """A supervisor waits for the first line of `run`: aiohttp alone would take 0.2 s."""
    check = "import sys, shipper.__main__; print([m for m in ('trio', 'aiohttp', 'rich', 'yaml') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)

    assert ended.stdout == "[]\n"


_INTERRUPTED = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""


def test_a_ctrl_c_during_the_imports_leaves_no_traceback():
    check = f"{_INTERRUPTED}\nimport shipper.__main__"
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_an_ignored_ctrl_c_stays_ignored_and_another_one_is_an_exception_after_the_imports():
    look = "import signal, shipper.__main__; print(signal.getsignal(signal.SIGINT).name)"
    ignored = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN){_INTERRUPTED}\n{look}"
    ended = subprocess.run([sys.executable, "-c", ignored], capture_output=True, text=True, timeout=60)

    assert ended.stdout == "SIG_IGN\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_every_verb_of_the_table_has_its_module():
    for verb in [*FOR_PEOPLE, *FOR_MACHINES]:
        ended = run(verb, "--help")

        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith(f"Usage: shipper {verb}")


@pytest.mark.parametrize("arguments", [["nope"], ["--nope"], ["demo", "--seconds", "nan"], ["demo", "--every", "inf"]])
def test_wrong_usage_exits_2_and_shows_the_way_to_help(arguments):
    ended = run(*arguments)

    assert ended.returncode == 2
    assert "--help" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_unset_variable_is_never_taken_for_all_or_for_here():
    for arguments, named in [
        (["order", "drop", "--revision", "1", "--output", "", "--state", "s"], "--output"),
        (["order", "drop", "--revision", "1", "--output=", "--state", "s"], "--output="),
        (["status", "--state", ""], "--state"),
        (["supervise", "policy.yaml", "--state="], "--state="),
        (["run", "--state", ""], "--state"),
        (["validate", ""], "an argument"),
    ]:
        ended = run(*arguments)

        assert ended.returncode == 2
        assert f"Error: {named} is empty (an unset variable?)" in ended.stderr


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OptionError("--state: not a directory"), 78),
        (PolicyError([Problem("outputs", 1, 1, "none")]), 78),
        (StateLocked("sealed by other keys"), 78),
        (StateBusy("another process owns it"), 75),
        (StartFailed("the port is taken"), 1),
        (ShipperError("it is wrong"), 1),
        (ExceptionGroup("nursery", [ExceptionGroup("inner", [StateBusy("another process owns it")])]), 75),
        (FileNotFoundError(2, "No such file or directory", "policy.yaml"), 74),
    ],
)
def test_an_error_of_a_contract_is_one_line_and_a_status(error, status, monkeypatch, capsys):
    def fail():
        raise error

    monkeypatch.setattr(program.shipper, "get_command", lambda ctx, name: click.Command(name, callback=fail))
    with pytest.raises(SystemExit) as ended:
        program.main(["run"])
    said = capsys.readouterr().err

    assert ended.value.code == status
    assert said.startswith("shipper: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("nursery", [KeyboardInterrupt()])])
def test_an_interrupt_is_quiet(error, monkeypatch, capsys):
    def fail():
        raise error

    monkeypatch.setattr(program.shipper, "get_command", lambda ctx, name: click.Command(name, callback=fail))
    with pytest.raises(SystemExit) as ended:
        program.main(["run"])

    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == ""


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail():
        raise ExceptionGroup("nursery", [KeyError("x"), StateBusy("y")])

    monkeypatch.setattr(program.shipper, "get_command", lambda ctx, name: click.Command(name, callback=fail))
    with pytest.raises(ExceptionGroup):
        program.main(["run"])


def test_a_reader_that_left_is_no_reason_for_a_traceback():
    read, write = os.pipe()
    os.close(read)
    try:
        ended = run("--version", capture_output=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)

    assert ended.stderr == ""
    assert ended.returncode != 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_told_in_one_line():
    with open("/dev/full", "w") as full:
        ended = run("--version", capture_output=False, stdout=full, stderr=subprocess.PIPE)

    assert ended.returncode == 74
    assert ended.stderr == "shipper: standard output or another channel: No space left on device\n"


@pytest.mark.parametrize(
    ("verb", "logs"),
    [
        (["status"], False),
        (["order", "dead-letters"], False),
        (["supervise", "p.yaml", "--text"], False),
        (["supervise", "p.yaml"], True),
        (["run"], True),
    ],
)
def test_a_state_that_is_no_directory_is_told_in_one_line_which_is_one_of_the_log_where_that_is_kept(
    verb, logs, tmp_path
):
    """Where lines are collected, one that is no JSON is lost, or breaks the reader."""
    file = tmp_path / "file"
    file.write_text("mine")
    ended = run(*verb, "--state", str(file), stdin=subprocess.DEVNULL)

    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (78, "", 1)
    said = json.loads(ended.stderr)["message"] if logs else ended.stderr.removeprefix("shipper: ").strip()
    assert said == f"--state {file}: not a directory"
    assert file.read_text() == "mine"


@pytest.mark.parametrize("verb", [["status"], ["supervise", "p.yaml"], ["order", "dead-letters"]])
def test_a_directory_that_this_user_may_not_read_is_no_wrong_usage(verb, tmp_path, monkeypatch, capsys):
    """For `status` 2 would be: failed. And a service that ends by 2 is not started again."""
    reached = []
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    command = program.shipper.get_command(None, verb[0])
    command = command.commands[verb[1]] if verb[0] == "order" else command
    monkeypatch.setattr(command, "callback", lambda **_: reached.append(verb))
    with pytest.raises(SystemExit) as ended:
        program.main([*verb, "--state", str(tmp_path)])

    assert (ended.value.code, reached, capsys.readouterr().err) == (0, [verb], "")


def test_an_order_that_is_not_utf_8_is_wrong_usage(tmp_path):
    ended = run(b"order", b"drop", b"--revision", b"1", b"--output", b"\xff", b"--state", bytes(tmp_path))

    assert ended.returncode == 2
    assert "the values of an order must be UTF-8" in ended.stderr


def test_names_in_an_error_do_not_steer_a_terminal(monkeypatch, capfd):
    def fail():
        raise OptionError("--state a\x1b]0;b\x07: not a directory")

    monkeypatch.setattr(program.shipper, "get_command", lambda ctx, name: click.Command(name, callback=fail))
    monkeypatch.setattr(click, "echo", lambda text, err: os.write(2, text.encode()))
    with pytest.raises(SystemExit):
        program.main(["status"])

    assert capfd.readouterr().err == "shipper: --state a\ufffd]0;b\ufffd: not a directory"


def test_orders_for_dead_letters_that_do_not_go_together_are_refused():
    for arguments, told in [
        ([], "Missing option '--state'"),
        (["requeue"], "Missing option '--state'"),
        (["--state", "s", "requeue", "--state", "s"], "write the options after `requeue`"),
        (["--export", "x", "requeue", "--state", "s"], "write the options after `requeue`"),
        (["--events", "--state", "s"], "--events goes with --export"),
        (["--export", "x", "--delete", "3", "--state", "s"], "two orders"),
    ]:
        ended = run("order", "dead-letters", *arguments)

        assert ended.returncode == 2
        assert told in ended.stderr


@pytest.mark.parametrize(
    "verb", [["status"], ["top", "--once"], ["tap"], ["order", "dead-letters"], ["fleet", "leave"]]
)
def test_a_running_shipper_is_asked_at_the_directory_of_the_environment_then_at_that_of_the_service(
    verb, tmp_path, monkeypatch
):
    monkeypatch.setattr(commands, "SERVICE", tmp_path / "service")
    runner = CliRunner()
    neither = runner.invoke(program.shipper, verb)
    (tmp_path / "service").mkdir()
    by_service = runner.invoke(program.shipper, verb)
    by_variable = runner.invoke(program.shipper, verb, env={"SHIPPER_STATE": str(tmp_path / "other")})

    assert (neither.exit_code, "Missing option '--state'" in neither.output) == (2, True)
    assert f"{tmp_path / 'service'}" in str(by_service.exception)
    assert f"{tmp_path / 'other'}" in str(by_variable.exception)


def test_the_process_is_called_after_the_program():
    look = "m._run = lambda _: print(open('/proc/self/comm').read())"
    check = f"from shipper import __main__ as m; {look}; m.main()"
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)

    assert ended.stdout.strip() == "shipper"


def test_a_verb_that_is_mistyped_is_named():
    ended = run("statsu")

    assert ended.returncode == 2
    assert "Did you mean 'status'?" in ended.stderr


def test_the_version_is_told_by_either_option():
    assert run("-V").stdout == run("--version").stdout != ""
