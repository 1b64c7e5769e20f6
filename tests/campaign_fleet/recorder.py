"""Runs a sidecar, and records what it hears and says; a program: `recorder.py TRANSCRIPT PROGRAM ARGUMENT…`.

A line of the transcript is the instant of CLOCK_MONOTONIC, `<` (heard) or `>` (said), and the message. It is written
before the message goes on, so that nobody acts on a message before its instant. The program dies with this one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
CHUNK = 1 << 16


def main() -> None:
    """Runs the program to its end, and ends in the same way."""
    path, *command = sys.argv[1:]
    transcript = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(transcript, b"\n")
    libc = ctypes.CDLL(None)
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    )
    assert child.stdin is not None
    assert child.stdout is not None
    hearing = (transcript, b"<", 0, child.stdin.fileno())
    threading.Thread(target=pass_on, args=hearing, daemon=True).start()
    pass_on(transcript, b">", child.stdout.fileno(), 1)
    status = child.wait()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def pass_on(transcript: int, mark: bytes, source: int, to: int) -> None:
    """Passes everything on, whole lines to the transcript first, until one side ends; then the other end is closed."""
    rest = b""
    try:
        while chunk := os.read(source, CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                os.write(transcript, b"%.6f %s %s\n" % (time.monotonic(), mark, line))
            while chunk:
                chunk = chunk[os.write(to, chunk) :]
    except OSError:
        pass
    for end in (source, to):
        os.close(end)


if __name__ == "__main__":
    main()
