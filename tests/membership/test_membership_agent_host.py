"""How a trouble of a member is shown, on a stand-in for the supervisor's agent."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shipper.membership.agent_host import AgentHost
from shipper.policy.registry import Registry
from shipper.supervise.standing import Troubles


class Report:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def say(self, what: str, fields: Mapping[str, Any]) -> None:
        self.said.append((what, fields.get("consequence", "")))


class Host(AgentHost):
    kind = "fleet"
    unleased = ("unreachable",)

    def __init__(self, report: Report, *, holds: bool = False) -> None:
        super().__init__(cast(Any, report), Registry.installed(), holds=holds, rebinds=False)
        self.agent = cast(Any, SimpleNamespace(troubles=Troubles(), is_leaving=False))

    @staticmethod
    def code_of(cause: str) -> str:
        return cause

    @staticmethod
    def in_words(cause: str) -> str:
        return f"fleet: {cause}"

    def shown(self) -> list[tuple[str, str]]:
        return [(one["cause"], one["message"]) for one in self.agent.troubles.rows()]


@pytest.fixture
def report() -> Report:
    return Report()


def test_a_trouble_is_told_once_though_its_message_changes_and_told_when_it_is_over(report: Report) -> None:
    host = Host(report)
    for message in ("no answer", "no answer", "no route"):
        host.trouble("unreachable", message)
    shown = host.shown()
    host.trouble("unreachable", None)
    host.trouble("unreachable", None)

    assert shown == [("fleet: unreachable", "no route")]
    assert host.shown() == []
    assert report.said == [("fleet_trouble", "shipping continues"), ("fleet_well", "")]


def test_a_trouble_that_costs_the_lease_says_so_where_nothing_is_sent_without_one(report: Report) -> None:
    host = Host(report, holds=True)
    host.trouble("unreachable", "no answer")
    host.trouble("slow", "a while")

    assert report.said == [
        ("fleet_trouble", "nothing is sent after the lease"),
        ("fleet_trouble", "shipping continues"),
    ]


def test_a_member_that_leaves_shows_no_new_trouble_and_ends_those_that_there_are(report: Report) -> None:
    host = Host(report)
    host.trouble("slow", "a while")
    cast(Any, host.agent).is_leaving = True
    host.trouble("unreachable", "no answer")
    host.trouble("slow", None)

    assert host.shown() == []
    assert [what for what, _ in report.said] == ["fleet_trouble", "fleet_well"]
