"""What a person sees of a wait, on a terminal and elsewhere."""

import fcntl
import io
import os
import pty
import struct
import termios

from shipper.fleet.progress import shown
from tests.fleet.test_fleet_pictures import OLD, report, verdict


def test_elsewhere_each_change_is_one_line():
    stream = io.StringIO()
    with shown(stream) as show:
        show(verdict(report("web-1", OLD), report("web-2", OLD)), 0.0)
        show(verdict(report("web-1", OLD), report("web-2", OLD)), 1.0)
        show(verdict(report("web-1"), report("web-2", OLD)), 2.0)

    assert [text.split("; ")[1] for text in stream.getvalue().splitlines()] == [
        "0 of 2 reached, 2 waiting",
        "1 of 2 reached, 1 waiting",
    ]


def on_a_terminal(*verdicts, rows=12):
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
    os.set_blocking(leader, False)
    with (
        os.fdopen(leader, "rb", buffering=0) as screen,
        open(follower, "w", encoding="utf-8") as stream,
        shown(stream) as show,
    ):
        for each in verdicts:
            show(each, 83.0)
        return written(screen)


def written(screen):
    return b"".join(iter(lambda: screen.read(1 << 16) or b"", b"")).decode()


def test_a_wait_that_is_over_leaves_nothing_on_the_terminal_even_if_it_was_resized(monkeypatch):
    """A terminal wraps the lines that are wider than it is now, so nobody knows how many rows they take."""
    monkeypatch.setenv("TERM", "xterm")
    leader, follower = pty.openpty()
    os.set_blocking(leader, False)
    with os.fdopen(leader, "rb", buffering=0) as screen, open(follower, "w", encoding="utf-8") as stream:
        with shown(stream) as show:
            for columns in (80, 40):
                fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 12, columns, 0, 0))
                show(verdict(report("web-1", OLD)), 83.0)
        text = written(screen)

    assert text.startswith("\x1b[?1049h")
    assert text.rindex("\x1b[?1049l") > text.rindex("web-1")


def test_a_name_cannot_control_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = on_a_terminal(verdict(report("web\x1b[2Jx", OLD)))

    assert "web\x1b[2J" not in text
