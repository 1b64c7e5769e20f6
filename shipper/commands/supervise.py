"""`shipper supervise`: watches policy files, and keeps a shipper running."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from shipper.commands import PATH
from shipper.process import collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from shipper.fleet.settings import FleetSettings
    from shipper.kubernetes.settings import Found
    from shipper.policy.document import Node
    from shipper.sdk.errors import Problem
    from shipper.supervise.config import Config
    from shipper.supervise.options import Options
    from shipper.supervise.report import Report


@click.command(short_help="Watch policy files, and keep a shipper running.")
@click.argument("paths", nargs=-1, metavar="PATH…", type=PATH)
@click.option("--state", required=True, type=PATH, help="The directory of the queue and the state.")
@click.option("--config", type=PATH, help="The supervisor's own settings.")
@click.option("--json/--text", default=None, help="ECS JSON or text for people; default: text on a terminal.")
@click.option("--once", is_flag=True, help="Ship what exists now, wait until all of it is delivered, and exit.")
@click.option("--once-timeout", metavar="DURATION", help="With --once: give up (status 1) after refusals for so long.")
@click.option("--kubernetes", is_flag=True, help="Run the ShipperPolicies of a namespace that select this member.")
@click.option("--grace", default="20s", show_default=True, metavar="DURATION", help="How long a stop may deliver.")
def command(
    paths: tuple[Path, ...],
    state: Path,
    config: Path | None,
    json: bool | None,
    once: bool,
    once_timeout: str | None,
    kubernetes: bool,
    grace: str,
) -> int:
    """Launch a shipper, and keep it running with the policy in PATH…: files, or directories of *.yaml.

    A changed file or secret becomes a new revision at once. Queued events drain with the credential under which they
    were accepted, and `on_release` (see --config) runs as soon as it can be revoked. If a secret's file is absent at
    the first start, or the state key's file, the supervisor waits for it (not with --once). With `fleet` in --config
    the policy comes from the fleet, and there is no PATH. With --kubernetes it comes from the ShipperPolicy objects of
    a namespace: in a Pod by its ServiceAccount, outside by kubeconfig; `kubernetes` in --config has the details.

    Events go to standard output, the log of the shipper to standard error, both in one format: text if standard output
    is a terminal, otherwise one ECS JSON object a line.

    \b
    Examples:
      shipper supervise policy.yaml --state /var/lib/shipper
      shipper supervise /etc/shipper/policy.d --config /etc/shipper/supervise.yaml --state /var/lib/shipper
      shipper supervise import.yaml --state /tmp/import --once
      shipper supervise --config /etc/shipper/supervise.yaml --state /var/lib/shipper      (in a fleet)
      shipper supervise --kubernetes --state /var/lib/shipper

    \b
    SIGHUP reads the files again; SIGTERM or Ctrl-C stops in order, a second one at once.
    Exit status: 0 stopped as asked, 1 failed, 75 another supervisor owns the directory, 78 a wrong policy or option,
    or a state directory that cannot be used.
    """
    import os

    _prepare_process()
    with collector.importing():
        import trio

        from shipper.policy.registry import all_points
        from shipper.process import log
        from shipper.supervise import agent, spare  # noqa: F401 (what the sidecar needs too, before the fork)
        from shipper.supervise.config import Config, read_config
        from shipper.supervise.options import Options
        from shipper.supervise.report import Report

    all_points()  # the sidecar needs them too
    first = spare.fork()
    report = Report(1, json=json)
    log.configure(format=report.format)
    options = Options(
        paths,
        state,
        Config(),
        grace=_seconds("--grace", grace),
        once=once,
        once_timeout=_seconds("--once-timeout", once_timeout) if once_timeout else math.inf,
        spare=first,
    )
    warn = partial(_warn, report)
    read = partial(read_config, config, os.environ, runnable=True, warn=warn) if config else Config
    settings = partial(_settings, read, options, os.environ, warn, kubernetes=kubernetes)
    return trio.run(_supervise, settings, options, dict(os.environ), report)


def _prepare_process() -> None:
    """Sets signals, descriptors and hardening, before anything is read."""
    import faulthandler
    import signal

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is heeded: a reload must not kill what just starts
    with collector.importing():
        from shipper.process import hardening
        from shipper.sdk import descriptors

    descriptors.open_closed()
    descriptors.raise_limit()
    hardening.harden()
    faulthandler.enable(2)  # the SIGABRT of a watchdog leaves in the journal where it hung; a core would hold secrets


async def _supervise(
    read: Callable[[], tuple[Config, FleetSettings | Found | None]],
    options: Options,
    environment: Mapping[str, str],
    report: Report,
) -> int:
    with collector.importing():
        from shipper.supervise.awaiting import configured

    found = await configured(read, options, environment, report)
    if found is None:
        return 0
    config, shared = found
    options = replace(options, config=config)
    async with _exporting(options, environment):
        return await _agent(options, shared, environment, report)


@asynccontextmanager
async def _exporting(options: Options, environment: Mapping[str, str]) -> AsyncIterator[None]:
    """Sends the supervisor's own lines where its `otlp` says, while the block runs."""
    if options.config.otlp is None:
        yield
        return
    with collector.importing():
        from shipper.process.environment import REAL
        from shipper.sdk.aio import open_asyncio
        from shipper.status import export

    to = export.settings(options.config.otlp, options.state, environment)
    async with open_asyncio() as aio, export.exporting(to, aio, REAL):
        yield


async def _agent(
    options: Options, shared: FleetSettings | Found | None, environment: Mapping[str, str], report: Report
) -> int:
    if shared is None:
        with collector.importing():
            from shipper.supervise.agent import supervise

        return await supervise(options, environment, report)
    with collector.importing():
        from shipper.fleet.agent import supervise_in_fleet
        from shipper.fleet.settings import FleetSettings

    if isinstance(shared, FleetSettings):
        return await supervise_in_fleet(options, shared, environment, report)
    with collector.importing():
        from shipper.kubernetes.agent import supervise_in_kubernetes

    return await supervise_in_kubernetes(options, shared, environment, report)


def _settings(
    read: Callable[[], Config],
    options: Options,
    environment: Mapping[str, str],
    warn: Callable[[Problem], None],
    *,
    kubernetes: bool,
) -> tuple[Config, FleetSettings | Found | None]:
    """Returns the configuration, and that of the fleet or of Kubernetes if the policy comes from there; raises
    OptionError, and UsageError if nothing says where the policy is."""
    config = read()
    if kubernetes:
        return config, _kubernetes(config, options, environment)
    if config.kubernetes is not None:
        from shipper.sdk.errors import OptionError

        raise OptionError(f"{_place(config.kubernetes)}: kubernetes: add --kubernetes, or remove this section")
    if config.fleet is None:
        if not options.paths:
            raise click.UsageError(
                "missing PATH…: the files of the policy, or a --config with `fleet`, or --kubernetes"
            )
        return config, None
    _check_fleet(config.fleet, options)
    with collector.importing():
        from shipper.fleet import settings

    return config, settings.read(config.fleet, environment, runnable=True, warn=warn)


def _kubernetes(config: Config, options: Options, environment: Mapping[str, str]) -> Found:
    """Returns the settings of --kubernetes; raises OptionError for options that do not go with it."""
    from shipper.sdk.errors import OptionError

    if options.paths:
        raise OptionError("--kubernetes: the policy comes from ShipperPolicy objects; leave out PATH…, or --kubernetes")
    if options.once:
        raise OptionError("--kubernetes: --once ends when files are shipped, and a member stays; leave out one")
    if config.fleet is not None:
        raise OptionError(f"{_place(config.fleet)}: fleet: the policy comes from one place; remove it, or --kubernetes")
    with collector.importing():
        from shipper.kubernetes import settings

    return settings.read(config.kubernetes, environment)


def _place(node: Node) -> str:
    return f"{node.mark.file}:{node.mark.line}"


def _check_fleet(fleet: Node, options: Options) -> None:
    """Raises OptionError for options that a host in a fleet does not have."""
    from shipper.sdk.errors import OptionError

    place = f"{_place(fleet)}: fleet"
    if options.paths:
        raise OptionError(f"{place}: the policy comes from the fleet; leave out PATH…, or `fleet` in --config")
    if options.once:
        raise OptionError(f"{place}: --once ends when files are shipped, and a host stays in its fleet; leave out one")


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
