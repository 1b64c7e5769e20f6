"""Which of two versions is the newer one; None is older than any."""

from __future__ import annotations

from shipper.fleet.records import Version


def position(version: Version | None) -> tuple[int, int]:
    """Returns the epoch and the number: the newer version has the greater one."""
    return (-1, -1) if version is None else (version.epoch, version.number)


def is_newer(version: Version | None, other: Version | None) -> bool:
    """Returns whether a version is newer than another one."""
    return position(version) > position(other)


def later(one: Version | None, other: Version | None) -> Version | None:
    """Returns the newer one, and the first of two at one position."""
    return other if is_newer(other, one) else one
