"""`shipper supervise` in a fleet: connects the agent, its membership of the fleet, and the store.

The agent runs what it has. It gets versions from its membership, and passes the stages on; no task of it waits for the
store. The membership ends with the agent.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from shipper.fleet.home import Home
from shipper.fleet.host import Host
from shipper.fleet.membership import Membership
from shipper.fleet.opening import opened
from shipper.fleet.seal import Seals
from shipper.fleet.settings import FleetSettings
from shipper.fleet.source import FleetSource
from shipper.fleet.store import Store
from shipper.policy.registry import Registry
from shipper.supervise.agent import Agent
from shipper.supervise.options import Options
from shipper.supervise.report import Report
from shipper.supervise.vault import Vault
from shipper.supervise.watch import Watch


async def supervise_in_fleet(
    options: Options, settings: FleetSettings, environment: Mapping[str, str], report: Report
) -> int:
    """Runs a member of a fleet until a signal, or until it leaves; returns the exit status.

    Raises StateBusy, StateLocked and OptionError before anything runs.
    """
    async with opened(settings) as fleet:
        return await follow(options, settings, environment, report, fleet.store)


async def follow(
    options: Options, settings: FleetSettings, environment: Mapping[str, str], report: Report, store: Store
) -> int:
    """As `supervise_in_fleet`, on any store."""
    with Vault(options.state, options.config.state_keys) as vault, Watch() as watch:
        registry = Registry.installed()
        home = Home.open(options.state, settings.name, settings.member)
        rebinds, holds = settings.rebind_revoked, settings.on_lapse == "hold"
        host = Host(report, registry, rebinds=rebinds, holds=holds)
        membership = Membership(store, Seals(settings.name, settings.keys), settings, home, host)
        source = FleetSource(settings.name, membership, watch, environment, report.say, registry=registry)
        agent = Agent(options, environment, report, source, {options.state: vault}, is_leased=membership.holding)
        host.agent = agent
        source.resume(agent.members[0].ledger.version, may_run=home.memory.state == "member")
        return await _run(agent, membership, host)


async def _run(agent: Agent, membership: Membership, host: Host) -> int:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(membership.run)
        nursery.start_soon(host.rebind)
        status = await agent.run()
        nursery.cancel_scope.cancel("the agent has ended")
    return status
