"""What each peer is started with. Those that no registry offers are not run here: their text is checked instead."""

import itertools
from pathlib import Path

import pytest
import yaml

from tests.benchmarks.peers import PEERS
from tests.benchmarks.peers.peer import Job

PROGRAM = Path("/opt/peer/usr/sbin/program")
CASES = [
    (name, queue, compression)
    for name, peer in PEERS.items()
    for queue, compression in itertools.product(peer.queues, peer.compressions)
]
IN_YAML = {"shipper", "otelcol", "filebeat", "fluent-bit", "vector"}


@pytest.fixture
def job(tmp_path):
    def make(queue="memory", compression="none"):
        return Job(tmp_path / "access.log", 19200, tmp_path, queue, compression)

    return make


def text_of(name, job):
    return PEERS[name](PROGRAM).configuration(job)


def test_a_configuration_reads_the_log_and_sends_it_to_the_endpoint(job, tmp_path):
    for name, queue, compression in CASES:
        text = text_of(name, job(queue, compression))

        assert str(tmp_path / "access.log") in text
        assert "127.0.0.1" in text
        assert "19200" in text
        assert name not in IN_YAML or isinstance(yaml.safe_load(text), dict)


def test_a_program_that_cannot_be_run_is_a_fault_and_no_exception(tmp_path):
    program = tmp_path / "vector"
    program.write_text("no program")
    program.chmod(0o755)

    assert "Exec format error" in PEERS["vector"](program).fault()
