"""`shipper supervise` in a fleet: connects the agent, its membership of the fleet, the store, and who asks over HTTP.

The agent runs what it has. It gets versions from its membership, and passes the stages on; no task of it waits for the
store. Whatever else a host does for its fleet ends with the agent.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec
import trio

from shipper.fleet.home import Home
from shipper.fleet.host import Host
from shipper.fleet.membership.membership import Membership
from shipper.fleet.observer import observing
from shipper.fleet.opening import Opened, opened
from shipper.fleet.questions import answering, of_sidecar
from shipper.fleet.records import Leader
from shipper.fleet.releasing import Releasing
from shipper.fleet.seal import Seals
from shipper.fleet.settings import FleetSettings
from shipper.fleet.source import FleetSource
from shipper.fleet.store import Store
from shipper.membership.ids import new_id
from shipper.policy.registry import Registry
from shipper.supervise.agent import Agent
from shipper.supervise.options import Options
from shipper.supervise.report import Report
from shipper.supervise.vault import Vault
from shipper.supervise.watch import Watch

UNSERVED, STALE = "http_unserved", "http_certificate"


async def supervise_in_fleet(
    options: Options, settings: FleetSettings, environment: Mapping[str, str], report: Report
) -> int:
    """Runs a member of a fleet until a signal, or until it leaves; returns the exit status.

    Raises StateBusy, StateLocked and OptionError before anything runs.
    """
    async with opened(settings, environment) as fleet:
        return await follow(options, fleet, environment, report)


def on(settings: FleetSettings, store: Store) -> Opened:
    """Returns the fleet of the settings on any store."""
    return Opened(settings, store, Seals(settings.name, settings.keys))


async def follow(options: Options, fleet: Opened, environment: Mapping[str, str], report: Report) -> int:
    """As `supervise_in_fleet`, on an open fleet."""
    settings, http = fleet.settings, options.config.http
    config = msgspec.structs.replace(options.config, http=of_sidecar(settings, http))
    options = msgspec.structs.replace(options, config=config)
    with Vault(options.state, options.config.state_keys) as vault, Watch() as watch:
        registry = Registry.installed()
        home = Home.open(options.state, settings.name, settings.member)
        host = Host(report, registry, settings)
        membership = Membership(fleet.store, fleet.seals, settings, home, host)
        source = FleetSource(settings.name, membership, watch, environment, report.say, registry=registry)
        agent = Agent(options, environment, report, source, {options.state: vault}, is_leased=membership.holding)
        host.agent = agent
        source.resume(agent.members[0].ledger.version, may_run=home.memory.state == "member")
        stale = functools.partial(host.trouble, STALE)
        async with answering(fleet, http, host.sidecar, lambda: membership.apart, stale, host.status) as bound:
            address = settings.http.address if settings.http is not None else http
            if bound is not None:
                membership.answers_at(bound)
            elif address is not None:
                reason = f"{address} cannot be used, perhaps because another process uses it"
                host.trouble(UNSERVED, f"nobody can ask this host about the fleet: {reason}; free it, and restart")
            return await _run(agent, membership, host, _releasing(fleet, agent, membership, host))


def _releasing(fleet: Opened, agent: Agent, membership: Membership, host: Host) -> Releasing | None:
    """Returns the candidate of this host, if it has an `on_release`."""
    settings = fleet.settings
    if settings.on_release is None:
        return None
    return Releasing(
        fleet.store,
        fleet.seals,
        settings.name,
        Leader(settings.member, new_id()),
        float(settings.lease),
        settings.on_release,
        observing=observing,
        environment=agent.without_secrets,
        trouble=host.trouble,
        trusted=lambda: membership.registered,
        say=host.say,
    )


async def _run(agent: Agent, membership: Membership, host: Host, releasing: Releasing | None) -> int:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(membership.run)
        nursery.start_soon(host.run)
        if releasing is not None:
            nursery.start_soon(releasing.run)
        status = await agent.run()
        nursery.cancel_scope.cancel("the agent has ended")
    return status
