"""Finds the parts of a valid policy that have no effect, though their author wrote them for one.

Each is a warning, never a refusal, since a part may wait for another one that comes later. A part has one warning, at
its place, which says what would give it an effect; its consequences have none of their own. Outputs of a policy without
any input have no warning: they deliver what is queued, which is how a host is emptied.
"""

from __future__ import annotations

from collections.abc import Iterator

from shipper.policy.document import Mark, Node, below
from shipper.policy.policy import Drain, InputSpec, Policy, takes_events
from shipper.sdk.codes import Code
from shipper.sdk.errors import Problem


def idle(policy: Policy, tree: Node) -> list[Problem]:
    """Returns a warning for each part without an effect, with its place in the tree that the policy was built of."""
    return [*_inputs(policy, tree), *_outputs(policy, tree), *_processors(policy, tree), *_drain(policy, tree)]


def warning(path: str, at: Mark, message: str) -> Problem:
    """Returns the warning of a part that has no effect."""
    return Problem(path, at.line, at.column, message, at.file, Code.NO_EFFECT)


def _inputs(policy: Policy, tree: Node) -> Iterator[Problem]:
    if policy.inputs and not policy.outputs:
        yield _at(tree, "there are inputs and no outputs: nothing is read; add an output", "inputs")
        return
    for name, spec in policy.inputs.items():
        if not _outputs_of(spec, policy):
            text = "this input has no output, so it reads nothing; name one in its `outputs`, or remove it"
            yield _at(tree, text, "inputs", name, "outputs")


def _outputs(policy: Policy, tree: Node) -> Iterator[Problem]:
    if not policy.inputs:
        return
    used = {output for spec in policy.inputs.values() for output in _outputs_of(spec, policy)}
    for name in policy.outputs:
        if name not in used:
            text = "no input sends to this output; name it in the `outputs` of an input, or remove it"
            yield _at(tree, text, "outputs", name)


def _processors(policy: Policy, tree: Node) -> Iterator[Problem]:
    """Those of the policy, and those of outputs to which keyed state alone goes."""
    giving = [spec for spec in policy.inputs.values() if spec.config.gives_events]
    if policy.processors and not giving:
        why = "no input gives log events" if policy.inputs else "there are no inputs"
        yield _at(tree, f"{why}, on which these processors would act; add one, or remove them", "processors")
    fed = {name for spec in giving for name in _outputs_of(spec, policy) if takes_events(policy.outputs[name].config)}
    used = {output for spec in policy.inputs.values() for output in _outputs_of(spec, policy)}
    for name, output in policy.outputs.items():
        if output.processors and name in used - fed:
            text = "only keyed state goes to this output, and that passes no processors; remove them"
            yield _at(tree, text, "outputs", name, "processors")


def _drain(policy: Policy, tree: Node) -> Iterator[Problem]:
    if policy.drain.deadline is None and policy.drain.on_deadline != Drain().on_deadline:
        text = "there is no deadline at which it would act; set `deadline`, such as 4h, or remove it"
        yield _at(tree, text, "drain", "on_deadline")


def _outputs_of(spec: InputSpec, policy: Policy) -> tuple[str, ...]:
    return tuple(policy.outputs) if spec.outputs is None else spec.outputs


def _at(tree: Node, message: str, *keys: str) -> Problem:
    """Returns a warning at the key to which the keys lead, as far as they are in the text."""
    node, path, mark = tree, "", tree.mark
    for key in keys:
        if not isinstance(node.value, dict) or key not in node.value:
            break
        mark = node.keys.get(key, node.value[key].mark)
        node, path = node.value[key], below(path, key)
    return warning(path, mark, message)
