"""The laws of `shipper/fleet/store.py` as tests, for each store: derive a class of `Laws`, with a fixture `ground`.

class TestLaws(Laws):
    @pytest.fixture
    def ground(self, etcd): return EtcdGround(etcd)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import count
from typing import Protocol

import pytest
import trio

from shipper.fleet.store import ABSENT, SECONDS, Change, Compacted, LeaseEnded, Store, StoreError, StoreRefused

PATIENCE = 60.0


class Ground(Protocol):
    """A store under test, empty at the beginning of each test."""

    shortest: float
    """Seconds of the shortest lease."""
    late: float
    """Seconds after its end within which a lease is removed for sure."""
    page: int
    """Keys that one answer of a list has, at most; less where they have two mebibytes together."""

    def client(self) -> AbstractAsyncContextManager[Store]:
        """A new client of it."""
        ...

    async def compact(self) -> None:
        """Makes the store forget all history up to now."""
        ...

    async def break_connections(self) -> None:
        """Ends all connections of clients in a way that they must survive, such as a restart of a host."""
        ...


class Laws:
    """The tests."""

    @pytest.fixture
    async def store(self, ground: Ground) -> AsyncIterator[Store]:
        with trio.fail_after(4 * PATIENCE):
            async with ground.client() as store:
                yield store

    # -- read and swap -------------------------------------------------------------------------------------------------

    async def test_an_absent_key_has_no_entry(self, store: Store):
        found = await store.read("nothing")

        assert found.entry is None

    async def test_a_swap_creates_changes_and_removes_a_key(self, store: Store):
        created = await store.swap("key", b"one", expected=ABSENT)
        assert created.done
        assert created.entry
        assert (created.entry.key, created.entry.value, created.entry.revision) == ("key", b"one", created.at)
        changed = await store.swap("key", b"two", expected=created.entry.revision)
        assert changed.done
        assert changed.entry
        assert (changed.entry.value, changed.entry.revision) == (b"two", changed.at)
        assert changed.entry.created == created.at
        assert (await store.read("key")).entry == changed.entry
        removed = await store.swap("key", None, expected=changed.entry.revision)

        assert removed.done
        assert removed.entry is None
        assert removed.at > changed.at > created.at
        assert (await store.read("key")).entry is None

    @pytest.mark.parametrize("value", [b"two", None])
    async def test_a_swap_that_expects_another_revision_changes_nothing_and_returns_the_entry(
        self, store: Store, value: bytes | None
    ):
        made = await store.swap("key", b"one", expected=ABSENT)
        for expected in (ABSENT, made.at + 1000):
            refused = await store.swap("key", value, expected=expected)

            assert not refused.done
            assert refused.entry == made.entry
        assert (await store.read("key")).entry == made.entry

    async def test_a_swap_that_expects_an_entry_of_an_absent_key_changes_nothing(self, store: Store):
        made = await store.swap("key", b"one", expected=ABSENT)
        await store.swap("key", None, expected=made.at)
        refused = await store.swap("key", b"two", expected=made.at)

        assert not refused.done
        assert refused.entry is None
        assert (await store.read("key")).entry is None

    async def test_removing_an_absent_key_is_done(self, store: Store):
        removed = await store.swap("key", None, expected=ABSENT)

        assert removed.done
        assert removed.entry is None

    async def test_a_key_that_is_created_again_has_another_creation(self, store: Store):
        first = await store.swap("key", b"one", expected=ABSENT)
        await store.swap("key", None, expected=first.at)
        second = await store.swap("key", b"one", expected=ABSENT)

        assert first.entry
        assert second.entry
        assert second.entry.created > first.entry.created

    async def test_any_bytes_are_a_value_up_to_the_largest(self, store: Store):
        for number, value in enumerate((b"", bytes(range(256)), b"\xff" * store.largest)):
            await store.swap(f"key/{number}", value, expected=ABSENT)
            entry = (await store.read(f"key/{number}")).entry

            assert entry
            assert entry.value == value

    async def test_a_value_over_the_largest_is_refused(self, store: Store):
        with pytest.raises(StoreRefused) as refused:
            await store.swap("key", b"x" * (store.largest + 1), expected=ABSENT)

        assert "xxx" not in str(refused.value)
        assert (await store.read("key")).entry is None

    async def test_of_many_swaps_at_once_exactly_one_wins(self, store: Store):
        last = ABSENT
        for _ in range(2):
            won: list[int] = []

            async def swap(number: int, expected: int, won: list[int]) -> None:
                if (await store.swap("key", b"%d" % number, expected=expected)).done:
                    won.append(number)

            async with trio.open_nursery() as nursery:
                for number in range(15):
                    nursery.start_soon(swap, number, last, won)
            entry = (await store.read("key")).entry

            assert len(won) == 1
            assert entry
            assert entry.value == b"%d" % won[0]
            last = entry.revision

    async def test_counting_by_swaps_from_many_clients_loses_nothing(self, ground: Ground):
        async def add(store: Store) -> None:
            while True:
                entry = (await store.read("count")).entry
                value = b"%d" % (int(entry.value) + 1 if entry else 1)
                if (await store.swap("count", value, expected=entry.revision if entry else ABSENT)).done:
                    return

        async def client() -> None:
            async with ground.client() as store:
                for _ in range(3):
                    await add(store)

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    nursery.start_soon(client)
            async with ground.client() as store:
                entry = (await store.read("count")).entry

        assert entry
        assert entry.value == b"18"

    async def test_what_one_client_has_written_every_other_reads(self, ground: Ground):
        with trio.fail_after(PATIENCE):
            async with ground.client() as writer, ground.client() as reader:
                last = ABSENT
                for number in range(20):
                    done = await writer.swap("key", b"%d" % number, expected=last)
                    found = await reader.read("key")

                    assert found.entry == done.entry
                    assert found.at >= done.at
                    last = done.at

    # -- list ----------------------------------------------------------------------------------------------------------

    async def test_a_list_has_the_keys_of_its_prefix_in_order(self, store: Store):
        for key in ("members/b", "members/a", "member", "members", "memberz", "members/ä"):
            await store.swap(key, key.encode(), expected=ABSENT)
        listing = await store.list("members/")

        assert [entry.key for entry in listing.entries] == ["members/a", "members/b", "members/ä"]
        assert [entry.value.decode() for entry in listing.entries] == ["members/a", "members/b", "members/ä"]
        assert max(entry.revision for entry in listing.entries) <= listing.at <= (await store.read("nothing")).at
        assert len((await store.list("")).entries) == 6
        assert not (await store.list("other/")).entries

    async def test_a_list_of_keys_has_the_same_entries_without_values(self, store: Store):
        for key in ("keys/b", "keys/a", "key"):
            await store.swap(key, b"value", expected=ABSENT)
        whole, keys = await store.list("keys/"), await store.list("keys/", keys_only=True)

        assert list(keys.entries) == [replace(entry, value=b"") for entry in whole.entries]
        assert keys.at >= whole.at

    async def test_a_list_of_large_values_is_complete(self, store: Store):
        for number in range(20):
            await store.swap(f"large/{number:02}", bytes([number]) * 120_000, expected=ABSENT)
        listing = await store.list("large/")

        assert [entry.value[0] for entry in listing.entries] == list(range(20))

    async def test_a_list_while_writes_go_on_is_of_one_revision(self, ground: Ground, store: Store):
        """Two keys are written in turn, the first one first: no listing may have the second ahead of the first."""
        first, last = "many/0000", "many/9999"
        await fill(store, [f"many/{number:04}" for number in range(1, ground.page + 1)])
        written = {key: (await store.swap(key, b"0", expected=ABSENT)).at for key in (first, last)}

        async def write(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            async with ground.client() as other:
                task_status.started()
                for number in count(1):
                    for key in (first, last):
                        written[key] = (await other.swap(key, b"%d" % number, expected=written[key])).at

        async with trio.open_nursery() as nursery:
            await nursery.start(write)
            for _ in range(5):
                listing = await store.list("many/")
                values = [int(entry.value) for entry in (listing.entries[0], listing.entries[-1])]

                assert len(listing.entries) == ground.page + 2
                assert max(entry.revision for entry in listing.entries) <= listing.at
                assert values[0] - values[1] in (0, 1)
            nursery.cancel_scope.cancel()

    # -- watch ---------------------------------------------------------------------------------------------------------

    async def test_a_watch_yields_each_change_after_its_revision_in_order(self, store: Store):
        before = await store.swap("a/1", b"before", expected=ABSENT)
        one = await store.swap("a/1", b"one", expected=before.at)
        await store.swap("b/1", b"elsewhere", expected=ABSENT)
        async with store.watch("a/", before.at) as watch:
            two = await store.swap("a/2", b"two", expected=ABSENT)
            gone = await store.swap("a/1", None, expected=one.at)
            changes = await take(watch, 3)

        assert changes == [
            Change("a/1", one.entry, one.at),
            Change("a/2", two.entry, two.at),
            Change("a/1", None, gone.at),
        ]

    async def test_a_watch_after_a_list_misses_nothing(self, ground: Ground, store: Store):
        async def write() -> None:
            async with ground.client() as other:
                last = ABSENT
                for number in range(50):
                    last = (await other.swap("key", b"%d" % number, expected=last)).at

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            listing = await store.list("")
            seen = int(listing.entries[0].value) if listing.entries else -1
            async with store.watch("", listing.at) as watch:
                changes = await take(watch, 49 - seen)

        assert [int(change.entry.value) for change in changes if change.entry] == list(range(seen + 1, 50))

    async def test_a_watch_may_be_cancelled_while_it_waits_and_goes_on(self, store: Store):
        at = (await store.read("key")).at
        async with store.watch("", at) as watch:
            with trio.move_on_after(0.05):
                await anext(watch)
            done = await store.swap("key", b"one", expected=ABSENT)

            assert [change.at for change in await take(watch, 1)] == [done.at]

    async def test_a_watch_goes_on_without_a_gap_after_its_connections_broke(self, ground: Ground, store: Store):
        last = await store.swap("key", b"0", expected=ABSENT)
        async with store.watch("", last.at) as watch:
            done = await store.swap("key", b"1", expected=last.at)
            assert [change.at for change in await take(watch, 1)] == [done.at]
            await ground.break_connections()
            done = await eventually(store, "key", b"2", done.at)

            assert [change.at for change in await take(watch, 1)] == [done]

    async def test_a_watch_from_before_a_compaction_raises_and_a_later_one_yields_what_follows(
        self, ground: Ground, store: Store
    ):
        first = await store.swap("key", b"one", expected=ABSENT)
        second = await store.swap("key", b"two", expected=first.at)
        third = await store.swap("key", b"three", expected=second.at)
        await ground.compact()
        with pytest.raises(Compacted):
            async with store.watch("", first.at) as watch:
                await anext(watch)
        async with store.watch("", (await store.list("")).at) as watch:
            done = await store.swap("key", b"four", expected=third.at)

            assert [change.at for change in await take(watch, 1)] == [done.at]

    async def test_a_watch_yields_all_changes_of_one_revision_together(self, store: Store):
        lease = await store.grant(60)
        for number in range(5):
            last = await store.swap(f"key/{number}", b"", expected=ABSENT, lease=lease)
        async with store.watch("", last.at) as watch:
            await store.revoke(lease)
            batches = [await anext(watch)]
            while sum(map(len, batches)) < 5:
                batches.append(await anext(watch))

        assert [len(batch) for batch in grouped(batches)] == [len(batch) for batch in batches]

    # -- leases --------------------------------------------------------------------------------------------------------

    async def test_a_lease_has_at_least_the_seconds_that_were_asked_for(self, store: Store):
        lease = await store.grant(ABOUT)

        assert lease.seconds >= ABOUT

    async def test_an_entry_says_whether_a_lease_removes_it(self, store: Store):
        lease = await store.grant(60)
        made = await store.swap("key", b"1", expected=ABSENT, lease=lease)
        assert made.entry
        assert made.entry.leased
        assert [*(await store.list("key")).entries] == [made.entry]
        copied = await store.swap("key", b"1", expected=made.entry.revision)

        assert copied.entry
        assert not copied.entry.leased
        assert (await store.read("key")).entry == copied.entry
        await store.revoke(lease)

    async def test_revoking_a_lease_removes_its_keys_and_no_others(self, store: Store):
        lease = await store.grant(60)
        under = await store.swap("under", b"1", expected=ABSENT, lease=lease)
        taken = await store.swap("taken", b"1", expected=ABSENT, lease=lease)
        await store.swap("taken", b"2", expected=taken.at)
        await store.swap("free", b"1", expected=ABSENT)
        async with store.watch("under", under.at) as watch:
            await store.revoke(lease)
            changes = await take(watch, 1)

        assert changes[0].entry is None
        assert [entry.key for entry in (await store.list("")).entries] == ["free", "taken"]
        await store.revoke(lease)

    async def test_a_lease_is_kept_by_renewals_and_by_swaps_that_renew_it_and_ends_without_them(
        self, ground: Ground, store: Store
    ):
        lease = await store.grant(ground.shortest)
        made = await store.swap("alive", b"", expected=ABSENT, lease=lease)
        report = await store.swap("report", b"0", expected=ABSENT)
        async with store.watch("alive", made.at) as watch:
            for turn in range(4):
                renewed = trio.current_time()
                if turn < 2:
                    assert await store.renew(lease)
                else:
                    report = await store.swap("report", b"%d" % turn, expected=report.at, renews=lease)
                    assert report.done
                assert (await store.read("alive")).entry == made.entry
                with trio.move_on_after(lease.seconds / 3):
                    pytest.fail(f"a lease that is renewed has ended: {await anext(watch)}")
            with trio.fail_after(lease.seconds + ground.late):
                changes = await take(watch, 1)
            ended = trio.current_time()

        assert changes[0].entry is None
        assert ended - renewed >= lease.seconds
        assert (await store.read("alive")).entry is None
        assert (await store.read("report")).entry == report.entry
        with pytest.raises(LeaseEnded):
            await store.swap("report", b"late", expected=report.at, renews=lease)
        assert not await store.renew(lease)

    async def test_nothing_is_written_under_a_lease_that_has_ended(self, store: Store):
        lease = await store.grant(60)
        await store.revoke(lease)
        with pytest.raises(LeaseEnded):
            await store.swap("alive", b"", expected=ABSENT, lease=lease)

        assert (await store.read("alive")).entry is None
        assert not await store.renew(lease)

    async def test_a_key_moves_to_the_lease_of_its_last_swap(self, store: Store):
        old, new = await store.grant(60), await store.grant(60)
        first = await store.swap("alive", b"1", expected=ABSENT, lease=old)
        second = await store.swap("alive", b"2", expected=first.at, lease=new)
        await store.revoke(old)

        assert (await store.read("alive")).entry == second.entry

    # -- trouble -------------------------------------------------------------------------------------------------------

    async def test_a_cancelled_call_harms_no_other(self, store: Store):
        for _ in range(20):
            with trio.move_on_after(0):
                await store.swap("other", b"", expected=ABSENT)
            assert (await store.read("nothing")).entry is None


ABOUT = 2.5


async def take(watch: AsyncIterator[Sequence[Change]], number: int) -> list[Change]:
    """The next changes, at least so many."""
    found: list[Change] = []
    with trio.fail_after(PATIENCE):
        while len(found) < number:
            found += await anext(watch)
    return found


def grouped(batches: Sequence[Sequence[Change]]) -> list[list[Change]]:
    """The same changes with those of one revision together."""
    found: list[list[Change]] = []
    for batch in batches:
        if found and found[-1][-1].at == batch[0].at:
            found[-1] += batch
        else:
            found.append(list(batch))
    return found


async def eventually(store: Store, key: str, value: bytes, expected: int) -> int:
    """Swaps through failures, as a caller does it: what an answer that was lost has done is looked up.

    Returns the revision.
    """
    with trio.fail_after(PATIENCE + SECONDS):
        while True:
            try:
                done = await store.swap(key, value, expected=expected)
            except StoreError:
                continue
            if done.entry is not None and done.entry.value == value:
                return done.entry.revision
            raise AssertionError("another has written")


async def fill(store: Store, keys: Sequence[str]) -> None:
    """Creates many keys."""
    left = list(keys)

    async def some() -> None:
        while left:
            await store.swap(left.pop(), b"", expected=ABSENT)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(some)
