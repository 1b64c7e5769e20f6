"""Opens the store that the settings of a fleet name."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from shipper.fleet.etcd.gateway import Login
from shipper.fleet.etcd.hosts import TlsFiles
from shipper.fleet.etcd.store import open_etcd
from shipper.fleet.settings import FleetSettings
from shipper.fleet.store import Store


def opened(settings: FleetSettings) -> AbstractAsyncContextManager[Store]:
    """Returns the store as a context; it connects at the first call."""
    return open_etcd(settings.etcd, f"{settings.prefix}{settings.name}/", tls=_tls(settings), login=_login(settings))


def _tls(settings: FleetSettings) -> TlsFiles | None:
    if settings.tls is None:
        return None
    ca, certificate, key = settings.tls.ca, settings.tls.certificate, settings.tls.key
    return TlsFiles(*(None if one is None else one.path for one in (ca, certificate, key)))


def _login(settings: FleetSettings) -> Login | None:
    if settings.credential is None:
        return None
    fields = settings.credential.fields
    return lambda: (fields["username"], fields["password"])
