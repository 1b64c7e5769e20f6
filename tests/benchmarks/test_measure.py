"""The account of a run must be right for peers that err, or the comparison flatters them, or us."""

import os
import select
import sys
from pathlib import Path

import pytest

from tests.benchmarks import measure
from tests.benchmarks.job import CACHE, access_lines
from tests.benchmarks.peers.peer import Peer
from tests.benchmarks.sink import sink

pytestmark = pytest.mark.needs("cc", "libc6-dev", "zlib1g-dev")  # tests/benchmarks/sink.c
LINES = 200
SENDER = """
import json, signal, subprocess, sys, time, urllib.request
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
lines = open({log!r}).read().splitlines()
def send(lines):
    body = "".join('{{"create":{{}}}}\\n' + json.dumps({{"message": line}}) + "\\n" for line in lines)
    urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:{port}/_bulk", body.encode(), method="POST")).read()
{deed}
signal.pause()
"""
BUSY = "import time\nwhile time.process_time() < 0.5: pass"


class Sender(Peer):
    """A peer of a few lines that does as the test says."""

    name = binary = how_to_get = "sender"
    configuration_name = "sender.py"
    deed = "send(lines)"

    def configuration(self, job):
        return SENDER.format(log=str(job.log), port=job.port, deed=self.deed)

    def command(self, configuration, job):
        return [str(self.program), str(configuration)]


@pytest.fixture(scope="module")
def target():
    with sink() as running:
        yield running


@pytest.fixture
def ship(target, tmp_path):
    log = tmp_path / "access.log"
    log.write_text("".join(access_lines(LINES)))

    def ship_with(deed, **more):
        sender = Sender(Path(sys.executable))
        sender.deed = deed
        return measure.ship(sender, log, LINES, target, queue="memory", compression="none", **more)

    yield ship_with
    assert not list(CACHE.glob(f"state-{os.getpid()}-*"))


@pytest.mark.parametrize(
    ("deed", "faults"),
    [
        ("send(lines[3:]); sys.exit()", ["lost 3"]),
        ("send(lines[:10]); send(lines)", ["10 twice"]),
        ("send(lines[3:] + lines[3:6]); sys.exit()", ["lost 3", "3 twice"]),
        ("send(['no such line']); send(lines)", ["1 unreadable"]),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); send(lines)", ["exit status 3"]),
        ("print('cannot', flush=True); sys.exit(1)", ["lost 200", "exit status 1"]),
        ("signal.signal(signal.SIGTERM, signal.SIG_DFL); send(lines)", ["exit status -15"]),
    ],
)
def test_what_a_peer_did_wrong_is_said(ship, deed, faults):
    assert ship(deed).faults == faults


def test_the_time_of_children_is_counted(ship):
    run = ship(f"subprocess.run([sys.executable, '-c', {BUSY!r}], check=True); send(lines)")

    assert run.cpu > 0.5


def test_an_interrupt_leaves_no_process_and_no_file(ship, tmp_path):
    pids = tmp_path / "pids"
    deed = f"""
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(pids)!r}, "w").write(str(child.pid))
send(lines[:10])
"""

    def interrupt(distinct):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ship(deed, notice=interrupt)

    assert _is_gone(int(pids.read_text()))


def _is_gone(pid):
    """Whether a process has ended; it is waited for, since nobody here may reap it."""
    try:
        with open(os.pidfd_open(pid)) as process:
            return bool(select.select([process], [], [], 10)[0])
    except ProcessLookupError:
        return True
