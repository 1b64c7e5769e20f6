"""Options that several verbs of `shipper fleet` have, and what their texts mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shipper.commands import PATH

if TYPE_CHECKING:
    from shipper.fleet.judge import Asked

CONFIG = Path("/etc/shipper/supervise.yaml")
VARIABLE = "SHIPPER_CONFIG"
STAGES = click.Choice(["received", "active", "drained"])

with_config = click.option(
    "--config", type=PATH, help=f"The supervise.yaml with `fleet:`.  [default: ${VARIABLE}, else {CONFIG}]"
)
with_json = click.option("--json", is_flag=True, help="Print the result as one JSON object.")
with_timeout = click.option("--timeout", default="10m", show_default=True, metavar="DURATION", help="How long to wait.")
with_grace = click.option(
    "--nack-grace",
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for a member that has refused the version, and may still accept it.",
)
with_watch = click.option("--watch", is_flag=True, help="Show it again after each change in the fleet, until Ctrl-C.")


def version_of(text: str) -> Asked:
    """Returns the version that a person names; raises UsageError."""
    from shipper.fleet.judge import asked

    try:
        return asked(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def seconds_of(option: str, text: str) -> float:
    """Returns the seconds of a duration; raises OptionError."""
    from shipper.sdk.errors import OptionError
    from shipper.sdk.units import Duration

    try:
        return float(Duration.parse(text))
    except ValueError as error:
        raise OptionError(f"{option}: {error}") from None
