"""Sound input for the targets of `wires`."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from shipper.fleet import records
from shipper.plugin import Batch, Fields
from shipper.sdk.state import Version, digest_of
from shipper_plugins.otlp import grpc, jsons, protobuf, status
from shipper_plugins.otlp.model import Group, Record, Resource, Scope
from shipper_plugins.relay import frames, state
from shipper_plugins.relay.principal import taken

_ATTRIBUTES: Fields = {"service.name": "s", "n": 1, "x": 1.5, "l": [True, None], "m": {"a": b"b"}}
_GROUPS = [
    Group(
        resource=Resource(attributes=_ATTRIBUTES),
        scope=Scope(name="scope", version="1"),
        records=[Record(time=1, observed=2, body="text", attributes={"a": "b"}), Record(body={"k": [1, "v"]})],
    )
]
_BATCH = Batch.lines(b"one\ntwo\n", offset=3, shared={"a": 1})
_GENERATION = frames.Generation("0" * 32, 1)
_DOCUMENTS = [b'{"a":1}', b'{"b":[2]}']
_VERSIONS = [Version("", "c", str(at), at + 1, digest_of(one), False) for at, one in enumerate(_DOCUMENTS)]
_STATE = Batch.documents(_DOCUMENTS).with_columns(versions=_VERSIONS)
_PART = frames.Part(1, bytes(16), 1, frames.digest(_BATCH), _BATCH.pack())
_TAKEN = taken.Taken(1, bytes(16), 1, ((0, 1),), bytes(32))
_OBJECT = {
    "metadata": {
        "name": "n",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 2,
        "labels": {"shipper.dev/fleet": "prod"},
        "annotations": {"shipper.dev/released": '{"a":"1"}', "k8s.io/initial-events-end": "true"},
        "finalizers": ["f"],
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {"holderIdentity": "h", "leaseDurationSeconds": 9, "policy": "version: 1"},
    "status": {"observedGeneration": 1},
    "value": base64.b64encode(b"sealed").decode(),
}
_KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users:
- {name: u, user: {token: t}}
- {name: v, user: {exec: {command: x, args: [a], apiVersion: client.authentication.k8s.io/v1}}}
"""
_ENTRY = '{"key":"aw==","value":"dg==","mod_revision":"7","create_revision":"3","lease":"5"}'

WIRES: Mapping[str, list[bytes]] = {
    "syslog-frames": [
        b'<34>1 2026-10-11T22:14:15.003Z h a 1 ID47 [x@1 k="v"] \xef\xbb\xbfm\n<13>May 17 12:34:56 h su[7]: x\r\n',
        b"23 <13>1 - h a - - - short\n17 <13>1 - - - - - -<13>x\0",
    ],
    "journal-export": [
        b"MESSAGE=x\nPRIORITY=6\n_PID=7\n__REALTIME_TIMESTAMP=1700000000000000\n\nMESSAGE=y\nA=1\nA=2\n\n",
        b"MESSAGE\n\x03\0\0\0\0\0\0\0a\nb\nSYSLOG_FACILITY=3\n\n",
    ],
    "otlp-protobuf": [protobuf.encoded(_GROUPS), protobuf.answer(3, "no")],
    "otlp-json": [jsons.encoded(_GROUPS), jsons.answer(3, "no")],
    "otlp-grpc": [grpc.framed(b"message"), b"a%20b", status.written(8, "full", 2.5), status.written_as_json(8, "full")],
    "http-body": [b'[{"a":1},{"message":"x"}]', b'{"a":1}\n{"data_stream":{"dataset":"e"}}\n', b"a line\nanother\n"],
    "container-lines": [
        b"2026-05-17T12:34:56.123456789Z stdout P part\n2026-05-17T12:34:56Z stderr F whole",
        b'{"log":"x\\n","stream":"stdout","time":"2026-05-17T12:34:56Z","attrs":{"a":"b"}}\na b c\n[1] 2-3:4',
    ],
    "state-document": [b'{"a": [1, 2.50]}', b"a: {b: [1, x, ~]}\nc: 0x1f\n"],
    "kubeconfig": [_KUBECONFIG],
    "relay-request": [
        b"".join(frames.encode(frames.Head(_GENERATION, 1, 0, 1), [_PART])),
        msgspec.json.encode(frames.Hello(2, "0" * 32, 1)),
        b'{"confirmed":[1,2],"awaited":[3]}',
    ],
    "relay-state": [
        b"".join(state.encode(state.StateHead(_GENERATION, 1, 0), _STATE, 1 << 10)),
        b"\1" + bytes(9),
        b"\1\1\0\1" + bytes(24),
    ],
    "relay-memory": [
        taken.Memory(_GENERATION, 1, (_TAKEN,), 7).pack(),
        state.Refusal("o", 1, "c", 2, 3, bytes(32)).pack(),
    ],
    "kafka-scram": [b"r=nx,s=c2FsdA==,i=4096", b"v=c2ln"],
    "etcd-answer": [
        b'{"header":{"cluster_id":"1","revision":"7"},"kvs":[%b],"count":"1"}' % _ENTRY.encode(),
        b'{"result":{"header":{"revision":"8"},"events":[{"type":"DELETE","kv":%b}]}}' % _ENTRY.encode(),
        b'{"error":"etcdserver: permission denied","code":7,"message":"etcdserver: no leader"}',
    ],
    "fleet-record": [
        msgspec.msgpack.encode(records.Head("prod", number=3)),
        msgspec.msgpack.encode(records.Report("web-1", "dir", "boot", "i", 1, 0, state="member")),
    ],
    "watch-stream": [
        b'{"type":"ADDED","object":%b}\n{"type":"BOOKMARK","object":{}}\n' % msgspec.json.encode(_OBJECT),
        b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n',
    ],
    "kubernetes-object": [msgspec.json.encode(_OBJECT), b'{"metadata":{"finalizers":5}}'],
}
