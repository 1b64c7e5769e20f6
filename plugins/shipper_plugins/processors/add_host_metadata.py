"""`add_host_metadata`: sets what is known of this host, in ECS fields.

    {type: add_host_metadata}
    {type: add_host_metadata, netinfo: false, geo: {name: dc-1, region_iso_code: DE-BE}}

    host.hostname, host.architecture, host.id (of /etc/machine-id)
    host.os.type, .platform, .family, .name, .version, .kernel (of /etc/os-release and the kernel)
    host.ip, host.mac (of all network interfaces but loopback, at most 64 of each)

They are read at the first event, and then once a minute at most; they are stored once for the whole batch. An event
that has a `host.name` of another host, such as one that was relayed, is left alone.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from shipper.plugin import Batch, Fields, Processor
from shipper.sdk.fields import find

SECONDS = 60
_MOST_ADDRESSES = 64
_GLOBAL = "00"


class AddHostMetadata(Processor, frozen=True):
    """Sets what is known of this host, in ECS fields."""

    netinfo: bool = True
    """Whether the addresses of the host are set."""
    geo: dict[str, Any] | None = None
    """The fields of `host.geo`, such as `name` and `region_iso_code`."""

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the fields."""
        fields = known_of(self.netinfo, int(time.monotonic() // SECONDS))
        host = {**fields, "geo": self.geo} if self.geo else fields
        name = find(batch.shared, "host.name")
        own = batch.own() if name is None else []
        if any(find(event, "host.name") not in (None, fields["hostname"]) for event in own):
            return batch.replace([self._on(event, host) for event in own])
        return batch.share({"host": host}) if name in (None, fields["hostname"]) else batch

    @property
    def is_slow(self) -> bool:
        """Whether it waits for a disk: what is known of the host is in files of the kernel and of the distribution."""
        return True

    def _on(self, event: Fields, host: Fields) -> Fields:
        there = event.get("host", {})
        is_ours = isinstance(there, Mapping) and there.get("name", host["hostname"]) == host["hostname"]
        return {**event, "host": {**there, **host}} if is_ours else event


@lru_cache(maxsize=4)
def known_of(netinfo: bool, minute: int) -> Fields:
    """Returns the fields of `host` in a minute."""
    system = platform.uname()
    found: Fields = {"hostname": socket.gethostname(), "architecture": system.machine, "os": _os(system)}
    with suppress(OSError):
        found["id"] = Path("/etc/machine-id").read_text().strip()
    if netinfo:
        found |= {name: values for name, values in (("ip", _addresses()), ("mac", _macs())) if values}
    return found


def _os(system: platform.uname_result) -> Fields:
    release: Mapping[str, str] = {}
    with suppress(OSError):
        release = platform.freedesktop_os_release()
    named = {
        "type": system.system.lower(),
        "platform": release.get("ID", system.system.lower()),
        "family": (release.get("ID_LIKE") or release.get("ID", "")).split(" ")[0],
        "name": release.get("NAME", system.system),
        "version": release.get("VERSION") or release.get("VERSION_ID", ""),
        "codename": release.get("VERSION_CODENAME", ""),
        "kernel": system.release,
    }
    return {name: value for name, value in named.items() if value}


def _addresses() -> list[str]:
    """The addresses of the interfaces, but for loopback and those that hold on one link only."""
    return sorted({*_ipv4(), *_ipv6()})[:_MOST_ADDRESSES]


def _ipv4() -> Iterator[str]:
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                found = socket.inet_ntoa(fcntl.ioctl(asking.fileno(), 0x8915, request)[20:24])  # SIOCGIFADDR
                if not found.startswith("127."):
                    yield found


def _ipv6() -> Iterator[str]:
    """See proc_net(5): address, index, prefix length, scope, flags, name."""
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            raw, _, _, scope, *_ = line.split()
            if scope == _GLOBAL:
                yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw))


def _macs() -> list[str]:
    """As ECS writes them: RFC 7042, capitals and hyphens."""
    found = set[str]()
    with suppress(OSError):
        for name in os.listdir("/sys/class/net"):
            with suppress(OSError):
                found.add(Path("/sys/class/net", name, "address").read_text().strip().replace(":", "-").upper())
    return sorted(found - {"", "00-00-00-00-00-00"})[:_MOST_ADDRESSES]
