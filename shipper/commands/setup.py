"""`shipper setup`: shows what a destination should have for a policy, such as templates, and writes it on request.

It never overwrites what is somebody else's, and writes nothing twice. The exit status is 1 if something cannot be known
or written, and 78 if the policy is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import asdict

from shipper.commands import PATH
from shipper.sdk.errors import OptionError, PolicyError

if TYPE_CHECKING:
    from shipper.plugin import OutputContext
    from shipper.policy.policy import OutputSpec
    from shipper.sdk.asking import Finding, Prepared, Question, Tell

FAILED, REFUSED = 1, 78


@click.command("setup")
@click.argument("type", metavar="TYPE")
@click.argument("file", type=PATH)
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="For this output only; may be repeated.")
@click.option("--place", "places", multiple=True, metavar="NAME", help="For one more data stream.")
@click.option("--secret", type=PATH, metavar="FILE", help="Ask with this secret, and not with that of the policy.")
@click.option("--as", "shape", metavar="SHAPE", help="The shape of a bare text in --secret, such as bearer_token.")
@click.option("--write", is_flag=True, help="Write what is missing, or an older form of what was written before.")
@click.option("--json", "as_json", is_flag=True, help="Print the result for programs.")
def command(
    type: str,
    file: Path,
    outputs: Sequence[str],
    places: Sequence[str],
    secret: Path | None,
    shape: str | None,
    write: bool,
    as_json: bool,
) -> None:
    """Show what the destinations of a policy should have, and write it with --write.

    For the TYPE elasticsearch: index templates for the data streams of the policy. The credential needs the privilege
    manage_index_templates; give that of an administrator by --secret, since the shipper itself should not have it.

    \b
    Show:          shipper setup elasticsearch policy.yaml --secret FILE
    Write:         shipper setup elasticsearch policy.yaml --secret FILE --write
    """
    try:
        prepared, bad = _set_up(type, file, outputs, places, secret, shape, write=write)
    except PolicyError as error:
        click.echo("\n".join(map(str, error.problems)), err=as_json)
        click.get_current_context().exit(REFUSED)
    if as_json:
        told = [{"output": name, **asdict(one)} for name, one in prepared]
        problems = [{"output": name, **asdict(finding)} for name, finding in bad]
        click.echo(json.dumps({"prepared": told, "problems": problems}, indent=2))
    else:
        click.echo("\n".join(_lines(prepared, bad, write=write)))
    failed = bad or any(one.state == "unknown" for _, one in prepared)
    click.get_current_context().exit(FAILED if failed else 0)


def _set_up(
    type: str,
    file: Path,
    outputs: Sequence[str],
    places: Sequence[str],
    secret: Path | None,
    shape: str | None,
    *,
    write: bool,
) -> tuple[list[tuple[str, Prepared]], list[tuple[str, Finding]]]:
    """Returns what outputs of this type should have, and what went wrong; raises PolicyError and OptionError."""
    import trio

    from shipper.asking import destinations
    from shipper.asking.planned import planned
    from shipper.policy.registry import Registry

    found = planned([file], os.environ, Registry.installed())
    given = None if secret is None else destinations.given(secret, shape, os.environ)
    held = destinations.Secrets(found, os.environ, given)
    names = [name for name in destinations.chosen(found.plan, outputs) if found.plan.outputs[name].spec.type == type]
    if not names:
        raise OptionError(f"the policy has no output of the type {type} to set up")
    if not found.plan.outputs[names[0]].spec.config.can_set_up:
        raise OptionError(f"destinations of the type {type} need nothing to be set up")
    if not outputs:
        destinations.only_for_one(found.plan, names, given)
    prepared: list[tuple[str, Prepared]] = []
    bad: list[tuple[str, Finding]] = []

    async def ask(spec: OutputSpec, context: OutputContext, question: Question, tell: Tell) -> None:
        await spec.config.set_up(context, question, lambda one: prepared.append((spec.name, one)), write=write)

    def tell(name: str, finding: Finding) -> None:
        if finding.verdict == "bad":
            bad.append((name, finding))

    async def asked() -> None:
        await destinations.each(names, found, held, ask, tell, seconds=destinations.SECONDS, targets=places)

    trio.run(asked)
    return prepared, bad


def _lines(
    prepared: Sequence[tuple[str, Prepared]], bad: Sequence[tuple[str, Finding]], *, write: bool
) -> Iterator[str]:
    from shipper.process import log

    for name, one in prepared:
        yield log.printable(f"outputs.{name}: {one.kind} {one.name}: {_state(one)}")
        if one.state != "same" and one.state != "foreign":
            yield from (f"  {line}" for line in json.dumps(one.content, indent=2).splitlines())
    for name, finding in bad:
        yield log.printable(f"outputs.{name}: {finding.asked} {finding.of}: {finding.text}")
    if not prepared and not bad:
        yield "the policy has no data streams that need anything"
    if not write and any(one.state in ("missing", "different") for _, one in prepared):
        yield "nothing was written: add --write"


def _state(one: Prepared) -> str:
    if one.has_written:
        return "written"
    said = {
        "missing": "missing",
        "same": "is there",
        "different": "an older form is there",
        "foreign": "left alone",
        "unknown": "unknown",
    }[one.state]
    return f"{said}: {one.text}" if one.text else said
