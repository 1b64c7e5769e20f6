"""Requests to a scripted API server: what is asked, what is read of answers, and what becomes of failures."""

from __future__ import annotations

import ssl

import pytest
import trio
import trustme

from shipper.apiserver import client as module
from shipper.apiserver import errors, watching
from shipper.apiserver.credentials import FileToken, FixedToken
from shipper.apiserver.errors import Invalid, Unreachable
from shipper.apiserver.objects import LEASES, PODS, SECRETS, Event, Kind
from shipper.apiserver.trust import Pem, Trust
from tests.apiserver.server import THINGS, Exchange, client_of, listing, scripted, thing


async def test_a_read_asks_for_the_object_by_its_path_and_is_a_quorum_read():
    async with scripted(lambda exchange: exchange.answer(thing("a", 7))) as server, client_of(server) as client:
        found = await client.get(THINGS, "a")

    assert found["metadata"]["resourceVersion"] == "7"
    assert server.asked[0].path == "/apis/example.dev/v1/namespaces/logging/things/a"
    assert server.asked[0].query == {}, "resourceVersion=0 would be answered by a cache"


def test_paths_have_the_group_but_for_the_core_and_quote_names():
    assert SECRETS.path("a") == "/api/v1/namespaces/a/secrets"
    assert LEASES.path("a", "b") == "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"
    assert PODS.path("a", "../b", "status") == "/api/v1/namespaces/a/pods/..%2Fb/status"
    assert Kind("g", "v1", "things", "T").api_version == "g/v1"


async def test_calls_one_after_the_other_use_one_connection():
    async with scripted(lambda exchange: exchange.answer(thing("a", 7))) as server, client_of(server) as client:
        for _ in range(5):
            await client.get(THINGS, "a")

    assert {asked.connection for asked in server.asked} == {1}


async def test_a_list_is_read_page_by_page_and_has_the_version_of_the_list():
    async def talk(exchange: Exchange) -> None:
        if exchange.asked.query.get("continue") == "more":
            await exchange.answer(listing(thing("b", 3), version=9))
        else:
            await exchange.answer(listing(thing("a", 2), version=9, goes_on="more"))

    async with scripted(talk) as server, client_of(server) as client:
        found = await client.list(THINGS, labels="app=web", fields="metadata.name!=c")

    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert found.version == "9"
    assert server.asked[1].query["labelSelector"] == "app=web"
    assert server.asked[1].query["fieldSelector"] == "metadata.name!=c"


async def test_a_list_whose_instant_has_expired_begins_anew():
    expired = [True]

    async def talk(exchange: Exchange) -> None:
        if not exchange.asked.query.get("continue"):
            await exchange.answer(listing(thing("a", 2), version=9, goes_on="more"))
        elif expired:
            expired.pop()
            await exchange.refuse(410, "Expired")
        else:
            await exchange.answer(listing(thing("b", 3), version=9))

    async with scripted(talk) as server, client_of(server) as client:
        found = await client.list(THINGS)

    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]


async def test_items_of_a_list_have_the_kind_that_lists_leave_out():
    async with (
        scripted(lambda exchange: exchange.answer(listing({"metadata": {"name": "a"}}, version=9))) as server,
        client_of(server) as client,
    ):
        [item] = (await client.list(THINGS)).items

    assert (item["apiVersion"], item["kind"]) == ("example.dev/v1", "Thing")


async def test_a_patch_names_the_object_and_the_state_that_it_is_for():
    async with scripted(lambda exchange: exchange.answer(thing("a", 8))) as server, client_of(server) as client:
        await client.patch(THINGS, "a", {"status": {"x": 1}}, subresource="status", uid="u", version="7")

    [asked] = server.asked
    assert asked.method == "PATCH"
    assert asked.path.endswith("/things/a/status")
    assert asked.headers["content-type"] == "application/merge-patch+json"
    assert asked.json == {"status": {"x": 1}, "metadata": {"uid": "u", "resourceVersion": "7"}}
    assert asked.query["fieldValidation"] == "Strict"


async def test_a_deletion_names_the_object_that_it_is_for():
    async with (
        scripted(lambda exchange: exchange.answer({"kind": "Status", "status": "Success"})) as server,
        client_of(server) as client,
    ):
        await client.delete(THINGS, "a", uid="u")

    assert server.asked[0].json == {"preconditions": {"uid": "u"}}


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", errors.Invalid),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.Busy),
        (503, "ServiceUnavailable", errors.Busy),
        (500, "InternalError", errors.Unreachable),
        (504, "Timeout", errors.Unreachable),
    ],
)
async def test_a_refusal_is_the_error_of_who_must_act(status, reason, expected):
    async with (
        scripted(lambda exchange: exchange.refuse(status, reason, "what the server says")) as server,
        client_of(server) as client,
    ):
        with pytest.raises(expected) as caught:
            await client.get(THINGS, "a")

    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert "what the server says" in str(caught.value)
    assert "get things a in namespace logging" in str(caught.value)


async def test_a_patch_of_another_uid_is_a_conflict_which_the_server_calls_invalid():
    async def talk(exchange: Exchange) -> None:
        details = {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}
        await exchange.answer({"kind": "Status", "reason": "Invalid", "code": 422, "details": details}, 422)

    async with scripted(talk) as server, client_of(server) as client:
        with pytest.raises(errors.Conflict):
            await client.patch(THINGS, "a", {}, uid="another")


async def test_a_lack_of_rights_names_the_rule_to_grant():
    async with scripted(lambda exchange: exchange.refuse(403, "Forbidden")) as server, client_of(server) as client:
        with pytest.raises(errors.Forbidden) as caught:
            await client.patch(THINGS, "a", {}, subresource="status")
        with pytest.raises(errors.Forbidden) as of_secret:
            await client.get(SECRETS, "es")

    assert 'apiGroups: ["example.dev"], resources: ["things/status"], verbs: ["patch"]' in str(caught.value)
    assert 'apiGroups: [""], resources: ["secrets"], verbs: ["get"], resourceNames: ["es"]' in str(of_secret.value)


async def test_no_text_of_an_answer_about_a_secret_is_in_an_error():
    async with (
        scripted(lambda exchange: exchange.refuse(422, "Invalid", "data.password: Invalid value: hunter2")) as server,
        client_of(server) as client,
    ):
        with pytest.raises(errors.Invalid) as caught:
            await client.patch(SECRETS, "es", {})

    assert "hunter2" not in str(caught.value)
    assert caught.value.reason == "Invalid"


async def test_an_answer_that_is_no_status_is_not_quoted():
    async with (
        scripted(lambda exchange: exchange.answer(b"<html>a proxy's page</html>", 502)) as server,
        client_of(server) as client,
    ):
        with pytest.raises(errors.Unreachable) as caught:
            await client.get(THINGS, "a")

    assert "proxy" not in str(caught.value)


async def test_an_answer_that_is_no_object_is_an_error():
    async with scripted(lambda exchange: exchange.answer(b"[1, 2")) as server, client_of(server) as client:
        with pytest.raises(errors.Unreachable, match="not an object"):
            await client.get(THINGS, "a")


async def test_retry_after_is_obeyed_within_the_seconds_of_a_call(jumping_clock):
    times: list[float] = []

    async def talk(exchange: Exchange) -> None:
        times.append(trio.current_time())
        if len(times) == 1:
            await exchange.refuse(429, "TooManyRequests", headers={"Retry-After": "3"})
        else:
            await exchange.answer(thing("a", 7))

    async with scripted(talk) as server, client_of(server) as client:
        await client.get(THINGS, "a")

    assert 3 <= times[1] - times[0] < 4


async def test_a_wait_that_is_longer_than_the_call_is_an_error_at_once():
    async with (
        scripted(lambda exchange: exchange.refuse(503, "ServiceUnavailable", headers={"Retry-After": "30"})) as server,
        client_of(server) as client,
    ):
        with pytest.raises(errors.Busy) as caught:
            await client.get(THINGS, "a")

    assert caught.value.retry_after == 30
    assert len(server.asked) == 1


async def test_a_call_without_an_answer_ends_with_its_seconds(jumping_clock):
    async with scripted() as server, client_of(server) as client:
        before = trio.current_time()
        with pytest.raises(errors.Unreachable, match="no answer within 2 s"):
            await client.get(THINGS, "a", seconds=2)

        assert trio.current_time() - before == pytest.approx(2)


async def test_a_read_whose_connection_breaks_is_asked_once_more():
    async def talk(exchange: Exchange) -> None:
        if len(server.asked) == 1:
            await exchange.break_off()
        else:
            await exchange.answer(thing("a", 7))

    async with scripted(talk) as server, client_of(server) as client:
        await client.get(THINGS, "a")

    assert len(server.asked) == 2


async def test_a_write_whose_connection_breaks_is_not_repeated():
    async with scripted(lambda exchange: exchange.break_off()) as server, client_of(server) as client:
        with pytest.raises(errors.Unreachable):
            await client.create(THINGS, thing("a", ""))

    assert len(server.asked) == 1


async def test_nobody_at_the_address_is_said():
    async with scripted() as server:
        pass
    async with client_of(server) as client:
        with pytest.raises(errors.Unreachable, match=r"127\.0\.0\.1:\d+: connection refused, to: get things a"):
            await client.get(THINGS, "a")


# -- the credential ----------------------------------------------------------------------------------------------------


async def test_a_refused_token_is_read_again_once(tmp_path):
    file = tmp_path / "token"
    file.write_text("old\n")

    async def talk(exchange: Exchange) -> None:
        if exchange.asked.headers["authorization"] == "Bearer new":
            await exchange.answer(thing("a", 7))
        else:
            file.write_text("new\n")
            await exchange.refuse(401, "Unauthorized")

    async with scripted(talk) as server, client_of(server, FileToken(str(file))) as client:
        await client.get(THINGS, "a")
        await client.get(THINGS, "a")

    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer old", "Bearer new", "Bearer new"]


@pytest.mark.parametrize("credential", [None, FixedToken("t")])
async def test_a_credential_that_cannot_be_renewed_is_refused_once(credential):
    async with (
        scripted(lambda exchange: exchange.refuse(401, "Unauthorized")) as server,
        client_of(server, credential) as client,
    ):
        with pytest.raises(errors.Unauthorized):
            await client.get(THINGS, "a")

    assert len(server.asked) == 1


async def test_a_token_is_read_again_after_a_minute(tmp_path, jumping_clock):
    file = tmp_path / "token"
    file.write_text("first")

    async with (
        scripted(lambda exchange: exchange.answer(thing("a", 7))) as server,
        client_of(server, FileToken(str(file))) as client,
    ):
        await client.get(THINGS, "a")
        file.write_text("second")
        await client.get(THINGS, "a")
        await trio.sleep(61)
        await client.get(THINGS, "a")
        file.unlink()
        await trio.sleep(61)
        await client.get(THINGS, "a")

    tokens = [asked.headers["authorization"] for asked in server.asked]
    assert tokens == ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]


async def test_a_token_that_cannot_be_read_is_said(tmp_path):
    async with scripted() as server, client_of(server, FileToken(str(tmp_path / "none"))) as client:
        with pytest.raises(errors.Unauthorized, match="none: No such file"):
            await client.get(THINGS, "a")

    assert server.asked == []


# -- TLS ---------------------------------------------------------------------------------------------------------------


def secured(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


async def test_another_authority_is_taken_from_its_file_for_the_next_connection(tmp_path):
    old, new, file = trustme.CA(), trustme.CA(), tmp_path / "ca.crt"
    old.cert_pem.write_to_path(file)
    trust = Trust(ca=Pem(str(file)))
    async with (
        scripted(lambda exchange: exchange.answer(thing("a", 7)), secured(new)) as server,
        client_of(server, None, trust) as client,
    ):
        with pytest.raises(errors.Unreachable, match="certificate verify failed"):
            await client.get(THINGS, "a")
        new.cert_pem.write_to_path(file)

        assert (await client.get(THINGS, "a"))["metadata"]["name"] == "a"


# -- watches -----------------------------------------------------------------------------------------------------------


async def test_a_watch_yields_events_in_order_and_bookmarks_as_synced():
    async def talk(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.event("ADDED", thing("a", 8))
        await exchange.bookmark("9")
        await exchange.event("DELETED", thing("a", 10))
        await exchange.end()

    async with (
        scripted(talk) as server,
        client_of(server) as client,
        client.watch(THINGS, after="7", labels="app=web") as events,
    ):
        found = [event async for event in events]

    assert found == [
        Event("ADDED", thing("a", 8)),
        Event("SYNCED", {"metadata": {"resourceVersion": "9"}}),
        Event("DELETED", thing("a", 10)),
    ]
    query = server.asked[0].query
    assert (query["resourceVersion"], query["labelSelector"]) == ("7", "app=web")
    assert query["allowWatchBookmarks"] == "true"
    assert 240 <= int(query["timeoutSeconds"]) <= 300, "a watch of a version in the future is silent without an end"


async def test_with_all_objects_first_only_their_end_is_synced():
    async def talk(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.bookmark("5")
        await exchange.event("ADDED", thing("a", 3))
        await exchange.bookmark("8", ends_initial=True)
        await exchange.end()

    async with (
        scripted(talk) as server,
        client_of(server) as client,
        client.watch(THINGS, after="", initial=True) as events,
    ):
        found = [event.type async for event in events]

    assert found == ["ADDED", "SYNCED"]
    query = server.asked[0].query
    assert query["sendInitialEvents"] == "true"
    assert query["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in query


async def test_a_version_that_is_too_old_is_gone_also_in_an_answer_of_200():
    async def talk(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        await exchange.end()

    async with scripted(talk) as server, client_of(server) as client, client.watch(THINGS, after="7") as events:
        with pytest.raises(errors.Gone, match="too old"):
            await anext(events)


async def test_a_watch_that_says_nothing_is_given_up(jumping_clock):
    async def talk(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.event("ADDED", thing("a", 8))
        await trio.sleep_forever()

    async with scripted(talk) as server, client_of(server) as client, client.watch(THINGS, after="7") as events:
        await anext(events)
        before = trio.current_time()
        with pytest.raises(watching.Silent):
            await anext(events)

        assert trio.current_time() - before == pytest.approx(watching.SILENT_SECONDS)


async def test_a_watch_that_is_broken_off_is_an_error():
    async def talk(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.event("ADDED", thing("a", 8))
        await exchange.break_off()

    async with scripted(talk) as server, client_of(server) as client, client.watch(THINGS, after="7") as events:
        await anext(events)
        with pytest.raises(errors.Unreachable):
            await anext(events)


@pytest.mark.parametrize("line", [b"no json\n", b'{"type":"ODD","object":{}}\n', b'{"type":"ADDED"}\n', b"[]\n"])
async def test_a_line_that_is_no_event_is_an_error(line):
    async def talk(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(line)
        await trio.sleep_forever()

    async with scripted(talk) as server, client_of(server) as client, client.watch(THINGS, after="7") as events:
        with pytest.raises(errors.Unreachable):
            await anext(events)


async def test_a_watch_that_is_left_closes_its_connection():
    closed = trio.Event()

    async def talk(exchange: Exchange) -> None:
        await exchange.begin()
        try:
            while True:
                await exchange.event("ADDED", thing("a", 8))
                await trio.lowlevel.checkpoint()
        finally:
            closed.set()

    async with scripted(talk) as server, client_of(server) as client:
        async with client.watch(THINGS, after="7") as events:
            await anext(events)
        with trio.fail_after(60):
            await closed.wait()


async def test_a_watch_takes_no_turn_of_calls():
    async def talk(exchange: Exchange) -> None:
        if exchange.asked.query.get("watch"):
            await exchange.begin()
            await exchange.event("ADDED", thing("a", 8))
            await trio.sleep_forever()
        await exchange.answer(thing("a", 8))

    async with scripted(talk) as server, client_of(server) as client, trio.open_nursery() as nursery:
        opened = [trio.Event() for _ in range(12)]

        async def follow(event: trio.Event) -> None:
            async with client.watch(THINGS, after="7") as events:
                await anext(events)
                event.set()
                await trio.sleep_forever()

        for event in opened:
            nursery.start_soon(follow, event)
        for event in opened:
            await event.wait()

        assert (await client.get(THINGS, "a"))["metadata"]["name"] == "a"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("page", [{"items": 7}, {"items": [7]}, {"metadata": []}, {"metadata": {"continue": 7}}, []])
async def test_a_list_that_is_none_is_an_error(page):
    with trio.fail_after(60):
        async with scripted(lambda exchange: exchange.answer(page)) as server, client_of(server) as client:
            with pytest.raises(Unreachable, match="not an object"):
                await client.list(THINGS)


async def test_a_list_without_an_end_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_LISTING", 100_000)
    page = {"items": [thing("a", 1, text="x" * 1000)] * 20, "metadata": {"resourceVersion": "7", "continue": "more"}}
    with trio.fail_after(60):
        async with scripted(lambda exchange: exchange.answer(page)) as server, client_of(server) as client:
            with pytest.raises(Invalid, match="delete what nobody needs"):
                await client.list(THINGS)
