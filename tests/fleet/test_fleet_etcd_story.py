"""The store on a real etcd: hosts that die, restores, compaction, large lists, users, certificates."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count

import pytest
import trio
import trustme

from shipper.fleet.etcd import gateway, watch
from shipper.fleet.etcd.hosts import TlsFiles
from shipper.fleet.etcd.store import open_etcd
from shipper.fleet.store import (
    ABSENT,
    PROMPT,
    Change,
    Compacted,
    Store,
    StoreError,
    StoreRefused,
    StoreUnreachable,
)
from shipper.sdk.errors import ShipperError
from tests.backends import etcd as server
from tests.backends.etcd import Etcd, cluster, coded, issue

pytestmark = pytest.mark.backend
PATIENCE = 60.0


@pytest.fixture
def prefix() -> str:
    return f"/story/{uuid.uuid4()}/"


@contextmanager
def own(number: int = 1, **more: object) -> Iterator[Etcd]:
    """An etcd of the test's own."""
    try:
        server.program("etcd")
    except server.Unavailable as why:
        pytest.skip(str(why))
    with cluster(number, **more) as etcd:  # type: ignore[arg-type]
        yield etcd


# -- hosts that go and come --------------------------------------------------------------------------------------------


async def test_a_watch_has_no_gap_while_each_node_is_killed_under_writes(three: Etcd, prefix: str):
    async def write(store: Store, name: str) -> None:
        for number in count():
            with suppress(StoreError):
                await store.swap(f"key/{name}/{number}", b"", expected=ABSENT)

    with trio.fail_after(PATIENCE):
        async with open_etcd(three.urls, prefix) as store, open_etcd(three.urls, prefix) as writer:
            start = (await store.read("key")).at
            async with store.watch("key/", start) as changes, trio.open_nursery() as nursery:
                for name in ("a", "b", "c"):
                    nursery.start_soon(write, writer, name)
                seen = [*await anext(changes)]
                for node in three.nodes:
                    node.kill()
                    seen.extend(await anext(changes))
                    await trio.to_thread.run_sync(three.start, node)
                    seen.extend(await up_to(changes, await swapped(writer, f"key/{node.name}", b"", ABSENT)))
                nursery.cancel_scope.cancel()
            async with store.watch("key/", start) as again:
                every = await up_to(again, seen[-1].at)

    assert seen == every[: len(seen)]
    assert len(seen) > 20


async def up_to(changes: AsyncIterator[Sequence[Change]], revision: int) -> list[Change]:
    """The next changes, until one of this revision."""
    found: list[Change] = []
    while not found or found[-1].at < revision:
        found.extend(await anext(changes))
    return found


async def test_reads_and_watches_leave_a_host_that_is_stopped(
    three: Etcd, prefix: str, monkeypatch: pytest.MonkeyPatch
):
    """It takes connections, and answers nothing."""
    monkeypatch.setattr(gateway, "SHORTEST_TRY", 0.5)
    monkeypatch.setattr(gateway.Gateway, "share", 1.0)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(gateway.random, "randrange", lambda _: 1)
    stopped = three.nodes[1]
    with trio.fail_after(PATIENCE):
        async with open_etcd(three.urls, prefix) as store:
            made = await swapped(store, "key", b"1", ABSENT)
            async with store.watch("", made) as changes:
                with trio.move_on_after(0.1):
                    await anext(changes)
                stopped.stop()
                try:
                    async with open_etcd([three.nodes[0].url, three.nodes[2].url], prefix) as other:
                        revision = await swapped(other, "key", b"2", made)
                    assert (await store.read("key")).at >= revision
                    assert [change.at for change in await anext(changes)] == [revision]
                finally:
                    stopped.go_on()


async def swapped(store: Store, key: str, value: bytes, expected: int) -> int:
    """Swaps until it is done, also by an attempt whose answer was lost; returns the revision."""
    while True:
        try:
            done = await store.swap(key, value, expected=expected)
        except StoreError:
            continue
        assert done.entry
        assert done.entry.value == value
        return done.entry.revision


async def test_without_a_quorum_each_call_ends_in_time_and_the_watch_too(prefix: str, monkeypatch: pytest.MonkeyPatch):
    seconds = 2.0
    for module in (gateway, watch):
        monkeypatch.setattr(module, "SECONDS", seconds)
    with own(3) as etcd, trio.fail_after(PATIENCE):
        async with open_etcd(etcd.urls, prefix) as store:
            made = await store.swap("key", b"1", expected=ABSENT)
            async with store.watch("", made.at) as changes:
                for node in etcd.nodes[1:]:
                    node.kill()
                for call in (lambda: store.read("key"), lambda: store.swap("key", b"2", expected=made.at)):
                    with pytest.raises(StoreUnreachable):
                        await call()
                with pytest.raises(StoreUnreachable):
                    await anext(changes)


async def test_who_waits_is_told_promptly_that_no_host_answers_and_not_for_one_that_hangs(prefix: str):
    with own(3) as etcd, trio.fail_after(PATIENCE):
        async with open_etcd(etcd.urls, prefix) as store:
            await store.swap("key", b"1", expected=ABSENT)
            for node in etcd.nodes[:1]:
                node.stop()
            found = await until_answered(lambda: store.read("key", seconds=PROMPT))
            for node in etcd.nodes[1:]:
                node.stop()
            with pytest.raises(StoreUnreachable, match="no answer within 3 s"):
                await store.read("key", seconds=PROMPT)
            for node in etcd.nodes:
                node.go_on()

    assert found.entry
    assert found.entry.value == b"1"


async def until_answered(call):
    """Returns the first answer; a new leader may have to be elected first."""
    while True:
        try:
            return await call()
        except StoreUnreachable:
            continue


async def test_an_idle_connection_of_a_host_that_was_restarted_is_not_used(prefix: str):
    with own() as etcd, trio.fail_after(PATIENCE):
        async with open_etcd(etcd.urls, prefix) as store:
            last = (await store.swap("key", b"1", expected=ABSENT)).at
            for _ in range(3):
                etcd.kill()
                await trio.to_thread.run_sync(etcd.start)
                done = await store.swap("key", b"2", expected=last)
                assert done.done
                last = done.at


async def test_a_watch_of_a_store_that_was_restored_is_ended(prefix: str):
    with own() as etcd, trio.fail_after(PATIENCE):
        async with open_etcd(etcd.urls, prefix) as store:
            first = await store.swap("key", b"1", expected=ABSENT)
            await trio.to_thread.run_sync(etcd.save, etcd.directory / "snapshot")
            last = first.at
            for _ in range(10):
                last = (await store.swap("key", b"2", expected=last)).at
            async with store.watch("", last) as changes:
                with trio.move_on_after(0.1):
                    await anext(changes)
                await trio.to_thread.run_sync(etcd.restore, etcd.directory / "snapshot")
                with pytest.raises((Compacted, StoreUnreachable)):
                    await anext(changes)
            assert (await store.read("key")).entry == first.entry
            with pytest.raises(Compacted):
                async with store.watch("", last) as changes:
                    await anext(changes)


async def test_a_compaction_while_a_watch_is_away_raises(prefix: str):
    with own(3) as etcd, trio.fail_after(PATIENCE):
        node = etcd.nodes[0]
        async with open_etcd([node.url], prefix) as store, open_etcd(etcd.urls[1:], prefix) as other:
            last = (await store.swap("key", b"1", expected=ABSENT)).at
            async with store.watch("", last) as changes:
                with trio.move_on_after(0.1):
                    await anext(changes)
                node.kill()
                for number in range(5):
                    last = await swapped(other, "key", b"%d" % (number + 2), last)
                await trio.to_thread.run_sync(etcd.compact)
                await trio.to_thread.run_sync(etcd.start, node)
                with pytest.raises(Compacted):
                    await anext(changes)


async def test_a_quiet_watch_is_begun_anew_without_a_gap(etcd: Etcd, prefix: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "QUIET_SECONDS", (0.0, 0.004))
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.002)
    monkeypatch.setattr(watch, "ALIVE_SECONDS", 0.0)  # else it pauses longer and longer between them
    begun, seen = counted(monkeypatch), list[int]()
    last: int | None = None
    with trio.fail_after(PATIENCE):
        async with open_etcd(etcd.urls, prefix) as store, open_etcd(etcd.urls, prefix) as writer:
            start = (await store.read("key")).at

            async def write() -> None:
                nonlocal last
                revision = ABSENT
                for number in count():
                    last = number if len(begun) > 20 and number >= 20 else None
                    revision = (await writer.swap("key", b"%d" % number, expected=revision)).at
                    if last is not None:
                        return
                    await trio.sleep(0.01)

            async with store.watch("", start) as changes, trio.open_nursery() as nursery:
                nursery.start_soon(write)
                while last is None or last not in seen:
                    seen += [int(change.entry.value) for change in await anext(changes) if change.entry]

    assert seen == list(range(len(seen)))
    assert len(seen) > 20


def counted(monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """The hosts at which watches began."""
    begun: list[str] = []
    begin = gateway.Gateway.begun

    async def counting(self: gateway.Gateway, host: object, call: gateway.Call) -> object:
        begun.append(str(host))
        return await begin(self, host, call)  # type: ignore[arg-type]

    monkeypatch.setattr(gateway.Gateway, "begun", counting)
    return begun


# -- size --------------------------------------------------------------------------------------------------------------


async def test_many_pages_of_keys_are_listed_at_one_revision(etcd: Etcd, prefix: str):
    for page in range(20):
        puts = [
            {"request_put": {"key": coded(f"{prefix}many/{100 * page + at:05}"), "value": coded("x" * 500)}}
            for at in range(100)
        ]
        server.ask(etcd.urls[0] + "/v3/kv/txn", {"success": puts})
    with trio.fail_after(PATIENCE):
        async with open_etcd(etcd.urls, prefix) as store:
            listing = await store.list("many/")

    assert [entry.key for entry in listing.entries] == [f"many/{at:05}" for at in range(2_000)]


async def test_a_client_keeps_two_idle_connections_at_most(etcd: Etcd, prefix: str):
    with trio.fail_after(PATIENCE):
        async with open_etcd(etcd.urls, prefix) as store:
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(store.read, "key")

            assert len(store._gateway._idle) == gateway.MOST_IDLE


# -- users -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[Etcd]:
    with own() as etcd:
        etcd.require_users()
        yield etcd


@pytest.fixture
def user(guarded: Etcd, prefix: str) -> tuple[str, str]:
    """A user who may do all below the prefix."""
    name = prefix.strip("/").replace("/", "-")
    guarded.add_user(name, "CANARY-one", {prefix: "readwrite"})
    return name, "CANARY-one"


async def test_a_user_with_a_role_for_the_prefix_may_do_all(guarded: Etcd, prefix: str, user: tuple[str, str]):
    with trio.fail_after(PATIENCE):
        async with open_etcd(guarded.urls, prefix, login=lambda: user) as store:
            lease = await store.grant(5)
            made = await store.swap("key", b"1", expected=ABSENT, lease=lease)
            assert await store.renew(lease)
            async with store.watch("", made.at) as changes:
                await store.revoke(lease)
                assert [change.entry for change in await anext(changes)] == [None]


async def test_a_new_password_is_used_as_soon_as_the_old_token_is_revoked(
    guarded: Etcd, prefix: str, user: tuple[str, str]
):
    """By calls, by a watch that goes on at another connection, and by many calls at once."""
    passwords = [user[1]]
    with trio.fail_after(PATIENCE):
        async with open_etcd(guarded.urls, prefix, login=lambda: (user[0], passwords[-1])) as store:
            last = (await store.swap("key", b"1", expected=ABSENT)).at
            async with store.watch("", last) as changes:
                with trio.move_on_after(0.1):
                    await anext(changes)
                passwords.append("CANARY-two")
                await trio.to_thread.run_sync(guarded.change_password, user[0], passwords[-1])
                async with trio.open_nursery() as nursery:
                    for _ in range(20):
                        nursery.start_soon(store.read, "key")
                passwords.append("CANARY-three")
                await trio.to_thread.run_sync(guarded.change_password, user[0], passwords[-1])
                async with store.watch("", last - 1) as others:
                    assert [change.at for change in await anext(others)] == [last]
                done = await store.swap("key", b"2", expected=last)
                assert [change.at for change in await anext(changes)] == [done.at]


async def test_a_wrong_password_is_refused_without_being_quoted(guarded: Etcd, prefix: str, user: tuple[str, str]):
    async with open_etcd(guarded.urls, prefix, login=lambda: (user[0], "CANARY-wrong")) as store:
        await refused(store, "refuses this user or its password")


async def test_a_password_that_cannot_be_read_is_said(guarded: Etcd, prefix: str):
    def login() -> tuple[str, str]:
        raise ShipperError("file /run/etcd.password: cannot be read")

    async with open_etcd(guarded.urls, prefix, login=login) as store:
        await refused(store, "/run/etcd.password: cannot be read")


async def test_a_missing_right_names_the_key_and_the_remedy(guarded: Etcd, prefix: str, user: tuple[str, str]):
    async with open_etcd(guarded.urls, "/other/", login=lambda: user) as store:
        await refused(store, "/other/.*grant `readwrite`")


async def test_a_client_without_a_user_learns_that_it_needs_one(guarded: Etcd, prefix: str):
    async with open_etcd(guarded.urls, prefix) as store:
        with pytest.raises(StoreRefused, match="asks for a user and a password"):
            await store.read("key")


async def test_a_user_harms_nothing_where_etcd_has_no_users(etcd: Etcd, prefix: str):
    async with open_etcd(etcd.urls, prefix, login=lambda: ("name", "password")) as store:
        assert (await store.swap("key", b"1", expected=ABSENT)).done
        assert (await store.read("key")).entry


async def test_a_change_of_roles_while_a_token_is_in_use_harms_nothing(
    guarded: Etcd, prefix: str, user: tuple[str, str]
):
    with trio.fail_after(PATIENCE):
        async with open_etcd(guarded.urls, prefix, login=lambda: user) as store:
            last = ABSENT
            for number in range(3):
                guarded.add_user(f"{user[0]}-{number}", "another", {"/elsewhere/": "read"})
                done = await store.swap("key", b"%d" % number, expected=last)
                assert done.done
                last = done.at


async def refused(store: Store, said: str) -> None:
    async def watched() -> None:
        async with store.watch("", 1) as changes:
            await anext(changes)

    calls: list[Callable[[], object]] = [
        lambda: store.read("key"),
        lambda: store.list("key/"),
        lambda: store.swap("key", b"", expected=ABSENT),
        watched,
    ]
    with trio.fail_after(PATIENCE):
        for call in calls:
            with pytest.raises(StoreRefused, match=said) as found:
                await call()  # type: ignore[misc]
            assert "CANARY" not in str(found.value)


# -- no space ----------------------------------------------------------------------------------------------------------


async def test_an_etcd_without_space_refuses_with_the_remedy(prefix: str):
    with own(arguments=["--quota-backend-bytes", "2000000"]) as etcd:
        async with open_etcd(etcd.urls, prefix) as store:
            with suppress(StoreRefused):
                for number in range(8):  # it counts what it has committed, which is a moment behind
                    await store.swap(f"key/{number}", b"x" * 1_000_000, expected=ABSENT)
            with pytest.raises(StoreRefused, match=r"space exceeded.*alarm disarm"):
                await store.swap("another", b"x" * 1_000_000, expected=ABSENT)


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured() -> Iterator[Etcd]:
    """It wants certificates of its clients."""
    with own(tls=True, client_certificates=True) as etcd:
        yield etcd


def files(etcd: Etcd) -> TlsFiles:
    assert etcd.ca
    assert etcd.identity
    return TlsFiles(str(etcd.ca), str(etcd.identity[0]), str(etcd.identity[1]))


async def test_calls_and_watches_go_over_tls_with_a_certificate(secured: Etcd, prefix: str):
    with trio.fail_after(PATIENCE):
        async with open_etcd(secured.urls, prefix, tls=files(secured)) as store:
            made = await store.swap("key", b"x" * 1_000_000, expected=ABSENT)
            async with store.watch("", made.at - 1) as changes:
                assert [change.entry for change in await anext(changes)] == [made.entry]
                with trio.move_on_after(0.05):
                    await anext(changes)
                done = await store.swap("key", b"2", expected=made.at)
                assert [change.entry for change in await anext(changes)] == [done.entry]


async def test_a_client_without_a_certificate_learns_that_it_needs_one(secured: Etcd, prefix: str):
    with trio.fail_after(PATIENCE):
        async with open_etcd(secured.urls, prefix, tls=TlsFiles(str(secured.ca))) as store:
            for call in (lambda: store.read("key"), lambda: store.swap("key", b"", expected=ABSENT)):
                with pytest.raises(StoreRefused, match="certificate of this client"):
                    await call()


async def test_a_host_that_cannot_be_verified_is_said_in_words(secured: Etcd, prefix: str):
    async with open_etcd(secured.urls, prefix) as store:
        with pytest.raises(StoreUnreachable, match="certificate verify failed"):
            await store.read("key")


async def test_files_that_were_replaced_are_used_for_the_next_connection(
    secured: Etcd, prefix: str, tmp_path_factory: pytest.TempPathFactory
):
    assert secured.identity
    folder = tmp_path_factory.mktemp("tls")
    foreign = issue(trustme.CA(), folder / "client", "client@example.org")
    good = [path.read_bytes() for path in secured.identity]
    with trio.fail_after(PATIENCE):
        async with open_etcd(secured.urls, prefix, tls=TlsFiles(str(secured.ca), *map(str, foreign))) as store:
            with pytest.raises(StoreRefused, match="certificate"):
                await store.read("key")
            for path, content in zip(foreign, good, strict=True):
                path.write_bytes(content)
            assert (await store.read("key")).entry is None

            foreign[1].write_bytes(b"half")  # a replacement that is not finished yet: the last ones go on
            await store._gateway.aclose()
            assert (await store.read("key")).entry is None


async def test_a_tls_file_that_is_missing_is_named(secured: Etcd, prefix: str):
    async with open_etcd(secured.urls, prefix, tls=TlsFiles(ca="/nowhere/ca.pem")) as store:
        with pytest.raises(StoreRefused, match=r"/nowhere/ca\.pem: cannot read this file"):
            await store.read("key")
