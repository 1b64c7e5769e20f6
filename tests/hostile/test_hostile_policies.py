"""Any text is a plan, or an error with a path and a place in it: soon, and without a word of what stands there."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.pipeline.plan import Plan, make
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError
from shipper.values import Revision
from tests.examples import examples
from tests.hostile.frames import mutated

INSTALLED = Registry.installed()
SOUND = [path.read_text() for path in sorted((Path(__file__).parents[2] / "policies").glob("*.yaml"))]
FULL = """\
version: 1
inputs:
  access:
    type: file
    paths: ["/nowhere/*.log"]
    exclude: ["*.gz"]
    max_line_bytes: 1MiB
    multiline: {pattern: '^\\s', timeout: 5s}
    data_stream: {type: logs, dataset: nginx.access, namespace: prod}
    processors: [{type: parse, format: nginx}]
    outputs: [main]
  apps: {type: elasticsearch, address: "127.0.0.1:0", credentials: [a-1, a-2], max_body_bytes: 1MiB}
  hooks: {type: http, address: "127.0.0.1:0", path: /events, format: lines, credentials: [h-1]}
  made: {type: generate, rate: 10, count: 100, bytes: 20}
processors:
  - {type: add_fields, fields: {service.name: shop, deep: {er: [1, 2.5, null, true]}}}
  - {type: drop, when: {equals: {log.level: debug}}}
outputs:
  main:
    type: elasticsearch
    hosts: ["https://es-1:9200", "https://[::1]:9200/path"]
    credential: es-2
    index: some-index
    pipeline: p
    compression: none
    workers: 4
    bulk_max_bytes: 4MiB
    timeout: 30s
    backoff: {first: 1s, longest: 1m}
  cloud:
    type: elasticsearch
    cloud_id: "shop:Zm91bmQuaW86OTI0MyRhYmMkZGVm"
    ca_fingerprint: "abababababababababababababababababababababababababababababababab"
    proxy: http://proxy:3128
    proxy_credential: p-1
    headers: {X-Tenant: shop}
    secret_headers: {X-Gateway: g-1}
    indices: [{index: audit, when: {equals: {kind: audit}}}]
    pipelines: [{pipeline: p, when: {has_fields: [a.b]}}]
  copy: {type: file, path: /nowhere/out.ndjson, rotate_bytes: 1MiB, keep: 3, id_field: _id}
  shown: {type: console}
queue: {max_bytes: 1GiB, retired_max_bytes: 1GiB}
dead_letters: {max_bytes: 256MiB, when_full: hold}
drain: {deadline: 15m, on_deadline: dead_letter}
log_level: info
"""
PIECES = [
    "&a ",
    "*a",
    "<<: ",
    "!!python/object:os.system ",
    "? ",
    "- ",
    "{",
    "[",
    "]",
    "}",
    ": ",
    "\t",
    "---\n",
    "...\n",
    "|\n",
]
PIECES += [
    "%YAML 1.1\n",
    "%TAG ! !\n",
    "#",
    "'",
    '"',
    "\\x00",
    "\0",
    "\u2028",
    "\ufeff",
    "1e999",
    "0x",
    ".inf",
    "9" * 5000,
    "~",
]
PIECES += [
    "null",
    "12:30:45",
    "${X}",
    "1" + "_0" * 50,
    "  " * 40,
    "credential",
    "type: file",
    "processors: ",
    "-9" * 20 + "s",
]


def planned(text: str) -> Plan | None:
    """The plan of a text; None if it is refused, with every error at a place of the text."""
    begun = time.process_time()
    try:
        plan, problems = make(Revision(0, 1), text, INSTALLED), ()
    except PolicyError as error:
        plan, problems = None, error.problems
    lines = max(1, len(text.splitlines()))
    assert plan is not None or 1 <= len(problems) <= 50
    for problem in problems:
        assert 1 <= problem.line <= lines + 1, problem
        assert problem.column >= 1
        assert problem.message.isprintable(), problem
        assert len(problem.message) < 1000
    assert time.process_time() - begun < 8
    return plan


@pytest.mark.parametrize("text", [FULL, *[text for text in SOUND if "${" not in text]])
def test_what_is_mutated_here_is_sound(text: str) -> None:
    assert planned(text) is not None or "${" in text or "{file:" in text or "{env:" in text


@settings(max_examples=examples(4), deadline=None)
@given(st.sampled_from([FULL, *SOUND]), st.integers(0, 2**64))
def test_a_policy_damaged_anywhere_is_a_plan_or_an_error_with_a_place(text: str, seed: int) -> None:
    planned(mutated(random.Random(seed), text.encode()).decode("utf-8", "replace"))


@settings(max_examples=examples(4), deadline=None)
@given(
    st.sampled_from([FULL, *SOUND]),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(PIECES), st.integers(0, 12)), min_size=1, max_size=4),
)
def test_so_is_one_with_pieces_of_yaml_put_in(text: str, pieces: list[tuple[float, str, int]]) -> None:
    for where, piece, removed in pieces:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + removed :]
    planned(text)


@settings(max_examples=examples(0.6), deadline=None)
@given(st.data())
def test_so_is_one_with_a_value_of_another_kind(data: st.DataObject) -> None:
    lines = FULL.splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    key, _, _ = lines[at].partition(":")
    value = data.draw(
        st.one_of(
            st.sampled_from(
                ["[]", "{}", "null", "''", "-1", "0", "1.5", "true", "[[]]", "{a: {}}", "9999999999999999999"]
            ),
            st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20).map(repr),
        )
    )
    lines[at] = f"{key}: {value}"
    planned("\n".join(lines))


NAMED = ("type", "outputs")
"""Keys whose values are names."""
BOMB = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*{'a' if not n else f'b{n - 1}'}, *a, *a]\n" for n in range(60))


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "version: 1\noutputs: &x {main: *x}\n",
        "version: 1\n<<: {queue: {max_bytes: 1GiB}}\n",
        "version: 1\nprocessors: " + "[" * 5000 + "]" * 5000,
        "version: 1\nprocessors: " + "{a: " * 5000,
        "version: 1\nprocessors:\n" + "".join("  " * n + "- \n" for n in range(200)),
        "? " * 5000,
        "version: 1\nlog_level: " + "9" * 100_000,
        "version: " + "-" * 100_000,
        "version: 1\n" + "".join(f"k{n}: 1\n" for n in range(50_000)),
        "version: 1\noutputs: {" + ", ".join(f"o{n}: {{type: console}}" for n in range(2000)) + "}\n",
        "version: 1\noutputs: {main: {type: console}}\ninputs: {i: {type: file, paths: [/x], outputs: ["
        + ", ".join(["main"] * 5000)
        + "]}}\n",
        "version: 1\ninputs: {i: {type: file, paths: ['/" + "*" * 50_000 + "']}}\n",
        "version: 1\ninputs: {i: {type: file, paths: [/x], multiline: {pattern: '" + "(a*)*" * 200 + "b'}}}\n",
        "version: 1\ninputs: {i: {type: file, paths: [/x], multiline: {pattern: '" + "(" * 5000 + "'}}}\n",
        "version: 1\ninputs: {i: {type: file, paths: [/x], multiline: {pattern: 'x{99999}{99999}'}}}\n",
        "version: 1\nqueue: {max_bytes: " + "9" * 400 + "GiB}\n",
        "version: 1\ndrain: {deadline: " + "9" * 400 + "h}\n",
        "version: 1\ninputs: {i: {type: generate, rate: 1e308, count: 9223372036854775807, bytes: 9223372036854}}\n",
        "version: 1\noutputs: {main: {type: elasticsearch, hosts: ['http://[::']}}\n",
        "version: 1\noutputs: {main: {type: elasticsearch, hosts: ['http://a:99999999999999999999']}}\n",
        "version: 1\noutputs: {main: {type: elasticsearch, hosts: ['http://a'], tls: {ca: /dev/zero}}}\n",
        "version: 1\noutputs: {main: {type: elasticsearch, hosts: ['http://a'], tls: {ca: /proc/self/mem}}}\n",
        'version: 1\noutputs: {main: {type: file, path: "a\\0b"}}\n',
        "\ufeffversion: 1\n",
        "version: 1\r\nqueue: {}\r\n",
    ],
    ids=range(26),
)
def test_a_bomb_is_a_plan_or_an_error_soon(text: str) -> None:
    planned(text)


@pytest.mark.parametrize("shown", ["hunter2canary", "hunter2:canary", "Bearer hunter2canary", "hunter2\ncanary"])
def test_no_error_quotes_a_text_that_may_be_a_secret(shown: str) -> None:
    """Put where every value stands, and where every key does (there, if it does not look like a name)."""
    quoted = '"' + shown.replace("\n", "\\n") + '"'
    is_name = shown.isalnum()  # then it is shown among the names, so that a typing error is seen
    for at, line in enumerate(FULL.splitlines()):
        key, mark, _ = line.partition(":")
        indent = line[: len(line) - len(line.lstrip())]
        values = (f"{key}: {quoted}", f"{key}: [{quoted}]", f"{line} {quoted}")
        keys = (f"{indent}{quoted}: 1", f"{key}: {{{quoted}: 1}}")
        for changed in (*values, *keys) if mark else ():
            text = "\n".join([*FULL.splitlines()[:at], changed, *FULL.splitlines()[at + 1 :]])
            try:
                make(Revision(0, 1), text, INSTALLED)
            except PolicyError as error:
                quoting = [str(problem) for problem in error.problems if "hunter2" in str(problem)]
                assert not quoting or (is_name and (changed in keys or key.strip() in NAMED)), (changed, quoting)
