"""`shipper supervise`: watches policy files, and keeps a shipper running."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shipper.commands import PATH
from shipper.process import collector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shipper.sdk.errors import Problem
    from shipper.supervise.config import Config
    from shipper.supervise.options import Options
    from shipper.supervise.report import Report


@click.command(short_help="Watch policy files, and keep a shipper running.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=PATH)
@click.option("--state", required=True, type=PATH, help="The directory of the queue and the state.")
@click.option("--config", type=PATH, help="The supervisor's own settings.")
@click.option("--json/--text", default=None, help="ECS JSON or text for people; default: text on a terminal.")
@click.option("--once", is_flag=True, help="Ship what exists now, wait until all of it is delivered, and exit.")
@click.option("--once-timeout", metavar="DURATION", help="With --once: give up (status 1) after refusals for so long.")
@click.option("--grace", default="20s", show_default=True, metavar="DURATION", help="How long a stop may deliver.")
def command(
    paths: tuple[Path, ...],
    state: Path,
    config: Path | None,
    json: bool | None,
    once: bool,
    once_timeout: str | None,
    grace: str,
) -> int:
    """Launch a shipper, and keep it running with the policy in PATH…: files, or directories of *.yaml.

    A changed file or secret becomes a new revision at once. Queued events drain with the credential under which they
    were accepted, and `on_release` (see --config) runs as soon as it can be revoked. If a secret's file is absent at
    the first start, or the state key's file, the supervisor waits for it (not with --once).

    Events go to standard output, the log of the shipper to standard error, both in one format: text if standard output
    is a terminal, otherwise one ECS JSON object a line.

    \b
    Examples:
      shipper supervise policy.yaml --state /var/lib/shipper
      shipper supervise /etc/shipper/policy.d --config /etc/shipper/supervise.yaml --state /var/lib/shipper
      shipper supervise import.yaml --state /tmp/import --once

    \b
    SIGHUP reads the files again; SIGTERM or Ctrl-C stops in order, a second one at once.
    Exit status: 0 stopped as asked, 1 failed, 75 another supervisor owns the directory, 78 a wrong policy or option,
    or a state directory that cannot be used.
    """
    import os
    import signal

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is heeded: a reload must not kill what just starts
    with collector.importing():
        import trio

        from shipper.process import hardening, log
        from shipper.sdk import descriptors
        from shipper.supervise.config import Config, read_config
        from shipper.supervise.options import Options
        from shipper.supervise.report import Report

    descriptors.open_closed()
    descriptors.raise_limit()
    hardening.harden()
    report = Report(1, json=json)
    log.configure(format=report.format)
    options = Options(
        paths,
        state,
        Config(),
        grace=_seconds("--grace", grace),
        once=once,
        once_timeout=_seconds("--once-timeout", once_timeout) if once_timeout else math.inf,
    )
    read = partial(read_config, config, os.environ, runnable=True, warn=partial(_warn, report)) if config else Config
    return trio.run(_supervise, read, options, dict(os.environ), report)


async def _supervise(
    read: Callable[[], Config], options: Options, environment: Mapping[str, str], report: Report
) -> int:
    with collector.importing():
        from shipper.supervise.agent import supervise
        from shipper.supervise.awaiting import configured

    config = await configured(read, options, environment, report)
    return 0 if config is None else await supervise(replace(options, config=config), environment, report)


def _warn(report: Report, problem: Problem) -> None:
    report.say("warning", {"problem": problem})


def _seconds(option: str, text: str) -> float:
    from shipper.protocol.messages import LONGEST_STOP_SECONDS
    from shipper.sdk.errors import OptionError
    from shipper.sdk.units import Duration

    try:
        seconds = float(Duration.parse(text))
    except ValueError as error:
        raise OptionError(f"{option}: {error}") from None
    if seconds > LONGEST_STOP_SECONDS:
        raise OptionError(f"{option}: at most {LONGEST_STOP_SECONDS // 3600}h")
    return seconds
