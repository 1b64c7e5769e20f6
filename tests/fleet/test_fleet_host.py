from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from shipper.fleet.host import Host
from shipper.fleet.settings import FleetSettings
from shipper.policy.registry import Registry
from shipper.supervise.ledger import Kept, Ledger


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("store_unreachable", "fleet: store unreachable"),
        ("fleet_left", "fleet: left"),
        ("on_release es-1_2", "fleet: on_release es-1_2"),
    ],
)
def test_a_trouble_is_named_in_words(cause: str, words: str) -> None:
    assert Host.in_words(cause) == words


class SavingMember:
    """Stands in for a member of the supervisor."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.observed = None
        self.saved: list[list[str]] = []

    def withdraw(self, ids: Sequence[str]) -> None:
        self.ledger.withdraw(ids)

    async def save(self) -> None:
        await trio.lowlevel.checkpoint()
        self.saved.append([id for id, kept in self.ledger.kept.items() if kept.withdrawn])


async def test_what_was_withdrawn_is_durable_so_that_no_later_process_supplies_it(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    member = SavingMember()
    member.ledger.kept["es-1"] = Kept("es-1", {}, [], [], shared=True)
    settings = FleetSettings(name="prod", member="web-1", etcd=("http://127.0.0.1:1",), keys=(b"k" * 32,))
    host = Host(None, Registry.installed(), settings)  # type: ignore[arg-type]
    host.agent = SimpleNamespace(members=[member])  # type: ignore[assignment]
    nursery.start_soon(host.run)

    host.withdraw(["es-1"])
    await trio.sleep(1)

    assert member.saved == [["es-1"]]
