"""Keys as objects: names and labels that a server takes, one for each key, and no trust in what is in them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.apiserver.errors import ApiError, Busy, Conflict, Forbidden, Gone, NotFound
from shipper.fleet.kubernetes.answers import told
from shipper.fleet.kubernetes.objects import (
    BEGINS,
    CREATED,
    FLEET,
    KEY,
    LEASE,
    REMOVED,
    Keys,
    Known,
    lease_of,
    revision,
    seconds_under,
)
from shipper.fleet.store import Compacted, Entry, Lease, StoreError, StoreRefused, StoreUnreachable

KEYS = Keys("prod")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
fleets = st.from_regex(r"[A-Za-z0-9._-]{1,253}", fullmatch=True)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def stored(obj: dict[str, Any], version: str = "7", uid: str = "u") -> dict[str, Any]:
    """An object as the server returns it."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": version, "uid": uid}}


@given(fleets, keys)
def test_names_and_labels_are_such_as_a_server_takes(fleet: str, key: str) -> None:
    found = Keys(fleet).object(key, b"x", lease=Lease(7, 40.0))["metadata"]

    assert NAME.fullmatch(found["name"])
    assert len(found["name"]) <= 253
    assert NAME.fullmatch(Keys(fleet).keeper)
    assert NAME.fullmatch(Keys(fleet).lease(1 << 62))
    assert all(LABEL.fullmatch(value) for value in found["labels"].values()), found["labels"]


@given(fleets, fleets, keys, keys)
def test_each_key_of_each_fleet_has_a_name_of_its_own(one: str, two: str, first: str, second: str) -> None:
    names = {(fleet, key): Keys(fleet).name(key) for fleet in (one, two) for key in (first, second)}

    assert len({*names.values()}) == len(names)
    assert (Keys(one).label == Keys(two).label) == (one == two)


@given(keys, keys)
def test_a_watch_of_a_prefix_selects_each_key_that_begins_so(prefix: str, rest: str) -> None:
    selected = dict(part.split("=") for part in KEYS.selector(prefix).split(","))
    labels = KEYS.object(prefix + rest, b"")["metadata"]["labels"]

    assert selected.items() <= labels.items()


def test_a_watch_of_the_head_is_not_told_of_reports() -> None:
    assert KEYS.selector("head") == f"{FLEET}=prod,{BEGINS}=head"
    assert KEYS.object("members/web-1", b"")["metadata"]["labels"][BEGINS] == "memb"


@given(keys, st.binary(max_size=1000), st.booleans())
def test_an_entry_is_what_was_written(key: str, value: bytes, leased: bool) -> None:
    lease = Lease(7, 40.0) if leased else None
    found = stored(KEYS.object(key, value, lease=lease))

    assert KEYS.key(found) == key
    assert KEYS.entry(key, found) == Entry(key, value, 7, 7, leased)
    assert lease_of(found) == ("0000000000000007" if leased else "")
    assert seconds_under(found) == (40.0 if leased else None)


def test_a_change_keeps_the_revision_of_the_creation_and_its_conditions() -> None:
    before = Known.of(stored(KEYS.object("head", b"1")))
    changed = KEYS.object("head", b"2", before=before)
    again = Known.of(stored(changed, "9"))

    assert changed["metadata"]["annotations"][CREATED] == "7"
    assert (changed["metadata"]["resourceVersion"], changed["metadata"]["uid"]) == ("7", "u")
    assert (again.revision, again.created) == (9, 7)


def test_a_removed_key_has_no_entry_and_is_created_anew_over_its_object() -> None:
    removed = stored(KEYS.object("head", None, before=Known.of(stored(KEYS.object("head", b"1")))), "9")
    created = stored(KEYS.object("head", b"2", before=Known.of(removed)), "11")

    assert removed["metadata"]["labels"][REMOVED] == "true"
    assert "value" not in removed
    assert KEYS.entry("head", removed) is None
    assert KEYS.entry("head", created) == Entry("head", b"2", 11, 11, False)


def test_no_two_writes_of_a_key_are_the_same_so_each_has_a_revision() -> None:
    assert KEYS.object("head", b"1") != KEYS.object("head", b"1")


def test_a_record_that_renews_a_lease_is_not_under_it() -> None:
    found = stored(KEYS.object("members/a", b"", renews=Lease(7, 40.0)))

    assert found["metadata"]["labels"][LEASE] == "0000000000000007"
    assert seconds_under(found) is None
    assert KEYS.entry("members/a", found) == Entry("members/a", b"", 7, 7, False)


@pytest.mark.parametrize(
    "damage",
    [
        {"metadata": {"name": "x", "resourceVersion": "7"}},
        {"metadata": {"name": KEYS.name("head"), "resourceVersion": "7", "annotations": {KEY: "members/a"}}},
        {"metadata": {"name": KEYS.name("head"), "resourceVersion": "7", "annotations": {KEY: 7}}},
        {"metadata": {"name": KEYS.name("head"), "resourceVersion": "7", "annotations": None}},
    ],
)
def test_an_object_whose_name_is_not_that_of_its_key_is_of_no_key(damage: dict[str, Any]) -> None:
    assert KEYS.key(damage) is None


def test_a_value_that_was_not_written_here_is_empty_and_so_not_authentic() -> None:
    for value in ["%%%", "a", 7, None, [], "a\nb"]:
        found = stored(KEYS.object("head", b"1")) | {"value": value}
        entry = KEYS.entry("head", found)

        assert entry is not None
        assert entry.value == b""


def test_a_version_without_an_order_is_refused_with_the_cause() -> None:
    for text in ["", "0", "x", "-1", "1e9", "12-34", "9" * 40, "٣"]:
        with pytest.raises(StoreRefused, match="KEP-5504"):
            revision(text)


def test_seconds_that_were_not_written_here_are_a_lease_all_the_same() -> None:
    for text in ["x", "-3", "1e400", "nan", "inf"]:
        found = stored(KEYS.object("alive/a", b"", lease=Lease(7, 40.0)))
        found["metadata"]["annotations"]["shipper.dev/under"] = text
        seconds = seconds_under(found)

        assert seconds is not None
        assert 1.0 <= seconds <= 86400.0


def test_the_objects_of_a_lease_and_of_who_ends_leases_are_named_by_the_fleet_and_the_record_by_its_lease() -> None:
    assert KEYS.lease(255) == "shipper-fleet-prod-00000000000000ff"
    assert KEYS.keeper.startswith("shipper-fleet-prod-keeper-")
    assert lease_of(KEYS.object("alive/a", b"x", lease=Lease(255, 40.0))) == "00000000000000ff"
    assert lease_of(KEYS.object("members/a", b"x")) == ""


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (Gone("410"), Compacted, "read head: 410"),
        (NotFound("404"), StoreRefused, "kubectl apply"),
        (Busy("429"), StoreUnreachable, "read head: 429"),
        (Conflict("409"), StoreUnreachable, "read head: 409"),
        (Forbidden("403"), StoreRefused, "read head: 403"),
    ],
)
def test_an_error_of_the_api_server_is_what_it_means_to_a_store(
    error: ApiError, kind: type[StoreError], text: str
) -> None:
    with pytest.raises(kind, match=text), told("read head"):
        raise error
