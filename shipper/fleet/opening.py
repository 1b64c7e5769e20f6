"""Opens what the settings of a fleet name: its store, and the seals of its records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shipper.fleet.etcd.gateway import Login
from shipper.fleet.etcd.hosts import TlsFiles
from shipper.fleet.etcd.store import open_etcd
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
async def opened(settings: FleetSettings) -> AsyncIterator[Opened]:
    """Yields the fleet of the settings; asks the store nothing yet. Raises BadOption for a wrong URL."""
    prefix = f"{settings.prefix}{settings.name}/"
    async with open_etcd(settings.etcd, prefix, tls=_tls_files(settings), login=_login(settings)) as store:
        yield Opened(settings, store, Seals(settings.name, settings.keys))


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
