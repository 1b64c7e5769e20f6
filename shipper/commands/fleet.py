"""`shipper fleet`: publishes one policy for many hosts, and asks whether all have drained."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shipper.commands import PATH
from shipper.process import collector

if TYPE_CHECKING:
    from shipper.fleet.judge import Asked, View
    from shipper.fleet.opening import Opened
    from shipper.fleet.overview import Fleet
    from shipper.fleet.publisher import Publisher
    from shipper.fleet.records import Version
    from shipper.policy.document import Node
    from shipper.supervise.answers import Stage
    from shipper.supervise.show import Table

CONFIG = Path("/etc/shipper/supervise.yaml")
VARIABLE = "SHIPPER_CONFIG"
CONSISTENT, TIMED_OUT, REFUSED, GONE = 0, 3, 4, 5
_OF_STATE = {"open": CONSISTENT, "closed": TIMED_OUT, "refused": REFUSED, "unknown": GONE, "gone": GONE}
_STAGES = click.Choice(["received", "active", "drained"])
_WATCH_SECONDS = 1.0
_SHOWN_MEMBERS = 30

Verb = TypeVar("Verb", bound=Callable[..., Any])

_config = click.option(
    "--config", type=PATH, help=f"The supervise.yaml with `fleet:`.  [default: ${VARIABLE}, else {CONFIG}]"
)
_json = click.option("--json", is_flag=True, help="Print the result as one JSON object.")
_timeout = click.option("--timeout", default="10m", show_default=True, metavar="DURATION", help="How long to wait.")
_grace = click.option(
    "--nack-grace",
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for a member that has refused the version, and may still accept it.",
)
_watch = click.option("--watch", is_flag=True, help="Show it again after each change in the fleet, until Ctrl-C.")


@click.group(short_help="Publish one policy for many hosts, and ask whether all have drained.")
@_config
@click.pass_context
def command(context: click.Context, config: Path | None) -> None:
    """Publish a policy to every host of a fleet, and ask whether all have drained.

    A fleet is the hosts whose supervise.yaml names the same fleet in the same store (etcd); each is a member. Each
    change is a version with a number. A member reaches three stages of it: `received`, `active` when it works by the
    version, and `drained` when it has delivered all events of older versions. When `wait` says that every member has
    drained it, what only older versions use can be revoked: a key that all hosts share, for example.

    \b
    Examples:
      shipper fleet publish policy.yaml --wait drained
      shipper fleet wait 7 --stage drained --timeout 10m
      shipper fleet secret set es --file es.key
      shipper fleet status --watch

    Exit status: 0 done, 1 refused, 2 wrong usage, 69 the store cannot be reached, 78 a wrong configuration or policy;
    of `wait` and `publish --wait` also 3 timed out, 4 refused by a member, 5 no such version, or gone.
    """
    context.obj = config


# -- versions ----------------------------------------------------------------------------------------------------------


@command.command(short_help="Publish a policy as a new version.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=PATH)
@click.option("--if-version", metavar="N", help="Publish only if version N is the newest; 0: if there is none.")
@click.option("--wait", "stage", type=_STAGES, help="Then wait until every member has reached this stage.")
@_timeout
@_grace
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@_json
@_config
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
    is written `{fleet: NAME}`.

    \b
    Examples:
      shipper fleet publish policy.yaml --dry-run
      shipper fleet publish policy.yaml --if-version 6 --wait drained --timeout 10m
    """
    limits = _seconds("--timeout", timeout), _seconds("--nack-grace", nack_grace)

    async def work(fleet: Opened) -> int:
        from shipper.fleet import drafts, pictures

        publisher = _publisher(fleet)
        draft = await drafts.planned(paths, publisher, fleet.store, fleet.seals, if_version)
        if not json:
            _say(pictures.plan_lines(draft.plan))
        if dry_run:
            return _result(json, draft.plan, "nothing was published")
        version = await publisher.publish(draft.candidate.text, if_version=if_version)
        if stage is None or not json:
            made = {"version": str(version), "triple": version, "plan": draft.plan}
            _result(json, made, f"version {version}")
        return CONSISTENT if stage is None else await _wait(fleet, version, stage, *limits, json=json)

    return _run(context, config, work)


@command.command(short_help="Wait until every member has reached a version.")
@click.argument("version", metavar="N")
@click.option(
    "--stage", type=_STAGES, default="drained", show_default=True, help="The stage that each member must have reached."
)
@_timeout
@_grace
@_json
@_config
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

    The wait ends at once when a member refuses the version for a reason that stays (it is invalid, or in conflict with
    another), and after --nack-grace when a member refuses it for any other reason. It goes on while a member is away
    (`absent`), unless that member certainly sends nothing any more (`fenced`), has left, or was forgotten.

    \b
    Examples:
      shipper fleet wait 7
      shipper fleet wait 7 --stage active --timeout 1m --json

    Exit status: 0 every member has reached it, 3 timed out, 4 a member refuses it, 5 there is no such version or it is
    gone from the history, 69 the store cannot be reached.
    """
    limits = _seconds("--timeout", timeout), _seconds("--nack-grace", nack_grace)
    number = _version(version)
    return _run(context, config, lambda fleet: _wait(fleet, number, stage, *limits, json=json))


@command.command(short_help="Publish the text of an earlier version again.")
@click.argument("version", metavar="N")
@_json
@_config
@click.pass_context
def rollback(context: click.Context, version: str, json: bool, config: Path | None) -> int:
    """Publish the text of version N as a new version, with the secrets of today.

    \b
    Example:
      shipper fleet rollback 5
    """
    number = _version(version)

    async def work(fleet: Opened) -> int:
        made = await _publisher(fleet).rollback(str(number))
        return _result(json, {"version": str(made), "triple": made}, f"version {made}, with the text of {number}")

    return _run(context, config, work)


# -- what there is -----------------------------------------------------------------------------------------------------


def _look(name: str, short: str, text: str) -> None:
    """Adds a verb that shows the fleet."""

    @command.command(name, short_help=short, help=text)
    @_json
    @_watch
    @_config
    @click.pass_context
    def verb(context: click.Context, json: bool, watch: bool, config: Path | None) -> int:
        return _run(context, config, partial(_show, name, json=json, watch=watch))


_look(
    "status",
    "Show the newest versions, and who is behind.",
    "Show the newest versions, how many members have reached each stage, who is behind and why, and warnings.",
)
_look("members", "Show all members.", "Show all members, those that are behind first; with --json also their secrets.")
_look("history", "Show all versions that are kept.", "Show all versions that are kept, the newest first.")


# -- members -----------------------------------------------------------------------------------------------------------


@command.command(short_help="Take this host out of its fleet.")
@click.option("--state", required=True, type=PATH, help="The supervisor's --state directory.")
def leave(state: Path) -> int:
    """Take the host of --state out of its fleet: its supervisor delivers what it can, tells the fleet, and stops.

    A member that has left with nothing undelivered keeps no `wait` closed. It joins again when its supervisor is
    started, which needs the store then. This verb has no --config: it asks the running supervisor of this host, which
    knows its fleet. For a host that is gone, use `shipper fleet forget`.

    \b
    Example:
      shipper fleet leave --state /var/lib/shipper
    """
    from shipper.process.log import printable
    from shipper.supervise.questions import Leave, ask

    answer = ask(state, Leave())
    if answer["status"] == "FAILED":
        raise click.ClickException(f"not done: {printable(answer['message'])}")
    click.echo(printable(answer["message"]) if answer.get("message") else "this host has left the fleet")
    return 0


@command.command(short_help="Forget a member that will not come back.")
@click.argument("member")
@click.option("--force", is_flag=True, help="Forget it even if it is alive, or its report was removed.")
@_json
@_config
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
        _warn([done.warning] if done.warning else [])
        return _result(json, done, f"{done.member} is forgotten{left}")

    return _run(context, config, work)


@command.command("release", short_help="Release a secret although a member that is gone has undelivered events.")
@click.argument("id")
@click.option(
    "--despite", "member", required=True, metavar="MEMBER", help="The fenced or forgotten member with the events."
)
@_json
@_config
@click.pass_context
def release_despite(context: click.Context, id: str, member: str, json: bool, config: Path | None) -> int:
    """Release the secret with this ID although a fenced or forgotten member has undelivered events.

    Without this order, such a member delays the release by a day. What it holds for that secret may be undeliverable
    afterwards. `shipper fleet secret list` has the ids.

    \b
    Example:
      shipper fleet release es-3f9c0a7be2d1 --despite web-17
    """

    async def work(fleet: Opened) -> int:
        from shipper.fleet import operations

        await operations.order_release(fleet.store, fleet.seals, id, member)
        return _result(json, {"id": id, "despite": member}, f"{member} no longer delays the release of {id}")

    return _run(context, config, work)


# -- secrets -----------------------------------------------------------------------------------------------------------


@command.group(short_help="Keep secrets that all members share.")
def secret() -> None:
    """Keep secrets that all members share; a policy names them by `credential: {fleet: NAME}`.

    They are sealed by the fleet's key, and etcd cannot read them.

    \b
    Examples:
      shipper fleet secret set es --file es.key
      shipper fleet secret list
      shipper fleet secret rm es
    """


@secret.command("set", short_help="Set the content of a secret.")
@click.argument("name")
@click.option(
    "--file",
    "file",
    required=True,
    type=click.Path(path_type=str),
    help="The file with the content; - is standard input.",
)
@_json
@_config
@click.pass_context
def set_(context: click.Context, name: str, file: str, json: bool, config: Path | None) -> int:
    """Set the content of a secret. New content gets a new id.

    If the newest version names the secret, its text is published again with the new content.

    \b
    Example:
      shipper fleet secret set es --file es.key
    """
    content = _content(file)

    async def work(fleet: Opened) -> int:
        id, version = await _publisher(fleet).set_secret(name, content)
        made = {} if version is None else {"version": str(version), "triple": version}
        return _result(
            json, {"name": name, "id": id, **made}, f"{name} is {id}" + (f"; version {version}" if made else "")
        )

    return _run(context, config, work)


@secret.command("list", short_help="Show the secrets of the fleet, without their content.")
@_json
@_config
@click.pass_context
def list_(context: click.Context, json: bool, config: Path | None) -> int:
    """Show the secrets of the fleet with the ids of their content.

    Ids of earlier contents are listed apart: a released one is used by no member any more, and `on_release` may revoke
    it.
    """

    async def work(fleet: Opened) -> int:
        from shipper.fleet import pictures
        from shipper.fleet.records import HEAD, Head

        found = (await fleet.store.read(HEAD)).entry
        head = Head(fleet.settings.name) if found is None else fleet.seals.open(HEAD, found.value, Head)
        value = {"secrets": head.secrets, "released": head.released}
        return _tables(pictures.secret_tables(head), value, json=json)

    return _run(context, config, work)


@secret.command("rm", short_help="Remove a secret that the newest version does not name.")
@click.argument("name")
@_json
@_config
@click.pass_context
def rm(context: click.Context, name: str, json: bool, config: Path | None) -> int:
    """Remove a secret; refused while the newest version names it.

    \b
    Example:
      shipper fleet secret rm es
    """

    async def work(fleet: Opened) -> int:
        await _publisher(fleet).remove_secret(name)
        return _result(json, {"name": name}, f"{name} is removed")

    return _run(context, config, work)


# -- the store ---------------------------------------------------------------------------------------------------------


@command.command("accept-restore", short_help="Go on after the store was restored from an older state.")
@click.option("--force", is_flag=True, help="Go on even if members use secrets that the store does not know.")
@_json
@_config
@click.pass_context
def accept_restore(context: click.Context, force: bool, json: bool, config: Path | None) -> int:
    """Begin a new epoch after the store was restored from an older state.

    Until then members run on, and acknowledge no version. First make sure that this store is the one to go on with. The
    command waits for a lease, so that the members can register again.

    \b
    Example:
      shipper fleet accept-restore
    """

    async def work(fleet: Opened) -> int:
        from shipper.fleet import operations

        click.echo("waiting for the members to register again", err=True)
        done = await operations.accept_restore(fleet.store, fleet.seals, _by(), force=force)
        missing = f"; missing: {', '.join(done.missing)}" if done.missing else ""
        newest = f"version {done.version}" if done.version else "no version"
        text = f"epoch {done.epoch} has begun with {newest}; {done.registered} members have registered{missing}"
        return _result(json, done, text)

    return _run(context, config, work)


@command.command(short_help="Show or change the settings of the fleet.")
@click.option("--history", type=int, metavar="N", help="How many versions are kept: 2 to 500.")
@click.option(
    "--release-grace",
    metavar="DURATION",
    help="How long a fenced or forgotten member with undelivered events delays a release: at most 8760h.",
)
@_json
@_config
@click.pass_context
def settings(
    context: click.Context, history: int | None, release_grace: str | None, json: bool, config: Path | None
) -> int:
    """Show the settings of the whole fleet, or change those that are given.

    With a shorter history the oldest versions go when the next one is published.

    \b
    Examples:
      shipper fleet settings
      shipper fleet settings --history 100 --release-grace 48h
    """
    grace = None if release_grace is None else _seconds("--release-grace", release_grace)

    async def work(fleet: Opened) -> int:
        from shipper.fleet import pictures

        publisher = _publisher(fleet)
        if history is None and grace is None:
            found = (await publisher.head())[0].settings
        else:
            found = await publisher.configure(history=history, release_grace=grace)
        return _tables(pictures.settings_tables(fleet.settings.name, found), found, json=json)

    return _run(context, config, work)


# -- the work of all ---------------------------------------------------------------------------------------------------


def _run(context: click.Context, config: Path | None, work: Callable[[Opened], Awaitable[int]]) -> int:
    """Does the work with the fleet of a configuration; returns the exit status."""
    with collector.importing():
        import trio

    path = config or _outer(context)

    async def main() -> int:
        async with _opened(path) as fleet:
            return await work(fleet)

    return trio.run(main)


def _outer(context: click.Context) -> Path:
    """Returns the configuration that was given before the verb, by the environment, or the usual one."""
    import os

    given: Path | None = context.find_root().obj if isinstance(context.find_root().obj, Path) else None
    found = context.find_object(Path)
    return found or given or Path(os.environ.get(VARIABLE) or CONFIG)


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[Opened]:
    """Yields the fleet of a configuration; raises OptionError."""
    import os

    from shipper.fleet import opening, settings
    from shipper.sdk.errors import OptionError
    from shipper.supervise.config import read_config

    section = read_config(path, os.environ).fleet
    if section is None:
        raise OptionError(f"{path}: there is no section `fleet:`; name another file by --config or ${VARIABLE}")
    found = settings.read(_with_member(section), os.environ, warn=lambda problem: _warn([str(problem)]))
    async with opening.opened(found) as fleet:
        yield fleet


def _with_member(section: Node) -> Node:
    """Returns the section with the name of a member, which a publisher does not need."""
    from dataclasses import replace

    if not isinstance(section.value, dict) or "member" in section.value:
        return section
    return replace(section, value={**section.value, "member": replace(section, value="publisher")})


def _publisher(fleet: Opened) -> Publisher:
    from shipper.fleet.publisher import Publisher

    return Publisher(fleet.store, fleet.seals, _by())


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
    _tables(pictures.verdict_tables(verdict, _SHOWN_MEMBERS), verdict, json=json)
    return _OF_STATE.get(verdict.state, 1)


async def _show(name: str, fleet: Opened, *, json: bool, watch: bool) -> int:
    """Shows the fleet, again after each change if it is watched."""
    import sys

    import msgspec
    import trio

    from shipper.fleet import pictures
    from shipper.fleet.observer import observing
    from shipper.fleet.overview import overview
    from shipper.supervise.show import Screen

    tables: Callable[[Fleet], list[Table]] = {
        "status": pictures.fleet_tables,
        "members": pictures.member_tables,
        "history": pictures.history_tables,
    }[name]

    def seen(view: View) -> Fleet:
        return msgspec.structs.replace(overview(view), name=fleet.settings.name)

    screen = Screen(sys.stdout)
    async with observing(fleet.store, fleet.seals) as observer:
        view = await observer.fresh()
        while watch:
            if json:
                _tables([], seen(view), json=True)
            else:
                screen.redraw(tables(seen(view)))
            await trio.sleep(_WATCH_SECONDS)
            await observer.changed()
            view = await observer.fresh()
        return _tables(tables(seen(view)), seen(view), json=json)


def _tables(tables: list[Table], value: object, *, json: bool) -> int:
    import sys

    import msgspec

    from shipper.supervise.show import show

    if json:
        click.echo(msgspec.json.encode(value))
    else:
        show(tables, sys.stdout)
    return 0


def _result(json: bool, value: object, text: str) -> int:
    import msgspec

    from shipper.process.log import printable

    click.echo(msgspec.json.encode(value) if json else printable(text))
    return 0


def _say(lines: list[str]) -> None:
    from shipper.process.log import printable

    for line in lines:
        click.echo(printable(line))


def _warn(lines: list[str]) -> None:
    from shipper.process.log import printable

    for line in lines:
        click.echo(f"warning: {printable(line)}", err=True)


def _version(text: str) -> Asked:
    from shipper.fleet.judge import asked

    try:
        return asked(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _seconds(option: str, text: str) -> float:
    from shipper.sdk.errors import OptionError
    from shipper.sdk.units import Duration

    try:
        return float(Duration.parse(text))
    except ValueError as error:
        raise OptionError(f"{option}: {error}") from None


def _content(file: str) -> bytes:
    """Returns the content of a secret's file, bounded; warns if others can read it. Raises OptionError."""
    import sys

    from shipper.sdk.errors import OptionError
    from shipper.sdk.secret_source import LARGEST
    from shipper.supervise.reading import content
    from shipper.supervise.secret_sources import exposure

    try:
        raw = sys.stdin.buffer.read(LARGEST + 1) if file == "-" else content(Path(file), LARGEST)
    except OSError as error:
        raise OptionError(f"--file {file}: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise OptionError(f"--file {file}: it is larger than {LARGEST >> 20} MiB")
    if file != "-" and (how := exposure(Path(file))) is not None:
        _warn([f"{file}: {how}"])
    return raw


def _by() -> str:
    """Returns who publishes, as USER@HOST."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "?"
    return f"{user}@{socket.gethostname()}"
