"""The rule of revocation, in every order of acks, nacks, policies and crashes that hypothesis finds."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from shipper.policy.document import Mark, Node
from shipper.protocol.messages import Ack, Nack, Ready, Released
from shipper.sdk.credentials import Credential
from shipper.supervise.conversation import Conversation, Effects, Revoke, Save, Send
from shipper.supervise.ledger import Found, Ledger, Wanted, identified
from shipper.supervise.releases import Releases
from shipper.values import CredentialUse, Revision, Revisions
from tests.examples import examples
from tests.supervise.said import ready


def ack(number: int, stage: str, *released: str) -> Ack:
    use = CredentialUse((), released) if stage == "drained" else None
    return Ack(epoch=0, revision=number, sha256="", stage=stage, change="barrier", credentials=use)  # type: ignore[arg-type]


def nack(number: int, *released: str) -> Nack:
    return Nack(epoch=0, revision=number, sha256="", reason="invalid", released=released)


def known(received: int | None, active: int | None, drained: int | None = None) -> Revisions:
    return Revisions(*(None if number is None else at(number) for number in (received, active, drained)))


def at(number: int) -> Revision:
    return Revision(0, number)


def test_a_listed_credential_is_free() -> None:
    releases = Releases()
    releases.sent(at(1), ["a"])
    releases.sent(at(2), ["b"])
    releases.ack(ack(2, "drained", "a"))

    assert releases.free(["a", "b"], ["b"]) == ["a"]


def test_an_ack_that_crosses_a_newer_policy_frees_nothing_that_it_refers_to() -> None:
    releases = Releases()
    releases.sent(at(1), ["a"])
    releases.sent(at(2), ["b"])
    releases.sent(at(3), ["a"])
    releases.ack(ack(2, "drained", "a"))

    assert releases.free(["a", "b"], []) == []


def test_a_policy_that_was_not_sent_after_all_leaves_what_an_earlier_one_brought() -> None:
    releases = Releases()
    releases.sent(at(1), ["a"])
    releases.sent(at(2), ["a", "b"])
    releases.unsent(at(2))
    releases.ack(ack(1, "drained", "a"))

    assert releases.free(["a", "b"], []) == ["a", "b"]


def test_a_nack_of_the_newer_policy_frees_it() -> None:
    releases = Releases()
    releases.sent(at(2), ["b"])
    releases.sent(at(3), ["a"])
    releases.ack(ack(2, "drained", "a"))
    releases.nack(nack(3))

    assert releases.free(["a"], []) == ["a"]


def test_an_old_listing_is_void_once_a_policy_that_refers_to_it_was_active() -> None:
    releases = Releases()
    releases.sent(at(3), ["a"])
    releases.ack(ack(2, "drained", "a"))
    releases.ack(ack(3, "active"))
    releases.sent(at(4), ["b"])
    releases.ack(ack(4, "active"))
    assert releases.free(["a"], ["b"]) == []

    releases.ack(ack(4, "drained", "a"))

    assert releases.free(["a"], ["b"]) == ["a"]


def test_what_the_files_want_is_not_free_though_its_policy_was_refused() -> None:
    releases = Releases()
    releases.sent(at(2), ["b"])
    releases.nack(nack(2, "b"))

    assert releases.free(["a", "b"], ["b"]) == []
    assert releases.free(["a", "b"], ["c"]) == ["b"]


def test_a_released_message_speaks_of_what_was_read_before_it() -> None:
    releases = Releases()
    releases.ack(ack(2, "active"))
    releases.sent(at(3), ["a"])
    releases.released(Released(credentials=["a"]))
    assert releases.free(["a"], []) == []

    releases.ack(ack(3, "received"))
    releases.released(Released(credentials=["a"]))

    assert releases.free(["a"], []) == ["a"]


def test_nothing_is_free_while_nothing_is_active() -> None:
    releases = Releases()
    releases.ready(ready())

    assert releases.free(["a"], []) == []


def test_what_a_restarted_sidecar_does_not_use_is_free() -> None:
    releases = Releases()
    releases.ready(ready(known(2, 2), in_use=["b"]))

    assert releases.free(["a", "b"], ["b"]) == ["a"]


def test_a_policy_that_is_sent_again_after_its_nack_holds_what_the_nack_listed() -> None:
    releases = Releases()
    releases.sent(at(2), ["b"])
    releases.nack(nack(2, "b"))
    releases.sent(at(2), ["b"])
    assert releases.free(["b"], []) == []

    releases.nack(nack(2))

    assert releases.free(["b"], []) == ["b"]


def test_what_was_never_sent_is_free_once_a_policy_is_active() -> None:
    releases = Releases()
    releases.ready(ready())
    releases.sent(at(2), ["b"])
    releases.ack(ack(2, "received"))
    assert releases.free(["a", "b"], ["b"]) == []

    releases.ack(ack(2, "active"))

    assert releases.free(["a", "b"], ["b"]) == ["a"]


def test_what_gave_way_in_the_outbox_was_never_sent() -> None:
    releases = Releases()
    releases.ready(ready(known(1, 1), in_use=["a"]))
    releases.sent(at(2), ["b"])
    releases.sent(at(3), ["c"])
    assert releases.free(["a", "b", "c"], ["c"]) == []

    releases.unsent(at(2))

    assert releases.free(["a", "b", "c"], ["c"]) == ["b"]


def test_what_gave_way_in_the_outbox_is_not_free_if_another_policy_brings_it() -> None:
    releases = Releases()
    releases.ready(ready(known(1, 1), in_use=["a"]))
    releases.sent(at(2), ["b"])
    releases.sent(at(3), ["b", "c"])
    releases.unsent(at(2))
    releases.sent(at(4), ["c"])

    assert releases.free(["a", "b", "c"], ["c"]) == []


def test_what_the_sidecar_was_given_outside_of_a_policy_is_not_free() -> None:
    releases = Releases()
    releases.ready(ready(known(1, 1), in_use=["b"]))
    releases.meets(["a"])

    assert releases.free(["a", "b"], ["b"]) == []


def test_a_nack_of_a_number_that_was_active_frees_nothing_that_this_refers_to() -> None:
    releases = Releases()
    releases.sent(at(3), ["a"])
    releases.ack(ack(3, "active"))
    releases.nack(nack(3, "a"))

    assert releases.free(["a"], []) == []


def test_a_nack_lists_what_the_number_before_it_referred_to() -> None:
    releases = Releases()
    releases.sent(at(1), ["a"])
    releases.ack(ack(1, "active"))
    releases.nack(nack(2, "a"))

    assert releases.free(["a"], []) == ["a"]


def test_a_forgotten_id_is_as_one_that_was_never_met() -> None:
    releases = Releases()
    releases.sent(at(1), ["a"])
    releases.ack(ack(2, "drained", "a"))
    releases.forget("a")
    releases.sent(at(3), ["a"])
    releases.unsent(at(3))
    assert releases.free(["a"], []) == ["a"]

    releases.sent(at(4), ["a"])
    releases.nack(nack(4))

    assert releases.free(["a"], []) == []


# -- the model ---------------------------------------------------------------------------------------------------------


class ModelSidecar:
    """What the protocol demands of a sidecar, and no more; the first part is durable."""

    def __init__(self) -> None:
        self.texts: dict[int, frozenset[str]] = {}
        self.received: int | None = None
        self.active: int | None = None
        self.drained: int | None = None
        self.queued: set[str] = set()
        self.start()

    def start(self) -> None:
        self.waiting: int | None = None
        self.open: set[str] = set()
        self.met = self.used()
        self.since_ack: set[str] = set()

    def used(self) -> set[str]:
        ids = set(self.texts[self.active]) if self.active is not None else set()
        return ids | (set(self.texts[self.waiting]) if self.waiting is not None else set()) | self.queued

    def ready(self) -> Ready:
        in_use = sorted(self.used())
        revisions = known(self.received, self.active, self.drained)
        return ready(revisions, in_use=in_use, wants=sorted(set(in_use) - self.open))

    def policy(self, number: int, ids: frozenset[str], settlement: str) -> list[Any]:
        if settlement == "nack" or (self.active or -1) > number or (self.waiting or -1) > number:
            return [nack(number, *self._unused(ids))]
        if self.active == number:
            return [self._ack("drained", number)] if self.drained == number else [ack(number, "active")]
        said: list[Any] = [ack(number, "received")]
        old, self.waiting, self.received = self.waiting, number, number
        self.texts[number] = ids
        if old is not None and old != number:
            said.append(nack(old, *self._unused(self.texts[old])))
        self.open |= ids
        self.met |= ids
        return said

    def _unused(self, ids: frozenset[str]) -> list[str]:
        return self._forget(set(ids))

    def _forget(self, ids: set[str]) -> list[str]:
        gone = ids - self.used()
        self.open -= gone
        self.met -= gone
        return sorted(gone)

    def activate(self, busy: bool) -> list[Any]:
        assert self.waiting is not None
        if busy and self.active is not None:
            self.queued |= self.texts[self.active]
        self.active, self.waiting = self.waiting, None
        return [ack(self.active, "active"), *self._released()]

    def fail(self) -> list[Any]:
        assert self.waiting is not None
        number, self.waiting = self.waiting, None
        return [nack(number, *self._unused(self.texts[number]))]

    def settle(self, id: str) -> list[Any]:
        self.queued.discard(id)
        return self._released()

    def _released(self) -> list[Any]:
        gone = self._forget(self.met)
        self.since_ack |= set(gone)
        assert self.active is not None
        if not self.queued - self.texts[self.active] and self.drained != self.active:
            self.drained = self.active
            return [self._ack("drained", self.active)]
        return [Released(credentials=gone)] if gone else []

    def _ack(self, stage: str, number: int) -> Ack:
        listed, self.since_ack = self.since_ack, set()
        return ack(number, stage, *sorted(listed))


class World(RuleBasedStateMachine):
    """A supervisor (the real decisions), a model sidecar, two pipes, and a disk.

    While the pipe is `blocked`, a policy takes the place of one that the sidecar has not begun to read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk: bytes | None = None
        self.files = 1
        self.sidecar = ModelSidecar()
        self.revoked: set[str] = set()
        self.drawn = 0
        self.blocked = False
        self.start_supervisor()

    # -- the supervisor

    def start_supervisor(self) -> None:
        ledger = msgspec.json.decode(self.disk, type=Ledger) if self.disk else Ledger()
        self.talk = Conversation(ledger, fresh=self.disk is None, clock=lambda: self.tick())
        self.now = 0.0
        self.running: set[str] = set()
        self.start_sidecar()
        self.perform(self.talk.begin())
        self.read_files()

    def tick(self) -> float:
        self.now += 100
        return self.now

    def perform(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Save():
                    self.disk = msgspec.json.encode(self.talk.ledger)
                case Send(message):
                    self.check_sent(message)
                    self.send(dict(message))
                case Revoke(kept):
                    self.check_revocable(kept.id)
                    self.running.add(kept.id)

    def send(self, message: dict[str, Any]) -> None:
        older = [other for other in self.down if self.blocked and other["type"] == message["type"] == "policy"]
        self.down = deque(other for other in self.down if other not in older)
        self.down.append(message)
        for replaced in older:
            self.perform(self.talk.unsent(replaced))

    def check_sent(self, message: Any) -> None:
        assert self.disk is not None or message["type"] == "hello"
        durable = msgspec.json.decode(self.disk, type=Ledger).kept if self.disk else {}
        for id in message.get("credentials", ()):
            assert id not in self.revoked
            assert id in durable, "a crash now would lose a credential that was sent"

    def check_revocable(self, id: str) -> None:
        assert id not in self.sidecar.used(), "the sidecar still uses it"
        assert not any(id in message.get("credentials", ()) for message in self.down), "it is on its way"
        assert id not in self.talk.ledger.ids, "the files want it"
        assert msgspec.json.decode(self.disk or b"", type=Ledger).kept[id].released
        self.revoked.add(id)

    def read_files(self) -> None:
        content = Credential.parse({"api_key": f"id:{self.files}"})
        kept = identified(self.talk.ledger.known, [Found(content, "es", "file:/es", ("outputs.main",))], self.draw)
        id = kept[0].id
        tree = Node({"credential": Node(id, Mark(1, 1))}, Mark(1, 1))
        self.perform(self.talk.wants(Wanted(tree, id, id, {id: kept[0]})))

    def draw(self) -> str:
        self.drawn += 1
        return str(self.drawn)

    def start_sidecar(self) -> None:
        self.down: deque[dict[str, Any]] = deque()
        self.up: deque[Any] = deque()
        self.sidecar.start()
        self.talk.ended()
        self.perform(self.talk.started())

    # -- what may happen

    @rule(content=st.integers(1, 3))
    def files_change(self, content: int) -> None:
        self.files = content
        self.read_files()

    @rule(blocked=st.booleans())
    def pipe_blocks(self, blocked: bool) -> None:
        self.blocked = blocked

    @rule()
    def someone_asks_again(self) -> None:
        self.perform(self.talk.again(asked=True))

    @precondition(lambda self: self.up)
    @rule()
    def supervisor_reads(self) -> None:
        self.perform(self.talk.received(self.up.popleft()))

    @precondition(lambda self: self.down)
    @rule(settlement=st.sampled_from(["ok", "ok", "nack"]))
    def sidecar_reads(self, settlement: str) -> None:
        message = self.down.popleft()
        match message["type"]:
            case "hello":
                self.up.append(self.sidecar.ready())
            case "policy":
                ids = frozenset(message["credentials"])
                self.up.extend(self.sidecar.policy(message["revision"], ids, settlement))
            case "credentials":
                self.sidecar.open |= message["credentials"].keys() & self.sidecar.used()

    @precondition(lambda self: self.sidecar.waiting is not None)
    @rule(busy=st.booleans(), fails=st.booleans())
    def sidecar_switches(self, busy: bool, fails: bool) -> None:
        self.up.extend(self.sidecar.fail() if fails else self.sidecar.activate(busy))

    @precondition(lambda self: self.sidecar.queued and self.sidecar.active is not None)
    @rule(choice=st.integers(0, 9))
    def sidecar_settles(self, choice: int) -> None:
        ids = sorted(self.sidecar.queued)
        self.up.extend(self.sidecar.settle(ids[choice % len(ids)]))

    @precondition(lambda self: self.running)
    @rule()
    def on_release_succeeds(self) -> None:
        self.perform(self.talk.forget(self.running.pop()))

    @rule()
    def sidecar_crashes(self) -> None:
        self.start_sidecar()

    @rule()
    def supervisor_crashes(self) -> None:
        self.start_supervisor()

    # -- in the end

    def teardown(self) -> None:
        """When faults stop, everything but what the files want is revoked, without the help of a restart."""
        self.settle_all()
        while self.running:
            self.on_release_succeeds()

        assert set(self.talk.ledger.kept) == set(self.talk.ledger.ids)

    def settle_all(self) -> None:
        for _ in range(10):
            self.perform(self.talk.again())
            while self.up or self.down or self.sidecar.waiting is not None:
                if self.down:
                    self.sidecar_reads("ok")
                elif self.up:
                    self.supervisor_reads()
                else:
                    self.sidecar_switches(False, False)
            for id in sorted(self.sidecar.queued):
                self.up.extend(self.sidecar.settle(id) if self.sidecar.active is not None else [])


TestWorld = World.TestCase
TestWorld.settings = settings(
    max_examples=examples(1.5), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
