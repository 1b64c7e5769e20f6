"""The rooms on which the promises stand: `drained`, `released`, `confirmed`, a fleet's answer, Kubernetes' `Drained`.

Every module of a room either counts (ordinary tests take each branch of it, or the share beside it, which may only
rise) or stands apart with the reason. `measured` measures those that count; `test_rooms` keeps the list whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Room:
    """A folder; folders below it belong to it."""

    folder: str
    counted: str
    """Names without `.py`."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Reasons, by the names of those that do not count."""
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Percent, by name, of those that are not at 100 yet."""

    def found(self) -> set[str]:
        """The names of the modules that there are."""
        folder = ROOT / self.folder
        paths = (path for path in folder.rglob("*.py") if path.stem != "__init__")
        return {path.relative_to(folder).with_suffix("").as_posix() for path in paths}

    def floors(self) -> dict[str, float]:
        """The share that tests must take, in percent, by path."""
        return {f"{self.folder}/{name}.py": self.at_least.get(name, 100.0) for name in self.counted.split()}


ACTS = "acts only: what it does is decided elsewhere"
SCREEN = "for the eyes of people: nothing rests on it"
ENDS = "an end of a wire: bytes and descriptors"
HOST = "connects the parts"
VALUES = "values without behaviour"
PERSON = "what a person configures"
CONTRACT = "a contract"


def _apart(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


ROOMS = (
    Room(
        "shipper/spool",
        "audit awaited clock contact credentials database dead_letters directory disk doubt drain_orders feeding"
        " figures forward ground holdings inbox keyed keyed_answers keys kinds lane_settings lifting limits lineages"
        " opening origins places queue readers repair report requests requeue resync revisions salvage schema seal"
        " slots spool store upkeep waiting wal writer parts/destination parts/drains parts/letters parts/queue"
        " parts/revisions parts/state",
        {"stored": SCREEN},
    ),
    Room(
        "shipper/pipeline",
        "door keyring libraries plan sources"
        " attempts/attempt attempts/fences attempts/joining attempts/settling attempts/stable attempts/suspects"
        " delivery/backlog delivery/delivery delivery/feed delivery/lane delivery/machine delivery/parcels"
        " delivery/probe delivery/request delivery/sending delivery/session delivery/shown delivery/waits"
        " destination/accepted destination/client destination/confirmed destination/counted destination/counts"
        " destination/fenced destination/hold destination/lease destination/pool destination/routed"
        " intake/chain intake/conditional intake/entrance intake/envelope intake/gathering intake/intake"
        " intake/listeners intake/port intake/stages"
        " memory/loading memory/loans memory/recent memory/slots",
        {"tap": SCREEN},
        at_least={"delivery/lane": 97, "delivery/session": 97},
    ),
    Room(
        "shipper/sdk",
        "answers hooks identity lineage origins state unshown weights",
        {
            **_apart(
                ENDS,
                "aio bodies connection crowd descriptors hosts http http_answer inotify late_authorities resolve rooms"
                " server sockets threads tls",
            ),
            **_apart(SCREEN, "asking codes errors meters peers tallies"),
            **_apart(PERSON, "conditions credentials endpoints feeding patterns proxies settings units"),
            **_apart(
                "events: what they are, not what becomes of them",
                "columns editing event fields forms joining packing table trees typed",
            ),
            **_apart(CONTRACT, "secret_source stage"),
            "retry": "how long to wait",
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
            **_apart(SCREEN, "absent changes locations questions report show show_policies standing"),
            **_apart(HOST, "agent"),
            "alive": "feeds the watchdog: no promise rests on it",
            "awaiting": "before the start",
            **_apart(ENDS, "child durable notify sealed spare vault watch"),
            **_apart(PERSON, "config desired files mapped reading secret_sources secrets sources variables"),
            **_apart(ACTS, "launcher member revoke shared_source"),
            "once": "ends a supervisor: says nothing to anyone",
            **_apart(VALUES, "options"),
            **_apart(CONTRACT, "policy_source"),
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
            **_apart(HOST, "agent host opening secret source"),
            **_apart(ENDS, "certificates etcd/gateway etcd/http etcd/keys home seal"),
            "drafts": "what a person publishes, before it is",
            **_apart(VALUES, "errors membership/offered memory"),
            **_apart(PERSON, "etcd/hosts settings"),
            **_apart(
                ACTS,
                "etcd/store etcd/watch following kubernetes/keeper kubernetes/leases kubernetes/removal"
                " kubernetes/store kubernetes/watch membership/membership membership/session"
                " membership/watching observer operations publisher releasing",
            ),
            **_apart(CONTRACT, "membership/host"),
            **_apart(SCREEN, "membership/troubles overview page pictures progress questions"),
        },
    ),
    Room(
        "shipper/membership",
        "leases longest offers steps",
        {
            **_apart(CONTRACT, "host"),
            **_apart(HOST, "agent_host door"),
            **_apart(ENDS, "http ids sidecar_http"),
            **_apart(SCREEN, "causes page"),
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
            **_apart(HOST, "agent host secret source summing/leader"),
            **_apart(
                ACTS,
                "events membership/following membership/membership membership/offers membership/session"
                " summing/election summing/following summing/seat summing/tasks summing/term"
                " summing/writing",
            ),
            **_apart(ENDS, "home"),
            **_apart(VALUES, "kinds"),
            **_apart(CONTRACT, "membership/host"),
            **_apart(SCREEN, "membership/troubles probes summing/troubles"),
            **_apart(PERSON, "settings trees"),
        },
    ),
    Room(
        "plugins/shipper_plugins/relay",
        "digests frames state edge/asked edge/awaited edge/jobs edge/lineage edge/refusals edge/state"
        " edge/versions principal/answers principal/door principal/edges principal/forget"
        " principal/generations principal/keys principal/known principal/parts principal/sets"
        " principal/settled principal/state principal/taken",
        {
            **_apart(ACTS, "edge/sender edge/sessions"),
            **_apart(ENDS, "principal/gathering principal/server"),
            **_apart(HOST, "input output"),
            **_apart(SCREEN, "principal/figures"),
        },
    ),
)


def strays(rooms: Iterable[Room] = ROOMS) -> Iterator[str]:
    """What is wrong with the list: modules that it lacks, has twice, or that are gone."""
    for room in rooms:
        found, listed = room.found(), Counter([*room.counted.split(), *room.others])
        yield from (f"{room.folder}/{name}.py stands in no list" for name in sorted(found - listed.keys()))
        yield from (f"{room.folder}/{name}.py is in the list, and gone" for name in sorted(listed.keys() - found))
        yield from (f"{room.folder}/{name}.py is in the list twice" for name, times in listed.items() if times > 1)
        yield from (
            f"{room.folder}/{name}.py has a floor, and does not count"
            for name in room.at_least
            if name not in room.counted.split()
        )


def counted() -> dict[str, float]:
    """The share that tests must take of each module that counts, in percent, by path."""
    return {path: floor for room in ROOMS for path, floor in room.floors().items()}
