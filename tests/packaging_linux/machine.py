"""A Debian that systemd has booted, in a container of systemd-nspawn.

Its files lie, as an overlay in memory, above a small installation that mmdebstrap makes once, under `~/.cache`. It has
the network of the host, and its own processes, users, cgroups and journal. `run` executes commands of root in it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.backends.debian import BOOTED

PATIENCE = 240.0
REBOOT = 133
"""The exit status by which systemd-nspawn asks to be run again, if it is a part of another unit."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base() -> Path:
    """Returns a directory with the installation, which nothing boots itself."""
    return BOOTED.prepare()


class Machine:
    """`root` is its root directory, as seen from here."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Returns when systemd has started everything."""
        command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe"]
        # Not /run of the host, and nothing of its configuration.
        command += ["--link-journal=no", "--resolv-conf=off", "--timezone=off"]
        command += [f"--directory={self.root}", f"--machine=shipper-{os.getpid()}"]
        with (self.root.parent / "console").open("ab") as console:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        until(self._is_booted, "the machine boots")

    def _is_booted(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.root.parent / "console").read_text(errors="replace")
        with suppress(subprocess.SubprocessError, LookupError, OSError):
            return self._inside("systemctl is-system-running", 60).stdout in ("running\n", "degraded\n")
        return False

    def run(self, text: str) -> str:
        """Executes commands of a shell; returns their standard output, and fails as they do."""
        ended = self._inside(text, PATIENCE)
        assert ended.returncode == 0, f"{text}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def reboot(self) -> None:
        """Returns when systemd has started everything again."""
        assert self._process is not None
        self.run("systemctl reboot")
        assert self._process.wait(PATIENCE) == REBOOT
        self.boot()

    def off(self) -> None:
        """Ends all of its processes at once."""
        if self._process is None:
            return
        with suppress(LookupError, ProcessLookupError):
            os.kill(self._leader(), signal.SIGKILL)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _inside(self, text: str, seconds: float) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", f"--target={self._leader()}", "--all", "env", "-i", f"PATH={PATH}", "LANG=C.UTF-8"]
        command = [*enter, "sh", "-euc", f"cd /root\n{text}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)

    def _leader(self) -> int:
        """Returns the process that is number 1 in there; raises LookupError while there is none."""
        assert self._process is not None
        with suppress(OSError, LookupError):
            return int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0])
        raise LookupError("no systemd runs")


@contextmanager
def booted(directory: Path) -> Iterator[Machine]:
    """A machine of its own, mounted in `directory` while it runs."""
    root, memory = directory / "root", directory / "memory"
    above, work = memory / "above", memory / "work"
    layers = f"lowerdir={base()},upperdir={above},workdir={work}"
    root.mkdir()
    memory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(memory)], check=True, timeout=60)
    above.mkdir()
    work.mkdir()
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", str(root)], check=True, timeout=60)
    machine = Machine(root)
    try:
        machine.boot()
        yield machine
    finally:
        machine.off()
        subprocess.run(["umount", "--lazy", str(root), str(memory)], check=True, timeout=60)


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for a condition of another process, which has no event for it."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, f"never: {what}"
        time.sleep(0.1)
