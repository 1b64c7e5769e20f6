"""The decisions of one member: random stories of a store with faults, a sidecar, restarts and publishers."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shipper.fleet.member.answers import Answers
from shipper.fleet.member.claim import Name
from shipper.fleet.member.head import KnownHead
from shipper.fleet.member.machine import Member
from shipper.fleet.member.registration import Registration
from shipper.fleet.member.steps import Claim, Facts, Fetch, Look, Mark, Offer, Revoke, Save, Seen, Terms, Write
from shipper.fleet.memory import Memory
from shipper.fleet.records import Alive, Head, Line, Refusal, Report, Version
from shipper.membership.steps import Forget, Grant, Rest, Withdraw
from shipper.values import Counts
from tests.examples import examples

LEASE = 9.0
FAULTS = ["none", "lost before", "lost after", "late"]


@dataclass
class World:
    """A store with one member's records, and the disk of its host."""

    hold: bool = False
    now: float = 100.0
    revision: int = 1
    head: Head | None = None
    report: Report | None = None
    report_revision: int = 0
    alive: Alive | None = None
    alive_revision: int = 0
    alive_until: float = 0.0
    disk: Memory = field(default_factory=lambda: Memory("prod", "web-1", "dir-1"))
    late: list = field(default_factory=list)
    written: list = field(default_factory=list)
    offers: list = field(default_factory=list)
    grants: list = field(default_factory=list)
    instances: int = 0
    active: Version | None = None
    read_at: float = 0.0
    read_newest: Version | None = None
    answered: Version | None = None
    """The newest version for which an answer may have named this member as fenced."""

    def __post_init__(self):
        self.start()

    def start(self):
        self.instances += 1
        self.active = None
        terms = Terms("web-1", "boot", f"instance-{self.instances}", f"dir-{self.instances + 1}", LEASE, self.hold)
        self.member = Member(terms, self.disk)
        self.granted = None

    def publish(self):
        head = self.head or Head("prod")
        number = head.number + 1
        line = Line(Version(0, number, f"sha-{number}"), 0.0, "", {}, "")
        self.revision += 1
        self.head = replace(head, number=number, history=[*head.history, line])

    def pass_time(self, seconds):
        self.now += seconds
        if self.alive is not None and self.now >= self.alive_until:
            self.alive, self.alive_revision = None, 0
            self.revision += 1

    def swap(self, step):
        if self.report_revision != step.expected:
            return None
        self.revision += 1
        before = self.report
        if before is not None and before.directory == step.report.directory:
            assert step.report.write > before.write
            for stage, version in before.stages.items():
                assert step.report.stages[stage] >= version
        self.report, self.report_revision = step.report, self.revision
        self.written.append(step.report)
        return self.revision

    def step(self, fault="none"):
        """Performs one step, and returns it."""
        step = self.member.next(self.now, Facts())
        match step:
            case Look():
                if fault != "none":
                    self.member.failed(self.now + 1)
                else:
                    seen = Seen(
                        self.report, self.report_revision, self.alive, self.alive_revision, self.head, self.revision
                    )
                    self.read_at = self.now
                    self.read_newest = self.head.newest if self.head else None
                    self.member.looked(step, seen, now=self.now)
            case Save(memory):
                self.disk = memory
                self.member.saved(memory)
            case Claim():
                if fault == "lost before":
                    self.member.failed(self.now + 1)
                    return step
                done = self.alive_revision == step.expected
                if done:
                    self.revision += 1
                    if self.alive is None and self.head is not None:
                        self.answered = self.head.newest
                    self.alive, self.alive_revision = step.alive, self.revision
                    self.alive_until = self.now + LEASE
                if fault == "none":
                    self.member.claimed(done=done, now=self.now)
                else:
                    self.member.failed(self.now + 1)
            case Write():
                self.write(step, fault)
            case Fetch(version):
                self.member.fetched(version)
            case Offer(version):
                assert self.member.memory.newest >= version
                assert self.report.state == "member"
                if self.offers:
                    assert version >= self.offers[-1]
                self.offers.append(version)
                self.member.offered(version)
            case Withdraw(ids):
                self.member.withdrew(ids)
            case Forget(ids):
                self.member.forgot(ids)
            case Grant(until):
                assert self.hold
                assert until <= self.alive_until
                assert self.answered is None or (self.active is not None and self.active >= self.answered)
                if self.granted is None or self.now >= self.granted:
                    assert self.read_at >= (self.granted or 0)
                    assert self.read_newest is None or (self.active is not None and self.active >= self.read_newest)
                self.granted = until
                self.member.granted(until)
            case Revoke():
                self.alive, self.alive_revision = None, 0
                self.member.revoked()
        return step

    def steps(self, fault, count):
        """Performs so many steps, the last one with a fault."""
        for _ in range(count - 1):
            self.step()
        self.step(fault)

    def write(self, step, fault):
        assert self.disk.write == step.report.write
        assert self.disk.instance == step.report.instance
        if self.alive is None or self.alive.instance != step.report.instance:
            self.member.lapsed(self.now)
            return
        self.alive_until = self.now + LEASE
        began = self.now
        if fault == "none":
            self.member.wrote(step, self.swap(step), began=began, now=self.now)
            return
        if fault == "lost after":
            self.swap(step)
        if fault == "late":
            self.late.append(step)
        self.member.failed(self.now + 1)

    def settle(self):
        """Lets the story end well: no faults, all late writes arrive, and all leases of others run out."""
        for _ in range(200):
            while self.late:
                self.swap(self.late.pop())
            for _ in range(40):
                step = self.step()
                if isinstance(step, Rest):
                    break
            else:
                pytest.fail(f"no rest: {step}")
            self.pass_time(1.0)


ACTIONS = st.one_of(
    st.tuples(st.just("steps"), st.tuples(st.sampled_from(FAULTS), st.integers(1, 9))),
    st.tuples(st.just("time"), st.sampled_from([0.5, 3.0, 20.0])),
    st.tuples(st.sampled_from(["publish", "answer", "kill", "watch", "late", "remove"]), st.none()),
)


def play(world, actions):
    for what, detail in actions:
        if what == "steps":
            world.steps(*detail)
        elif what == "time":
            world.pass_time(detail)
        elif what == "publish":
            world.publish()
        elif what == "answer" and world.offers:
            world.active = world.offers[-1]
            world.member.answered(world.active, "active", "", (), wall=0.0)
        elif what == "kill":
            world.start()
        elif what == "watch":
            world.member.saw_head(world.head, world.revision)
        elif what == "late" and world.late:
            world.swap(world.late.pop(0))
        elif what == "remove" and world.alive is not None:
            world.revision += 1
            world.alive, world.alive_revision, world.alive_until = None, 0, world.now + LEASE


@settings(max_examples=examples(3))
@given(st.booleans(), st.lists(ACTIONS, min_size=10, max_size=80))
def test_whatever_happens_to_its_calls_a_member_stays_itself_and_ends_with_the_newest_version(hold, actions):
    """`World` checks each step: offers and stages never go back, a write is durable before it is tried, and a lease is
    granted only while the store keeps the member's, to a sidecar with the newest version."""
    world = World(hold)
    play(world, actions)
    world.publish()
    world.member.saw_head(world.head, world.revision)
    world.settle()

    assert world.member.place == "ours"
    assert world.report.directory == "dir-1"
    assert world.report.lost == []
    assert world.offers[-1] == world.head.newest

    world.active = world.head.newest
    world.member.answered(world.active, "drained", "", (), wall=0.0)
    world.settle()
    assert world.report.stages["drained"] == world.head.newest
    assert (world.granted is not None and world.granted > world.now) == hold


def test_an_answer_does_not_move_the_next_renewal():
    """Else all members would renew in the same instant for ever, once they have answered to a version together."""
    world = World()
    world.publish()
    due = _rest(world).until

    world.pass_time(1.0)
    world.member.answered(world.head.newest, "drained", "", (), wall=0.0)
    assert _rest(world).until == due
    assert world.report.stages["drained"] == world.head.newest

    world.pass_time(due - world.now)
    assert _rest(world).until == due + LEASE / 3


@pytest.mark.parametrize("what", ["report", "lease"])
def test_a_store_that_says_of_each_write_that_it_was_not_done_is_not_asked_without_a_pause(what):
    """Somebody else may be faster once; a store that says so again and again must not have a processor."""
    world = World()
    world.publish()
    _rest(world)
    calls = 0
    for _ in range(1000):
        step = world.member.next(world.now, Facts())
        if isinstance(step, Write):
            if what == "lease":
                world.member.lapsed(world.now)
            else:
                world.member.wrote(step, None, began=world.now, now=world.now)
        else:
            world.step()
        calls += isinstance(step, Look | Claim | Write)
        if isinstance(step, Rest):
            world.pass_time(max(0.001, step.until - world.now))

    assert calls < 12 * max(world.now, 10)


def test_after_a_lapse_only_a_look_after_the_claim_counts_for_a_lease():
    """Until the claim, whoever waits for a version that was published after an earlier look is told of a fence."""
    world = World(hold=True)
    world.publish()
    _rest(world)
    world.active = world.head.newest
    world.member.answered(world.active, "active", "", (), wall=0.0)
    _rest(world)
    world.pass_time(2 * LEASE)
    _until(world, Look)
    granted = world.granted
    world.publish()

    _rest(world)
    assert world.granted == granted
    world.active = world.head.newest
    world.member.answered(world.active, "active", "", (), wall=0.0)
    _rest(world)
    assert world.granted == world.now + LEASE


def test_a_process_that_was_suspended_for_a_lease_looks_before_it_takes_a_version():
    """A copy of its directory may have the name by then, and the newer version is the copy's."""
    world = World()
    world.publish()
    world.pass_time(_rest(world).until - world.now)
    _until(world, Write)
    world.publish()
    world.pass_time(LEASE)
    world.member.saw_head(world.head, world.revision)
    offered = [*world.offers]

    assert isinstance(world.step(), Look)
    assert world.offers == offered
    _rest(world)
    assert world.offers[-1] == world.head.newest


def test_a_joiner_begins_with_the_head_that_it_read_after_it_was_registered():
    world = World()
    world.publish()
    _until(world, Write)
    world.publish()

    _rest(world)
    assert (world.report.state, world.report.begun) == ("member", world.head.newest)


def test_a_restarted_member_keeps_the_stages_of_a_write_that_arrives_after_its_first_look():
    world = World()
    world.publish()
    _rest(world)
    world.member.answered(world.head.newest, "drained", "", (), Counts(7, 7), "drained 2", wall=0.0)
    assert isinstance(world.step(), Save)
    assert isinstance(world.step("late"), Write)
    world.start()
    _until(world, Look)
    world.swap(world.late.pop())

    _rest(world)
    assert world.report.instance == world.member.terms.instance
    assert world.report.stages["drained"] == world.head.newest
    assert (world.report.ledger, world.report.local) == (Counts(7, 7), "drained 2")


def test_a_drained_version_is_reported_with_its_ledger_and_a_rotation_with_the_next_renewal():
    world = World()
    world.publish()
    _rest(world)
    world.member.answered(world.head.newest, "drained", "", (), Counts(7, 7), wall=0.0)
    _rest(world)
    assert world.report.ledger == Counts(7, 7)

    written = len(world.written)
    world.member.answered(world.head.newest, "drained", "", (), Counts(9, 9), "received 2", wall=0.0)
    due = _rest(world).until
    assert len(world.written) == written

    world.pass_time(due - world.now)
    _rest(world)
    assert (world.report.ledger, world.report.local) == (Counts(7, 7), "received 2")


def test_a_late_write_of_a_process_before_the_last_one_is_still_a_members_own():
    world = World()
    world.publish()
    _rest(world)
    world.pass_time(LEASE / 3)
    assert isinstance(world.step(), Save)
    assert isinstance(world.step("late"), Write)
    world.start()
    _until(world, Save)
    world.start()
    _until(world, Look)
    world.swap(world.late.pop())

    _rest(world)
    assert (world.member.place, world.report.instance) == ("ours", "instance-3")
    world.pass_time(LEASE / 3)
    _rest(world)
    assert world.disk.writers == ()


def _rest(world):
    """Performs all steps up to a rest, and returns it."""
    return _until(world, Rest)


def _until(world, kind):
    """Performs all steps up to one of a kind, and returns it."""
    for _ in range(40):
        if isinstance(step := world.step(), kind):
            return step
    pytest.fail(f"no {kind.__name__} in 40 steps")


def v(number, sha256=""):
    return Version(0, number, sha256 or f"sha-{number}")


def test_an_older_refusal_never_replaces_a_newer_one():
    answers = Answers()
    for number in (7, 6):
        answers.refuse(Refusal(v(number), "failed", [], 0.0))

    assert answers.refusal.version == v(7)


def test_a_name_whose_key_was_written_over_is_free_a_lease_after_nobody_has_it():
    name, memory = Name(Terms("web-1", "boot", "i", "spare", LEASE)), Memory("prod", "web-1", "dir-1")
    taken = name.judge(Seen(alive_revision=7), memory, 100.0)

    assert (taken.until, "another host" in taken.why) == (100.0 + LEASE / 3, True)
    assert name.judge(Seen(alive_revision=7), memory, 100.0 + LEASE * 1.01) is not None
    assert name.judge(Seen(alive_revision=7), memory, 100.0 + LEASE * 1.03) is None


def test_a_name_that_somebody_else_was_faster_to_claim_is_tried_again_after_a_pause():
    world = World()
    world.publish()
    _until_next(world, Claim)
    world.member.claimed(done=False, now=world.now)

    rest = world.member.next(world.now, Facts())
    assert isinstance(rest, Rest)
    world.now = rest.until
    _rest(world)
    assert world.report.state == "member"


def test_a_member_of_a_store_whose_revisions_went_back_takes_part_once_its_epoch_was_accepted():
    world = World()
    world.publish()
    _rest(world)
    world.member.failed(world.now)
    _until_next(world, Look)
    head = replace(world.head, epoch=1)
    seen = Seen(world.report, world.report_revision, world.alive, world.alive_revision, head, at=0)
    world.member.looked(Look(world.revision), seen, now=world.now)

    assert world.member.place == "ours"


def _until_next(world, kind):
    while not isinstance(world.member.next(world.now, Facts()), kind):
        world.step()


def test_a_mark_that_somebody_else_was_faster_with_is_looked_at_before_the_next_one():
    world = World()
    world.publish()
    _rest(world)
    world.member.marked(Mark(None, 3), None, now=world.now)

    rest = world.member.next(world.now, Facts())
    assert isinstance(rest, Rest)
    assert isinstance(world.member.next(rest.until, Facts()), Look)


def of_member(**more):
    return Report("web-1", "dir-1", "boot", "other", **{"write": 3, "epoch": 0, "state": "member", **more})


def judged(found, revision, **memory):
    kept = Memory("prod", "web-1", "dir-1", **{"state": "member", "write": 5, "revision": 9, **memory})
    terms = Terms("web-1", "boot", "i", "spare", LEASE)
    registration = Registration(terms, kept, KnownHead(None), Answers())
    return registration, registration.judge(Seen(found, revision), kept)


def test_a_record_that_is_older_than_the_last_one_of_this_host_sets_it_apart():
    for revision, kind in [(8, "foreign"), (9, "own"), (10, "foreign")]:
        assert judged(of_member(), revision)[1].kind == kind


def test_a_joiners_record_of_an_earlier_process_is_no_record_of_a_member():
    registration, finding = judged(of_member(state="joining"), 9)

    assert (finding.kind, registration.report) == ("own", None)
