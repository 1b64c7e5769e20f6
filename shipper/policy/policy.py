"""Turns a text into a Policy, or into all errors that its author must correct, each with its place.

A `Policy` is a plain value: every plugin is configured, every file it names is read, nothing is opened. Two digests
classify a change. `meaning` covers the whole policy, so that key order, comments and spelled-out defaults do not
matter. `destination` covers the settings that decide where an output's queued events go, without the ids of its
credentials, which are the other half of a lane's identity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec

from shipper.plugin import Duration, Endpoint, Input, Material, Output, Processor, Settings, Size
from shipper.policy.document import Node, below, followed, read, shown, suggest
from shipper.policy.registry import Kind, Registry, UnknownType
from shipper.policy.settings import Reader, TooMany, digest, exported, fields_of, restored
from shipper.policy.uses import uses
from shipper.process.groups import contained, named
from shipper.sdk.codes import Code
from shipper.sdk.errors import PluginFault, PolicyError, StartFailed, raised_at
from shipper.sdk.feeding import Feeding
from shipper.sdk.trees import changed

VERSION = 1
NAME = r"[a-z0-9][a-z0-9_-]{0,62}"
LogLevel = Literal["debug", "info", "warning", "error"]

T = TypeVar("T")
Said = TypeVar("Said")


class InputSpec(msgspec.Struct, frozen=True):
    """An input of the policy; `outputs` None means all."""

    name: str
    type: str
    config: Input
    processors: tuple[Processor, ...]
    outputs: tuple[str, ...] | None


class OutputSpec(msgspec.Struct, frozen=True):
    """An output of the policy; its processors act before its queue."""

    name: str
    type: str
    config: Output
    processors: tuple[Processor, ...] = ()


class Queue(Settings, frozen=True):
    """How much may wait on disk."""

    max_bytes: Size = Size(1 << 30)
    """The limit at which intake waits until outputs have made room; nothing is dropped."""
    retired_max_bytes: Size | None = None
    """The limit for lanes of older revisions, beside it (default: `max_bytes`)."""


class DeadLetters(Settings, frozen=True):
    """The store of events that a destination rejected for ever."""

    max_bytes: Size = Size(256 << 20)
    """Its size."""
    when_full: Literal["drop_oldest", "hold"] = "drop_oldest"
    """`drop_oldest` makes room (counted, DEGRADED); `hold` keeps a rejected event in the queue."""


class Drain(Settings, frozen=True):
    """The treatment of undeliverable events of older revisions."""

    deadline: Duration | None = None
    """How long a barrier may wait before `on_deadline`, or `never`."""
    on_deadline: Literal["hold", "forward", "dead_letter", "drop"] = "hold"
    """`hold` waits on (DEGRADED); `forward` delivers the events to the current destination of their output, with its
    credential, and holds if the output is gone; `dead_letter` and `drop` give them that final answer. """
    never_reached: Literal["forward", "hold"] = "forward"
    """`forward` delivers events for hosts that never gave an HTTP answer (a typo, a missing CA) to the current
    destination of their output, if that has the same credential, without an order; `hold` waits for an order."""


class Policy(msgspec.Struct, frozen=True):
    """The content of one revision."""

    inputs: Mapping[str, InputSpec] = {}
    processors: tuple[Processor, ...] = ()
    outputs: Mapping[str, OutputSpec] = {}
    queue: Queue = msgspec.field(default_factory=Queue)
    dead_letters: DeadLetters = msgspec.field(default_factory=DeadLetters)
    drain: Drain = msgspec.field(default_factory=Drain)
    log_level: LogLevel = "info"


KEYS = ("version", *Policy.__struct_fields__)


def parse(text: str | bytes, registry: Registry) -> Policy:
    """Returns the policy; raises PolicyError with all problems, or only those of the YAML if that is invalid."""
    return build(read(text), registry)


def build(node: Node, registry: Registry, material: Callable[[str], Material] = Material.read) -> Policy:
    """Returns the policy of a tree, whose marks may be of several files; reads the PEM files that it names by
    `material`. Raises PolicyError."""
    reader = _PolicyReader(registry, material)
    with suppress(TooMany):
        policy = reader.policy(node)
        if not reader.problems:
            return policy
    first = {(p.file or "", p.line, p.column, p.path): p for p in reversed(reader.problems)}
    raise PolicyError([first[place] for place in sorted(first)])


class _PolicyReader(Reader):
    """Reads the policy itself; the base reads the settings of plugins."""

    def __init__(self, registry: Registry, material: Callable[[str], Material]) -> None:
        super().__init__(material)
        self.registry = registry
        self.listeners: dict[tuple[str, str, int], str] = {}
        """The inputs that listen, by their addresses."""
        self.chosen: list[tuple[str, Node, str]] = []
        """The outputs that processors name, with the places where they do."""

    def policy(self, root: Node) -> Policy:
        """Returns the policy, which is valid only if there was no problem."""
        self.scan(root)
        top = self.children(root, "", "a mapping that begins with `version: 1`")
        for key in top:
            if key not in KEYS:
                self.unknown(key, KEYS, root.keys[key], "")
        self.version(root, top)
        nothing = Node({}, root.mark)

        def section(key: str) -> Node:
            return top.get(key, nothing)

        declared = section("outputs").value
        self.declared = declared if isinstance(declared, dict) else {}
        inputs = self.named("inputs", section("inputs"), self.input)
        processors = self.processors(top.get("processors"), "processors")
        outputs = self.named("outputs", section("outputs"), self.output)
        for output, place, path in self.chosen:
            if output in outputs and not takes_events(outputs[output].config):
                text = f'the output "{shown(output)}" takes keyed state alone, and no log events'
                self.problem(path, place.mark, text)
        for input in inputs.values():
            self.classes(input, outputs, root)
            self.stages(input, processors, outputs, root)
        return Policy(
            inputs=inputs,
            processors=processors,
            outputs=outputs,
            queue=self.struct(Queue, section("queue"), "queue") or Queue(),
            dead_letters=self.struct(DeadLetters, section("dead_letters"), "dead_letters") or DeadLetters(),
            drain=self.struct(Drain, section("drain"), "drain") or Drain(),
            log_level=self.value(LogLevel, top.get("log_level", Node("info", root.mark)), "log_level"),
        )

    def version(self, root: Node, top: Mapping[str, Node]) -> None:
        version = top.get("version")
        if version is None:
            if isinstance(root.value, dict):
                text = "the key is missing; begin the policy with `version: 1`"
                self.problem("version", root.mark, text, Code.MISSING_KEY)
        elif version.value is True or version.value != VERSION:
            self.problem("version", version.mark, f"this shipper reads version {VERSION}; write `version: {VERSION}`")

    def named(self, path: str, node: Node, make: Callable[[str, Node, str], T | None]) -> dict[str, T]:
        """Returns a section of named parts; leaves out bad parts, and adds their problems."""
        made: dict[str, T] = {}
        for name, child in self.children(node, path, "a mapping of names").items():
            if not re.fullmatch(NAME, name):
                message = (
                    "a name is made of a-z, 0-9, _ and -, begins with a letter or digit, and has at most 63 characters"
                )
                self.problem(below(path, name), node.keys[name], message)
            elif part := make(name, child, below(path, name)):
                made[name] = part
        return made

    def input(self, name: str, node: Node, path: str) -> InputSpec | None:
        type, config = self.plugin("inputs", node, path, ("processors", "outputs"))
        entries = node.value if isinstance(node.value, dict) else {}
        outputs = self.routes(entries.get("outputs"), below(path, "outputs"))
        processors = self.processors(entries.get("processors"), below(path, "processors"), outputs)
        if config is None:
            return None
        try:
            said("an input cannot say what its state belongs to", config.identity)
            self.listener(name, said("an input cannot say where it listens", config.listens), node, path)
        except PluginFault as error:
            self.problem(path, node.mark, str(error), error.code)
        return InputSpec(name, type, config, processors, outputs)

    def listener(self, name: str, listens: Sequence[Endpoint], node: Node, path: str) -> None:
        """Adds a problem for an address that an earlier input has: peers would reach either of them, by chance."""
        for place in dict.fromkeys(endpoint.place for endpoint in listens):
            first = name if place is None else self.listeners.setdefault(place, name)
            if first != name:
                message = f"this input and inputs.{first} listen on the same address; give each its own"
                self.problem(path, node.mark, message)

    def classes(self, input: InputSpec, outputs: Mapping[str, OutputSpec], root: Node) -> None:
        """Note what an input gives, keyed state or log events, that one of its outputs does not take.

        Of an input that gives both, an output that takes state alone gets that, if another one takes the log events.
        That one need take no state then.
        """
        place, path = followed(root, "", ("inputs", input.name))
        names = [name for name in (input.outputs if input.outputs is not None else outputs) if name in outputs]
        is_divided = _divides(input.config, [outputs[name].config for name in names])
        for name in names:
            takes = takes_events(outputs[name].config) or takes_state(outputs[name].config)
            for refused in () if is_divided and takes else _refused(input.config, outputs[name].config):
                text = f"this input gives {refused}, which outputs.{name} ({outputs[name].type}) does not take"
                self.problem(path, place.mark, text)
        if input.config.gives_state and not input.config.gives_events and input.processors:
            text = "keyed state passes no processors; remove the processors of this input"
            place, path = followed(place, path, ["processors"])
            self.problem(path, place.mark, text)

    def stages(
        self, input: InputSpec, common: Sequence[Processor], outputs: Mapping[str, OutputSpec], root: Node
    ) -> None:
        """Note a stage on the way of an input that awaits answers: it makes other events of those."""
        if not input.config.awaits():
            return
        to = [outputs[name] for name in (outputs if input.outputs is None else input.outputs) if name in outputs]
        way = [*common, *input.processors, *(one for output in to for one in output.processors)]
        names = sorted({type(one).__name__ for one in way if one.is_stage})
        if names:
            place, path = followed(root, "", ("inputs", input.name))
            text = f"this input awaits the answers for its events, of which {', '.join(names)} makes others"
            self.problem(path, place.mark, text)

    def output(self, name: str, node: Node, path: str) -> OutputSpec | None:
        type, config = self.plugin("outputs", node, path, ("processors",))
        entries = node.value if isinstance(node.value, dict) else {}
        processors = self.processors(entries.get("processors"), below(path, "processors"), (name,))
        if config is None:
            return None
        try:
            check_statements(config)
        except PluginFault as error:
            self.problem(path, node.mark, str(error), error.code)
        return OutputSpec(name, type, config, processors)

    def processors(self, node: Node | None, path: str, outputs: tuple[str, ...] | None = None) -> tuple[Processor, ...]:
        """Returns the processors of a list, which may name these outputs (None: all)."""
        if node is None:
            return ()
        if not isinstance(node.value, list):
            self.problem(path, node.mark, "expected a list of processors, such as [{type: add_fields, …}]")
            return ()
        made = [self.processor(child, below(path, at), outputs) for at, child in enumerate(node.value)]
        return tuple(processor for processor in made if processor is not None)

    def processor(self, node: Node, path: str, outputs: tuple[str, ...] | None) -> Processor | None:
        processor: Processor | None = self.plugin("processors", node, path)[1]
        for within, output in () if processor is None else self.named_outputs(processor, node, path):
            place, shown_path = followed(node, path, within)
            if output not in self.declared:
                self.no_such_output(output, place, shown_path)
            elif outputs is not None and output not in outputs:
                text = f'events do not go to the output "{shown(output)}" from here'
                self.problem(shown_path, place.mark, text, Code.UNKNOWN_OUTPUT)
            else:
                self.chosen.append((output, place, shown_path))
        return processor

    def named_outputs(self, processor: Processor, node: Node, path: str) -> Sequence[tuple[Sequence[str | int], str]]:
        try:
            with contained():
                return [(list(within), str(output)) for within, output in processor.named_outputs()]
        except Exception as error:
            text = f"{type(processor).__name__} cannot say which outputs it names: {named(error)}"
            self.problem(path, node.mark, text, Code.BAD_OPTION)
            return ()

    def plugin(self, kind: Kind, node: Node, path: str, reserved: tuple[str, ...] = ()) -> tuple[str, Any]:
        """Returns the type and the settings of a plugin; None for the settings if there was a problem."""
        entries = self.children(node, path)
        if isinstance(node.value, dict) and "type" not in entries:
            installed = ", ".join(self.registry.types(kind))
            text = f'the key "type" is missing; installed: {installed}'
            self.problem(below(path, "type"), node.mark, text, Code.MISSING_KEY)
        if "type" not in entries:
            return "", None
        type = entries["type"]
        if not isinstance(type.value, str):
            self.problem(below(path, "type"), type.mark, "expected the name of a plugin")
            return "", None
        try:
            plugin = self.registry.find(kind, type.value)
        except UnknownType as error:
            self.problem(below(path, "type"), type.mark, str(error), error.code)
            return type.value, None
        return type.value, self.struct(plugin, node, path, ("type", *reserved))

    def routes(self, node: Node | None, path: str) -> tuple[str, ...] | None:
        """Returns the outputs that an input names."""
        if node is None:
            return None
        if not isinstance(node.value, list):
            self.problem(path, node.mark, "expected a list of outputs, such as [main]")
            return ()
        names: dict[str, None] = {}
        for at, item in enumerate(node.value):
            self.route(item, below(path, at), names)
        return tuple(names)

    def route(self, item: Node, path: str, names: dict[str, None]) -> None:
        if not isinstance(item.value, str):
            self.problem(path, item.mark, "expected the name of an output")
        elif item.value not in self.declared:
            self.no_such_output(item.value, item, path)
        elif item.value in names:
            self.problem(path, item.mark, "this output is named twice")
        else:
            names[item.value] = None

    def no_such_output(self, name: str, node: Node, path: str) -> None:
        hint = suggest(name, self.declared)
        self.problem(path, node.mark, f'there is no output "{shown(name)}"{hint}', Code.UNKNOWN_OUTPUT)


def takes_events(output: Output) -> bool:
    """Whether log events go to an output, not just keyed state."""
    return _takes(output.takes_events)


def takes_state(output: Output) -> bool:
    """Whether keyed state goes to an output."""
    return _takes(output.takes_state)


def _divides(input: Input, outputs: Sequence[Output]) -> bool:
    """Whether keyed state and log events of an input go to outputs of their own."""
    gives_both = input.gives_state and input.gives_events
    return gives_both and any(map(takes_events, outputs)) and any(map(_takes_state_alone, outputs))


def _takes_state_alone(output: Output) -> bool:
    return takes_state(output) and not takes_events(output)


def _refused(input: Input, output: Output) -> list[str]:
    """What an input gives that an output does not take; one that fails to say what it takes, takes nothing."""
    state = ["keyed state"] if input.gives_state and not takes_state(output) else []
    events = ["log events"] if input.gives_events and not takes_events(output) else []
    return state + events


def _takes(asked: Callable[[], bool]) -> bool:
    try:
        with contained():
            return bool(asked())
    except Exception:
        return False


# -- what two policies are compared by, and what is kept of one --------------------------------------------------------


def meaning(policy: Policy) -> str:
    """Returns a digest (SHA-256, hex) that is equal for two policies of the same meaning, down to the bytes of
    files."""
    return digest(
        {
            "inputs": {name: _input(spec) for name, spec in policy.inputs.items()},
            "processors": [_part(processor) for processor in policy.processors],
            "outputs": {name: _output(spec) for name, spec in policy.outputs.items()},
            "rest": [exported(part) for part in (policy.queue, policy.dead_letters, policy.drain, policy.log_level)],
        }
    )


def _input(spec: InputSpec) -> Any:
    outputs = None if spec.outputs is None else sorted(spec.outputs)
    return [spec.type, _part(spec.config), [_part(processor) for processor in spec.processors], outputs]


def _output(spec: OutputSpec) -> Any:
    """Omits absent processors, so that a stored revision keeps its meaning over versions."""
    own = [[_part(processor) for processor in spec.processors]] if spec.processors else []
    return [spec.type, _part(spec.config), *own]


def _part(config: Settings) -> Any:
    return [f"{type(config).__module__}:{type(config).__qualname__}", exported(config, paths=False)]


def destination(spec: OutputSpec) -> str:
    """Returns a digest (SHA-256, hex) of name, type and every setting that matters to queued events.

    It excludes `workers`, `flush`, settings that the plugin calls `live`, and the ids of credentials: only the presence
    of one counts. (At the top the key itself is omitted, so that lanes keep their identity over versions.)
    """
    apart = {"workers", "flush", *spec.config.live}
    names = {name for name, field in fields_of(type(spec.config)).items() if field.name not in apart}
    settings = exported(spec.config, paths=False)
    paths = [use.path for use in uses(spec.config)]
    for path in paths:
        settings = changed(settings, path, lambda _: "")
    names.difference_update(path[0] for path in paths if len(path) == 1)
    return digest([spec.name, spec.type, {name: settings[name] for name in settings if name in names}])


def output_settings(spec: OutputSpec) -> dict[str, Any]:
    """Returns the output's settings as JSON-able values for `restore_output`, the bytes of files included."""
    settings: dict[str, Any] = exported(spec.config)
    return settings


def restore_output(type: str, settings: Mapping[str, Any], registry: Registry) -> Output:
    """Returns the output with these stored settings; reads no file.

    Raises StartFailed if its plugin is gone, or if its present version refuses these settings.
    """
    try:
        output = restored(registry.find("outputs", type), settings)
        check_statements(output)
        return output
    except UnknownType as error:
        raise StartFailed(str(error), code=error.code) from None
    except ValueError as error:
        raise StartFailed(f"the installed plugin {type} does not take the stored settings: {error}") from None
    except PluginFault as error:
        raise StartFailed(f"the installed plugin {type}: {error}", code=error.code) from None


def check_statements(output: Output) -> None:
    """Raises PluginFault if the output fails to say what it is asked for, or has no valid `feeding`."""
    for what, ask in (("which hosts it asks", output.contacts), ("what to warn of", output.warnings)):
        said(f"an output cannot say {what}", ask)
    feeding = said("an output cannot say how it is to be fed", output.feeding)
    if not isinstance(feeding, Feeding):
        raise PluginFault(f"an output says how it is to be fed by {type(feeding).__name__}, not by Feeding")


def said(cannot: str, ask: Callable[[], Said]) -> Said:
    """Returns what a plugin states; raises PluginFault, which begins with `cannot`, if it fails to."""
    try:
        with contained():
            return ask()
    except PluginFault:
        raise
    except Exception as error:
        raise PluginFault(f"{cannot}: {raised_at(error)}") from None
