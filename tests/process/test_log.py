"""The log as a process writes it: every test runs a real one and reads its standard error."""

import json
import os
import pty
import subprocess
import sys
import textwrap

import pytest

from shipper.process import log


def run(program, **more):
    code = "from shipper.process import log\n" + textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **more)


def lines(program):
    ended = run(program)
    assert ended.stdout == ""
    return [json.loads(line) for line in ended.stderr.splitlines()]


def test_an_event_is_one_ecs_object_a_line():
    (line,) = lines(
        """
        log.configure()
        log.get("shipper.pipeline.lane").info("resting", output="main", seconds=3, **{"file.path": "/var/log/x"})
        """
    )

    assert line.pop("@timestamp").endswith("Z")
    assert line.pop("service.version")
    assert line.pop("ecs.version")
    assert line == {
        "log.level": "info",
        "message": "resting",
        "service.name": "shipper",
        "log.logger": "shipper.pipeline.lane",
        "shipper.output": "main",
        "shipper.seconds": 3,
        "file.path": "/var/log/x",
    }


def test_the_level_can_be_changed_while_it_runs():
    seen = lines(
        """
        log.configure("warning")
        it = log.get("x")
        it.info("a"), it.warning("b")
        log.set_level("debug")
        it.debug("c")
        log.set_level("error")
        it.warning("d"), it.error("e")
        """
    )

    assert [line["message"] for line in seen] == ["b", "c", "e"]


def in_journal(arguments, **environment):
    """Returns what a program writes to a standard error that the environment names as the journal's."""
    reader, writer = os.pipe()
    there = os.fstat(writer)
    stream = {"JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino}"}
    with open(reader, "rb") as written:
        with open(writer, "wb") as error:
            subprocess.run(
                [sys.executable, *arguments], stderr=error, env={**os.environ, **stream, **environment}, timeout=60
            )
        return written.read().decode().splitlines()


LEVELS = """
from shipper.process import log
log.configure("debug")
it = log.get("x")
it.debug("a"), it.info("b"), it.warning("c"), it.error("d\\ne"), it.critical("f")
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_journal_gets_the_level_of_each_line(form):
    seen = in_journal(["-c", LEVELS], SHIPPER_LOG_FORMAT=form)

    assert [line[:3] for line in seen] == ["<7>", "<6>", "<4>", "<3>", "<2>"]


def test_a_pipe_that_is_not_the_journals_gets_no_marks():
    program = 'log.configure()\nlog.get("x").error("a")'

    assert run(program, env={**os.environ, "JOURNAL_STREAM": "8:1"}).stderr[0] == "{"


def test_what_ends_the_program_is_an_error_in_the_journal_too():
    (usage,) = in_journal(["-m", "shipper", "validate"])
    (absent,) = in_journal(["-m", "shipper", "status", "--state", "/no/state"])

    assert usage == "<3>shipper: Missing argument 'FILE...'."
    assert absent.startswith("<3>shipper: --state /no/state: ")


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="debug, info, warning"):
        log.set_level("loud")


def test_libraries_warnings_and_uncaught_exceptions_are_in_the_same_format():
    seen = lines(
        """
        import logging, threading, warnings
        log.configure()
        logging.getLogger("aiohttp").warning("lost %s", "it")
        logging.getLogger("aiohttp").info("not worth it")
        logging.getLogger("aiohttp").error("bad arguments %d", "x")
        warnings.warn("old")
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start(), thread.join()
        class Bad:
            def __del__(self): raise KeyError("deleted")
        Bad()
        raise RuntimeError("the end")
        """
    )

    assert [line["log.level"] for line in seen] == ["warning", "error", "warning", "error", "error", "critical"]
    assert seen[0]["message"] == "lost it"
    assert seen[0]["log.logger"] == "aiohttp"
    assert seen[1]["message"] == "bad arguments %d"
    assert "UserWarning: old" in seen[2]["message"]
    assert [line["error.type"] for line in seen[3:]] == ["ZeroDivisionError", "KeyError", "RuntimeError"]
    assert "the end" in seen[5]["error.stack_trace"]


def test_a_hidden_text_is_written_nowhere():
    pem = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\nByqGSM49AgEG\n-----END PRIVATE KEY-----\n"
    ended = run(
        f"""
        import logging
        log.configure()
        log.hide("id:s3cr3t")
        log.hide("id:s3cr3t-and-longer")
        log.hide({pem!r})
        it = log.get("x")
        it.info("sent id:s3cr3t", header={{"Authorization": ["id:s3cr3t"]}}, **{{"id:s3cr3t": 1}})
        it.info("sent id:s3cr3t-and-longer")
        it.info("key", key={pem!r}, shown=repr({pem!r}))
        logging.getLogger("lib").warning("lib %s", "id:s3cr3t")
        try:
            raise ValueError("refused id:s3cr3t")
        except ValueError:
            it.exception("failed")
        """
    )

    assert ended.stderr.count("[hidden]") >= 8
    for secret in ("s3cr3t", "and-longer", "MIGHAgEAMBMG", "ByqGSM49AgEG"):
        assert secret not in ended.stderr


def test_a_traceback_shows_no_values_of_variables():
    ended = run(
        """
        log.configure()
        def send(payload):
            raise ValueError("refused")
        try:
            send("the text " + "of an event")
        except ValueError:
            log.get("x").exception("failed")
        """
    )

    assert "the text of an event" not in ended.stderr


def test_odd_values_never_break_a_line():
    seen = lines(
        r"""
        log.configure()
        log.get("x").info("a\nb", name="\udcff", big=2**80, odd=object, nan=float("nan"), raw=b"\xff", percent="100%")
        log.get("x").info("x" * 100_000, **{"error.message": "y" * 100_000})
        """
    )

    assert seen[0]["message"] == "a\nb"
    assert seen[0]["shipper.big"] == str(2**80)
    assert len(seen[1]["message"]) == 2000
    assert seen[1]["shipper.cut_bytes"] > 200_000


def test_a_reader_that_stops_costs_lines_and_no_time():
    """Ten thousand lines into a pipe that nobody reads; when it is read again, the loss is told."""
    program = """
    import os, time, sys
    from shipper.process import log
    log.configure()
    it = log.get("x")
    start = time.monotonic()
    for number in range(10_000):
        it.info("line", number=number)
    print(time.monotonic() - start, flush=True)
    sys.stdin.readline()
    it.info("again")
    log.flush(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        seconds = float(process.stdout.readline())
        _, errors = process.communicate(b"\n", timeout=60)
    written = [json.loads(line) for line in errors.splitlines()]
    dropped = sum(line.get("shipper.dropped", 0) for line in written)
    kept = sum(line["message"] == "line" for line in written)

    assert seconds < 30
    assert dropped > 1000
    again = sum(line["message"] == "again" for line in written)
    assert kept + again + dropped == 10_001


def test_the_end_of_the_process_does_not_wait_for_a_reader():
    read, write = os.pipe()
    try:
        program = "from shipper.process import log\nlog.configure()\nfor _ in range(3000): log.get('x').info('line')"
        process = subprocess.Popen([sys.executable, "-c", program], stderr=write)
        assert process.wait(60) == 0
    finally:
        os.close(read)
        os.close(write)


def test_a_closed_standard_error_ends_nothing():
    ended = run("log.configure(); log.get('x').info('a'); log.flush(); print('on')", preexec_fn=lambda: os.close(2))

    assert (ended.stdout, ended.returncode) == ("on\n", 0)


def on_a_terminal(program, **variables):
    primary, secondary = pty.openpty()
    try:
        absent = ("NO_COLOR", log.FORMAT)
        environment = {name: value for name, value in os.environ.items() if name not in absent} | variables
        program = f"from shipper.process import log\nlog.configure()\n{program}"
        subprocess.run([sys.executable, "-c", program], stderr=secondary, timeout=60, check=True, env=environment)
        return os.read(primary, 65536).decode()
    finally:
        os.close(primary)
        os.close(secondary)


def test_foreign_text_cannot_steer_a_terminal():
    text = on_a_terminal(r"log.get('x').warning('a\x1b[2Jb', path='/c\nd')", NO_COLOR="1")

    assert text.rstrip().endswith("a\ufffd[2Jb path=/c\ufffdd")


def test_the_environment_chooses_the_format():
    program = "log.configure(); log.get('x').info('a')"
    piped = run(program, env={**os.environ, log.FORMAT: "text"}).stderr
    shown = on_a_terminal("log.get('x').info('a')", **{log.FORMAT: "json"})

    assert piped.rstrip().endswith("info     a")
    assert json.loads(shown)["message"] == "a"


def test_a_format_that_there_is_not_is_refused():
    ended = run(
        "from shipper.__main__ import main; main(['run', '--state', 's'])", env={**os.environ, log.FORMAT: "xml"}
    )

    assert (ended.returncode, ended.stderr) == (78, "shipper: $SHIPPER_LOG_FORMAT is `xml`; write json or text\n")
