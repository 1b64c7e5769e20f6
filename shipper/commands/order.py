"""`shipper order`: gives orders to a running shipper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from shipper.commands import Verb, with_state


def _to_supervisor(verb: Verb) -> Verb:
    """Adds the options of every order."""
    verb = click.option("--json", is_flag=True, help="The result as one JSON object.")(verb)
    return with_state("The supervisor's --state.")(verb)


_WHAT_DRAINS = "What drains, as `shipper status` lists it."
_of_revision = click.option("--revision", required=True, metavar="[EPOCH:]N", help=_WHAT_DRAINS)


def _ending(verb: Verb) -> Verb:
    """The options of an order that ends a drain, or a batch."""
    verb = click.option("--batch", type=int, metavar="N", help="One batch of the output, in place of --revision.")(verb)
    verb = click.option("--output", metavar="NAME", help="Of this output only; default: of all.")(verb)
    return click.option("--revision", metavar="[EPOCH:]N", help=_WHAT_DRAINS)(verb)


@click.group(short_help="End a drain or a batch that cannot end by itself, and look after dead letters.")
def command() -> None:
    """End a drain that cannot end by itself, or look after dead letters.

    `shipper status --state DIR` says what drains, why, and which credentials there are. An order is durable before it
    is carried out, touches only what waits below a barrier or the one batch that it names, and is answered when it is
    done.

    \b
    Examples:
      shipper order forward --revision 6 --output main --state DIR
      shipper order rebind --from es-3f9c0a7be2d1 --to es-81d04c5f6a77 --state DIR
      shipper order dead-letter --revision 6 --output main --state DIR
      shipper order revoke --credential es-3f9c0a7be2d1 --state DIR
      shipper order dead-letters --export rejected.ndjson --state DIR

    Exit status: 0 done, 1 refused or no supervisor answers, 2 wrong usage.
    """


@command.command(short_help="Deliver events that wait for a lost credential with another one.")
@click.option("--from", "source", required=True, metavar="ID", help="The lost credential.")
@click.option("--to", "target", required=True, metavar="ID", help="The credential to deliver with; it must be in use.")
@_to_supervisor
def rebind(source: str, target: str, state: Path, json: bool) -> int:
    """Deliver events that wait for one credential with another, to the same destination.

    \b
    Example:
      shipper order rebind --from es-3f9c0a7be2d1 --to es-81d04c5f6a77 --state /var/lib/shipper
    """
    result = _perform(state, "rebind", {"from": source, "to": target}, json=json)
    if result is not None:
        click.echo(f"events that waited for {source} are now delivered with {target}")
        click.echo(
            _released(source, result)
            if source in result.get("released", ())
            else f"{source} is not released yet: something else still refers to it"
        )
    return 0


@command.command(short_help="Revoke a released credential that waits for another one.")
@click.option("--credential", required=True, metavar="ID", help="The released credential, as `shipper status` has it.")
@_to_supervisor
def revoke(credential: str, state: Path, json: bool) -> int:
    """Have a released credential revoked now, whatever it waits for: `on_release` runs.

    It waits until the destination has accepted its successor, since it is the way back from a wrong one; or until
    another credential with its name is released, since most backends end both together. Look first.

    \b
    Example:
      shipper order revoke --credential es-3f9c0a7be2d1 --state /var/lib/shipper
    """
    result = _perform(state, "revoke", {"credential": credential}, json=json)
    if result is not None:
        click.echo(f"{credential} waits no more before it is revoked")
    return 0


@command.command(short_help="Deliver draining events to the current destination of their output.")
@_of_revision
@click.option("--output", required=True, metavar="NAME", help="The output, as `shipper status` lists it.")
@_to_supervisor
def forward(revision: str, output: str, state: Path, json: bool) -> int:
    """Deliver draining events to the current destination of their output, with its current credential.

    Use it after a wrong host, a missing CA or a lost key. Events keep their ids: one that the destination has already
    is a duplicate.

    \b
    Example:
      shipper order forward --revision 6 --output main --state /var/lib/shipper
    """
    from shipper.sdk.units import events_in_words

    result = _perform(state, "forward", _at(revision) | {"output": output}, json=json)
    if result is not None:
        moved = events_in_words(result["events"])
        click.echo(f"revision {revision}: {moved} forwarded to the current destination of output {output}")
        for id in result["released"]:
            click.echo(_released(id, result))
    return 0


@command.command("dead-letter")
@_ending
@_to_supervisor
def dead_letter(revision: str | None, output: str | None, batch: int | None, state: Path, json: bool) -> int:
    """End a drain, or one batch: what still waits becomes dead letters.

    \b
    Examples:
      shipper order dead-letter --revision 6 --output main --state /var/lib/shipper
      shipper order dead-letter --batch 1207 --output main --state /var/lib/shipper
    """
    return _end("dead_letter", revision, output, batch, state, json=json)


@command.command()
@_ending
@_to_supervisor
def drop(revision: str | None, output: str | None, batch: int | None, state: Path, json: bool) -> int:
    """End a drain, or one batch: what still waits is discarded, for ever.

    \b
    Examples:
      shipper order drop --revision 6 --state /var/lib/shipper
      shipper order drop --batch 1207 --output main --state /var/lib/shipper
    """
    return _end("drop", revision, output, batch, state, json=json)


@command.command("forget-edge", short_help="Forget an edge that relays to this shipper no more.")
@click.option("--edge", required=True, metavar="NAME", help="The edge, as `shipper status` lists it.")
@click.option("--keys", required=True, type=click.Choice(["keep", "delete"]), help="What happens to its keyed state.")
@click.option("--input", metavar="NAME", help="The input that it relays to, if several may be meant.")
@_to_supervisor
def forget_edge(edge: str, keys: str, input: str | None, state: Path, json: bool) -> int:
    """Forget what is known of an edge: its sessions, what it has sent before, and answers that it has not asked for.

    With --keys delete its keys, and those of the owners below it, are deleted at all outputs. An edge that comes back
    sends its keys again. Refused while it is connected, unless the policy does not have it any more.

    \b
    Example:
      shipper order forget-edge --edge berlin --keys delete --state /var/lib/shipper
    """
    params = {"edge": edge, "keys": keys} | ({"input": input} if input else {})
    result = _perform(state, "forget_edge", params, json=json)
    if result is not None:
        count = result["deleted"]
        what = f"; {count:,} keys are deleted" if keys == "delete" else "; its keys stay"
        click.echo(f"edge {edge} is forgotten{what}")
    return 0


@command.group("dead-letters", invoke_without_command=True, short_help="List, export, delete, requeue rejected events.")
@click.option("--after", default=0, metavar="ID", help="List those above this id; default: from the oldest.")
@click.option(
    "--export", metavar="PATH", help="Write all, with their events, to a new file in the sidecar's directory."
)
@click.option("--events", is_flag=True, help="With --export: the events alone, for a file input with parse.")
@click.option("--delete", type=int, metavar="ID", help="Delete those up to this id, which an export has printed.")
@with_state("The supervisor's --state.", needed=False)
@click.option("--json", is_flag=True, help="The result as one JSON object.")
@click.pass_context
def dead_letters(
    context: click.Context,
    after: int,
    export: str | None,
    events: bool,
    delete: int | None,
    state: Path | None,
    json: bool,
) -> int:
    """List, export, delete or requeue events that a destination has refused.

    \b
    Examples:
      shipper order dead-letters --state /var/lib/shipper
      shipper order dead-letters --export rejected.ndjson --state /var/lib/shipper
      shipper order dead-letters --delete 812 --state /var/lib/shipper
      shipper order dead-letters requeue --output main --state /var/lib/shipper
    """
    if context.invoked_subcommand is not None:
        if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in context.params):
            raise click.UsageError(f"write the options after `{context.invoked_subcommand}`")
        return 0
    if state is None:
        raise click.MissingParameter(param_hint="'--state'", param_type="option")
    if events and export is None:
        raise click.UsageError("--events goes with --export")
    if export is not None and delete is not None:
        raise click.UsageError("--export and --delete are two orders; delete up to the id that the export has printed")
    params: dict[str, Any] = {"list": True, "after": after}
    if export is not None:
        params = {"export": export} | ({"events": True} if events else {})
    elif delete is not None:
        params = {"delete": delete}
    result = _perform(state, "dead_letters", params, json=json)
    if result is not None:
        _print_letters(result)
    return 0


@dead_letters.command()
@click.option("--output", metavar="NAME", help="Of this output only; default: of all.")
@click.option("--reason", metavar="TEXT", help="Whose reason contains this text.")
@click.option("--upto", type=int, metavar="ID", help="Up to this id.")
@click.option("--id", "ids", type=int, multiple=True, metavar="ID", help="With this id; may be given several times.")
@_to_supervisor
def requeue(
    output: str | None, reason: str | None, upto: int | None, ids: tuple[int, ...], state: Path, json: bool
) -> int:
    """Put dead letters into the queue again, after a repair of the cause; refused events become dead letters again.

    A letter must meet all given options. Events keep their ids: one that the destination has already is a duplicate.

    \b
    Examples:
      shipper order dead-letters requeue --state /var/lib/shipper
      shipper order dead-letters requeue --output main --reason mapper_parsing --state /var/lib/shipper
      shipper order dead-letters requeue --id 7 --id 9 --state /var/lib/shipper
    """
    given = {"output": output, "reason": reason, "upto": upto, "ids": list(ids) or None}
    wanted = {name: value for name, value in given.items() if value is not None}
    result = _perform(state, "dead_letters", {"requeue": wanted}, json=json)
    if result is not None:
        damaged = f"; {result['damaged']} are damaged, and stay" if result["damaged"] else ""
        click.echo(f"{result['requeued']} dead letters are in the queue again{damaged}")
    return 0


def _released(id: str, result: dict[str, Any]) -> str:
    if id in result.get("waits", ()):
        return f"{id} is released, and waits before it can be revoked: `shipper status` says for what"
    return f"{id} is released: it can be revoked now"


def _at(revision: str) -> dict[str, Any]:
    """Returns the params that name a revision."""
    epoch, colon, number = revision.rpartition(":")
    if not number.isdecimal() or (colon and not epoch.isdecimal()):
        raise click.UsageError(f"--revision {revision}: write a number such as 6, or 1:6 for one of epoch 1")
    return {"epoch": int(epoch or 0), "revision": int(number)}


def _end(name: str, revision: str | None, output: str | None, batch: int | None, state: Path, *, json: bool) -> int:
    if (revision is None) == (batch is None) or (batch is not None and output is None):
        raise click.UsageError("name either --revision, or --batch and its --output")
    params = {"batch": batch} if revision is None else _at(revision)
    result = _perform(state, name, params | ({"output": output} if output else {}), json=json)
    if result is not None:
        of = f" of output {output}" if output else ""
        end = "are in the dead-letter store" if name == "dead_letter" else "are discarded"
        click.echo(f"the waiting events of {_named(revision, batch, result)}{of} {end}")
    return 0


def _named(revision: str | None, batch: int | None, result: dict[str, Any]) -> str:
    from shipper.sdk.units import events_in_words

    return f"revision {revision}" if batch is None else f"batch {batch} ({events_in_words(result['events'])})"


def _perform(state: Path, name: str, params: dict[str, Any], *, json: bool) -> dict[str, Any] | None:
    """The result of an order that was carried out, or None if it was printed as JSON; ends the program if refused."""
    import msgspec

    from shipper.process.log import printable
    from shipper.supervise.questions import Order, ask

    try:
        msgspec.json.encode(params)
    except UnicodeEncodeError:
        raise click.UsageError("the values of an order must be UTF-8") from None
    answer = ask(state, Order(name, params))
    if json:
        click.echo(msgspec.json.encode(answer))
        if answer["status"] == "FAILED":
            click.get_current_context().exit(1)
        return None
    if answer["status"] == "FAILED":
        raise click.ClickException(f"not done: {printable(answer['message'])}")
    result: dict[str, Any] = answer["result"]
    return result


def _print_letters(result: dict[str, Any]) -> None:
    import sys

    from shipper.supervise.show import of_letters, show

    if "exported" in result:
        upto = f"; once they are safe: --delete {result['upto']}" if result["exported"] else ""
        click.echo(f"{result['exported']} dead letters are in {result['path']}{upto}")
    elif "deleted" in result:
        click.echo(f"{result['deleted']} dead letters are deleted")
    else:
        show(of_letters(result["dead_letters"]), sys.stdout)
