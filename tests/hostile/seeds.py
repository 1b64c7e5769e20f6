"""Where guided drawing begins: sound input of each target, from which a little damage leads to something new."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import msgspec
from isal import isal_zlib

from shipper.plugin import Batch
from tests.hostile.targets import REQUESTS
from tests.hostile.wire_seeds import WIRES

_ANSWERS = [
    b'{"errors":false,"items":[%b]}'
    % b",".join(msgspec.json.encode({"create": {"_id": id, "status": 201}}) for id in request.ids())
    for request in REQUESTS
]
POLICY = b"""version: 1
inputs:
  app: {type: file, paths: [/a/*.log], outputs: [main], processors: [{type: parse, format: nginx}]}
  es: {type: elasticsearch, address: 127.0.0.1:9201}
processors:
- {type: add_fields, fields: {a.b: 1}}
- {type: drop, when: {contains: {message: x}}}
outputs:
  main: {type: elasticsearch, hosts: ['http://127.0.0.1:1'], credential: c}
  o: {type: file, path: /x}
queue: {max_bytes: 1GiB}
drain: {deadline: 1h, on_deadline: hold}
log_level: info
"""
_ACCESS = b'1.2.3.4 - - [17/May/2026:12:34:56 +0200] "GET /a HTTP/1.1" 200 153 "-" "curl/8"\n'
_TEXTS = [b"May 17 12:34:56 web-1 su[7]: x\n<13>May  7 12:34:56 h a: b", b'a=1 b="x y" log=2\n1,"2"\nx 7']

SEEDS: Mapping[str, list[bytes]] = {
    "control-line": [
        b'{"type":"hello","protocol":1,"state_keys":[{"id":"a","key":"b"}]}',
        b'{"type":"policy","revision":1,"epoch":2,"policy":"version: 1","credentials":{"c":{"api_key":"i:s"}}}',
        b'{"type": "observe"}',
        b'{"type":"action","id":"a","name":"tap","params":{}}',
        b'{"type":"stop","within_seconds":0.5}',
    ],
    "document": [POLICY, b"a: &x [1, 2.5, ~, 'q', \"\\n\", 0x1f]\nb: *x\n", b"? |\n  k\n: >-\n  v\n--- !t\n"],
    "policy": [POLICY],
    "bulk-request": [
        b'\0\0{"create":{}}\n{"a":1}\n{"index":{"_index":"i","_id":"1"}}\n{"data_stream.type":"x"}\n',
        b'items.*._id,**.status\0logs-a-b\0{"create":{"_id":"7"}}\n{"a": [1.50, "\\u00e9"]}\n{"delete":{}}\n',
    ],
    "bulk-headers": [b"Basic dXNlcjpwYXNz", b"ApiKey aTpz", b"/_cluster/health\nhost:1"],
    "compressed-body": [gzip.compress(b"{}\n" * 9, mtime=0), gzip.compress(b"", mtime=0) * 2],
    "backend-answer": [
        *_ANSWERS,
        b'{"error":{"type":"a_b","reason":"no such index [a]"}}',
        _ANSWERS[1].replace(b"201", b"400", 1),
    ],
    "backend-headers": [b"120", b"Wed, 21 Oct 2026 07:28:00 GMT\nWed, 21 Oct 2026 07:27:00 GMT"],
    "stored": [
        isal_zlib.decompress(Batch.lines(b"a\nb\n", offset=3, shared={"a": 1}).pack(), -15),
        b'{"path":"/a","dev":1,"ino":2,"offset":3}',
    ],
    **WIRES,
    "log-lines": [_ACCESS * 2, b'{"a":{"b":1},"log":2}\n{"message":"x"}', _ACCESS + b"x\n", *_TEXTS],
}
