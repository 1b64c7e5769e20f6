"""The rooms on which the promises stand: `drained`, `released`, `confirmed`, a fleet's answer, Kubernetes' `Drained`.

Every module of a room either counts (ordinary tests take each branch of it, or the share beside it, which may only
rise) or stands apart with the reason. `measured` measures those that count; `test_rooms` keeps the list whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Room:
    """A folder, and those of its modules whose names begin with one word; folders below it belong to it."""

    folder: str
    counted: str
    """Names without `.py`."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Reasons, by the names of those that do not count."""
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Percent, by name, of those that are not at 100 yet."""
    begins: str = ""

    def found(self) -> set[str]:
        """The names of the modules that there are."""
        folder = ROOT / self.folder
        paths = (path for path in folder.rglob(f"{self.begins}*.py") if path.stem != "__init__")
        return {path.relative_to(folder).with_suffix("").as_posix() for path in paths}

    def floors(self) -> dict[str, float]:
        """The share that tests must take, in percent, by path."""
        return {f"{self.folder}/{name}.py": self.at_least.get(name, 100.0) for name in self.counted.split()}


ACTS = "acts only: what it does is decided elsewhere"
SCREEN = "for the eyes of people: nothing rests on it"
ENDS = "an end of a wire: bytes and descriptors"
HOST = "connects the parts"
VALUES = "values without behaviour"

ROOMS = (
    Room(
        "shipper/spool",
        "audit awaited clock contact credentials database dead_letters directory disk doubt drain_orders feeding"
        " figures forward holdings inbox keyed keyed_answers keys lane_settings lifting limits lineages opening"
        " origins places queue readers repair report requeue resync revisions salvage schema seal slots spool"
        " store upkeep waiting wal writer",
        {"stored": SCREEN},
        at_least={
            "forward": 92,
            "readers": 98,
            "spool": 98,
        },
    ),
    Room(
        "shipper/pipeline",
        "accepted attempt backlog chain client conditional confirmed counted delivery door entrance envelope feed"
        " fenced fences heads hold intake keyring lane lease libraries lineages listeners loading loans parcels"
        " plan port recent routed session settling slots sources stages suspects",
        {"tap": SCREEN},
        at_least={
            "envelope": 89,
            "intake": 97,
            "lane": 98,
            "port": 95,
            "session": 98,
            "stages": 88,
        },
    ),
    Room("shipper/revisions", "deadline effects forwarding machine offer orders requeue rollout statements"),
    Room(
        "shipper/control",
        "actions conversation door outbox statements",
        {"asking": SCREEN, "local": SCREEN, "tapping": SCREEN, "pipes": ENDS},
    ),
    Room(
        "shipper/supervise",
        "answers collected conversation ledger order_results rebinding releases revocations",
        {
            "absent": SCREEN,
            "agent": HOST,
            "alive": "feeds the watchdog: no promise rests on it",
            "awaiting": "before the start",
            "changes": SCREEN,
            "child": ENDS,
            "config": "what a person configures",
            "desired": "what a person configures",
            "durable": ENDS,
            "files": "what a person configures",
            "launcher": ACTS,
            "locations": SCREEN,
            "mapped": "what a person configures",
            "member": ACTS,
            "notify": ENDS,
            "once": "ends a supervisor: says nothing to anyone",
            "options": VALUES,
            "policy_source": "a contract",
            "questions": SCREEN,
            "reading": "what a person configures",
            "report": SCREEN,
            "revoke": ACTS,
            "sealed": ENDS,
            "secret_sources": "what a person configures",
            "secrets": "what a person configures",
            "shared_source": ACTS,
            "show": SCREEN,
            "show_policies": SCREEN,
            "sources": "what a person configures",
            "standing": SCREEN,
            "variables": "what a person configures",
            "vault": ENDS,
            "watch": ENDS,
        },
    ),
    Room(
        "shipper/fleet",
        "changes election judge known publishing records release standings store view"
        " etcd/answers kubernetes/answers kubernetes/lives kubernetes/objects"
        " member/answers member/claim member/fencing member/head member/losses member/machine member/marking"
        " member/order member/registration member/reporting member/rollout member/steps member/withdrawals"
        " membership/fetching membership/offers membership/pace membership/sealed",
        {
            "agent": HOST,
            "certificates": ENDS,
            "door": HOST,
            "drafts": "what a person publishes, before it is",
            "errors": VALUES,
            "etcd/gateway": ENDS,
            "etcd/hosts": "what a person configures",
            "etcd/http": ENDS,
            "etcd/keys": ENDS,
            "etcd/store": ACTS,
            "etcd/watch": ACTS,
            "following": ACTS,
            "home": ENDS,
            "host": HOST,
            "http": ENDS,
            "kubernetes/keeper": ACTS,
            "kubernetes/leases": ACTS,
            "kubernetes/removal": ACTS,
            "kubernetes/store": ACTS,
            "kubernetes/watch": ACTS,
            "membership/host": "a contract",
            "membership/membership": ACTS,
            "membership/offered": VALUES,
            "membership/session": ACTS,
            "membership/troubles": SCREEN,
            "membership/watching": ACTS,
            "memory": VALUES,
            "observer": ACTS,
            "opening": HOST,
            "operations": ACTS,
            "overview": SCREEN,
            "page": SCREEN,
            "pictures": SCREEN,
            "progress": SCREEN,
            "publisher": ACTS,
            "questions": SCREEN,
            "releasing": ACTS,
            "seal": ENDS,
            "secret": HOST,
            "settings": "what a person configures",
            "sidecar_http": ENDS,
            "source": HOST,
        },
        at_least={
            "election": 90,
            "judge": 98,
            "known": 98,
            "member/answers": 95,
            "member/claim": 95,
            "member/head": 97,
            "member/machine": 97,
            "member/registration": 97,
            "member/reporting": 94,
            "membership/fetching": 93,
            "membership/offers": 95,
            "records": 87,
            "release": 96,
        },
    ),
    Room(
        "shipper/kubernetes",
        "judging merging selectors"
        " member/choosing member/claim member/contents member/entries member/fencing member/introducing member/losses"
        " member/machine member/memory member/overtaking member/own member/pace member/policies member/proving"
        " member/refusals member/registering member/reporting member/running member/secrets member/standing"
        " member/steps member/using member/vectors"
        " summing/echoes summing/finalizing summing/judge summing/liveness summing/parts summing/picture"
        " summing/records summing/release",
        {
            "agent": HOST,
            "events": ACTS,
            "home": ENDS,
            "host": HOST,
            "kinds": VALUES,
            "membership/following": ACTS,
            "membership/host": "a contract",
            "membership/membership": ACTS,
            "membership/offers": ACTS,
            "membership/session": ACTS,
            "membership/troubles": SCREEN,
            "probes": SCREEN,
            "secret": HOST,
            "settings": "what a person configures",
            "source": HOST,
            "summing/election": ACTS,
            "summing/following": ACTS,
            "summing/leader": HOST,
            "summing/seat": ACTS,
            "summing/tasks": ACTS,
            "summing/term": ACTS,
            "summing/troubles": SCREEN,
            "summing/writing": ACTS,
            "trees": "what a person configures",
        },
        at_least={
            "member/choosing": 94,
            "member/claim": 92,
            "member/introducing": 94,
            "member/losses": 72,
            "member/machine": 93,
            "member/own": 93,
            "member/policies": 86,
            "member/refusals": 95,
            "member/running": 95,
            "member/secrets": 89,
            "member/using": 98,
            "member/vectors": 95,
            "merging": 95,
            "summing/echoes": 75,
            "summing/finalizing": 94,
            "summing/parts": 97,
            "summing/picture": 93,
            "summing/records": 90,
        },
    ),
    Room(
        "plugins/shipper_plugins/relay",
        "digests frames generations state taken",
        at_least={
            "digests": 92,
            "frames": 90,
            "generations": 97,
            "state": 83,
            "taken": 97,
        },
    ),
    Room(
        "plugins/shipper_plugins/inputs",
        "relay_edges relay_forget relay_settled relay_state",
        {"relay": HOST, "relay_figures": SCREEN, "relay_server": ENDS},
        begins="relay",
        at_least={
            "relay_edges": 95,
            "relay_settled": 97,
            "relay_state": 96,
        },
    ),
    Room(
        "plugins/shipper_plugins/outputs",
        "relay_asked relay_awaited relay_jobs relay_lineage relay_refusals relay_state relay_versions",
        {"relay": HOST, "relay_sender": ACTS, "relay_sessions": ACTS},
        begins="relay",
        at_least={
            "relay_asked": 80,
            "relay_awaited": 95,
            "relay_jobs": 95,
            "relay_lineage": 98,
            "relay_refusals": 84,
            "relay_state": 94,
        },
    ),
)


def counted() -> dict[str, float]:
    """The share that tests must take of each module that counts, in percent, by path."""
    return {path: floor for room in ROOMS for path, floor in room.floors().items()}
