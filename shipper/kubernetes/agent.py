"""`shipper supervise --kubernetes`: connects the agent, its membership, the API server, and the candidate for leader.

The agent runs what it has. It gets vectors from its membership, and passes the stages on; no task of it waits for the
API server. Whatever else a member does ends with the agent, after its last status was written.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec
import trio

from shipper.apiserver.client import Client, connected
from shipper.apiserver.config import configured
from shipper.kubernetes.events import Events
from shipper.kubernetes.home import Home
from shipper.kubernetes.host import Host
from shipper.kubernetes.judging import judge
from shipper.kubernetes.kinds import MEMBERS
from shipper.kubernetes.membership.membership import Membership
from shipper.kubernetes.probes import OF_SIDECAR_ALONE, UNSERVED, answering
from shipper.kubernetes.settings import Found
from shipper.kubernetes.source import KubernetesSource
from shipper.kubernetes.summing.leader import Leader
from shipper.policy.registry import Registry
from shipper.supervise.agent import Agent
from shipper.supervise.options import Options
from shipper.supervise.report import Report
from shipper.supervise.vault import Vault
from shipper.supervise.watch import Watch

LAST_SECONDS = 5.0
"""For the last status, after the sidecar has stopped."""


async def supervise_in_kubernetes(
    options: Options, found: Found, environment: Mapping[str, str], report: Report
) -> int:
    """Runs a member until a signal, or until it leaves; returns the exit status.

    Raises StateBusy, StateLocked and OptionError before anything runs.
    """
    settings = found.settings
    config = await configured(
        environment, namespace=settings.namespace, context=settings.context, kubeconfig=settings.kubeconfig
    )
    async with connected(config) as client:
        return await follow(options, found, client, environment, report)


async def follow(options: Options, found: Found, client: Client, environment: Mapping[str, str], report: Report) -> int:
    """As `supervise_in_kubernetes`, by a client."""
    settings, http = found.settings, options.config.http
    config = msgspec.structs.replace(options.config, http=OF_SIDECAR_ALONE if http else None)
    options = msgspec.structs.replace(options, config=config)
    with Vault(options.state, options.config.state_keys) as vault, Watch() as watch:
        registry = Registry.installed()
        vault.load()  # it opens the memory of the member, too
        home = Home.open(options.state, vault, client.namespace, found.member)
        host = Host(report, registry, holds=settings.on_lapse == "hold", rebinds=settings.rebind_revoked)
        allowed = environment if settings.allow_host_references else None
        judging = functools.partial(judge, registry=registry, environment=allowed)
        membership = Membership(client, found, home, host, judging, registry)
        source = KubernetesSource(
            client.namespace,
            membership,
            watch,
            environment,
            report.say,
            registry=registry,
            allows_host=settings.allow_host_references,
        )
        agent = Agent(options, environment, report, source, {options.state: vault}, is_leased=membership.holding)
        host.agent = agent
        events = Events(client, found.member, lambda sentence: host.say("kubernetes_events", {"message": sentence}))
        host.describe = functools.partial(_describe, events, membership, found.member)
        async with answering(http, host.sidecar) as bound:
            if http is not None and bound is None:
                reason = f"{http} cannot be used, perhaps because another process uses it"
                host.trouble(UNSERVED, f"probes are not answered: {reason}; free it, and restart")
            return await _run(agent, membership, host, events, _leader(client, found, membership, host, events))


def _describe(events: Events, membership: Membership, name: str, cause: str, message: str | None) -> None:
    """Has an Event of the ShipperMember say a trouble, by its cause in one word."""
    events.show(MEMBERS, name, lambda: membership.uid, cause, cause.title().replace("_", ""), message)


def _leader(client: Client, found: Found, membership: Membership, host: Host, events: Events) -> Leader | None:
    """Returns the candidate of this member, unless it must not be elected."""
    if not found.settings.elect:
        return None

    def trouble(cause: str, message: str | None) -> None:
        host.trouble(f"leader_{cause.removeprefix('leader_')}", message)

    def say(sentence: str) -> None:
        host.say("kubernetes_leader", {"message": sentence})

    return Leader(client, membership.identity, float(found.settings.lease), trouble=trouble, say=say, events=events)


async def _run(agent: Agent, membership: Membership, host: Host, events: Events, leader: Leader | None) -> int:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.run)
        nursery.start_soon(membership.run)
        nursery.start_soon(host.run)
        if leader is not None:
            nursery.start_soon(leader.run)
        status = await agent.run()
        with trio.move_on_after(LAST_SECONDS):
            await membership.settled()
        nursery.cancel_scope.cancel("the agent has ended")
    return status
