"""Does the work of a verb with the fleet of a configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shipper.commands.fleet.options import CONFIG, VARIABLE
from shipper.commands.fleet.output import warn
from shipper.process import collector

if TYPE_CHECKING:
    from shipper.fleet.opening import Opened
    from shipper.fleet.publisher import Publisher
    from shipper.policy.document import Node


def run(context: click.Context, config: Path | None, work: Callable[[Opened], Awaitable[int]]) -> int:
    """Does the work with the fleet of a configuration; returns the exit status."""
    with collector.importing():
        import trio

    path = config or _outer(context)

    async def main() -> int:
        from shipper.fleet.records import HEAD
        from shipper.fleet.store import PROMPT

        async with _opened(path) as fleet:
            await fleet.store.read(HEAD, seconds=PROMPT)  # who waits is told soon that it hangs
            return await work(fleet)

    return trio.run(main)


def _outer(context: click.Context) -> Path:
    """Returns the configuration that was given before the verb, by the environment, or the usual one."""
    import os

    given: Path | None = context.find_root().obj if isinstance(context.find_root().obj, Path) else None
    found = context.find_object(Path)
    return found or given or Path(os.environ.get(VARIABLE) or CONFIG)


def _section(path: Path) -> Node:
    """Returns `fleet` of a configuration; raises OptionError."""
    import os

    from shipper.sdk.errors import OptionError
    from shipper.supervise.config import read_config

    another = f"name another file by --config or ${VARIABLE}"
    if not path.exists():
        raise OptionError(f"{path}: there is no such file; {another}")
    section = read_config(path, os.environ).fleet
    if section is None:
        raise OptionError(f"{path}: there is no section `fleet:`; {another}")
    return section


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[Opened]:
    """Yields the fleet of a configuration; raises OptionError."""
    import os

    from shipper.fleet import opening, settings

    section = _section(path)
    found = settings.read(_with_member(section), os.environ, warn=lambda problem: warn([str(problem)]))
    async with opening.opened(found) as fleet:
        yield fleet


def _with_member(section: Node) -> Node:
    """Returns the section with the name of a member, which a publisher does not need."""
    from dataclasses import replace

    if not isinstance(section.value, dict) or "member" in section.value:
        return section
    return replace(section, value={**section.value, "member": replace(section, value="publisher")})


def publisher_of(fleet: Opened) -> Publisher:
    """Returns a publisher under the name of this person."""
    from shipper.fleet.publisher import Publisher

    return Publisher(fleet.store, fleet.seals, by())


def by() -> str:
    """Returns who publishes, as USER@HOST."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "?"
    return f"{user}@{socket.gethostname()}"
