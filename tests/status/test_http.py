"""The status server, asked over real sockets."""

import json
import socket
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection

import pytest
import trio

from shipper.sdk.aio import open_asyncio
from shipper.sdk.errors import OptionError
from shipper.status import http
from shipper.status.http import parse_address, readiness, serve_status

HEALTHY = {
    "state": "HEALTHY",
    "message": "",
    "revisions": {"received": [0, 7], "active": [0, 7], "drained": [1, 6]},
    "draining": [{"epoch": 0, "revision": 6, "events": 812, "outputs": {"main": {"events": 812, "reason": "401"}}}],
    "units": [
        {
            "id": "inputs.logs",
            "kind": "input",
            "type": "file",
            "state": "HEALTHY",
            "message": "",
            "figures": {"files": 3, "unread_bytes": 120},
        },
        {
            "id": "outputs.main",
            "kind": "output",
            "type": "elasticsearch",
            "state": "HEALTHY",
            "message": "",
            "code": "ok",
        },
    ],
    "queue": {"events": 812, "bytes": 402113, "limit_bytes": 1 << 30, "disk_bytes": 500000, "oldest_seconds": 3.2},
    "dead_letters": {"events": 2, "bytes": 300, "limit_bytes": 900},
    "credentials_wanted": ["es-1"],
    "past_deadline": True,
    "counters": {
        "main": {"delivered": 9, "duplicate": 1, "dead_letter": 2, "dropped": 0, "retries": 4, "letters_dropped": 6}
    },
    "turned_away": {"apps": 12},
    "outputs": {
        "main": {
            "requests": 9,
            "responses": {"200": 5, "401": 2},
            "failures": {"timeout": 2},
            "seconds": 121.5,
            "buckets": [5, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            "held": True,
            "next_attempt_seconds": 7.5,
        }
    },
    "inputs": {"apps": {"events": 900, "bytes": 80000, "filtered": 3, "failures": 4}},
    "plugins": {
        "inputs.logs": {
            "lost": {"kind": "counter", "help": "Lost.", "value": 3},
            "size": {"kind": "histogram", "help": "Size.", "sum": 7.5, "buckets": [["1.0", 1], ["+Inf", 3]]},
        },
        "inputs.more": {"peers": {"kind": "gauge", "help": "Peers.", "value": 2.0}},
        "outputs.main": {
            "lost": {"kind": "counter", "help": "Others.", "value": 4},
            "peers": {"kind": "counter", "help": "Of another kind.", "value": 5},
        },
    },
    "supervisor": {"troubles": [{"kind": "policy"}, {"kind": "x{}\n"}], "unrevoked": 2, "restarts": 3},
}


def get(address: str, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    host, port = parse_address(address)
    connection = HTTPConnection(host, port, timeout=60)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


async def ask(address: str | None, path: str, **more: object) -> tuple[int, bytes]:
    assert address is not None
    with trio.fail_after(60):
        return await trio.to_thread.run_sync(lambda: get(address, path, **more))


async def test_a_healthy_shipper_is_live_and_ready_and_shows_its_status():
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: HEALTHY) as address:
        assert (await ask(address, "/livez"))[0] == 200
        assert (await ask(address, "/readyz"))[0] == 200
        status, body = await ask(address, "/status")

    assert status == 200
    assert json.loads(body) == HEALTHY


async def test_the_status_is_that_of_the_moment_and_is_asked_in_trio():
    seen = []

    def status():
        seen.append(threading.current_thread())
        return {"state": "HEALTHY", "message": str(len(seen))}

    async with open_asyncio() as aio, serve_status(aio, ":0", status) as address:
        answers = [json.loads((await ask(address, "/status"))[1])["message"] for _ in range(3)]

    assert answers == ["1", "2", "3"]
    assert set(seen) == {threading.current_thread()}


async def test_an_unready_shipper_answers_503_with_the_reason():
    failed = {"state": "FAILED", "message": "the disk is gone", "revisions": {"active": [0, 1]}}
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: failed) as address:
        status, body = await ask(address, "/readyz")

    assert status == 503
    assert json.loads(body) == {"ready": False, "reason": "FAILED: the disk is gone"}


def test_ready_means_that_a_policy_takes_events_in_however_well():
    """A revision that was active in an earlier process takes none; one that is prepared stops none."""
    for state, running, ready in [
        ("HEALTHY", True, True),
        ("DEGRADED", True, True),
        ("CONFIGURING", True, True),
        ("DEGRADED", False, False),
        ("CONFIGURING", False, False),
        ("STARTING", False, False),
        ("FAILED", True, False),
        ("STOPPING", True, False),
    ]:
        assert readiness({"state": state, "running": running, "revisions": {"active": [0, 1]}}) == (ready, state)


async def test_metrics_say_what_the_status_says():
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: HEALTHY) as address:
        status, body = await ask(address, "/metrics")
    lines = body.decode().splitlines()

    assert status == 200
    for line in (
        "shipper_queue_events 812.0",
        "shipper_queue_disk_bytes 500000.0",
        "shipper_dead_letters_bytes 300.0",
        "shipper_dead_letters_limit_bytes 900.0",
        'shipper_dropped_dead_letters_total{output="main"} 6.0',
        'shipper_draining_events{epoch="0",output="main",revision="6"} 812.0',
        "shipper_drain_past_deadline 1.0",
        'shipper_events_total{outcome="delivered",output="main"} 9.0',
        'shipper_events_total{outcome="dead_letter",output="main"} 2.0',
        'shipper_retries_total{output="main"} 4.0',
        'shipper_turned_away_total{input="apps"} 12.0',
        'shipper_output_responses_total{code="401",output="main"} 2.0',
        'shipper_output_failures_total{output="main",reason="timeout"} 2.0',
        'shipper_output_failures_total{output="main",reason="tls"} 0.0',
        'shipper_output_request_seconds_bucket{le="0.005",output="main"} 5.0',
        'shipper_output_request_seconds_bucket{le="60.0",output="main"} 7.0',
        'shipper_output_request_seconds_bucket{le="+Inf",output="main"} 9.0',
        'shipper_output_request_seconds_count{output="main"} 9.0',
        'shipper_output_request_seconds_sum{output="main"} 121.5',
        'shipper_output_held{output="main"} 1.0',
        'shipper_output_next_attempt_seconds{output="main"} 7.5',
        'shipper_input_events_total{input="apps"} 900.0',
        'shipper_input_bytes_total{input="apps"} 80000.0',
        'shipper_input_filtered_total{input="apps"} 3.0',
        'shipper_input_failures_total{input="apps"} 4.0',
        "# HELP shipper_plugin_lost_total Lost.",
        'shipper_plugin_lost_total{unit="inputs.logs"} 3.0',
        'shipper_plugin_lost_total{unit="outputs.main"} 4.0',
        'shipper_plugin_size_bucket{le="1.0",unit="inputs.logs"} 1.0',
        'shipper_plugin_size_bucket{le="+Inf",unit="inputs.logs"} 3.0',
        'shipper_plugin_size_sum{unit="inputs.logs"} 7.5',
        'shipper_plugin_peers{unit="inputs.more"} 2.0',
        'shipper_supervisor_troubles{kind="policy"} 1.0',
        'shipper_supervisor_troubles{kind="other"} 1.0',
        'shipper_supervisor_troubles{kind="on_release"} 0.0',
        "shipper_supervisor_unrevoked_credentials 2.0",
        "shipper_supervisor_restarts_total 3.0",
        'shipper_revision{stage="drained"} 6.0',
        'shipper_epoch{stage="drained"} 1.0',
        'shipper_state{state="HEALTHY"} 1.0',
        'shipper_state{state="FAILED"} 0.0',
        'shipper_unit_state{code="ok",state="HEALTHY",type="elasticsearch",unit="outputs.main"} 1.0',
        "shipper_credentials_wanted 1.0",
        'shipper_input_files{input="logs"} 3.0',
        'shipper_input_unread_bytes{input="logs"} 120.0',
    ):
        assert line in lines
    process = {line.split()[0] for line in lines if line.startswith("process_")}
    assert process >= {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"}


async def test_metrics_say_what_is_left_of_a_lease_if_one_is_needed():
    said = {}
    for seconds in (None, 7.5, 0.0):
        view = {**HEALTHY, "lease_seconds": seconds}
        async with open_asyncio() as aio, serve_status(aio, ":0", lambda view=view: view) as address:
            _, body = await ask(address, "/metrics")
        said[seconds] = [line for line in body.decode().splitlines() if line.startswith("shipper_lease_seconds")]

    assert said == {None: [], 7.5: ["shipper_lease_seconds 7.5"], 0.0: ["shipper_lease_seconds 0.0"]}


async def test_metrics_of_a_shipper_without_a_policy_are_valid():
    empty = {"state": "STARTING", "revisions": {"received": None, "active": None, "drained": None}}
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: empty) as address:
        status, body = await ask(address, "/metrics")

    assert status == 200
    assert b'shipper_state{state="STARTING"} 1.0' in body


async def test_a_trio_loop_that_hangs_is_not_alive(monkeypatch):
    """The probe must get an answer exactly when the shipper gives none."""
    monkeypatch.setattr(http, "_ANSWER_SECONDS", 0.2)
    answers = []
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: HEALTHY) as address:
        assert address is not None
        probe = threading.Thread(target=lambda: answers.append(get(address, "/livez")[0]))
        probe.start()
        deadline = time.monotonic() + 60
        while not answers and time.monotonic() < deadline:
            time.sleep(0.01)  # noqa: ASYNC251  blocking trio is the point
        probe.join(60)
        monkeypatch.undo()
        assert (await ask(address, "/livez"))[0] == 200

    assert answers == [503]


async def test_nothing_can_be_changed_by_http():
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: HEALTHY) as address:
        answers = [(await ask(address, "/status", method=method))[0] for method in ("POST", "PUT", "DELETE")]

    assert answers == [405, 405, 405]


async def test_a_taken_port_costs_the_server_and_nothing_else():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with open_asyncio() as aio, serve_status(aio, address, lambda: HEALTHY) as bound:
            assert bound is None


async def test_connections_that_say_nothing_do_not_keep_others_out(monkeypatch):
    monkeypatch.setattr(http, "_CONNECTIONS", 4)
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: HEALTHY) as address:
        assert address is not None
        idle = [socket.create_connection(parse_address(address)) for _ in range(20)]
        try:
            assert (await ask(address, "/livez"))[0] == 200
        finally:
            for connection in idle:
                connection.close()


async def test_the_server_ends_at_once_when_its_block_is_cancelled():
    async with open_asyncio() as aio:
        with trio.fail_after(60), trio.CancelScope() as scope:
            async with serve_status(aio, ":0", lambda: HEALTHY) as address:
                assert (await ask(address, "/livez"))[0] == 200
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        with pytest.raises(ConnectionRefusedError):
            await ask(address, "/livez")


def test_an_address_without_a_host_is_loopback():
    for text, address in [
        ("127.0.0.1:6780", ("127.0.0.1", 6780)),
        (":6780", ("127.0.0.1", 6780)),
        ("6780", ("127.0.0.1", 6780)),
        ("[::1]:0", ("::1", 0)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
    ]:
        assert parse_address(text) == address


def test_an_address_that_is_none_is_refused():
    for text in ["", "localhost", "localhost:", "::1:80", "host:http", "host:70000", "host:-1"]:
        with pytest.raises(OptionError, match="address"):
            parse_address(text)
