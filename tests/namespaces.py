"""Network namespaces as hosts of their own, and wires between them. Needs root, and iproute2.

A namespace lasts as long as a process in it: whatever happens to a test, nothing of it is left on the machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE = 60.0


class Namespace:
    """A host; made by `namespace`."""

    def __init__(self, holder: int) -> None:
        self._holder = holder

    @property
    def inside(self) -> list[str]:
        """What stands before a command that is to run here."""
        return ["nsenter", f"--net=/proc/{self._holder}/ns/net", "--"]

    def ip(self, *arguments: str) -> None:
        """Run ip(8) here."""
        command = [*self.inside, "ip", *arguments]
        ended = subprocess.run(command, timeout=_PATIENCE, capture_output=True, text=True)
        assert ended.returncode == 0, (arguments, ended.stderr)

    def wire(self, name: str, to: Namespace, own: str, other: str) -> Wire:
        """Lay a wire to another host; each end is an interface of this name, with an address such as 10.0.0.1/24."""
        self.ip("link", "add", name, "type", "veth", "peer", "name", name, "netns", str(to._holder))
        for host, address in ((self, own), (to, other)):
            host.ip("address", "add", address, "dev", name)
            host.ip("link", "set", name, "up")
        return Wire(to, name)


class Wire:
    """Between two hosts; it can be cut, which neither of them is told."""

    def __init__(self, far: Namespace, name: str) -> None:
        self._far, self._name = far, name

    def cut(self) -> None:
        """From now on nothing passes."""
        self._far.ip("link", "set", self._name, "down")

    def mend(self) -> None:
        """From now on it passes again."""
        self._far.ip("link", "set", self._name, "up")


@contextmanager
def namespace() -> Iterator[Namespace]:
    """A host without any interface but that of itself; what runs in it has to end within the block."""
    pipe = subprocess.PIPE
    command = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo && exec cat"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as holder:  # it ends when this end of the pipe is closed
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        yield Namespace(holder.pid)
