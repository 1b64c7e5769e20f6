"""`status`, `members`, `history`: what there is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shipper.commands.fleet.options import with_config, with_json, with_watch
from shipper.commands.fleet.output import show_tables, warn
from shipper.commands.fleet.work import run

if TYPE_CHECKING:
    from shipper.fleet.opening import Opened
    from shipper.fleet.overview import Fleet
    from shipper.fleet.view import View
    from shipper.supervise.show import Table

_WATCH_SECONDS = 1.0


def _view(name: str, short: str, text: str) -> click.Command:
    """Returns a verb that shows the fleet."""

    @click.command(name, short_help=short, help=text)
    @with_json
    @with_watch
    @with_config
    @click.pass_context
    def verb(context: click.Context, json: bool, watch: bool, config: Path | None) -> int:
        return run(context, config, partial(_show, name, json=json, watch=watch))

    return verb


VERBS = (
    _view(
        "status",
        "Show the newest versions, and who is behind.",
        "Show the newest versions, how many members have reached each stage, who is behind and why, and warnings.",
    ),
    _view(
        "members",
        "Show all members.",
        "Show all members, those that are behind first; with --json also their secrets.",
    ),
    _view("history", "Show all versions that are kept.", "Show all versions that are kept, the newest first."),
)


async def _show(name: str, fleet: Opened, *, json: bool, watch: bool) -> int:
    """Shows the fleet, again after each change if it is watched; a watch goes on while the store is away."""
    import sys

    import msgspec
    import trio

    from shipper.fleet import pictures
    from shipper.fleet.observer import observing
    from shipper.fleet.overview import overview
    from shipper.fleet.store import StoreUnreachable
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
        found = seen(observer.view())
        away = said = ""
        while watch:
            if not json:
                screen.redraw([*([(away, [])] if away else []), *tables(found)])
            elif away:
                warn([away] if away != said else [])
            else:
                show_tables([], found, json=True)
            said = away
            await trio.sleep(_WATCH_SECONDS)
            await observer.changed()
            try:
                found, away = seen(await observer.fresh()), ""
            except StoreUnreachable as error:
                away = f"the store does not answer; this was before: {error}"
        return show_tables(tables(found), found, json=json)
