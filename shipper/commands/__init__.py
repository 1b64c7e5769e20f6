"""The command line: one module (or package) a verb, named like it, with a click command called `command`.

A verb imports its implementation only when it runs. This package has only code of the command line itself.
"""

from __future__ import annotations

from pathlib import Path

import click

PATH = click.Path(path_type=Path, readable=False)
"""A path without checks: an unreadable one is no wrong usage, so its reader reports it with a status of its own."""
