"""Opens what the settings of a fleet name: its store, and the seals of its records."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from shipper.apiserver.config import configured
from shipper.fleet.etcd.gateway import Login
from shipper.fleet.etcd.hosts import TlsFiles
from shipper.fleet.etcd.store import open_etcd
from shipper.fleet.kubernetes.store import open_kubernetes
from shipper.fleet.seal import Seals
from shipper.fleet.settings import FleetSettings
from shipper.fleet.store import Store


@dataclass(frozen=True, slots=True)
class Opened:
    """A fleet that can be read and changed."""

    settings: FleetSettings
    store: Store
    seals: Seals


@asynccontextmanager
async def opened(settings: FleetSettings, variables: Mapping[str, str] | None = None) -> AsyncIterator[Opened]:
    """Yields the fleet of the settings; asks the store nothing yet.

    `variables` are those by which an API server is found (default: of this process). Raises BadOption for a wrong URL,
    OptionError for what is wrong with a kubeconfig or a ServiceAccount.
    """
    async with await _store(settings, os.environ if variables is None else variables) as store:
        yield Opened(settings, store, Seals(settings.name, settings.keys))


async def _store(settings: FleetSettings, variables: Mapping[str, str]) -> AbstractAsyncContextManager[Store]:
    cluster = settings.kubernetes
    if cluster is None:
        prefix = f"{settings.prefix}{settings.name}/"
        return open_etcd(settings.etcd, prefix, tls=_tls_files(settings), login=_login(settings))
    found = await configured(
        variables, namespace=cluster.namespace, context=cluster.context, kubeconfig=cluster.kubeconfig
    )
    return open_kubernetes(found, settings.name)


def _tls_files(settings: FleetSettings) -> TlsFiles | None:
    if settings.tls is None:
        return None
    files = (settings.tls.ca, settings.tls.certificate, settings.tls.key)
    return TlsFiles(*(None if one is None else one.path for one in files))


def _login(settings: FleetSettings) -> Login | None:
    if (credential := settings.credential) is None:
        return None
    fields = credential.fields
    return lambda: (fields["username"], fields["password"])
