"""Hosts take turns, and one that fails gets no requests until it answers a probe."""

from __future__ import annotations

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Later, NotBegun, OutputContext
from shipper_plugins.elasticsearch.client.host_rotation import PROBE_LONGEST, PROBE_SECONDS, Rotation, probing

A, B, C = "http://a:1", "http://b:1", "http://c:1"
DOWN = Later("503 Service Unavailable from b:1")


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_hosts_take_turns() -> None:
    rotation = Rotation([A, B, C])

    firsts = [rotation.order()[0] for _ in range(6)]

    assert sorted(firsts) == [A, A, B, B, C, C]
    assert sorted(rotation.order()) == [A, B, C]


def test_a_host_that_failed_gets_nothing_until_it_is_probed() -> None:
    rotation = Rotation([A, B, C])

    assert rotation.failed(B)
    assert not rotation.failed(B)
    assert all(B not in rotation.order() for _ in range(10))

    rotation.probed(B)
    assert {rotation.order()[0] for _ in range(3)} == {A, B, C}


def test_if_all_have_failed_all_are_asked_and_the_one_that_failed_longest_ago_first() -> None:
    rotation = Rotation([A, B, C])
    for host in (B, C, A):
        rotation.failed(host)

    assert [rotation.order() for _ in range(3)] == [[B, C, A]] * 3
    rotation.failed(B)
    assert rotation.order() == [C, A, B]
    rotation.answered(A)
    assert rotation.order() == [A]


def test_a_single_host_is_never_out() -> None:
    rotation = Rotation([A])

    assert not rotation.failed(A)
    assert (rotation.order(), list(rotation.out)) == ([A], [])


def test_a_host_that_answers_probes_alone_is_asked_less_and_less() -> None:
    rotation = Rotation([A, B])
    waits = []
    for _ in range(8):
        rotation.failed(B)
        waits.append(rotation.first_wait(B))
        rotation.probed(B)

    assert waits == [1, 2, 4, 8, 16, PROBE_LONGEST, PROBE_LONGEST, PROBE_LONGEST]
    rotation.answered(B)
    rotation.failed(B)
    assert rotation.first_wait(B) == 1


@given(
    st.integers(2, 5),
    st.lists(st.tuples(st.sampled_from(["failed", "probed", "answered"]), st.integers(0, 4)), max_size=40),
)
def test_there_is_always_a_host_to_ask_and_none_is_out_beside_one_that_is_in(
    count: int, steps: list[tuple[str, int]]
) -> None:
    hosts = [f"http://h{number}:1" for number in range(count)]
    rotation = Rotation(hosts)
    out = set[str]()
    for what, number in steps:
        host = hosts[number % count]
        getattr(rotation, what)(host)
        out = out | {host} if what == "failed" else out - {host}
        order = rotation.order()
        assert set(rotation.out) == out
        assert set(order) == ((set(hosts) - out) or set(hosts))
        assert len(order) == len(set(order))


# -- probes ------------------------------------------------------------------------------------------------------------


class Asked:
    """What probes ask; each answer is given by the test."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.answer: Exception | None = DOWN
        self.hangs = False
        self.notices: list[str | None] = []
        self.context = OutputContext("main", None, notice=lambda text, code: self.notices.append(text))  # type: ignore[arg-type]

    async def __call__(self, host: str) -> None:
        self.times.append(trio.current_time())
        if self.hangs:
            await trio.sleep_forever()
        if self.answer is not None:
            raise self.answer


async def test_probes_come_later_and_later_until_one_is_answered(autojump_clock: trio.testing.MockClock) -> None:
    asked = Asked()
    async with probing([A, B], asked, asked.context) as (rotation, probes):
        probes.failed(B, DOWN)
        await trio.sleep(1000)
        gaps = [after - before for before, after in zip(asked.times, asked.times[1:], strict=False)]
        assert asked.times[0] <= 1
        assert all(PROBE_LONGEST / 10 <= gap <= PROBE_LONGEST for gap in gaps[5:])
        assert 1000 / PROBE_LONGEST <= len(asked.times) < 1000 / PROBE_LONGEST * 10
        assert B not in rotation.order()

        asked.answer = None
        await trio.sleep(PROBE_LONGEST)
        assert {rotation.order()[0] for _ in range(2)} == {A, B}
        count = len(asked.times)
        await trio.sleep(1000)

    assert len(asked.times) == count


async def test_a_host_that_is_down_is_shown_until_it_is_back(autojump_clock: trio.testing.MockClock) -> None:
    asked = Asked()
    async with probing([A, B], asked, asked.context) as (_, probes):
        probes.failed(B, DOWN)
        assert asked.notices == []
        await trio.sleep(5)
        assert asked.notices[-1] == "hosts that get no requests: 503 Service Unavailable from b:1"

        asked.answer = None
        await trio.sleep(PROBE_LONGEST)
        assert asked.notices[-1] is None


async def test_a_probe_that_hangs_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    asked = Asked()
    asked.hangs = True
    async with probing([A, B, C], asked, asked.context) as (rotation, probes):
        probes.failed(A, DOWN)
        probes.failed(B, DOWN)
        await trio.sleep(3 * PROBE_SECONDS)
        assert len(asked.times) > 1
        assert f"no answer within {PROBE_SECONDS:g}s" in str(asked.notices[-1])

        asked.hangs, asked.answer = False, None
        await trio.sleep(PROBE_LONGEST + PROBE_SECONDS)
        assert list(rotation.out) == []


async def test_a_host_is_probed_by_one_task_however_often_it_fails(autojump_clock: trio.testing.MockClock) -> None:
    asked = Asked()
    async with probing([A, B], asked, asked.context) as (_, probes):
        for _ in range(100):
            probes.failed(B, DOWN)
            probes.answered(B)
            probes.failed(B, DOWN)
        await trio.sleep(1000)

    assert len(asked.times) < 1000 / PROBE_LONGEST * 10 + 10


async def test_while_nothing_may_begin_a_host_stays_out(autojump_clock: trio.testing.MockClock) -> None:
    asked = Asked()
    asked.answer = NotBegun("no lease")
    async with probing([A, B], asked, asked.context) as (rotation, probes):
        probes.failed(B, DOWN)
        await trio.sleep(100)
        assert list(rotation.out) == [B]
        asked.answer = None
        await trio.sleep(PROBE_LONGEST)
        assert list(rotation.out) == []


async def test_with_the_block_the_probes_end_and_the_notice_too(autojump_clock: trio.testing.MockClock) -> None:
    asked = Asked()
    async with probing([A, B], asked, asked.context) as (_, probes):
        probes.failed(B, DOWN)
        await trio.sleep(5)
    count = len(asked.times)
    await trio.sleep(100)

    assert (len(asked.times), asked.notices[-1]) == (count, None)


async def test_each_opening_begins_at_another_host() -> None:
    firsts = set()
    for _ in range(2):
        asked = Asked()
        async with probing([A, B], asked, asked.context) as (rotation, _):
            firsts.add(rotation.order()[0])

    assert firsts == {A, B}
