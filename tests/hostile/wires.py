"""Functions that read the bytes of other machines: senders, edges and principals, brokers, stores and API servers.

As in `targets`: any bytes lead to a value or to the one error that is named, and cuts between blocks do not matter.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson

from shipper.apiserver import kubeconfig, objects
from shipper.apiserver.stream import Lines, NotAWatch
from shipper.fleet import records as of_fleets
from shipper.fleet.etcd import answers
from shipper.fleet.etcd.keys import Keys as EtcdKeys
from shipper.fleet.kubernetes import objects as of_keys
from shipper.fleet.seal import Seals, Unauthentic
from shipper.fleet.store import StoreError
from shipper.kubernetes.summing import records as of_summing
from shipper.plugin import Batch
from shipper.sdk.errors import OptionError
from shipper.sdk.fields import merged
from shipper_plugins.http import bodies as http_bodies
from shipper_plugins.journald import fields as journal_fields
from shipper_plugins.journald.export import Exported
from shipper_plugins.kafka.scram import Scram
from shipper_plugins.otlp import events, grpc, jsons, protobuf, status
from shipper_plugins.otlp.model import Decoded, Unfit
from shipper_plugins.processors.dissect import Dissect
from shipper_plugins.processors.formats import containers
from shipper_plugins.relay import digests, frames, state
from shipper_plugins.relay.principal import taken
from shipper_plugins.state import documents as state_documents
from shipper_plugins.syslog.block import block
from shipper_plugins.syslog.frames import Cut, Frames
from shipper_plugins.syslog.message import Reading

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 1 << 20
MESSAGES = (frames.Hello, frames.Welcome, frames.Poll, frames.Answered, frames.Told, state.StateAnswered)
"""Messages of the relay that are no requests with parts."""
TO_COMPARE = (state.Compare, state.Compared, state.Surplus, state.Wanted, state.Given, state.Named)


def _in_pieces(content: bytes) -> Iterable[bytes]:
    return (content[at : at + 3] for at in range(0, len(content), 3))


# -- what senders ship -------------------------------------------------------------------------------------------------


def syslog_frames(content: bytes) -> None:
    """Each frame becomes an event, whatever is in it, and all together the same."""
    whole = _framed([content])
    assert whole == _framed(_in_pieces(content))
    assert all(0 < len(frame) <= 200 for frame in whole)
    reading = Reading(keeps_original=True)
    alone = [reading.event(frame, NOW, is_cut=isinstance(frame, Cut)) for frame in whole]
    made = map(orjson.loads, block(reading, whole, b"peer", NOW).documents.split(b"\n")[:-1])
    for event, together in zip(filter(None, alone), made, strict=True):
        assert merged(event, {"log": {"source": {"address": "peer"}}}) == together


def _framed(blocks: Iterable[bytes]) -> list[bytes]:
    reader = Frames(200)
    found = [frame for block in blocks for frame in reader.feed(block)]
    return [*found, *reader.end()]


def journal_export(content: bytes) -> None:
    """Each entry becomes an event."""
    whole, pieces = Exported(), Exported()
    entries = whole.feed(content)
    assert entries == [entry for block in _in_pieces(content) for entry in pieces.feed(block)]
    assert whole.held == pieces.held <= len(content)
    for entry in entries:
        journal_fields.nanoseconds(entry)
        orjson.dumps(journal_fields.event(entry))


def otlp_protobuf(content: bytes) -> None:
    """What is taken can be sent on, and is the same then."""
    _resent(content, protobuf.decoded, protobuf.encoded)
    with suppress(Unfit):
        protobuf.rejected(content)


def otlp_json(content: bytes) -> None:
    """As in protobuf."""
    _resent(content, jsons.decoded, jsons.encoded)
    with suppress(Unfit):
        jsons.rejected(content)


def _resent(content: bytes, read: Callable[[bytes], Decoded], write: Callable[[Any], bytes]) -> None:
    try:
        groups, _, _ = events.taken(read(content).groups)
    except Unfit:
        return
    for batch in events.batches(groups):
        own = batch.json_lines()
        again = events.batches(read(write(events.groups(batch))).groups)
        assert sum(one.count for one in again) == batch.count == len(own.splitlines())


def otlp_grpc(content: bytes) -> None:
    """A message in its frame, and the status of an answer."""
    with suppress(Unfit):
        grpc.message_of(content)
    grpc.unquoted(content.decode("latin-1"))
    for kind in ("application/x-protobuf", "application/json", "text/html"):
        status.is_status(content, kind)
        status.message_of(content, kind)
    delay = status.retry_delay(content)
    assert delay is None or delay >= 0


def http_body(content: bytes) -> None:
    """What is stored is as many objects of JSON as were sent."""
    for format in ("json", "ndjson", "lines"):
        with suppress(http_bodies.Unfit):
            for batch in http_bodies.batches(content, format, {"dataset": "d"}):  # type: ignore[arg-type]
                lines = batch.json_lines().split(b"\n")[:-1]
                assert len(lines) == batch.count
                assert all(isinstance(json.loads(line), dict) for line in lines)


# -- what lies in files ------------------------------------------------------------------------------------------------


def container_lines(content: bytes) -> None:
    """Lines of CRI and of Docker, and texts that are dissected: fields, or a ValueError."""
    text = content.decode(errors="replace").replace("\r", "").rstrip("\n")
    for line in text.split("\n"):
        with suppress(ValueError):
            orjson.dumps(containers._read(line)._asdict())
    for tokenizer in ("%{a} %{b} %{+a}", "[%{at}] %{size:integer}-%{?no}:%{rest}"):
        batch = Batch.lines(f"{text}\n".encode(), offset=0, shared={})
        dissected = Dissect(tokenizer=tokenizer).process(batch)
        assert dissected.count == batch.count
        dissected.json_lines()


def state_document(content: bytes) -> None:
    """A document of keyed state is an object of JSON."""
    for path in ("a.json", "a.yaml"):
        with suppress(state_documents.Unfit):
            document = state_documents.document_of(path, content, 1 << 16)
            assert len(document) <= 1 << 16
            json.loads(document)


def kubeconfig_file(content: bytes) -> None:
    """A context, or an error with its place."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with suppress(OptionError):
            kubeconfig.read([file.name])


# -- between edges and principals --------------------------------------------------------------------------------------


def relay_request(content: bytes) -> None:
    """Parts are batches, and have the digests that they say."""
    with suppress(frames.FrameError):
        request = frames.decode(content)
        for part, batch in zip(request.parts, request.batches(LIMIT), strict=True):
            assert frames.digest(batch) == part.digest
    for kind in (*MESSAGES, *TO_COMPARE):
        with suppress(frames.FrameError):
            message = frames.read(content, kind)
            assert msgspec.json.decode(msgspec.json.encode(message), type=kind) == message


def relay_state(content: bytes) -> None:
    """Versions have the digests of their documents; sums of a comparison are read, or refused."""
    with suppress(frames.FrameError):
        for arrived in state.decode(content, LIMIT)[1]:
            assert arrived.version.place > 0
    ours = digests.Digests((point << 60, bytes([point]) * 16) for point in range(16))
    with suppress(digests.Unreadable):
        ours.answer(content)
    comparison = digests.Comparison(ours)
    comparison.question()
    with suppress(digests.Unreadable):
        comparison.take(content)
        while comparison.question() is not None:
            comparison.take(content)


def relay_memory(content: bytes) -> None:
    """What a principal keeps of a link, and why it has refused a version."""
    for unpack in (taken.Memory.unpack, state.Refusal.unpack):
        with suppress(ValueError):
            assert unpack(unpack(content).pack()) == unpack(content)


# -- what brokers and stores answer ------------------------------------------------------------------------------------


def kafka_scram(content: bytes) -> None:
    """A challenge is answered, or violates the protocol; nobody proves a password by chance."""
    client = Scram("SCRAM-SHA-256", "user", "password", nonce="n")
    with suppress(ValueError):
        client.final(content)
    client._signature = b"0" * 32
    with suppress(ValueError):
        client.check(content)
        raise AssertionError("a server has proved a password that it does not know")


def etcd_answer(content: bytes) -> None:
    """One of etcd's, or an error that says which host it is of."""
    for kind in (answers.Range, answers.Txn, answers.Grant, answers.Token, answers.Watched, answers.Line):
        with suppress(StoreError):
            answers.decoded(content, kind, "host")  # type: ignore[type-var]
    assert "host" in str(answers.failed(content, "host", 500, "read"))
    assert "host" in str(answers.canceled(content.decode(errors="replace"), "host", "watch"))
    with suppress(StoreError):
        for found in answers.decoded(content, answers.Range, "host").kvs:
            EtcdKeys("/shipper/").entry(found)


class _Opened(Seals):
    """Opens what anybody has sealed."""

    def _opened(self, place: str, raw: bytes) -> bytes:
        return raw


def fleet_record(content: bytes) -> None:
    """A record that is not sealed does not open, and one that is, is one of its type."""
    keys = [bytes(32)]
    with suppress(Unauthentic):
        Seals("prod", keys).open("head", content, of_fleets.Head)
        raise AssertionError("a record opens that nobody has sealed")
    for kind in (of_fleets.Head, of_fleets.Report, of_fleets.Alive, of_fleets.Restored, of_fleets.Leader):
        with suppress(Unauthentic):
            record = _Opened("prod", keys).open("head", content, kind)
            msgspec.msgpack.encode(record)


# -- what API servers say ----------------------------------------------------------------------------------------------


def watch_stream(content: bytes) -> None:
    """Events up to the first line that is none."""
    whole = _watched([content])
    assert whole == _watched(_in_pieces(content))
    for item in whole:
        _object(item[1])


def _watched(blocks: Iterable[bytes]) -> list[tuple[str, dict[str, Any], bool]]:
    lines, found = Lines(1 << 16), list[tuple[str, dict[str, Any], bool]]()
    with suppress(NotAWatch):
        for block in blocks:
            for item in lines.feed(block):
                found.append((item.type, item.object, item.ends_initial))
    return found


def kubernetes_object(content: bytes) -> None:
    """An object of any kind is read, however little of it is as it must be."""
    with suppress(ValueError, RecursionError):
        found = msgspec.json.decode(content)
        if isinstance(found, dict):
            _object(found)


def _object(found: dict[str, Any]) -> None:
    for read in (of_summing.policy, of_summing.member, of_summing.lease, of_summing.release):
        read(found)
    of_summing.named_keys(found)
    objects.generation(found)
    objects.created(found)
    objects.is_deleted(found)
    of_keys.lease_of(found)
    of_keys.seconds_under(found)
    with suppress(StoreError):
        of_keys.Keys("prod").entry("head", found)


WIRES: Mapping[str, Callable[[bytes], object]] = {
    "syslog-frames": syslog_frames,
    "journal-export": journal_export,
    "otlp-protobuf": otlp_protobuf,
    "otlp-json": otlp_json,
    "otlp-grpc": otlp_grpc,
    "http-body": http_body,
    "container-lines": container_lines,
    "state-document": state_document,
    "kubeconfig": kubeconfig_file,
    "relay-request": relay_request,
    "relay-state": relay_state,
    "relay-memory": relay_memory,
    "kafka-scram": kafka_scram,
    "etcd-answer": etcd_answer,
    "fleet-record": fleet_record,
    "watch-stream": watch_stream,
    "kubernetes-object": kubernetes_object,
}
