import json
import os
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import (
    API_KEY,
    ClientTls,
    CredentialId,
    Endpoint,
    Input,
    Material,
    Output,
    Processor,
    Settings,
    Size,
    takes,
)
from shipper.plugin import Duration as Seconds
from shipper.policy.document import plain, read, write
from shipper.policy.policy import build, destination, meaning, output_settings, parse, restore_output
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError, StartFailed

MINIMUM = "version: 1\n"


class Limit(Settings, frozen=True):
    size: Size
    rest: tuple[Seconds, ...] = ()


class Tail(Input, frozen=True, kw_only=True):
    paths: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    from_: Literal["beginning", "end"] = msgspec.field(default="beginning", name="from")
    credentials: tuple[CredentialId, ...] = ()
    port: int | None = None

    def listens(self):
        return () if self.port is None else (Endpoint("tcp", "127.0.0.1", self.port),)


class Tag(Processor, frozen=True, kw_only=True):
    fields: dict[str, Any]
    limits: dict[str, Limit] = msgspec.field(default_factory=dict)
    nested: list["Tag"] = msgspec.field(default_factory=list)

    def __post_init__(self):
        if not self.fields:
            raise ValueError("name at least one field")
        if "bug" in self.fields:
            raise KeyError("hunter2")


class Sink(Output, frozen=True, kw_only=True):
    live: ClassVar = frozenset({"workers", "batch"})

    credential: Annotated[CredentialId, takes(API_KEY)] | None = None
    hosts: tuple[Annotated[str, msgspec.Meta(pattern="^https?://")], ...]
    batch: Size = Size(1 << 20)
    timeout: Seconds | None = Seconds(60)
    tls: ClientTls = msgspec.field(default_factory=ClientTls)
    extra: Material | None = None
    rate: float | None = None
    sets: frozenset[str] = frozenset()
    fed: str = ""

    def feeding(self):
        match self.fed:
            case "nothing":
                return replace(super().feeding(), bytes=0)
            case "text":
                return "plenty"
            case "bug":
                raise KeyError("hunter2")
            case "exit":
                raise SystemExit("hunter2")
        return super().feeding()

    def contacts(self):
        return super().contacts() if self.fed != "nowhere" else (1 // 0,)


class Unreadable:
    pass


class Odd(Output, frozen=True, kw_only=True):
    pair: tuple[Size, int] = (Size(1), 1)
    either: str | list[int] = ""
    bug: Unreadable | None = None


class Give(Processor, frozen=True):
    to: tuple[str, ...] = ()
    fails: bool = False

    def named_outputs(self):
        if self.fails:
            raise KeyError("hunter2")
        return [(("to", at), name) for at, name in enumerate(self.to)]


class Console(Output, frozen=True, kw_only=True):
    pretty: bool = False


class Facts(Input, frozen=True):
    gives_state = True
    gives_events = False


class Both(Input, frozen=True):
    gives_state = True


class Waiting(Input, frozen=True):
    def awaits(self):
        return True


class Holds(Processor, frozen=True):
    def open(self, context):
        raise NotImplementedError


class Shelf(Output, frozen=True):
    only: bool = True
    fails: bool = False

    def takes_state(self):
        if self.fails:
            raise KeyError("hunter2")
        return True

    def takes_events(self):
        return not self.only


REGISTRY = Registry(
    {
        "inputs": {"tail": Tail, "facts": Facts, "both": Both, "waiting": Waiting},
        "processors": {"tag": Tag, "give": Give, "holds": Holds},
        "outputs": {"sink": Sink, "console": Console, "odd": Odd, "shelf": Shelf},
    }
)
OUTPUTS, INPUTS, PROCESSORS = ("version: 1\n" + section for section in ("outputs: ", "inputs: ", "processors: "))
SINK = "version: 1\noutputs:\n  main:\n    type: sink\n    hosts: [https://a]\n"


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    trustme.CA().cert_pem.write_to_path(path)
    return path


def problems(text):
    with pytest.raises(PolicyError) as caught:
        parse(text, REGISTRY)
    return [(p.line, p.column, p.path, p.message) for p in caught.value.problems]


def only(text):
    (problem,) = problems(text)
    return problem


# -- what is accepted --------------------------------------------------------------------------------------------------


def test_a_policy_without_inputs_and_outputs_is_valid_and_has_the_defaults():
    policy = parse(MINIMUM, REGISTRY)

    assert (policy.inputs, policy.processors, policy.outputs, policy.log_level) == ({}, (), {}, "info")
    assert (policy.queue.max_bytes, policy.queue.retired_max_bytes) == (1 << 30, None)
    assert (policy.dead_letters.max_bytes, policy.dead_letters.when_full) == (256 << 20, "drop_oldest")
    assert (policy.drain.deadline, policy.drain.on_deadline, policy.drain.never_reached) == (None, "hold", "forward")


def test_every_section_becomes_what_it_says():
    policy = parse(
        """
version: 1
inputs:
  access:
    type: tail
    paths: ["/var/log/*.log"]
    from: end
    data_stream: {dataset: nginx.access}
    processors: [{type: tag, fields: {a: 1}}]
    outputs: [main]
  other: {type: tail, paths: [x]}
processors:
  - {type: tag, fields: {b: no, c: [1, {d: null}]}, limits: {x: {size: 1KiB, rest: [1s, 2m]}}}
outputs:
  main: {type: sink, hosts: [https://a, https://b], credential: es-2, timeout: never, rate: 5, sets: [a, b, a]}
  out: {type: console, pretty: true}
queue: {max_bytes: 2GiB, retired_max_bytes: 512MiB}
dead_letters: {max_bytes: 1MB, when_full: hold}
drain: {deadline: 15m, on_deadline: dead_letter}
log_level: debug
""",
        REGISTRY,
    )
    access, main = policy.inputs["access"], policy.outputs["main"]

    assert (access.name, access.type, access.outputs) == ("access", "tail", ("main",))
    assert (access.config.from_, access.config.data_stream.dataset) == ("end", "nginx.access")
    assert access.processors == (Tag(fields={"a": 1}),)
    assert policy.inputs["other"].outputs is None
    assert policy.processors[0].fields == {"b": "no", "c": [1, {"d": None}]}
    assert policy.processors[0].limits == {"x": Limit(size=Size(1024), rest=(Seconds(1), Seconds(120)))}
    assert (main.config.hosts, main.config.credential) == (("https://a", "https://b"), "es-2")
    assert (main.config.timeout, main.config.rate, main.config.sets) == (None, 5.0, frozenset("ab"))
    assert policy.outputs["out"].config.pretty is True
    assert (policy.queue.max_bytes, policy.queue.retired_max_bytes) == (2 << 30, 512 << 20)
    assert (policy.dead_letters.max_bytes, policy.dead_letters.when_full) == (10**6, "hold")
    assert (policy.drain.deadline, policy.drain.on_deadline, policy.log_level) == (900.0, "dead_letter", "debug")


@pytest.mark.parametrize("deadline", ["never", "null", "~"])
def test_never_is_no_deadline(deadline):
    assert parse(f"{MINIMUM}drain: {{deadline: {deadline}}}", REGISTRY).drain.deadline is None


def test_a_file_is_read_when_the_policy_is_validated(authority):
    policy = parse(f"{SINK}    tls: {{ca: {authority}}}\n", REGISTRY)

    assert policy.outputs["main"].config.tls.ca == Material(str(authority), authority.read_text())


# -- what is refused, and where ----------------------------------------------------------------------------------------


def test_a_mistake_is_named_at_its_place():
    for text, place, path, message in [
        ("", (1, 1), "", "expected a mapping that begins with `version: 1`, got nothing"),
        ("[]", (1, 1), "", "expected a mapping that begins with `version: 1`, got a list"),
        ("inputs: {}", (1, 1), "version", "missing"),
        ("version: 2", (1, 10), "version", "this shipper reads version 1"),
        ("version: true", (1, 10), "version", "this shipper reads version 1"),
        ("version: 1\nouputs: {}", (2, 1), "ouputs", 'unknown key "ouputs" (did you mean "outputs"?)'),
        ("version: 1\noutputs:", (2, 9), "outputs", "expected a mapping of names, got nothing"),
        (OUTPUTS + "{Main: {type: console}}", (2, 11), "outputs.Main", "a name is made of"),
        (OUTPUTS + "{main: 5}", (2, 17), "outputs.main", "expected a mapping"),
        (
            OUTPUTS + "{main: {}}",
            (2, 17),
            "outputs.main.type",
            'the key "type" is missing; installed: console, odd, shelf, sink',
        ),
        (OUTPUTS + "{main: {type: 5}}", (2, 24), "outputs.main.type", "expected the name of a plugin"),
        (
            OUTPUTS + "{main: {type: snik}}",
            (2, 24),
            "outputs.main.type",
            'no output of type "snik" (did you mean "sink"?)',
        ),
        (OUTPUTS + "{main: {type: sink}}", (2, 17), "outputs.main.hosts", 'the key "hosts" is missing'),
        (SINK + "    workers: 99", (6, 14), "outputs.main.workers", "expected integer <= 64"),
        (SINK + "    workers: '2'", (6, 14), "outputs.main.workers", "expected integer, got string"),
        (SINK + "    fed: nothing", (4, 5), "outputs.main", "an output cannot be fed as it states: bytes must be"),
        (SINK + "    fed: text", (4, 5), "outputs.main", "says how it is to be fed by str, not by Feeding"),
        (SINK + "    fed: bug", (4, 5), "outputs.main", "an output cannot say how it is to be fed: KeyError at"),
        (SINK + "    fed: exit", (4, 5), "outputs.main", "the plugin raised SystemExit at test_policy.py:"),
        (SINK + "    fed: nowhere", (4, 5), "outputs.main", "an output cannot say which hosts it asks: Zero"),
        (SINK + "    batch: 99999999999TiB", (6, 12), "outputs.main.batch", "this size is too large"),
        (SINK + "    timeout: 5", (6, 14), "outputs.main.timeout", "expected a duration with a unit"),
        (SINK + "    batch: never", (6, 12), "outputs.main.batch", "expected a size with a unit"),
        (SINK + "    sets: {a: b}", (6, 11), "outputs.main.sets", "expected list, got mapping"),
        (SINK + "    credential: 5", (6, 17), "outputs.main.credential", "expected string, got integer; quote it"),
        (SINK + "    credential: ''", (6, 17), "outputs.main.credential", "expected string of length >= 1"),
        (
            SINK + "    tls: {verfication: none}",
            (6, 11),
            "outputs.main.tls.verfication",
            '(did you mean "verification"?)',
        ),
        (
            SINK + "    tls: {verification: non}",
            (6, 25),
            "outputs.main.tls.verification",
            'certificate, none (did you mean "none"?)',
        ),
        (SINK + "    tls: {ca: /no/such/file}", (6, 15), "outputs.main.tls.ca", "cannot read this file: No such file"),
        (SINK + "    tls: {ca: /dev/zero}", (6, 15), "outputs.main.tls.ca", "this path is not a file"),
        (SINK + "    tls: {ca: {path: x, pem: y}}", (6, 15), "outputs.main.tls.ca", "expected the path of a PEM file"),
        (SINK + "    type2: x", (6, 5), "outputs.main.type2", 'unknown key "type2" (did you mean "type"?)'),
        (SINK + "    outputs: [x]", (6, 5), "outputs.main.outputs", 'unknown key "outputs"'),
        (
            OUTPUTS + "{o: {type: console, credential: a}}",
            (2, 30),
            "outputs.o.credential",
            'unknown key "credential"; known here: flush, pretty, processors, type, workers',
        ),
        (INPUTS + "{i: {type: tail, paths: []}}", (2, 33), "inputs.i.paths", "expected list of length >= 1"),
        (INPUTS + "{i: {type: tail, paths: [1]}}", (2, 34), "inputs.i.paths[0]", "expected string"),
        (INPUTS + "{i: {type: tail, paths: [a], outputs: [x]}}", (2, 48), "inputs.i.outputs[0]", 'no output "x"'),
        (INPUTS + "{i: {type: tail, paths: [a], outputs: x}}", (2, 47), "inputs.i.outputs", "a list of outputs"),
        (INPUTS + "{i: {type: tail, paths: [a], form: end}}", (2, 38), "inputs.i.form", 'did you mean "from"'),
        (
            INPUTS + "{i: {type: tail, paths: [a], data_stream: {dataset: A}}}",
            (2, 61),
            "inputs.i.data_stream.dataset",
            "expected a text without capital letters, spaces",
        ),
        (PROCESSORS + "{type: tag}", (2, 13), "processors", "expected a list of processors"),
        (PROCESSORS + "[{type: tag, fields: {}}]", (2, 14), "processors[0]", "name at least one field"),
        (
            PROCESSORS + "[{type: tag, fields: {bug: 1}}]",
            (2, 14),
            "processors[0]",
            "Tag failed on these settings: KeyError",
        ),
        (
            PROCESSORS + "[{type: tag, fields: {a: 1}, limits: {x: {size: 1KiB, rest: [1s, 2]}}}]",
            (2, 78),
            "processors[0].limits.x.rest[1]",
            "expected a duration",
        ),
        (
            PROCESSORS + "[{type: tag, fields: {a: 1}, nested: [{fields: {a: 1}, nested: [{field: 1}]}]}]",
            (2, 78),
            "processors[0].nested[0].nested[0].field",
            'did you mean "fields"',
        ),
        ("version: 1\nlog_level: loud", (2, 12), "log_level", "expected one of debug, info, warning, error"),
        ("version: 1\nqueue: {max_bytes: 1}", (2, 20), "queue.max_bytes", "expected a size"),
    ]:
        found = [problem for problem in problems(text) if problem[2] == path]

        assert [(line, column) for line, column, *_ in found] == [place]
        assert message in found[0][3]


@pytest.mark.parametrize(
    ("setting", "column", "path", "message"),
    [
        ("pair: [1KiB, x]", 39, "pair[1]", "expected integer, got string"),
        ("pair: [1, 1]", 33, "pair[0]", "expected a size with a unit"),
        ("either: [1, x]", 38, "either[1]", "expected integer, got string"),
        ("bug: hunter2", 31, "bug", "the plugin's option cannot take this: NotImplementedError"),
    ],
)
def test_a_mistake_in_an_unusual_type_is_named_at_its_place_too(setting, column, path, message):
    line, *place, told = only(f"{OUTPUTS}{{o: {{type: odd, {setting}}}}}")

    assert (line, place) == (2, [column, f"outputs.o.{path}"])
    assert message in told


def listening(first, second):
    return f"version: 1\ninputs:\n  a: {{type: tail, paths: [x], {first}}}\n  b: {{type: tail, paths: [x], {second}}}\n"


def test_two_inputs_that_listen_on_one_address_are_refused_at_the_second():
    line, column, path, message = only(listening("port: 9200", "port: 9200"))

    assert (line, column, path) == (4, 6, "inputs.b")
    assert "inputs.a" in message


@pytest.mark.parametrize("ports", [("port: 9200", "port: 9201"), ("port: 0", "port: 0"), ("port: 9200", "port: null")])
def test_inputs_with_addresses_of_their_own_or_with_any_free_one_are_accepted(ports):
    assert set(parse(listening(*ports), REGISTRY).inputs) == {"a", "b"}


def test_all_mistakes_of_a_policy_are_told_at_once_in_the_order_of_the_text():
    text = """version: 1
inputs:
  a: {type: tail, paths: 5, from: middle, outputs: [mian, main, main]}
processors: [{type: tga}, {type: tag, fields: 1, filds: 2}]
outputs:
  main: {type: sink, hosts: [ftp://x, 5], tls: {ca: nope, cb: 1}, workers: 0}
drain: {on_deadline: give_up, deadline: 5, never_reached: drop}
"""
    found = problems(text)

    assert [path for _, _, path, _ in found] == [
        "inputs.a.paths",
        "inputs.a.from",
        "inputs.a.outputs[0]",
        "inputs.a.outputs[2]",
        "processors[0].type",
        "processors[1].fields",
        "processors[1].filds",
        "outputs.main.hosts[0]",
        "outputs.main.hosts[1]",
        "outputs.main.tls.ca",
        "outputs.main.tls.cb",
        "outputs.main.workers",
        "drain.on_deadline",
        "drain.deadline",
        "drain.never_reached",
    ]


def test_problems_of_a_merged_tree_name_the_file_of_their_node():
    one, other = (
        read(MINIMUM + "outputs: {o: {type: sink}}", file="a.yaml"),
        read("inputs: {i: {type: x}}", file="b.yaml"),
    )
    one.value["inputs"] = other.value["inputs"]

    with pytest.raises(PolicyError) as caught:
        build(one, REGISTRY)
    assert {p.file for p in caught.value.problems} == {"a.yaml", "b.yaml"}


def test_bad_tls_material_is_refused_before_anything_starts(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    line, column, where, message = only(f"{SINK}    tls: {{ca: {path}}}\n")

    assert (line, column, where) == (6, 10, "outputs.main.tls")
    assert message.startswith("bad TLS material")


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert only(f"{SINK}    extra: {tmp_path / 'pipe'}\n")[3] == "this path is not a file"


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_a_secret_in_a_policy_is_refused_with_a_hint_that_never_quotes_it():
    for text, path in [
        (SINK + "    credential: {api_key: hunter2}", "outputs.main.credential"),
        (SINK + "    credential: {file: /run/hunter2}", "outputs.main.credential"),
        (SINK + "    credential: [{hunter2: hunter2}]", "outputs.main.credential"),
        (SINK + "    credential: VnVhQ2ZHY0JDZGJrUW0hunter2", "outputs.main.credential"),
        (SINK + "    api_key: hunter2", "outputs.main.api_key"),
        (SINK + "    password: [hunter2]", "outputs.main.password"),
        (SINK + "    Authorization: hunter2", "outputs.main.Authorization"),
        (SINK + "    tls: {key: hunter2}", "outputs.main.tls.key"),
        (SINK + "token: hunter2", "token"),
        (MINIMUM + "outputs: {o: {type: sink, hosts: ['https://u:hunter2@a']}}", "outputs.o.hosts[0]"),
        (MINIMUM + "outputs: {o: {type: nosuch, hosts: ['https://u:hunter2@a']}}", "outputs.o.hosts[0]"),
        (
            MINIMUM + "inputs: {i: {type: tail, paths: [a], credentials: [{api_key: hunter2}]}}",
            "inputs.i.credentials[0]",
        ),
        (MINIMUM + "inputs: {i: {type: tail, paths: [a], credential: {token: hunter2}}}", "inputs.i.credential"),
        (MINIMUM + "processors: [{type: tag, fields: {password: hunter2}}]", "processors[0].fields.password"),
        (MINIMUM + "processors: [{type: tag, fields: {a: [{secret: hunter2}]}}]", "processors[0].fields.a[0].secret"),
        (SINK + "    extra: |\n      -----BEGIN PRIVATE KEY-----\n      hunter2", "outputs.main.extra"),
    ]:
        found = {where: message for _, _, where, message in problems(text)}

        assert "`credential: {file: …}`" in found[path]
        assert "hunter2" not in str(found)


@pytest.mark.parametrize("id", ["es-2", "main-3fa2b1c4d5e6f708192a3b4c", "1e9b5c0e-6f0a-4d57-9a8f-0c8f6f3f3f3f", "A"])
def test_an_id_is_not_taken_for_a_secret(id):
    assert parse(f"{SINK}    credential: {id}", REGISTRY).outputs["main"].config.credential == id


# -- digests, and what is kept -----------------------------------------------------------------------------------------


def sink(*lines):
    return parse(SINK + "".join(f"    {line}\n" for line in lines), REGISTRY)


def test_the_meaning_is_the_same_whatever_the_order_the_comments_and_the_defaults_spelled_out():
    one = "version: 1\nqueue: {max_bytes: 1GiB}\noutputs: {b: {type: console}, a: {hosts: [https://a], type: sink}}\n"
    other = """# a comment
outputs:
  a:
    type: sink
    timeout: 1m
    hosts: ["https://a"]
    tls: {}
  b: {pretty: false, type: console}
version: 1
queue: {max_bytes: 1024MiB}
drain: {deadline: never}
"""
    assert meaning(parse(one, REGISTRY)) == meaning(parse(other, REGISTRY))


def test_every_setting_is_part_of_the_meaning():
    for more in [
        "    workers: 3\n",
        "    credential: b\n",
        "    timeout: 2m\n",
        "    tls: {server_name: x}\n",
        "log_level: debug\n",
        "queue: {max_bytes: 2GiB}\n",
        "drain: {deadline: 5s}\n",
        "processors: [{type: tag, fields: {a: 1}}]\n",
        "inputs: {i: {type: tail, paths: [a]}}\n",
        "  other: {type: console}\n",
    ]:
        assert meaning(parse(SINK + more, REGISTRY)) != meaning(parse(SINK, REGISTRY))


def test_the_order_of_processors_and_the_choice_of_outputs_are_part_of_the_meaning():
    tail = SINK + "inputs: {{i: {{type: tail, paths: [a], {}}}}}\n"
    processors = [
        tail.format("processors: [{type: tag, fields: {a: 1}}, {type: tag, fields: {a: 2}}]"),
        tail.format("processors: [{type: tag, fields: {a: 2}}, {type: tag, fields: {a: 1}}]"),
        tail.format("outputs: [main]"),
        tail.format("outputs: []"),
        tail.format("from: beginning"),
    ]

    assert len({meaning(parse(text, REGISTRY)) for text in processors}) == 5


def test_the_processors_of_an_output_are_part_of_the_meaning_and_not_of_the_destination():
    plain, marked = parse(SINK, REGISTRY), parse(SINK + "    processors: [{type: tag, fields: {a: 1}}]\n", REGISTRY)

    assert meaning(plain) != meaning(marked)
    assert destination(plain.outputs["main"]) == destination(marked.outputs["main"])
    assert marked.outputs["main"].processors == (Tag(fields={"a": 1}),)


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (
            "processors: [{type: give, to: [main, mian]}]",
            "processors[0].to[1]",
            'no output "mian" (did you mean "main"?)',
        ),
        ("processors: [{type: give, fails: true}]", "processors[0]", "cannot say which outputs it names: KeyError"),
        (
            "inputs: {i: {type: tail, paths: [a], outputs: [], processors: [{type: give, to: [main]}]}}",
            "inputs.i.processors[0].to[0]",
            'events do not go to the output "main" from here',
        ),
        (
            "  o: {type: console, processors: [{type: give, to: [main]}]}",
            "outputs.o.processors[0].to[0]",
            'events do not go to the output "main" from here',
        ),
    ],
)
def test_a_processor_names_outputs_that_its_events_can_go_to(text, path, message):
    with pytest.raises(PolicyError) as refused:
        parse(SINK + text, REGISTRY)
    (problem,) = refused.value.problems

    assert problem.path == path
    assert message in problem.message
    assert "hunter2" not in problem.message


def test_another_content_of_a_file_is_another_meaning_and_another_destination_but_another_path_is_not(tmp_path):
    one, same, other = (tmp_path / name for name in ("one.pem", "same.pem", "other.pem"))
    one.write_text("-----BEGIN A-----")
    same.write_text("-----BEGIN A-----")
    other.write_text("-----BEGIN B-----")
    policies = [sink(f"extra: {path}") for path in (one, same, other)]
    meanings = [meaning(policy) for policy in policies]
    destinations = [destination(policy.outputs["main"]) for policy in policies]

    assert (meanings[0] == meanings[1], meanings[0] == meanings[2]) == (True, False)
    assert (destinations[0] == destinations[1], destinations[0] == destinations[2]) == (True, False)


def test_the_destination_leaves_out_the_credential_and_what_is_live():
    plain_one = destination(sink().outputs["main"])

    assert destination(sink("workers: 9", "batch: 5MiB").outputs["main"]) == plain_one
    assert destination(sink("credential: a").outputs["main"]) == destination(sink("credential: b").outputs["main"])
    assert destination(sink("credential: a").outputs["main"]) != plain_one
    for line in ("timeout: 2m", "tls: {server_name: x}", "sets: [a]", "rate: 1"):
        assert destination(sink(line).outputs["main"]) != plain_one


def test_two_names_are_two_destinations():
    text = "version: 1\noutputs: {a: {type: console}, b: {type: console}}"
    outputs = parse(text, REGISTRY).outputs

    assert destination(outputs["a"]) != destination(outputs["b"])


def test_settings_survive_json_down_to_the_bytes_of_files_that_are_gone(tmp_path, authority):
    copy = tmp_path / "ca.pem"
    copy.write_bytes(authority.read_bytes())
    spec = sink(f"tls: {{ca: {copy}}}", "timeout: 1500ms", "batch: 3KB", "sets: [b, a]", "credential: x").outputs[
        "main"
    ]
    kept = json.loads(json.dumps(output_settings(spec)))
    copy.unlink()
    again = restore_output("sink", kept, REGISTRY)

    assert again == spec.config
    assert (type(again.batch), type(again.timeout), type(again.tls.ca)) == (Size, Seconds, Material)


def test_settings_that_the_plugin_no_longer_takes_are_told_by_the_operators_error():
    with pytest.raises(StartFailed, match="the installed plugin sink does not take the stored settings"):
        restore_output("sink", {"hosts": ["https://a"], "gone": 1}, REGISTRY)
    with pytest.raises(StartFailed, match="no output of type"):
        restore_output("gone", {}, REGISTRY)


@given(
    st.fixed_dictionaries(
        {"type": st.just("sink"), "hosts": st.lists(st.sampled_from(["https://a", "http://b"]))},
        optional={
            "batch": st.integers(0, 10**6).map(lambda n: f"{n}KiB"),
            "timeout": st.integers(0, 10**6).map(lambda n: f"{n}ms") | st.just("never"),
            "rate": st.integers(0, 100) | st.floats(0, 10),
            "sets": st.lists(st.text(max_size=3)),
            "workers": st.integers(1, 64),
        },
    )
)
def test_any_valid_settings_survive_json(config):
    spec = parse(write({"version": 1, "outputs": {"main": config}}), REGISTRY).outputs["main"]
    kept = json.loads(json.dumps(output_settings(spec)))
    again = restore_output("sink", kept, REGISTRY)

    assert again == spec.config
    assert output_settings(msgspec.structs.replace(spec, config=again)) == output_settings(spec)


def test_a_tree_of_a_policy_written_and_read_again_means_the_same():
    text = SINK + "processors: [{type: tag, fields: {a: no, b: '1', c: 2001-01-01}}]\n"

    assert meaning(parse(write(plain(read(text))), REGISTRY)) == meaning(parse(text, REGISTRY))


def test_an_input_gives_nothing_that_an_output_of_it_does_not_take():
    for inputs, outputs, told in [
        ("{type: facts}", "main: {type: console}, shelf: {type: shelf}", "keyed state, which outputs.main (console)"),
        ("{type: facts}", "shelf: {type: shelf, fails: true}", "keyed state, which outputs.shelf (shelf)"),
        ("{type: tail, paths: [b]}", "shelf: {type: shelf}", "log events, which outputs.shelf (shelf)"),
        ("{type: both}", "shelf: {type: shelf}", "log events, which outputs.shelf (shelf)"),
        (
            "{type: both, outputs: [shelf]}, c: {type: both}",
            "shelf: {type: shelf}, other: {type: shelf, only: false}",
            "log events, which outputs.shelf (shelf)",
        ),
        (
            "{type: both}",
            "main: {type: console}, other: {type: shelf, only: false}",
            "keyed state, which outputs.main (console)",
        ),
    ]:
        text = f"{MINIMUM}inputs: {{a: {inputs}}}\noutputs: {{{outputs}}}\n"

        assert problems(text) == [(2, 13, "inputs.a", f"this input gives {told} does not take")]


@pytest.mark.parametrize(
    "text",
    [
        "inputs: {a: {type: facts, outputs: [shelf]}}\noutputs: {main: {type: console}, shelf: {type: shelf}}",
        "inputs: {a: {type: both}}\noutputs: {shelf: {type: shelf, only: false}}",
        "inputs: {a: {type: both}}\noutputs: {shelf: {type: shelf}, other: {type: shelf, only: false}}",
        "inputs: {a: {type: both}}\noutputs: {shelf: {type: shelf}, main: {type: console}}",
        "inputs: {a: {type: facts}}\nprocessors: [{type: tag, fields: {a: b}}]\noutputs: {shelf: {type: shelf}}",
    ],
)
def test_state_goes_where_it_is_taken(text):
    parse(MINIMUM + text, REGISTRY)


def test_a_processor_sends_no_log_events_to_an_output_that_takes_state_only():
    outputs = "outputs: {shelf: {type: shelf}, other: {type: shelf, only: false}}\n"
    text = f"version: 1\ninputs: {{c: {{type: both}}}}\nprocessors:\n  - {{type: give, to: [other, shelf]}}\n{outputs}"

    assert problems(text) == [
        (4, 30, "processors[0].to[1]", 'the output "shelf" takes keyed state alone, and no log events')
    ]


def test_keyed_state_passes_no_processors():
    text = "version: 1\ninputs:\n  a:\n    type: facts\n    processors: [{type: tag, fields: {a: b}}]\n"

    assert problems(text) == [
        (5, 17, "inputs.a.processors", "keyed state passes no processors; remove the processors of this input")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "inputs:\n  a: {type: waiting, processors: [{type: holds}]}\noutputs: {main: {type: console}}\n",
        "inputs:\n  a: {type: waiting}\noutputs: {main: {type: console, processors: [{type: holds}]}}\n",
        "inputs:\n  a: {type: waiting}\nprocessors: [{type: holds}]\noutputs: {main: {type: console}}\n",
    ],
)
def test_an_input_that_awaits_answers_has_no_stage_on_its_way(text):
    assert [(path, message) for _, _, path, message in problems(MINIMUM + text)] == [
        ("inputs.a", "this input awaits the answers for its events, of which Holds makes others")
    ]


def test_a_stage_elsewhere_is_no_matter_to_an_input_that_awaits_answers():
    parse(
        MINIMUM
        + "inputs:\n  a: {type: waiting, outputs: [main]}\n  b: {type: facts, outputs: [shelf]}\n"
        + "outputs: {main: {type: console}, shelf: {type: shelf, processors: [{type: holds}]}}\n",
        REGISTRY,
    )
