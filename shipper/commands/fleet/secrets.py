"""`secret set`, `secret list`, `secret rm`: secrets that all members share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shipper.commands.fleet.options import with_config, with_json
from shipper.commands.fleet.output import result, show_tables, warn
from shipper.commands.fleet.work import publisher_of, run

if TYPE_CHECKING:
    from shipper.fleet.opening import Opened


@click.group(short_help="Keep secrets that all members share.")
def secret() -> None:
    """Keep secrets that all members share; a policy names them by `credential: {fleet: NAME}`.

    They are sealed by the fleet's key, and the store cannot read them.

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
@with_json
@with_config
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
        id, version = await publisher_of(fleet).set_secret(name, content)
        made = {} if version is None else {"version": str(version), "triple": version}
        return result(
            json, {"name": name, "id": id, **made}, f"{name} is {id}" + (f"; version {version}" if made else "")
        )

    return run(context, config, work)


@secret.command("list", short_help="Show the secrets of the fleet, without their content.")
@with_json
@with_config
@click.pass_context
def list_(context: click.Context, json: bool, config: Path | None) -> int:
    """Show the secrets of the fleet with the ids of their content.

    Ids of earlier contents are listed apart: a released one is used by no member any more, and `on_release` may revoke
    it. Members that delay a release are shown with the reason, and what ends it.
    """

    async def work(fleet: Opened) -> int:
        import time

        import msgspec

        from shipper.fleet import pictures
        from shipper.fleet.observer import observing
        from shipper.fleet.release import retired

        async with observing(fleet.store, fleet.seals) as observer:
            view = observer.view()
        wall = time.time()
        found = retired(view, wall)
        head = msgspec.structs.replace(view.head, fleet=fleet.settings.name)
        value = {"secrets": head.secrets, "released": head.released, "retired": found}
        return show_tables(pictures.secret_tables(head, found, wall), value, json=json)

    return run(context, config, work)


@secret.command("rm", short_help="Remove a secret that the newest version does not name.")
@click.argument("name")
@with_json
@with_config
@click.pass_context
def rm(context: click.Context, name: str, json: bool, config: Path | None) -> int:
    """Remove a secret; refused while the newest version names it.

    \b
    Example:
      shipper fleet secret rm es
    """

    async def work(fleet: Opened) -> int:
        await publisher_of(fleet).remove_secret(name)
        return result(json, {"name": name}, f"{name} is removed")

    return run(context, config, work)


def _content(file: str) -> bytes:
    """Returns the content of a secret's file, without the line end at its end, which is none of a secret (`secrets`).

    Warns if others can read it. Raises OptionError for a content that cannot be a secret.
    """
    import sys

    from shipper.sdk.errors import OptionError
    from shipper.sdk.secret_source import LARGEST
    from shipper.supervise.reading import content
    from shipper.supervise.secret_sources import exposure

    if file == "-" and sys.stdin is None:
        raise OptionError("--file -: standard input is closed")
    try:
        raw = sys.stdin.buffer.read(LARGEST + 1) if file == "-" else content(Path(file), LARGEST)
    except OSError as error:
        raise OptionError(f"--file {file}: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise OptionError(f"--file {file}: it is larger than {LARGEST >> 20} MiB")
    if not raw.strip():
        raise OptionError(f"--file {file}: it is empty")
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise OptionError(f"--file {file}: it is not UTF-8") from None
    if file != "-" and (how := exposure(Path(file))) is not None:
        warn([f"{file}: {how}"])
    return raw.removesuffix(b"\n").removesuffix(b"\r")
