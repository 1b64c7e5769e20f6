"""`shipper test`: runs the cases that a policy carries, and asks destinations before they are needed.

| status | meaning |
|---|---|
| 0 | every case is good; every destination takes what the policy sends |
| 1 | a case is not, or there is none; a destination refuses something, or does not answer |
| 78 | a policy is refused |
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from msgspec import structs

from shipper.commands import PATH
from shipper.sdk.errors import PolicyError

if TYPE_CHECKING:
    from shipper.asking.matching import Compared
    from shipper.asking.trial import Outcome
    from shipper.policy.registry import Registry
    from shipper.sdk.asking import Finding

    _Result: TypeAlias = tuple[Path, Sequence[Outcome] | PolicyError]

FAILED, REFUSED = 1, 78
_OWN = "cases"


class _Test(click.Group):
    """A group whose arguments are policy files, unless the first one names another question."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asked = next((argument for argument in args if not argument.startswith("-")), None)
        if asked not in self.commands and not {"-h", "--help"}.intersection(args) and args:
            args = [_OWN, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[--show] FILE...")
        for name in self.list_commands(ctx):
            formatter.write_usage(ctx.command_path, f"{name} [OPTIONS] FILE")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options of the own question, too."""
        params = [*self.commands[_OWN].get_params(ctx), *self.get_params(ctx)]
        every = [param.get_help_record(ctx) for param in params if isinstance(param, click.Option)]
        with formatter.section("Options"):
            formatter.write_dl(list(dict.fromkeys(record for record in every if record is not None)))
        self.format_commands(ctx, formatter)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name != _OWN]


@click.group("test", cls=_Test)
def command() -> None:
    """Run the tests of policy files, or ask the destinations of one.

    Each FILE is one policy; so is a directory, merged from its *.yaml and *.yml files. Its `tests` name events that go
    in at an input, and those that must come out at its outputs. Nothing is sent, and no secret is read.

    \b
    Example:       shipper test policy.yaml
    What comes:    shipper test --show policy.yaml
    Destinations:  shipper test output policy.yaml
    A new key:     shipper test credential policy.yaml --secret /run/keys/es-new
    """


@command.command(_OWN, hidden=True)
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@click.option("--show", is_flag=True, help="Print the events that come out, to write or correct a test.")
@click.option("--json", "as_json", is_flag=True, help="Print the result for programs.")
def run_cases(files: Sequence[Path], show: bool, as_json: bool) -> None:
    """Run the tests of policy files."""
    from shipper.policy.registry import Registry

    registry = Registry.installed()
    results = [_result(path, registry) for path in files]
    if as_json:
        click.echo(json.dumps([_for_programs(*result) for result in results], indent=2))
    else:
        _print_results(results, show=show)
    refused = any(isinstance(found, PolicyError) for _, found in results)
    good = all(isinstance(found, Sequence) and found and all(one.is_good for one in found) for _, found in results)
    click.get_current_context().exit(REFUSED if refused else 0 if good else FAILED)


def _result(path: Path, registry: Registry) -> _Result:
    try:
        return path, _outcomes(path, registry)
    except PolicyError as error:
        return path, error


def _print_results(results: Sequence[_Result], *, show: bool) -> None:
    good, bad = 0, 0
    for path, found in results:
        if isinstance(found, PolicyError):
            click.echo("\n".join(map(str, found.problems)))
            continue
        if not found:
            click.echo(f"{path}: there are no tests; write some below `tests:`")
        for outcome in found:
            click.echo("\n".join(_lines(outcome, show=show)))
        good += sum(outcome.is_good for outcome in found)
        bad += sum(not outcome.is_good for outcome in found)
    if good or bad:
        click.echo(f"{good} good" + (f", {bad} failed" if bad else ""))


def _for_programs(path: Path, found: Sequence[Outcome] | PolicyError) -> dict[str, Any]:
    if isinstance(found, PolicyError):
        return {"file": str(path), "valid": False, "errors": [asdict(problem) for problem in found.problems]}
    cases = [
        {"name": one.case.name, "line": one.case.mark.line, "good": one.is_good, "came": one.came} for one in found
    ]
    return {"file": str(path), "valid": True, "cases": cases, "errors": []}


def _outcomes(path: Path, registry: Registry) -> Sequence[Outcome]:
    """Returns what comes of the cases of a policy; raises PolicyError."""
    import trio

    from shipper.asking.planned import cases_of, imagined, planned
    from shipper.asking.trial import tried

    found = planned([path], os.environ, registry, imagined)
    return trio.run(tried, cases_of(found.tests, found.plan.policy), found.plan.inputs)


# -- asking destinations -----------------------------------------------------------------------------------------------

_ASKING = (
    click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE..."),
    click.option("--output", "outputs", multiple=True, metavar="NAME", help="Ask this output only; may be repeated."),
    click.option("--place", "places", multiple=True, metavar="NAME", help="Ask about one more index, stream or topic."),
    click.option("--secret", type=PATH, metavar="FILE", help="Ask with this secret, and not with that of the policy."),
    click.option("--as", "shape", metavar="SHAPE", help="The shape of a bare text in --secret, such as bearer_token."),
    click.option(
        "--try", "may_try", is_flag=True, help="Also send a request that must be refused; may create an index."
    ),
    click.option(
        "--timeout", default=60.0, show_default=True, type=click.FloatRange(1, 3600), help="Seconds an output."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the findings for programs."),
)


def _asking(function: Callable[..., None]) -> Callable[..., None]:
    for decorate in reversed(_ASKING):
        function = decorate(function)
    return function


@command.command("output", short_help="Ask whether destinations would take the events.")
@_asking
def ask_outputs(as_json: bool, **options: Any) -> None:
    """Ask the destinations of a policy whether they would take its events.

    Addresses, TLS, the login, and what the credential may do at each place to which events would go. No event is sent.
    Several FILEs are one policy, as for `shipper supervise`.
    The exit status is 1 if something is refused or missing.

    \b
    Example:       shipper test output policy.yaml
    One of them:   shipper test output policy.yaml --output main
    """
    _report(as_json, lambda finding: True, with_inputs=False, **options)


@command.command("credential", short_help="Ask whether destinations know the secrets.")
@_asking
def ask_credentials(as_json: bool, **options: Any) -> None:
    """Read the secrets of a policy, and ask the destinations whether they know them.

    With --secret, a new credential is asked about before the policy has it. If it fits several outputs, --output names
    the one that gets it. No event is sent, and no secret is shown.

    \b
    Example:       shipper test credential policy.yaml
    A new one:     shipper test credential policy.yaml --output main --secret /run/keys/es-new
    """
    of_credentials = ("secret", "login", "privilege")
    _report(as_json, lambda one: one.verdict == "bad" or one.asked in of_credentials, with_inputs=True, **options)


def _report(as_json: bool, is_shown: Callable[[Finding], bool], *, with_inputs: bool, **options: Any) -> None:
    """Asks, and prints each finding when it is known; exits with 1 if one is bad."""
    found: list[tuple[str, Finding]] = []
    last = ""

    def tell(unit: str, finding: Finding) -> None:
        nonlocal last
        if not is_shown(finding):
            return
        found.append((unit, finding))
        if not as_json:
            if unit != last:
                click.echo(unit)
            click.echo(f"  {_told(finding)}")
        last = unit

    try:
        _ask(tell, with_inputs=with_inputs, **options)
    except PolicyError as error:
        click.echo("\n".join(map(str, error.problems)), err=as_json)
        click.get_current_context().exit(REFUSED)
    bad = sum(finding.verdict == "bad" for _, finding in found)
    if as_json:
        click.echo(json.dumps([{"unit": unit, **structs.asdict(finding)} for unit, finding in found], indent=2))
    elif not found:
        click.echo("there is nothing to ask")
    else:
        click.echo(f"{bad} bad" if bad else "nothing is bad")
    click.get_current_context().exit(FAILED if bad else 0)


def _ask(
    tell: Callable[[str, Finding], None],
    *,
    with_inputs: bool,
    files: Sequence[Path],
    outputs: Sequence[str],
    places: Sequence[str],
    secret: Path | None,
    shape: str | None,
    may_try: bool,
    timeout: float,
) -> None:
    """Tells the findings, each with its unit, such as `outputs.main`. Raises PolicyError and OptionError."""
    import trio

    from shipper.asking import destinations
    from shipper.asking.planned import planned
    from shipper.policy.registry import Registry

    found = planned(files, os.environ, Registry.installed())
    given = None if secret is None else destinations.given(secret, shape, os.environ)
    held = destinations.Secrets(found, os.environ, given)
    names = destinations.chosen(found.plan, outputs)
    if not outputs:
        destinations.only_for_one(found.plan, names, given)
    if with_inputs:
        names = [name for name in names if held.are_used(found.plan.outputs[name].spec)]
        for name, input in found.plan.inputs.items() if not outputs else ():
            for finding in held.of(input.spec)[1]:
                tell(f"inputs.{name}", finding)

    async def asked() -> None:
        await destinations.each(
            names,
            found,
            held,
            destinations.ask,
            lambda name, finding: tell(f"outputs.{name}", finding),
            seconds=timeout,
            targets=places,
            may_try=may_try,
        )

    trio.run(asked)


def _told(finding: Finding) -> str:
    from shipper.process import log

    text = f"{finding.verdict:7}  {finding.asked} {finding.of}" + (f": {finding.text}" if finding.text else "")
    return click.style(log.printable(text), fg={"good": "green", "bad": "red"}.get(finding.verdict))


# -- in words ----------------------------------------------------------------------------------------------------------


def _lines(outcome: Outcome, *, show: bool) -> Iterator[str]:
    case = outcome.case
    where = f"{case.mark.file}:{case.mark.line}: {case.name}"
    yield click.style(f"good    {where}", fg="green") if outcome.is_good else click.style(f"failed  {where}", fg="red")
    for output, rows in outcome.compared.items():
        for number, row in enumerate(rows, 1):
            if not row.is_good:
                yield from _difference(f"outputs.{output}, event {number}", row)
    if show:
        for output, events in outcome.came.items():
            yield f"    outputs.{output}: {_count(len(events))}"
            yield from (f"      {line}" for line in _written(events))


def _difference(where: str, row: Compared) -> Iterator[str]:
    from shipper.asking.matching import ABSENT

    if row.came is None:
        yield f"    {where}: expected, and did not come"
        yield from (click.style(f"      - {line}", fg="red") for line in _fields(row.expected or {}))
    elif row.expected is None:
        yield f"    {where}: came, and was not expected"
        yield from (click.style(f"      + {line}", fg="green") for line in _fields(row.came))
    else:
        yield f"    {where}: - expected, + came"
        for name, expected, came in row.differences:
            no = "(no such field)"
            yield click.style(f"      - {name}: {no if expected is ABSENT else _value(expected)}", fg="red")
            yield click.style(f"      + {name}: {no if came is ABSENT else _value(came)}", fg="green")


def _fields(event: dict[str, Any]) -> Iterator[str]:
    from shipper.asking.matching import flat

    return (f"{name}: {_value(value)}" for name, value in sorted(flat(event).items()))


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _written(events: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields the lines of events as a policy may hold them."""
    from shipper.asking.matching import flat
    from shipper.policy import document

    yield from document.write([dict(sorted(flat(event).items())) for event in events]).splitlines()


def _count(number: int) -> str:
    return f"{number} event" if number == 1 else f"{number} events"
