"""The command line: one module (or package) a verb, named like it, with a click command called `command`.

A verb imports its implementation only when it runs. This package has only code of the command line itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Verb = TypeVar("Verb", bound=Callable[..., Any])

PATH = click.Path(path_type=Path, readable=False)
"""A path without checks: an unreadable one is no wrong usage, so its reader reports it with a status of its own."""
SERVICE = Path("/var/lib/shipper")
"""The state directory of the packaged service."""


def with_state(words: str, *, needed: bool = True) -> Callable[[Verb], Verb]:
    """Adds the option --state of a verb that asks a running shipper, described by `words`.

    By default it is `SHIPPER_STATE`, then the directory of the packaged service if that exists. Without any of them,
    and if it is `needed`, the usage is wrong; otherwise the verb gets None.
    """
    return click.option(
        "--state",
        type=PATH,
        default=_of_service,
        show_default=f"$SHIPPER_STATE, then {SERVICE} if it exists",
        envvar="SHIPPER_STATE",
        callback=_checked if needed else None,
        help=words,
    )


def _of_service() -> str | None:
    return os.fspath(SERVICE) if os.path.lexists(SERVICE) else None


def _checked(context: click.Context, option: click.Parameter, state: Path | None) -> Path:
    if state is None:
        raise click.MissingParameter(ctx=context, param=option)
    return state
