"""The command line: one module a verb, named like it, each with a click command called `command`.

A verb imports what it runs only when it is chosen; what several verbs share does not belong here, but in `shipper`,
unless it is of the command line itself.
"""

from __future__ import annotations

from pathlib import Path

import click

PATH = click.Path(path_type=Path, readable=False)
"""A path as it is given: what cannot be read is no wrong usage, and whoever reads it says so by its own status."""
