"""Two shippers relay keyed state: each version once, the last word wins, and both sides agree again after anything."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Answers, Asyncio, Backpressure, Batch, Code, Later, Outcome, PluginFault
from shipper.plugin.state import Change, Decided, Kept, Mark, Version, digest_of
from shipper.sdk.state import point_of
from shipper.testing import RecordingInputContext
from shipper_plugins.relay import digests, state
from shipper_plugins.relay.digests import Comparison
from shipper_plugins.relay.edge import state as sending
from shipper_plugins.relay.edge.versions import VersionsJob, WaitingVersions
from shipper_plugins.relay.frames import FrameError, Generation, Head, Hello, TooLong, Welcome
from shipper_plugins.relay.input import Edge
from shipper_plugins.relay.principal import edges as relay_edges
from shipper_plugins.relay.principal import keys as relay_keys
from shipper_plugins.relay.principal import sets as relay_sets
from shipper_plugins.relay.state import Compared, Given, Limits, Named, Other, Refusal, StateAnswered, StateHead, Wanted
from tests.plugins.relay import pair
from tests.plugins.relay.pair import Principal, Queue, Requests, entry, principal
from tests.plugins.relay.test_input_relay import ask, hello
from tests.plugins.running import becomes

EDGES = {
    "berlin": Edge(
        credentials=("k1", "k2"), relays=True, collections=("things",), max_keys=1000, max_document_bytes=1000
    ),
    "paris": Edge(credentials=("other",), relays=True, collections=("things",)),
}


class Here:
    """The keyed state that is routed to a sender: by owner and key, place and document (None: deleted)."""

    def __init__(self, keys: Mapping[str, tuple[int, bytes | None]] | None = None) -> None:
        self.keys = {("", key): has for key, has in (keys or {}).items()}
        self.again: list[tuple[str, int]] = []
        self.decided: list[Version] = []
        self.adopted: list[Change] = []
        self.wants: Container[str] = ()
        self.unread: trio.Event | None = None
        self.above = 0
        self.no_slot: set[int] = set()
        """Places of versions that wait no more."""
        self.asked = 0

    async def marks(self) -> list[Mark] | None:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        return [
            Mark(owner, point_of("things", key), place, digest_of(document), document is None)
            for (owner, key), (place, document) in self.keys.items()
        ]

    async def send_again(self, keys: Sequence[tuple[str, int]]) -> None:
        await trio.lowlevel.checkpoint()
        self.again += keys

    async def decide(self, surplus: Sequence[Version]) -> Decided:
        await trio.lowlevel.checkpoint()
        self.decided += surplus
        return Decided([one for one in surplus if one.key in self.wants], self.unread)

    async def adopt(self, changes: Sequence[Change]) -> None:
        await trio.lowlevel.checkpoint()
        self.adopted += changes

    async def gone(self, versions: Sequence[Version]) -> list[Version]:
        await trio.lowlevel.checkpoint()
        return [version for version in versions if version.place in self.no_slot]

    async def place_above(self, place: int) -> None:
        await trio.lowlevel.checkpoint()
        self.above = max(self.above, place)


def versions(*those: tuple[str, int, bytes | None], owner: str = "", collection: str = "things") -> Batch:
    """As a sender gets them."""
    documents = [b"{}" if document is None else document for _, _, document in those]
    those_versions = [
        Version(owner, collection, key, place, digest_of(document), document is None) for key, place, document in those
    ]
    return Batch.documents(documents).with_columns(versions=those_versions)


def edge(aio: Asyncio, *urls: str, here: Here | None = None, **how: Any) -> AbstractAsyncContextManager[Any]:
    """A sender with keyed state."""
    return pair.edge(aio, *urls, here=here or Here(), **how)


async def give(aio: Asyncio, far: Principal, *those: tuple[str, int, bytes | None], **how: Any) -> None:
    """A principal gets these versions, by a sender that ends then."""
    async with edge(aio, far.url, **how) as sender:
        await sender.send(versions(*those))


def door(aio: Asyncio, **how: Any) -> Any:
    return principal(aio, **{"edges": EDGES, **how})


def has(door: Principal) -> dict[tuple[str, str], bytes | None]:
    return {(owner, key): document for (owner, _, key), (document, _) in door.context.state.items()}


def outcomes(answers: Answers) -> list[str]:
    return [answers.others[at].outcome.value if at in answers.others else "stored" for at in range(answers.count)]


ONE, TWO = b'{"n":1}', b'{"n":2}'


async def test_versions_are_stored_for_the_edge_and_what_is_below_it(aio: Asyncio) -> None:
    async with door(aio) as far, edge(aio, far.url) as sender:
        assert await sender.send(versions(("a", 5, ONE), ("b", 6, None))) == Answers(2, is_stored=True)
        assert await sender.send(versions(("a", 7, TWO), owner="mitte")) == Answers(1, is_stored=True)

        assert has(far) == {("berlin", "a"): ONE, ("berlin", "b"): None, ("berlin/mitte", "a"): TWO}


async def test_t117_5_a_version_that_comes_again_is_a_duplicate_and_changes_nothing(aio: Asyncio) -> None:
    async with door(aio) as far:
        for expected in ("stored", "duplicate"):
            async with edge(aio, far.url) as sender:
                assert outcomes(await sender.send(versions(("a", 5, ONE)))) == [expected]


async def test_an_older_version_and_another_one_at_the_same_place_are_superseded_by_the_fence(aio: Asyncio) -> None:
    async with door(aio) as far, edge(aio, far.url) as sender:
        await sender.send(versions(("a", 5, ONE)))
        answers = await sender.send(versions(("a", 4, TWO), ("a", 5, TWO)))

        assert [answer.outcome for answer in answers.others.values()] == [Outcome.SUPERSEDED] * 2
        assert {answer.fence for answer in answers.others.values()} == {(5, digest_of(ONE))}
        assert has(far) == {("berlin", "a"): ONE}


async def test_t117_6_a_version_that_is_refused_for_ever_delays_neither_a_newer_one_nor_another_key(
    aio: Asyncio,
) -> None:
    large = b'{"n":"%s"}' % (b"x" * 2000)
    async with door(aio) as far, edge(aio, far.url) as sender:
        answers = await sender.send(versions(("a", 5, large), ("b", 6, ONE)))
        assert outcomes(answers) == ["rejected", "stored"]
        assert "larger" in answers.others[0].reason
        assert outcomes(await sender.send(versions(("a", 4, ONE)))) == ["superseded"]
        assert outcomes(await sender.send(versions(("a", 7, TWO)))) == ["stored"]
        assert outcomes(await sender.send(versions(("c", 8, ONE), collection="secrets"))) == ["rejected"]

        assert has(far) == {("berlin", "a"): TWO, ("berlin", "b"): ONE}
        assert [key for key in far.context.stored if key.startswith("REFUSED/berlin/")] != []


async def test_a_refused_place_counts_as_had_also_after_a_restart(aio: Asyncio) -> None:
    large = b'{"n":"%s"}' % (b"x" * 2000)
    here = Here({"a": (5, large), "b": (6, ONE)})
    async with door(aio) as far, edge(aio, far.url) as sender:
        await sender.send(versions(("a", 5, large), ("b", 6, ONE)))
    stored = far.copied()
    async with door(aio, context=stored) as far, edge(aio, far.url, here=here) as sender:
        await sender.send(versions(("b", 6, ONE)))

        assert here.asked == 1
        assert (here.again, here.decided) == ([], [])
    wider = {"berlin": Edge(credentials=("k1",), collections=("things",))}
    async with door(aio, context=stored, edges=wider) as far, edge(aio, far.url, here=here) as sender:
        await sender.send(versions(("b", 6, ONE)))

        assert here.again == [("", point_of("things", "a"))]


async def test_a_key_beyond_the_quota_is_held_and_the_others_are_not(aio: Asyncio) -> None:
    few = {"berlin": Edge(credentials=("k1",), collections=("things",), max_keys=1)}
    async with door(aio, edges=few) as far, edge(aio, far.url) as sender:
        answers = await sender.send(versions(("a", 5, ONE), ("b", 6, ONE)))
        assert outcomes(answers) == ["stored", "held"]
        assert outcomes(await sender.send(versions(("a", 7, TWO)))) == ["stored"]


async def test_an_edge_writes_and_compares_only_what_is_its_own(aio: Asyncio) -> None:
    async with door(aio) as far:
        await give(aio, far, ("a", 5, ONE))
        here = Here()
        async with edge(aio, far.url, here=here, credential="other", name="paris") as sender:
            await sender.send(versions(("a", 4, TWO), ("b", 4, TWO), owner="../berlin"))

        assert has(far) == {
            ("berlin", "a"): ONE,
            ("paris/../berlin", "a"): TWO,
            ("paris/../berlin", "b"): TWO,
        }
        assert here.decided == []


@pytest.mark.parametrize(("keys", "named"), [(["a", "b"], 300), (["a"], 8)])
async def test_names_of_keys_under_many_owners_are_looked_for_where_they_are(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch, keys: list[str], named: int
) -> None:
    looked: list[tuple[str, int]] = []
    if named == 8:
        monkeypatch.setattr(relay_sets, "MOST_NAMED", named)

    class Looked(RecordingInputContext):
        async def versions(self, keys: Sequence[tuple[str, int]]) -> list[Version]:
            looked.extend(keys)
            return await super().versions(keys)

    context = Looked(aio=aio)
    async with door(aio, context=context) as far:
        changes = [Change("things", key, ONE, f"berlin/{at}", 5 + at) for at, key in enumerate(keys * 150)]
        await context.keep([*changes, Change("things", "c", ONE, "paris/c", 5)])
        welcome = await ask(far, "session", msgspec.json.encode(Hello(1, "1" * 32, 1)))
        points = [point_of("things", key) for key in (*keys, "c", "unknown")]
        asked = state.Surplus(Generation(*welcome.said["generation"]), 1, points)
        answer = await ask(far, "surplus", msgspec.json.encode(asked))

    assert len(looked) == len(answer.said["keys"]) == min(named, len(changes))


async def test_an_edge_that_compares_again_and_again_lets_another_one_have_its_turn(aio: Asyncio) -> None:
    read: list[str] = []
    may_read = trio.Event()

    class Read(RecordingInputContext):
        async def marks(self, owner: str) -> list[Mark]:
            await may_read.wait()
            read.append(owner)
            return await super().marks(owner)

    sets = relay_sets.Sets(Read(aio=aio))
    paris, berlin = relay_keys.Keys("paris"), relay_keys.Keys("berlin")
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(sets.answer, "paris", paris, state.NOTHING, b"\0" + bytes(10))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(sets.answer, "berlin", berlin, state.NOTHING, b"\0" + bytes(10))
        await trio.testing.wait_all_tasks_blocked()
        may_read.set()

    assert read.index("berlin") <= 1
    assert read.count("paris") == 5


async def test_both_sides_agree_in_a_new_session_before_a_version_goes(aio: Asyncio) -> None:
    async with door(aio) as far:
        await give(aio, far, ("same", 1, ONE), ("changed", 2, ONE), ("surplus", 9, ONE), ("gone", 3, ONE))
        here = Here({"same": (1, ONE), "changed": (5, TWO), "missing": (4, ONE), "gone": (8, None)})
        async with edge(aio, far.url, here=here) as sender:
            await sender.send(versions(("same", 1, ONE)))
            await sender.send(versions(("same", 1, ONE)))

        assert here.asked == 1
        assert {point for _, point in here.again} == {point_of("things", key) for key in ("changed", "missing")}
        assert {version.key for version in here.decided} == {"surplus", "gone"}
        assert here.above == 9


async def test_t117_4_a_set_is_compared_after_a_reconnect_though_nothing_is_sent(aio: Asyncio) -> None:
    here = Here({"a": (1, ONE)})
    async with door(aio) as far, edge(aio, far.url, here=here):
        await becomes(lambda: here.again != [])
    far.context.close()
    assert here.again == [("", point_of("things", "a"))]


async def test_an_edge_compares_again_when_its_principal_has_taken_keys_of_it_from_elsewhere(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_edges, "ADOPTED_SECONDS", 0.0)
    here = Here()
    async with door(aio) as far, edge(aio, far.url, here=here) as sender:
        await sender.send(versions(("a", 1, ONE)))
        far.source.adopted(["berlin/below", "paris", "unknown"])
        while here.asked == 1:
            await sender.send(versions(("a", 1, ONE)))

    assert [version.key for version in here.decided] == ["a"]


async def test_an_empty_set_is_a_set(aio: Asyncio) -> None:
    async with door(aio) as far:
        await give(aio, far, ("a", 1, ONE))
        here = Here()
        async with edge(aio, far.url, here=here):
            await becomes(lambda: here.decided != [])

        assert [version.key for version in here.decided] == ["a"]


async def test_what_is_wanted_of_the_surplus_is_taken_back_with_its_place(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MOST_GIVEN", 2 * len(ONE))
    keys = [f"k{n}" for n in range(10)]
    async with door(aio) as far:
        async with edge(aio, far.url) as sender:
            await sender.send(versions(*[(key, place, ONE) for place, key in enumerate(keys, 1)]))
            await sender.send(versions(("x", 20, TWO), owner="local"))
        here = Here()
        here.wants = [*keys, "x"]
        async with edge(aio, far.url, here=here):
            await becomes(lambda: len(here.adopted) == 11)

    own = [Change("things", key, ONE, "", place) for place, key in enumerate(keys, 1)]
    assert sorted(here.adopted, key=lambda change: change.place or 0) == [
        *own,
        Change("things", "x", TWO, "local", 20),
    ]


async def test_what_is_gone_meanwhile_is_not_waited_for(aio: Asyncio) -> None:
    async with door(aio) as far:
        await give(aio, far, ("a", 5, ONE))
        here = Here()
        here.wants = ["a"]
        far.context.documents = nothing  # type: ignore[method-assign]
        await give(aio, far, ("b", 6, ONE), here=here)

    assert here.adopted == []


async def test_what_was_not_wanted_is_not_taken(aio: Asyncio) -> None:
    async with door(aio) as far:
        await give(aio, far, ("a", 5, ONE), ("b", 6, ONE))
        here = Here()
        here.wants = ["a"]
        documents = far.context.documents

        async def more(keys: Sequence[tuple[str, int]], most: int) -> tuple[list[tuple[Version, bytes]], int]:
            return await documents([*keys, ("berlin", point_of("things", "b"))], most)

        far.context.documents = more  # type: ignore[method-assign]
        await give(aio, far, ("c", 7, ONE), here=here)

    assert [change.key for change in here.adopted] == ["a"]


async def nothing(keys: Sequence[tuple[str, int]], most: int) -> tuple[list[tuple[Version, bytes]], int]:
    await trio.lowlevel.checkpoint()
    return [], len(keys)


@pytest.mark.parametrize("document", [TWO, None])
async def test_a_newer_version_that_a_fence_names_is_taken_back_too(aio: Asyncio, document: bytes | None) -> None:
    async with door(aio) as far:
        await give(aio, far, ("a", 9, document))
        here = Here({"a": (5, ONE)})
        here.wants = ["a"]
        async with edge(aio, far.url, here=here) as sender:
            assert outcomes(await sender.send(versions(("a", 5, ONE)))) == ["superseded"]

    assert here.adopted == [Change("things", "a", document, "", 9)]


async def test_both_sides_are_compared_again_when_it_can_be_decided(aio: Asyncio) -> None:
    async with door(aio) as far:
        await give(aio, far, ("a", 9, ONE), ("b", 20, ONE))
        here = Here()
        here.unread = unread = trio.Event()
        async with edge(aio, far.url, here=here) as sender:
            await sender.send(versions(("b", 10, ONE)))
            await sender.send(versions(("c", 11, ONE)))
            assert [version.key for version in here.decided][-1] == "b"
            assert here.asked == 1
            here.unread = None
            unread.set()
            await becomes(lambda: here.asked == 2)
            await sender.send(versions(("d", 12, ONE)))

            assert here.asked == 2


async def test_both_sides_are_compared_again_for_what_an_answer_names(aio: Asyncio) -> None:
    async with door(aio) as far:
        here = Here({"a": (5, ONE)})
        here.unread = unread = trio.Event()
        async with edge(aio, far.url, here=here) as sender:
            await sender.send(versions(("b", 5, ONE)))
            await trio.testing.wait_all_tasks_blocked(0.05)
            async with edge(aio, far.url, lane=2) as other:
                await other.send(versions(("a", 9, ONE)))
            await sender.send(versions(("a", 5, ONE)))
            unread.set()
            await becomes(lambda: here.asked >= 2)


async def test_an_edge_is_given_documents_of_its_own_keys_only(aio: Asyncio) -> None:
    async with door(aio) as far:
        await give(aio, far, ("a", 9, ONE))
        session = await hello(far, key="other")
        keys = [(owner, point_of("things", "a")) for owner in ("", "berlin", "../berlin")]
        reply = await ask(far, "documents", msgspec.json.encode(Wanted(session, 1, keys)), key="other")

        assert (reply.status, reply.said) == (200, {"read": 3, "versions": []})


class Slow(RecordingInputContext):
    """Takes a while to store versions."""

    asked = 0

    async def keep(self, *given: Any, **how: Any) -> tuple[Kept, ...]:
        self.asked += 1
        await trio.sleep(0.05)
        return await super().keep(*given, **how)


async def test_t117_8_a_slow_receiver_gets_one_copy_of_each_version_and_one_request_at_a_time(aio: Asyncio) -> None:
    slow = Slow(aio=aio)
    async with door(aio, context=slow) as far, edge(aio, far.url) as sender, trio.open_nursery() as nursery:
        requests = Requests(sender, "versions")
        for place in range(1, 21):
            nursery.start_soon(sender.send, versions((f"k{place}", place, ONE)))

    assert (slow.asked, requests.most, len(slow.state)) == (20, 1, 20)


async def test_t117_9_a_request_of_an_old_session_stores_no_version(aio: Asyncio) -> None:
    async with door(aio) as far, edge(aio, far.url) as old:
        await old.send(versions(("a", 1, ONE)))
        session = old._sessions.current
        async with edge(aio, far.url) as new:
            await new.send(versions(("a", 2, TWO)))
        head = StateHead(session.generation, 1, 0)
        body = b"".join(state.encode(head, versions(("a", 3, ONE)), 1000))
        reply = await ask(far, "versions", body, kind=state.MEDIA_TYPE)

        assert (reply.status, reply.code) == (409, "session_over")
        assert has(far) == {("berlin", "a"): TWO}
        await old.send(versions(("a", 4, ONE)))
        assert has(far) == {("berlin", "a"): ONE}


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("versions", b""),
        ("versions", b"SHS1" + b"\0" * 4),
        ("versions", b"SHS1\xff\xff\xff\xff"),
        ("compare", b"{}"),
        ("surplus", b'{"points":[-1]}'),
        ("documents", b'{"keys":[]}'),
    ],
)
async def test_what_is_no_request_is_refused(aio: Asyncio, what: str, body: bytes) -> None:
    async with door(aio) as far:
        kind = state.MEDIA_TYPE if what == "versions" else "application/json"
        reply = await ask(far, what, body, kind=kind)

        assert (reply.status, reply.code) == (400, "bad_request")


def test_a_place_that_would_leave_none_for_others_cannot_be() -> None:
    head = StateHead(Generation("0" * 32, 1), 1, 0)
    for place, is_read in ((0, False), (state.HIGHEST_PLACE - 1, True), (state.HIGHEST_PLACE, False)):
        body = b"".join(state.encode(head, versions(("a", place, ONE)), 1000))
        if is_read:
            state.decode(body, 1000)
        else:
            with pytest.raises(FrameError):
                state.decode(body, 1000)


@given(st.binary(max_size=200))
def test_no_bytes_are_read_as_versions_by_accident(body: bytes) -> None:
    for packed in (body, b"SHS1" + body):
        with pytest.raises(FrameError):
            state.decode(packed, 1 << 16)


@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=5), st.integers(1, state.HIGHEST_PLACE - 1), st.none() | st.integers(0, 10**30)
        ),
        max_size=20,
    ),
    st.integers(8, 30),
)
def test_versions_arrive_as_they_were_sent_but_for_documents_that_are_too_large(
    those: list[tuple[str, int, int | None]], most: int
) -> None:
    given = [(key, place, None if n is None else b'{"n":%d}' % n) for key, place, n in those]
    batch = versions(*given)
    head, arrived = state.decode(b"".join(state.encode(StateHead(Generation("0" * 32, 1), 1, 0), batch, most)), 1 << 16)

    assert [one.version for one in arrived] == list(batch.versions or ())
    for (_, _, document), one in zip(given, arrived, strict=True):
        assert one.is_withheld == (document is not None and len(document) > most)
        assert one.document == (None if one.is_withheld else document)
    assert len(head.withheld) == sum(one.is_withheld for one in arrived)


async def test_log_events_without_room_are_put_off_alone(aio: Asyncio) -> None:
    async with door(aio) as far, edge(aio, far.url) as sender:
        await sender.send(versions(("a", 1, ONE)))
        far.context.full = True
        answers = await sender.send(entry(2))
        far.context.full = False

        assert [(answer.outcome, answer.of_target) for answer in answers.others.values()] == [(Outcome.LATER, True)]
        assert answers.retry_after == 1.0


async def test_versions_without_room_are_put_off_alone_while_log_events_are_on_their_way(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the session would end, and wait for answers that may take hours."""

    async def full(*_: object, **__: object) -> tuple[Kept, ...]:
        raise Backpressure("no room")

    async with (
        door(aio, acknowledge="delivered") as far,
        edge(aio, far.url) as sender,
        trio.open_nursery() as nursery,
    ):
        monkeypatch.setattr(far.context, "keep", full)
        with pytest.raises(Later):
            await sender.send(versions(("a", 5, ONE)))
        nursery.start_soon(sender.send, entry(1))
        await far.context.wait_for(1)
        answers = await sender.send(versions(("a", 5, ONE)))
        nursery.cancel_scope.cancel()

    assert (outcomes(answers), answers.others[0].of_target, answers.retry_after) == (["later"], True, 1.0)


async def test_state_goes_on_while_a_request_waits_for_answers_and_log_events_are_on_their_way(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, hung = trio.Event(), trio.Event()
    async with door(aio, acknowledge="delivered") as far, edge(aio, far.url) as sender:
        answers = far.source._server._answers.told

        async def waits(*those: Any) -> Any:
            asked.set()
            return await answers(*those)

        async def hangs(*_: object, **__: object) -> None:
            hung.set()
            await trio.sleep_forever()

        monkeypatch.setattr(far.source._server._answers, "told", waits)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.send, entry(1))
            await asked.wait()
            monkeypatch.setattr(far.source._server._parts, "take_together", hangs)
            nursery.start_soon(sender.send, entry(2))
            await hung.wait()
            nursery.start_soon(sender.send, versions(("a", 5, ONE)))
            await becomes(lambda: has(far) == {("berlin", "a"): ONE})
            nursery.cancel_scope.cancel()


async def test_a_session_that_entries_below_the_mark_begin_compares_too(aio: Asyncio) -> None:
    here, queue = Here({"a": (5, ONE)}), Queue()
    async with door(aio) as far, edge(aio, far.url, here=here, queue=queue) as sender:
        queue.lowest = 7
        await sender.send(entry(7))
        await becomes(lambda: here.asked == 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        queue.lowest = 3
        await sender.send(entry(3))
        await becomes(lambda: here.asked == 2)


def test_sets_are_the_same_in_whatever_order_their_keys_were_read() -> None:
    marks = [Mark("", 7, place, digest_of(ONE), deleted=False) for place in (1, 2)]
    asked = Comparison(state.digests_of(marks)).question()

    assert asked == Comparison(state.digests_of(marks[::-1])).question()
    assert asked != Comparison(state.digests_of(marks[1:])).question()


def test_keys_that_have_each_others_versions_are_a_difference() -> None:
    one, other = (5, digest_of(ONE), False), (6, digest_of(b"{}"), False)
    ours = state.digests_of([Mark("", 1, *one), Mark("", 2, *other)])
    theirs = state.digests_of([Mark("berlin", 1, *other), Mark("berlin", 2, *one)], edge="berlin")

    question = Comparison(ours).question()

    assert question is not None
    assert not theirs.is_same(question)
    assert ours.is_same(question)


def test_versions_that_contradict_their_head_are_refused() -> None:
    head = StateHead(Generation("ab" * 16, 1), 1, 0)
    good = versions(("a", 7, b"{}"), ("b", 8, b"{}"))
    one, other = good.versions or ()
    assert one is not None
    for batch in (
        Batch.documents([b"{}"]),
        good.with_columns(versions=[one._replace(place=0), other]),
        good.with_columns(versions=[one._replace(digest=digest_of(b"[]")), other]),
    ):
        with pytest.raises(FrameError):
            state.decode(b"".join(state.encode(head, batch, 1000)), 1000)
    with pytest.raises(TooLong):
        state.decode(b"".join(state.encode(head, versions(("a", 7, b'{"n":1}')), 1000)), 3)
    with pytest.raises(FrameError, match="no versions"):
        state.decode(b"".join([*state.encode(head, good, 1000)[:3], b"x"]), 1000)
    with pytest.raises(FrameError, match="head is too long"):
        state.decode(state.encode(head, good, 1000)[0] + (2**20).to_bytes(4) + bytes(2**20), 1000)


def test_other_bytes_are_no_refusal() -> None:
    with pytest.raises(ValueError, match="not a refusal"):
        state.Refusal.unpack(b"\xff")


def test_a_refusal_stands_for_no_version_that_is_newer_than_it() -> None:
    limits = Limits(frozenset({"things"}), 10)
    has = [Mark("berlin", 7, 9, digest_of(ONE), deleted=False)]
    refused = Refusal("", 7, "things", 11, 5, digest_of(TWO))
    asked = Comparison(state.digests_of(has, edge="berlin")).question()

    assert asked == Comparison(state.digests_of(has, [refused], limits, edge="berlin")).question()
    newer = msgspec.structs.replace(refused, place=10)
    assert asked != Comparison(state.digests_of(has, [newer], limits, edge="berlin")).question()


class Said:
    """Sessions with a principal that answers what a test says, by the path of a request."""

    def __init__(self, **answers: Any) -> None:
        self.session = Welcome(1, Generation("ab" * 16, 1), "berlin", "delivered", 25.0, 1 << 20, "cd" * 16)
        self.lineage = SimpleNamespace(compared=lambda *_: None, confirmed=lambda *_, **__: None)
        self.answers, self.asked = answers, list[str]()
        self.waiting = WaitingVersions(lambda: None)

    def side(self, aio: Asyncio, here: Here) -> sending.StateSide:
        return sending.StateSide(Queue().context(aio, state=here), self, self.waiting)  # type: ignore[arg-type]

    async def within(self, act: Any) -> None:
        head = Head(self.session.generation, 1, 0)
        await act(SimpleNamespace(session=self.session, head=lambda: head, ask=self._ask))

    async def _ask(self, what: str, kind: str, body: Any, *_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.asked.append(what)
        if what == "compare" and what not in self.answers:
            return Compared(digests.Digests([]).answer(msgspec.json.decode(body[0], type=state.Compare).question))
        return self.answers[what]


@pytest.mark.parametrize(
    "said",
    [
        {"compare": Compared(b"\xff")},
        {"versions": StateAnswered([Other(7, "duplicate")])},
        {"versions": StateAnswered([Other(0, "fenced", 5, "no digest")])},
    ],
    ids=["of a comparison", "for what was not sent", "a fence"],
)
async def test_an_answer_that_cannot_be_is_said_to_be_wrong(aio: Asyncio, said: dict[str, Any]) -> None:
    with pytest.raises(Later) as error:
        await Said(**said).side(aio, Here({"a": (5, ONE)})).send(versions(("a", 5, ONE)))

    assert error.value.code == Code.BAD_ANSWER


async def test_versions_of_a_principal_that_cannot_be_taken_back_are_said_to_be_wrong(aio: Asyncio) -> None:
    class Strict(Here):
        async def adopt(self, changes: Sequence[Change]) -> None:
            await super().adopt(changes)
            if changes:
                raise PluginFault("a document is not compact")

    here = Strict()
    here.wants = ["a"]
    fence = StateAnswered([Other(0, "fenced", 9, digest_of(TWO).hex())])
    said = Said(versions=fence, documents=Given(1, [("", "things", "a", 9, "{ }")]))
    with pytest.raises(Later) as error:
        await said.side(aio, here).send(versions(("a", 5, ONE)))

    assert error.value.code == Code.BAD_ANSWER


async def test_a_comparison_that_asks_very_much_pauses_between_two_questions(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MOST_AT_ONCE", 0)
    monkeypatch.setattr(sending, "LONG_PAUSE", 0.1)
    said = Said(surplus=Named([]))
    begun = trio.current_time()
    await said.side(aio, Here({"a": (5, ONE)})).agree()

    assert trio.current_time() - begun >= 0.1 * said.asked.count("compare") > 0


async def test_versions_that_newer_ones_of_their_keys_replace_while_they_wait_for_a_turn_are_not_sent(
    aio: Asyncio,
) -> None:
    said = Said(versions=StateAnswered([Other(0, "awaited")]))
    side, told = said.side(aio, Here()), list[Answers]()

    async def send() -> None:
        told.append(await side.send(versions(("a", 5, ONE))))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while not said.waiting.is_any:
            await trio.testing.wait_all_tasks_blocked()
        async with side._turn:
            said.waiting.leave_to(msgspec.structs.replace(said.session, edge="berlin"))
            await trio.testing.wait_all_tasks_blocked()
            said.waiting.begin(VersionsJob(versions(("a", 6, TWO))), [0], said.session)

    assert (outcomes(told[0]), said.asked.count("versions")) == (["superseded"], 1)
