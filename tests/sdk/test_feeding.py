"""What an output may state of how it is fed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shipper.plugin import Feeding, Output, PluginFault
from shipper.sdk.units import Duration


def test_an_output_is_fed_as_its_settings_say_unless_it_states_more() -> None:
    assert Output(workers=3, flush=Duration(0.5)).feeding() == Feeding(in_flight=3, linger=0.5)


def test_a_statement_that_cannot_be_is_a_fault_that_names_it() -> None:
    for name, value in [
        ("bytes", 0),
        ("bytes", True),
        ("bytes", "1MiB"),
        ("bytes", (2 << 20) + 1),
        ("events", -1),
        ("events", 1.5),
        ("linger", -0.1),
        ("linger", 5.1),
        ("linger", math.nan),
        ("linger", "1s"),
        ("compressed", True),
        ("in_flight", 0),
        ("in_flight", 65),
        ("ordered", "yes"),
        ("mixes", "yes"),
        ("backoff", (0, 1)),
        ("backoff", (2, 1)),
        ("backoff", (1, math.inf)),
        ("backoff", (math.nan, 1)),
        ("backoff", ("1s", "1m")),
        ("backoff", 5),
        ("backoff", (1, 2, 3)),
        ("client", "ever"),
        ("client", []),
    ]:
        with pytest.raises(PluginFault, match=f"cannot be fed as it states: {name} must be ") as raised:
            replace(Feeding(), **{name: value})
        assert str(raised.value).endswith(f", not {value!r}")


def test_in_strict_order_one_request_is_under_way() -> None:
    assert Feeding(in_flight=7, ordered=True).in_flight == 1


def test_requests_that_stay_the_same_may_be_large_and_wait_long() -> None:
    assert Feeding(stable=True, bytes=64 << 20, linger=600.0, compressed=True).stable
    for wrong, said in (({"bytes": 65 << 20}, "to 67108864, not"), ({"linger": 601.0}, "from 0 to 600, not")):
        with pytest.raises(PluginFault, match=said):
            Feeding(stable=True, **wrong)
