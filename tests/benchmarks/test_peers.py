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


@pytest.mark.parametrize(("name", "queue", "compression"), CASES)
def test_a_configuration_reads_the_log_and_sends_it_to_the_endpoint(job, tmp_path, name, queue, compression):
    text = text_of(name, job(queue, compression))

    assert str(tmp_path / "access.log") in text
    assert "127.0.0.1" in text
    assert "19200" in text
    assert name not in IN_YAML or isinstance(yaml.safe_load(text), dict)


@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if len(peer.queues) > 1])
def test_each_queue_is_another_configuration(job, name):
    texts = {text_of(name, job(queue)) for queue in PEERS[name].queues}

    assert len(texts) == len(PEERS[name].queues)


@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if "gzip" in peer.compressions])
def test_compression_is_configured_where_it_is_offered(job, name):
    queue = PEERS[name].queues[0]

    assert text_of(name, job(queue, "gzip")) != text_of(name, job(queue, "none"))


@pytest.mark.parametrize("name", sorted(PEERS.keys() - {"shipper"}))
def test_a_launch_writes_the_configuration_and_names_it(job, tmp_path, name):
    launch = PEERS[name](PROGRAM).launch(job("disk"))
    path = tmp_path / PEERS[name].configuration_name

    assert launch.command[0] == str(PROGRAM)
    assert any(str(path) in argument for argument in launch.command[1:])
    assert path.read_text() == text_of(name, job("disk"))


def test_filebeat_keeps_its_state_where_it_is_told(job, tmp_path):
    filebeat = PEERS["filebeat"](PROGRAM)
    command = filebeat.command(tmp_path / "filebeat.yml", job("disk"))

    assert command[1:3] == ["run", "-e"]
    assert f"--path.data={tmp_path}/data" in command
    assert yaml.safe_load(filebeat.configuration(job("disk")))["queue"] == {"disk": {"max_size": "8GB"}}


def test_filebeat_compresses_when_told_so_only(job):
    levels = [
        yaml.safe_load(text_of("filebeat", job("memory", how)))["output.elasticsearch"] for how in ("none", "gzip")
    ]

    assert [level["compression_level"] for level in levels] == [0, 1]


def test_vector_waits_for_acknowledgements_with_a_disk_buffer(job):
    sinks = [yaml.safe_load(text_of("vector", job(queue)))["sinks"]["sink"] for queue in ("memory", "disk")]

    assert [sink["buffer"]["type"] for sink in sinks] == ["memory", "disk"]
    assert [sink["acknowledgements"]["enabled"] for sink in sinks] == [False, True]


def test_fluent_bit_reads_answers_of_any_size_and_syncs_when_told_so(job):
    texts = [yaml.safe_load(text_of("fluent-bit", job(queue))) for queue in ("memory", "disk", "synced")]

    assert [text["service"]["storage.sync"] for text in texts] == ["normal", "normal", "full"]
    assert [text["pipeline"]["inputs"][0]["storage.type"] for text in texts] == ["memory", "filesystem", "filesystem"]
    assert all(text["pipeline"]["outputs"][0]["buffer_size"] is False for text in texts)


def test_the_collector_keeps_its_queue_in_a_file_unless_it_is_a_memory_queue(job):
    texts = [yaml.safe_load(text_of("otelcol", job(queue))) for queue in ("memory", "disk", "synced")]

    assert [text["exporters"]["otlphttp"]["sending_queue"].get("storage") for text in texts] == [
        None,
        "file_storage",
        "file_storage",
    ]
    assert [text["extensions"]["file_storage"]["fsync"] for text in texts] == [False, False, True]


def test_a_program_that_cannot_be_run_is_a_fault_and_no_exception(tmp_path):
    program = tmp_path / "vector"
    program.write_text("no program")
    program.chmod(0o755)

    assert "Exec format error" in PEERS["vector"](program).fault()
