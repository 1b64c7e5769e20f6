"""`leave`, `forget`, `release`: the end of a member."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shipper.commands import with_state
from shipper.commands.fleet.options import with_config, with_json
from shipper.commands.fleet.output import result, warn
from shipper.commands.fleet.work import run

if TYPE_CHECKING:
    from shipper.fleet.opening import Opened


@click.command(short_help="Take this host out of its fleet.")
@with_state("The supervisor's --state directory.")
@with_json
def leave(state: Path, json: bool) -> int:
    """Take the host of --state out of its fleet: its supervisor delivers what it can, tells the fleet, and stops.

    A member that has left with nothing undelivered keeps no `wait` closed. It joins again when its supervisor is
    started, which needs the store then. This verb has no --config: it asks the running supervisor of this host, which
    knows its fleet. For a host that is gone, use `shipper fleet forget`.

    \b
    Example:
      shipper fleet leave --state /var/lib/shipper
    """
    import msgspec

    from shipper.process.log import printable
    from shipper.supervise.questions import Leave, ask

    answer = ask(state, Leave())
    if json:
        click.echo(msgspec.json.encode(answer))
        return 1 if answer["status"] == "FAILED" else 0
    if answer["status"] == "FAILED":
        raise click.ClickException(f"not done: {printable(answer['message'])}")
    click.echo(printable(answer["message"]) if answer.get("message") else "this host has left the fleet")
    return 0


@click.command(short_help="Forget a member that will not come back.")
@click.argument("member")
@click.option("--force", is_flag=True, help="Forget it even if it is alive, or its report was removed.")
@with_json
@with_config
@click.pass_context
def forget(context: click.Context, member: str, force: bool, json: bool, config: Path | None) -> int:
    """Forget a member that will not come back, or a state directory that it has lost (NAME/DIRECTORY).

    It keeps no `wait` closed any more; its last report is kept. If the host still runs, and has not `on_lapse: hold`,
    it may still send under old secrets: make sure that it is gone.

    \b
    Example:
      shipper fleet forget web-17
    """

    async def work(fleet: Opened) -> int:
        from shipper.fleet import operations
        from shipper.sdk.units import events_in_words

        done = await operations.forget(fleet.store, fleet.seals, member, force=force)
        left = f", with {events_in_words(done.undelivered.events)} undelivered" if done.undelivered.events else ""
        warn([done.warning] if done.warning else [])
        return result(json, done, f"{done.member} is forgotten{left}")

    return run(context, config, work)


@click.command("release", short_help="Release a secret although a member that is gone has undelivered events.")
@click.argument("id")
@click.option(
    "--despite",
    "member",
    required=True,
    metavar="MEMBER",
    help="The fenced or forgotten member with the events; or what else `secret list` names.",
)
@with_json
@with_config
@click.pass_context
def release_despite(context: click.Context, id: str, member: str, json: bool, config: Path | None) -> int:
    """Release the secret with this ID although a fenced or forgotten member has undelivered events.

    Without this order, such a member delays the release by a day. What it holds for that secret may be undeliverable
    afterwards. `shipper fleet secret list` has the ids.

    With `--despite 'the store'`, a secret is given up whose content was lost with a restore of the store: when no
    member uses it any more, it is done, and no on_release runs. If it is still valid somewhere, revoke it there.

    \b
    Example:
      shipper fleet release es-3f9c0a7be2d1 --despite web-17
    """

    async def work(fleet: Opened) -> int:
        from shipper.fleet import operations

        await operations.order_release(fleet.store, fleet.seals, id, member)
        return result(json, {"id": id, "despite": member}, f"{member} no longer delays the release of {id}")

    return run(context, config, work)
