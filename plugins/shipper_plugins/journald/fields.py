"""Turns the fields of journal entries into those of events.

ECS where it has one, else the names that Filebeat uses (`systemd.unit`, `journald.…`). A field of a program's own
becomes `journald.custom.NAME` in small letters, without leading underscores.

    MESSAGE                              message
    PRIORITY, SYSLOG_FACILITY            log.syslog.severity, .facility, .priority
    SYSLOG_IDENTIFIER, SYSLOG_PID        log.syslog.appname, .procid
    _HOSTNAME, _MACHINE_ID               host.name, host.hostname, host.id
    _PID, _COMM, _EXE, _CMDLINE          process.pid, .name, .executable, .command_line
    _UID, _GID                           user.id, user.group.id
    _SYSTEMD_UNIT                        systemd.unit

The time of an event is that at which the journal took it; one after the year 2262, which a remote host may write, is in
`@timestamp` alone, since nanoseconds end there. Numbers that are none stay out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from shipper.plugin import Fields
from shipper_plugins.journald.export import Entry, Value
from shipper_plugins.syslog.message import FACILITIES, SEVERITIES

CURSOR, HOST, MESSAGE = "__CURSOR", "_HOSTNAME", "MESSAGE"
TIME = "__REALTIME_TIMESTAMP"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = ((1 << 63) - 1) // 1000
"""The last time whose nanoseconds fit into 64 bits, in microseconds."""
_LONGEST_NUMBER = 18

_TEXTS = {
    "MESSAGE": "message",
    "MESSAGE_ID": "event.code",
    "SYSLOG_IDENTIFIER": "log.syslog.appname",
    "SYSLOG_PID": "log.syslog.procid",
    "_MACHINE_ID": "host.id",
    "_BOOT_ID": "journald.host.boot_id",
    "_COMM": "process.name",
    "_EXE": "process.executable",
    "_CMDLINE": "process.command_line",
    "_CAP_EFFECTIVE": "journald.process.capabilities",
    "_UID": "user.id",
    "_GID": "user.group.id",
    "_AUDIT_SESSION": "journald.audit.session",
    "_SYSTEMD_CGROUP": "systemd.cgroup",
    "_SYSTEMD_INVOCATION_ID": "systemd.invocation_id",
    "_SYSTEMD_SESSION": "systemd.session",
    "_SYSTEMD_SLICE": "systemd.slice",
    "_SYSTEMD_UNIT": "systemd.unit",
    "_SYSTEMD_USER_SLICE": "systemd.user_slice",
    "_SYSTEMD_USER_UNIT": "systemd.user_unit",
    "_TRANSPORT": "systemd.transport",
    "_KERNEL_DEVICE": "journald.kernel.device",
    "_KERNEL_SUBSYSTEM": "journald.kernel.subsystem",
    "_UDEV_DEVLINK": "journald.kernel.device_symlinks",
    "_UDEV_DEVNODE": "journald.kernel.device_node_path",
    "_UDEV_SYSNAME": "journald.kernel.device_name",
    "CODE_FILE": "journald.code.file",
    "CODE_FUNC": "journald.code.func",
    "COREDUMP_UNIT": "journald.coredump.unit",
    "COREDUMP_USER_UNIT": "journald.coredump.user_unit",
    "OBJECT_CMDLINE": "journald.object.process.command_line",
    "OBJECT_COMM": "journald.object.process.name",
    "OBJECT_EXE": "journald.object.process.executable",
    "OBJECT_SYSTEMD_SESSION": "journald.object.systemd.session",
    "OBJECT_SYSTEMD_UNIT": "journald.object.systemd.unit",
    "OBJECT_SYSTEMD_USER_UNIT": "journald.object.systemd.user_unit",
    "UNIT": "journald.unit",
    "CONTAINER_ID_FULL": "container.id",
    "CONTAINER_NAME": "container.name",
    "CONTAINER_TAG": "container.log.tag",
    "IMAGE_NAME": "container.image.name",
}
_NUMBERS = {
    "_PID": "process.pid",
    "_AUDIT_LOGINUID": "journald.audit.login_uid",
    "_SYSTEMD_OWNER_UID": "systemd.owner_uid",
    "CODE_LINE": "journald.code.line",
    "OBJECT_AUDIT_LOGINUID": "journald.object.audit.login_uid",
    "OBJECT_AUDIT_SESSION": "journald.object.audit.session",
    "OBJECT_GID": "journald.object.gid",
    "OBJECT_PID": "journald.object.pid",
    "OBJECT_SYSTEMD_OWNER_UID": "journald.object.systemd.owner_uid",
    "OBJECT_UID": "journald.object.uid",
}
_SEPARATE = frozenset(("PRIORITY", "SYSLOG_FACILITY", "_HOSTNAME"))
LEFT_OUT = frozenset(
    (CURSOR, TIME, "__MONOTONIC_TIMESTAMP", "__SEQNUM", "__SEQNUM_ID", "SYSLOG_TIMESTAMP", "SYSLOG_RAW")
) | {"_SOURCE_REALTIME_TIMESTAMP", "_SOURCE_MONOTONIC_TIMESTAMP", "_SOURCE_BOOTTIME_TIMESTAMP"}
_PLACES = {name: tuple(place.split(".")) for name, place in (_TEXTS | _NUMBERS).items()}


def event(entry: Entry) -> Fields:
    """Returns the fields of an entry."""
    made: Fields = {}
    for name, value in entry.items():
        if (place := _PLACES.get(name)) is not None:
            known = _number(value) if name in _NUMBERS else value
            if known is not None:
                _put(made, place, known)
        elif name not in _SEPARATE and name not in LEFT_OUT:
            _add_own(made, name.lstrip("_").lower() or "_", value)
    if isinstance(made.get("message"), list):
        made["message"] = "\n".join(made["message"])
    _set_late_time(made, _number(entry.get(TIME)))
    _set_syslog(made, _number(entry.get("PRIORITY")), _number(entry.get("SYSLOG_FACILITY")))
    if (host := entry.get("_HOSTNAME")) is not None:
        _put(made, ("host", "name"), host)
        _put(made, ("host", "hostname"), host)
    return made


def nanoseconds(entry: Entry) -> int | None:
    """Returns when the journal took an entry, since the epoch; None after the year 2262."""
    microseconds = _number(entry.get(TIME))
    return None if microseconds is None or microseconds > LATEST else microseconds * 1000


def _set_late_time(made: Fields, microseconds: int | None) -> None:
    if microseconds is not None and microseconds > LATEST:
        with suppress(OverflowError):
            late = _EPOCH + timedelta(microseconds=microseconds)
            made["@timestamp"] = late.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put(made: Fields, place: Sequence[str], value: Any) -> None:
    for key in place[:-1]:
        made = made.setdefault(key, {})
    made[place[-1]] = value


def _add_own(made: Fields, name: str, value: Value) -> None:
    own = made.setdefault("journald", {}).setdefault("custom", {})
    if name in own:  # `_X` and `X`
        value = [*_listed(own[name]), *_listed(value)]
    own[name] = value


def _listed(value: Value) -> list[str]:
    return value if isinstance(value, list) else [value]


def _number(value: Value | None) -> int | None:
    text = value[0] if isinstance(value, list) else value
    if not text or len(text) > _LONGEST_NUMBER or not text.isascii() or not text.isdigit():
        return None
    return int(text)


def _set_syslog(made: Fields, severity: int | None, facility: int | None) -> None:
    if severity is not None and severity < len(SEVERITIES):
        _put(made, ("log", "syslog", "severity"), {"code": severity, "name": SEVERITIES[severity]})
        if facility is not None and facility < len(FACILITIES):
            _put(made, ("log", "syslog", "priority"), facility * len(SEVERITIES) + severity)
    if facility is not None and facility < len(FACILITIES):
        _put(made, ("log", "syslog", "facility"), {"code": facility, "name": FACILITIES[facility]})
