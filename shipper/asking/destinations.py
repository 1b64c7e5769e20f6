"""Asks the destinations of a policy, by the outputs that would send to them.

What to ask for follows from the policy: an event of each input, and those of its tests, pass the processors; the places
to which an output would send what comes out are asked about. A secret is read when its output is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import trio

from shipper.asking.planned import Planned, cases_of
from shipper.asking.trial import batches, passed
from shipper.pipeline import libraries
from shipper.pipeline.intake.envelope import Envelope
from shipper.pipeline.plan import InputPlan, Plan
from shipper.plugin import Batch, Credential, Fields, Meters, OutputContext, StageContext
from shipper.policy.policy import InputSpec, OutputSpec
from shipper.policy.uses import Use, uses
from shipper.process.groups import failures_apart
from shipper.sdk.aio import Asyncio, open_asyncio
from shipper.sdk.asking import Finding, Question, Tell
from shipper.sdk.codes import Code
from shipper.sdk.credentials import in_words
from shipper.sdk.errors import OptionError, ShipperError, raised_at
from shipper.supervise import secrets

SECONDS = 60.0
"""How long one output is asked, unless somebody says otherwise."""

Ask = Callable[[OutputSpec, OutputContext, Question, Tell], Awaitable[None]]
"""Asks one output."""


class Places:
    """The places to which the outputs of a policy would send, by the events that its inputs may give."""

    def __init__(self, planned: Planned) -> None:
        """Raises PolicyError for invalid tests of the policy."""
        self._plan = planned.plan
        self._events: dict[str, list[str | Fields]] = {name: [{"message": ""}] for name in self._plan.inputs}
        for case in cases_of(planned.tests, self._plan.policy):
            self._events[case.input] += case.events

    async def questions(
        self, aio: Asyncio, targets: Iterable[str] = (), *, may_try: bool = False
    ) -> dict[str, Question]:
        """Returns the question for each output; `targets` are more places. Raises StartFailed for a processor that
        cannot be opened."""
        found: dict[str, dict[str, None]] = {name: {} for name in self._plan.outputs}
        has_state = dict.fromkeys(found, False)
        for name, input in self._plan.inputs.items():
            for output in input.state:
                has_state[output] = has_state[output] or input.spec.config.gives_state
            if input.spec.config.gives_events:
                context = StageContext(name, aio, Meters(), lambda: 0.0)
                for output, made in (await self._made(name, input, context)).items():
                    config = self._plan.outputs[output].spec.config
                    found[output].update(dict.fromkeys(target for batch in made for target in config.targets(batch)))
        return {
            name: Question(sorted({*filter(None, places), *targets}), has_state[name], may_try)
            for name, places in found.items()
        }

    async def _made(self, name: str, input: InputPlan, context: StageContext) -> Mapping[str, Sequence[Batch]]:
        """Returns what comes to each output; where processors leave nothing, an event without them."""
        arrived = datetime.now(UTC)
        given = list(batches(self._events[name]))
        made = await passed(given, input, context, arrived)
        bare = [Envelope.of(input.spec.config).on(batch, arrived) for batch in given[:1]]
        return {output: [batch for batch in those if batch.count] or bare for output, those in made.items()}


class Secrets:
    """The secrets of a policy, read on demand; `instead` takes the place of each that it fits."""

    def __init__(self, planned: Planned, environment: Mapping[str, str], instead: Credential | None = None) -> None:
        self._references, self._environment, self._instead = planned.references, environment, instead

    def are_used(self, spec: OutputSpec | InputSpec) -> bool:
        """Whether an input or output has any."""
        return bool(uses(spec.config))

    def of(self, spec: OutputSpec | InputSpec) -> tuple[dict[str, Credential], list[Finding]]:
        """Returns the secrets of an output by their ids, and what was found. Blocks on files."""
        found: dict[str, Credential] = {}
        findings: list[Finding] = []
        for use in uses(spec.config):
            try:
                found[use.id] = self._credential(use)
                findings.append(Finding("secret", self._name(use), "good", found[use.id].name(use.shapes)))
            except ValueError as error:
                text = str(error).removeprefix(f"the secret {self._name(use)} ").removeprefix(": ")
                findings.append(Finding("secret", self._name(use), "bad", text, Code.SECRET_UNAVAILABLE))
        return found, findings

    def _name(self, use: Use) -> str:
        if self._instead is not None and self._instead.fits(*use.shapes):
            return "the given one"
        return str(self._references.get(use.id, use.id))

    def _credential(self, use: Use) -> Credential:
        if self._instead is not None and self._instead.fits(*use.shapes):
            return self._instead
        reference = self._references.get(use.id)
        if reference is None:
            raise ValueError("the policy has only its id: give the secret by --secret FILE")
        credential = secrets.read(reference, self._environment, use.shapes)
        if not credential.fits(*use.shapes):
            raise ValueError(f"its shape is not accepted here; accepted: {in_words(use.shapes)}")
        return credential


def given(secret: Path, shape: str | None, environment: Mapping[str, str]) -> Credential:
    """Returns the secret in a file; raises OptionError. Blocks on the file."""
    try:
        return secrets.read(secrets.Reference.parse(secrets.of_file(secret, shape)), environment)
    except ValueError as error:
        raise OptionError(str(error)) from None


def chosen(plan: Plan, names: Sequence[str]) -> Sequence[str]:
    """Returns the names of the outputs to ask (none: all); raises OptionError for one that there is not."""
    for name in names:
        if name not in plan.outputs:
            raise OptionError(f"there is no output {name}; there are: {', '.join(plan.outputs) or 'none'}")
    return names or list(plan.outputs)


def only_for_one(plan: Plan, names: Iterable[str], instead: Credential | None) -> None:
    """Raises OptionError if a given secret fits several of these outputs, of which nobody has named any: each of their
    destinations would get to know it."""
    if instead is None:
        return
    specs = [plan.outputs[name].spec for name in names]
    fitting = [spec.name for spec in specs if any(instead.fits(*use.shapes) for use in uses(spec.config))]
    if len(fitting) > 1:
        told = ", ".join(fitting)
        raise OptionError(f"--secret fits several outputs, and each would get it: name the one by --output ({told})")


async def ask(spec: OutputSpec, context: OutputContext, question: Question, tell: Tell) -> None:
    """Asks an output; one that says nothing before events are sent is of an unknown verdict."""
    if spec.config.can_ask:
        await spec.config.ask(context, question, tell)
    else:
        tell(
            Finding(
                "destination", spec.name, "unknown", f"outputs of the type {spec.type} cannot be asked without events"
            )
        )


async def each(
    names: Iterable[str],
    planned: Planned,
    held: Secrets,
    ask: Ask,
    tell: Callable[[str, Finding], None],
    *,
    seconds: float,
    targets: Iterable[str] = (),
    may_try: bool = False,
) -> None:
    """Asks outputs one after the other; tells the name of each with its findings. An output has so many seconds.

    Raises StartFailed for a processor that cannot be opened, PolicyError for invalid tests.
    """
    async with open_asyncio() as aio:
        questions = await Places(planned).questions(aio, targets, may_try=may_try)
        for name in names:
            spec = planned.plan.outputs[name].spec

            def told(finding: Finding, name: str = name) -> None:
                tell(name, finding)

            credentials, findings = await trio.to_thread.run_sync(held.of, spec)
            for finding in findings:
                told(finding)
            if all(finding.verdict == "good" for finding in findings):
                context = OutputContext(name, aio, credentials)
                await _bounded(ask, spec, context, questions[name], told, seconds)


async def _bounded(
    ask: Ask, spec: OutputSpec, context: OutputContext, question: Question, tell: Tell, seconds: float
) -> None:
    """Asks one output; a failure is a finding."""

    def failed(error: Exception) -> None:
        is_ours = isinstance(error, ShipperError)
        text = str(error) if is_ours else f"the plugin {spec.type} failed: {raised_at(error)}"
        code = error.code if isinstance(error, ShipperError) else Code.PLUGIN_FAULT
        tell(Finding("destination", spec.name, "bad", text.removeprefix(f"output {spec.name}: "), code))

    with trio.move_on_after(seconds) as scope, failures_apart(failed):
        await libraries.load(f"output {spec.name}", spec.config)
        await ask(spec, context, question, tell)
    if scope.cancelled_caught:
        tell(Finding("destination", spec.name, "bad", f"no answer within {seconds:g}s", Code.TIMED_OUT))
