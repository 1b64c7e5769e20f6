"""Prints what a verb has found: for people, or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shipper.supervise.show import Table


def show_tables(tables: list[Table], value: object, *, json: bool) -> int:
    """Prints tables, or the value that they show; returns the exit status 0."""
    import sys

    import msgspec

    from shipper.supervise.show import show

    if json:
        click.echo(msgspec.json.encode(value))
    else:
        show(tables, sys.stdout)
    return 0


def result(json: bool, value: object, text: str) -> int:
    """Prints a line, or the value that it names; returns the exit status 0."""
    import msgspec

    from shipper.process.log import printable

    click.echo(msgspec.json.encode(value) if json else printable(text))
    return 0


def say(lines: list[str]) -> None:
    """Prints lines for people."""
    from shipper.process.log import printable

    for line in lines:
        click.echo(printable(line))


def warn(lines: list[str]) -> None:
    """Prints warnings on standard error."""
    from shipper.process.log import printable

    for line in lines:
        click.echo(f"warning: {printable(line)}", err=True)
