"""`publish`, `wait`, `rollback`: versions, and whether every member has reached one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shipper.commands import PATH
from shipper.commands.fleet.options import (
    STAGES,
    seconds_of,
    version_of,
    with_config,
    with_grace,
    with_json,
    with_timeout,
)
from shipper.commands.fleet.output import result, say, show_tables
from shipper.commands.fleet.work import publisher_of, run

if TYPE_CHECKING:
    from shipper.fleet.judge import Asked, State
    from shipper.fleet.opening import Opened
    from shipper.fleet.records import Version
    from shipper.supervise.answers import Stage

CONSISTENT, TIMED_OUT, REFUSED, GONE, RESTORED = 0, 3, 4, 5, 6
_OF_STATE: dict[State, int] = {
    "open": CONSISTENT,
    "closed": TIMED_OUT,
    "refused": REFUSED,
    "unknown": GONE,
    "gone": GONE,
    "store_restored": RESTORED,
}
_SHOWN_MEMBERS = 30


@click.command(short_help="Publish a policy as a new version.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=PATH)
@click.option("--if-version", metavar="N", help="Publish only if version N is the newest; 0: if there is none.")
@click.option("--wait", "stage", type=STAGES, help="Then wait until every member has reached this stage.")
@with_timeout
@with_grace
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@with_json
@with_config
@click.pass_context
def publish(
    context: click.Context,
    paths: tuple[Path, ...],
    if_version: str | None,
    stage: Stage | None,
    timeout: str,
    nack_grace: str,
    dry_run: bool,
    json: bool,
    config: Path | None,
) -> int:
    """Publish a policy: files, or directories of *.yaml, as for `shipper supervise`.

    It is checked on this host first. Variables and files that it names are those of each member; a secret of the fleet
    is written `{fleet: NAME}`. What the newest version has already is not published again.

    \b
    Examples:
      shipper fleet publish policy.yaml --dry-run
      shipper fleet publish policy.yaml --if-version 6 --wait drained --timeout 10m
    """
    limits = seconds_of("--timeout", timeout), seconds_of("--nack-grace", nack_grace)
    if if_version is not None:
        if_version = str(version_of(if_version))

    async def work(fleet: Opened) -> int:
        from shipper.fleet import drafts, pictures

        publisher = publisher_of(fleet)
        draft = await drafts.planned(paths, publisher, fleet.store, fleet.seals, if_version)
        if not json:
            say(pictures.plan_lines(draft.plan))
        if dry_run:
            return result(json, draft.plan, "nothing was published")
        same = await publisher.published(draft.candidate.text)
        version = same or await publisher.publish(draft.candidate.text, if_version=if_version)
        if stage is None or not json:
            made = {"version": str(version), "triple": version, "plan": draft.plan}
            text = f"version {version}" if same is None else f"version {same} is this policy: nothing was published"
            result(json, made, text)
        return CONSISTENT if stage is None else await _wait(fleet, version, stage, *limits, json=json)

    return run(context, config, work)


@click.command(short_help="Wait until every member has reached a version.")
@click.argument("version", metavar="N")
@click.option(
    "--stage", type=STAGES, default="drained", show_default=True, help="The stage that each member must have reached."
)
@with_timeout
@with_grace
@with_json
@with_config
@click.pass_context
def wait(
    context: click.Context,
    version: str,
    stage: Stage,
    timeout: str,
    nack_grace: str,
    json: bool,
    config: Path | None,
) -> int:
    """Wait until every member has reached version N, or a newer one.

    If a member refuses the version because it is invalid, or in conflict with another, the wait ends at once. After any
    other refusal it ends after --nack-grace. It goes on while a member is away (`absent`), unless that member certainly
    sends nothing any more (`fenced`), has left, or was forgotten.

    \b
    Examples:
      shipper fleet wait 7
      shipper fleet wait 7 --stage active --timeout 1m --json

    Exit status: 0 every member has reached it, 3 timed out, 4 a member refuses it, 5 there is no such version or it is
    gone from the history, 6 the store was restored, and nobody has accepted that yet (`accept-restore`), 69 the store
    cannot be reached.
    """
    limits = seconds_of("--timeout", timeout), seconds_of("--nack-grace", nack_grace)
    number = version_of(version)
    return run(context, config, lambda fleet: _wait(fleet, number, stage, *limits, json=json))


@click.command(short_help="Publish the text of an earlier version again.")
@click.argument("version", metavar="N")
@with_json
@with_config
@click.pass_context
def rollback(context: click.Context, version: str, json: bool, config: Path | None) -> int:
    """Publish the text of version N as a new version, with the secrets of today.

    \b
    Example:
      shipper fleet rollback 5
    """
    number = version_of(version)

    async def work(fleet: Opened) -> int:
        made = await publisher_of(fleet).rollback(str(number))
        return result(json, {"version": str(made), "triple": made}, f"version {made}, with the text of {number}")

    return run(context, config, work)


async def _wait(
    fleet: Opened, version: Asked | Version, stage: Stage, seconds: float, nack_grace: float, *, json: bool
) -> int:
    """Waits, and shows the wait on standard error or, on a terminal, on standard output; returns the exit status."""
    import sys

    from shipper.fleet import pictures
    from shipper.fleet.following import follow
    from shipper.fleet.progress import shown

    with shown(sys.stderr if json else sys.stdout) as show:
        verdict = await follow(fleet.store, fleet.seals, version, stage, seconds, nack_grace, show)
    show_tables(pictures.verdict_tables(verdict, _SHOWN_MEMBERS), verdict, json=json)
    return _OF_STATE[verdict.state]
