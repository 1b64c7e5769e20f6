"""The syslog input over real sockets: every transport, back-pressure, losses, limits, and changes while it runs."""

import logging
import os
import socket
import ssl
import stat
from contextlib import asynccontextmanager, suppress

import orjson
import pytest
import trio
import trio.lowlevel
import trustme

from shipper.plugin import BadOption, Code, Credential, Duration, Endpoint, Material, Size, StartFailed
from shipper.policy import policy
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError
from shipper.testing import RecordingInputContext
from shipper_plugins.syslog import datagrams
from shipper_plugins.syslog import source as syslog_source
from shipper_plugins.syslog import streams as syslog_streams
from shipper_plugins.syslog.input import SyslogInput, SyslogTls
from tests.plugins.running import becomes
from tests.plugins.running import running as running_input

UDP, TCP, TLS = "udp://127.0.0.1:0", "tcp://127.0.0.1:0", "tls://127.0.0.1:0"


@pytest.fixture
def authority():
    return trustme.CA()


def material(pem):
    return Material("x.pem", pem.bytes().decode())


def shown(authority, **options):
    """The server's certificate, by files."""
    leaf = authority.issue_cert("127.0.0.1")
    return SyslogTls(certificate=material(leaf.cert_chain_pems[0]), key=material(leaf.private_key_pem), **options)


def trusting(authority, client=None):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if client is not None:
        client.configure_cert(context)
    return context


def an_input(*addresses, **options):
    return SyslogInput(addresses=addresses, **options)


class Running:
    def __init__(self, context, source, settings):
        self.context, self.source, self.settings = context, source, settings

    async def address(self, index=0):
        listener = await self.context.listen(self.settings.endpoints[index])
        return listener.getsockname()

    async def connect(self, index=0):
        address = await self.address(index)
        if isinstance(address, str):
            return await trio.open_unix_socket(address)
        return await trio.open_tcp_stream(*address)

    async def connect_tls(self, context, index=0):
        plain = await self.connect(index)
        stream = trio.SSLStream(plain, context, server_hostname="127.0.0.1", https_compatible=True)
        try:
            await stream.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(plain)
            raise
        return stream

    async def change(self, *addresses, credentials=None, **options):
        self.source.change(an_input(*addresses, **options), credentials or {})
        await self.source.changed()

    async def has_left(self):
        """Wait until a connection is about to end."""
        await becomes(lambda: any(connection.leaves for connection in self.source._streams._open))

    async def hears(self, stream, text):
        """A line is sent, and stored."""
        before = self.context.count
        await stream.send_all(b"<13>%b\n" % text)
        await self.context.wait_for(before + 1)

    @property
    def messages(self):
        return [event["message"] for event in self.context.events]


@asynccontextmanager
async def running(*addresses, context=None, **options):
    context = context or RecordingInputContext()
    settings = an_input(*addresses, **options)
    async with running_input(settings, context) as source:
        yield Running(context, source, settings)


async def ended(stream):
    """Wait until the peer says the end of its side."""
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some(1000):
            pass


# -- what a policy may say ---------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_with_the_reason():
    for options, message in [
        ({"addresses": ["127.0.0.1:514"]}, "needs a transport"),
        ({"addresses": ["http://127.0.0.1:514"]}, "scheme"),
        ({"addresses": ["udp://:514"]}, "allow_from"),
        ({"addresses": ["udp://10.0.0.1:514"]}, "allow_from"),
        ({"addresses": ["udp://127.0.0.1:514", "udp://127.0.0.1:514"]}, "named twice"),
        ({"addresses": ["unix:/a", "unixgram:/a"]}, "named twice"),
        ({"addresses": [TLS]}, "needs the certificate"),
        ({"addresses": ["udp://:514"], "allow_from": ["10.0.0.1/8"]}, "not a network"),
        ({"addresses": [UDP], "timezone": "Mars/Base"}, "time zone"),
        ({"addresses": [UDP], "encoding": "utf-16"}, "encoding"),
        ({"addresses": [UDP], "encoding": "cp037"}, "encoding"),
        ({"addresses": [UDP], "encoding": "utf-7"}, "encoding"),
        ({"addresses": [UDP], "encoding": "nothing"}, "encoding"),
        ({"addresses": [UDP], "max_message_bytes": "1B"}, "must be from 480B to 1MiB, not 1B"),
        ({"addresses": [UDP], "idle_timeout": "0s"}, "must be from 1s to 7d, not 0ms"),
        ({"addresses": [UDP], "mode": "rw"}, "octal"),
    ]:
        with pytest.raises(PolicyError, match=message):
            parsed(options)


def parsed(options):
    tree = {"version": 1, "inputs": {"a": {"type": "syslog", **options}}, "outputs": {"o": {"type": "console"}}}
    return policy.parse(orjson.dumps(tree).decode(), Registry.installed()).inputs["a"].config


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "koi8-r"])
def test_a_policy_is_read(encoding):
    read = parsed({"addresses": ["udp://:514"], "allow_from": ["0.0.0.0/0"], "encoding": encoding})
    assert read.listens() == (Endpoint("udp", "", 514),)


def test_the_authority_of_clients_opens_tls_to_other_hosts(authority):
    assert an_input("tls://:6514", tls=shown(authority, client_ca=material(authority.cert_pem))).endpoints
    with pytest.raises(BadOption, match="client_ca"):
        an_input("tls://:6514", tls=shown(authority))


def test_the_certificate_is_of_use_for_tls_alone(authority):
    with pytest.raises(BadOption, match="tls needs an address"):
        an_input(TCP, tls=shown(authority))


def test_the_order_of_addresses_is_no_other_place():
    assert an_input(UDP, TCP).identity() == an_input(TCP, UDP, timezone="UTC").identity()
    assert an_input(UDP).identity() != an_input(TCP).identity()


# -- every transport ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["udp", "unixgram"])
async def test_each_datagram_is_a_message(tmp_path, scheme):
    place = UDP if scheme == "udp" else f"unixgram:{tmp_path}/s"
    async with running(place) as shipper:
        family = socket.AF_INET if scheme == "udp" else socket.AF_UNIX
        with trio.socket.socket(family, socket.SOCK_DGRAM) as sender:
            await sender.connect(await shipper.address())
            for number in range(1000):
                await sender.send(b"<13>su: %d\n" % number)
                if number % 100 == 99:
                    await shipper.context.wait_for(number + 1)
            await sender.send(b"\n")
            await sender.send(b"<13>su: last")
            await shipper.context.wait_for(1001)
            source = f"127.0.0.1:{sender.getsockname()[1]}" if scheme == "udp" else f"{tmp_path}/s"

    assert shipper.messages == [*map(str, range(1000)), "last"]
    assert {event["log"]["source"]["address"] for event in shipper.context.events} == {source}
    assert len(shipper.context.batches) < 100


@pytest.mark.parametrize("scheme", ["tcp", "unix", "tls"])
async def test_a_connection_is_read_in_both_framings(tmp_path, authority, scheme):
    place = {"tcp": TCP, "tls": TLS, "unix": f"unix:{tmp_path}/s"}[scheme]
    async with running(place, tls=shown(authority) if scheme == "tls" else None) as shipper:
        stream = await (shipper.connect_tls(trusting(authority)) if scheme == "tls" else shipper.connect())
        async with stream:
            await stream.send_all(b"<13>su: one\n12 <13>su: a\nb!<13>su: th")
            await shipper.context.wait_for(2)
            await stream.send_all(b"ree\r\n<13>su: four")
        await shipper.context.wait_for(4)

    assert shipper.messages == ["one", "a\nb!", "three", "four"]


async def test_what_ipv4_sends_to_all_addresses_has_its_own_address():
    listener = "udp://[::]:0"
    async with running(listener, allow_from=("127.0.0.0/8",)) as shipper:
        port = (await shipper.address())[1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("127.0.0.1", 0))
            sender.sendto(b"<13>x", ("127.0.0.1", port))
            await shipper.context.wait_for(1)
            assert shipper.context.events[0]["log"]["source"]["address"] == f"127.0.0.1:{sender.getsockname()[1]}"


async def test_a_socket_in_the_file_system_is_for_whom_its_mode_says(tmp_path):
    async with running(f"unix:{tmp_path}/s", mode="0622"):
        assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o622


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [UDP, TCP])
async def test_a_message_that_is_too_long_is_cut_and_the_next_one_is_whole(place):
    async with running(place, max_message_bytes=Size(480)) as shipper:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if place == UDP else socket.SOCK_STREAM) as sender:
            sender.connect(await shipper.address())
            for size in (480, 481, 1000, 480):
                sender.send(b"<13>su: ".ljust(size, b"x") + (b"\n" if place == TCP else b""))
            await shipper.context.wait_for(4)

    assert [len(message) for message in shipper.messages] == [472] * 4
    flags = [event["log"].get("flags") for event in shipper.context.events]
    assert flags == [None, ["truncated"], ["truncated"], None]


async def test_a_message_that_its_connection_leaves_unfinished_is_marked():
    async with running(TCP) as shipper:
        async with await shipper.connect() as stream:
            await stream.send_all(b"100 <13>su: text")
        await shipper.context.wait_for(1)

    assert shipper.context.events[0]["log"]["flags"] == ["truncated"]


async def test_who_is_not_of_an_allowed_network_is_counted_and_not_heard():
    async with running(UDP, TCP, allow_from=("192.0.2.0/24",)) as shipper:
        async with await shipper.connect(1) as stream:
            await ended(stream)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for expected in (2, 3):
                sender.sendto(b"<13>x", await shipper.address(0))
                await becomes(lambda expected=expected: shipper.source.figures()["refused_peers"] >= expected)
        await shipper.change(UDP, TCP, allow_from=("127.0.0.1",))
        async with await shipper.connect(1) as stream:
            await shipper.hears(stream, b"now")

    assert shipper.messages == ["now"]


async def test_the_connection_of_a_sender_that_is_not_allowed_any_more_ends():
    async with running(TCP) as shipper, await shipper.connect() as stream:
        await shipper.hears(stream, b"one")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: shipper.change(TCP, allow_from=("192.0.2.0/24",)))
            await ended(stream)
            await stream.send_eof()

        assert not shipper.source.figures()["connections"]


async def test_one_connection_too_many_takes_the_place_of_a_silent_one():
    async with running(TCP, max_connections=2) as shipper:
        async with await shipper.connect() as heard, await shipper.connect() as silent:
            await shipper.hears(heard, b"one")
            async with await shipper.connect() as third:
                await ended(silent)
                await shipper.hears(third, b"two")
                async with await shipper.connect() as fourth:
                    await ended(fourth)
                await shipper.hears(heard, b"three")
        assert shipper.context.peers_turned_away == 2
        assert Code.CROWDED in shipper.context.codes

    assert shipper.messages == ["one", "two", "three"]


async def test_connections_that_have_sent_one_message_keep_nobody_out_and_lose_nothing(monkeypatch):
    """The one that has been quiet for longest leaves: what it has sent meanwhile is read."""
    monkeypatch.setattr(syslog_streams, "QUIET_SECONDS", 0.0)
    few = running(TCP, max_connections=2)
    async with few as shipper, await shipper.connect() as first, await shipper.connect() as second:
        for stream in (first, second):
            await shipper.hears(stream, b"one")
        async with await shipper.connect() as third:
            await ended(first)
            await shipper.hears(first, b"late")
            for stream in (second, third):
                await shipper.hears(stream, b"two")


class Held:
    """A connection as the rules see it."""

    def __init__(self, address, quiet=0.0, *, is_silent=False):
        self.address, self.heard_at, self.is_silent = address, 1000.0 - quiet, is_silent


@pytest.mark.parametrize(
    ("held", "newcomer", "displaced"),
    [
        ([Held("a", 99), Held("b", is_silent=True), Held("c", is_silent=True), Held("c", is_silent=True)], "a", 2),
        ([Held("a", 11), Held("b", 99), Held("a", 12)], "a", 2),
        ([Held("a", 11), Held("b", 99), Held("a", 12)], "c", 2),
        ([Held("a", 99), Held("b", 99), Held("c", 99)], "d", None),
        ([Held("a", 1), Held("a", 2), Held("b", 99)], "c", 1),
        ([Held("a", 1), Held("a", 2), Held("b", 99)], "a", None),
        ([Held("a", 1), Held("a", 2), Held("b", 1), Held("b", 1)], "c", None),
        ([], "a", None),
    ],
)
def test_a_place_is_taken_from_the_address_with_the_most(held, newcomer, displaced):
    found = syslog_streams.to_displace(held, Held(newcomer))

    assert found is (None if displaced is None else held[displaced])


async def test_those_that_leave_take_as_many_places_again_at_most(monkeypatch):
    monkeypatch.setattr(syslog_streams, "QUIET_SECONDS", 0.0)
    async with running(TCP, max_connections=2) as shipper:
        streams = []
        for number in range(1, 9):
            streams.append(await shipper.connect())
            with suppress(trio.BrokenResourceError):
                await streams[-1].send_all(b"<13>x\n")
            await becomes(lambda n=number: shipper.context.count >= n or shipper.context.peers_turned_away >= n - 2)

        assert len(shipper.source._streams) <= 4
        for stream in streams:
            await trio.aclose_forcefully(stream)


async def test_a_silent_connection_ends_and_what_comes_meanwhile_is_read():
    async with running(TCP, idle_timeout=Duration(1)) as shipper, await shipper.connect() as stream:
        await ended(stream)
        await shipper.hears(stream, b"late")

    assert shipper.messages == ["late"]


async def test_a_handshake_that_does_not_come_ends(authority, monkeypatch):
    monkeypatch.setattr(syslog_streams, "HANDSHAKE_SECONDS", 0.05)
    async with running(TLS, tls=shown(authority)) as shipper, await shipper.connect() as stream:
        await ended(stream)


async def test_what_is_no_tls_ends_its_own_connection_alone(authority):
    async with running(TLS, tls=shown(authority)) as shipper:
        async with await shipper.connect() as stream:
            await stream.send_all(b"<13>plain\n")
            await ended(stream)
        async with await shipper.connect_tls(trusting(authority)) as stream:
            await shipper.hears(stream, b"sealed")

    assert shipper.messages == ["sealed"]


# -- the queue, and losses ---------------------------------------------------------------------------------------------


async def test_while_the_queue_is_full_a_connection_stands_still_and_loses_nothing():
    context = RecordingInputContext()
    context.full = True
    async with running(TCP, context=context) as shipper, await shipper.connect() as stream:
        sent = 0
        with trio.move_on_after(0.5):
            while True:
                await stream.send_all(b"".join(b"<13>su: %07d\n" % number for number in range(sent, sent + 100)))
                sent += 100
        assert sent < 1_000_000
        context.full = False
        await context.wait_for(sent)

    assert shipper.messages[:sent] == [f"{number:07d}" for number in range(sent)]


async def test_datagrams_without_room_are_counted_and_shown_for_a_while(monkeypatch):
    monkeypatch.setattr(syslog_source, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(syslog_source, "LOST_SECONDS", 0.1)
    context = RecordingInputContext()
    context.full = True
    sent = 4000
    async with running(UDP, context=context, receive_buffer=Size(4096)) as shipper:
        address = await shipper.address()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(sent):
                sender.sendto(b"<13>" + b"x" * 1000, address)
        await context.wait_until(lambda: context.problem is not None and "datagrams lost" in context.problem)
        assert context.codes[-1] == Code.DATA_LOST
        context.full = False
        await context.wait_until(lambda: context.problem is None)
        lost = shipper.source.figures()["lost_datagrams"]
        await context.wait_for(sent - lost)

    assert 0 < lost < sent
    assert context.count == sent - lost


async def test_a_loss_says_what_to_do_where_the_kernel_grants_less_than_was_asked_for(monkeypatch, caplog):
    monkeypatch.setattr(syslog_source, "receive_buffer", lambda listener: 4096)
    monkeypatch.setattr(syslog_source, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(datagrams, "newly_lost", lambda listener: 1)
    async with running(UDP) as shipper:
        await shipper.context.wait_until(lambda: shipper.context.problem is not None)

    assert "the kernel granted 4096 bytes, not 4MiB: raise net.core.rmem_max" in shipper.context.problems[1]
    assert "raise net.core.rmem_max" in caplog.text


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_what_a_peer_has_sent_when_the_input_ends_is_stored():
    context = RecordingInputContext()
    async with running(TCP, context=context) as shipper:
        stream = await shipper.connect()
        await shipper.hears(stream, b"one")
        await stream.send_all(b"<13>two\n")
    await ended(stream)
    await stream.aclose()

    assert shipper.messages == ["one", "two"]


async def test_what_was_read_before_a_cut_is_stored_before_it():
    context = RecordingInputContext()
    async with running(TCP, "udp://127.0.0.1:0", context=context) as shipper:
        stream = await shipper.connect()
        await shipper.hears(stream, b"one")
        await stream.send_all(b"<13>two\n")
        quiet = trio.Event()

        async def quiesce():
            await shipper.source.quiesce()
            quiet.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(quiesce)
            await ended(stream)
            await stream.aclose()
        assert quiet.is_set()
        assert shipper.messages == ["one", "two"]


async def test_datagrams_that_were_not_read_are_left_to_the_input_that_takes_the_socket_over():
    context = RecordingInputContext()
    async with running(UDP, context=context) as shipper:
        address = await shipper.address()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"<13>one", address)
    assert not context.count
    async with running(UDP, context=context):
        await context.wait_for(1)


async def test_an_input_whose_queue_is_full_ends_all_the_same_and_says_what_is_lost(caplog, monkeypatch):
    monkeypatch.setattr(syslog_source, "END_SECONDS", 0.05)
    context = RecordingInputContext()
    context.full = True
    async with running(TCP, context=context) as shipper, await shipper.connect() as stream:
        await stream.send_all(b"<13>secret\n")
        await becomes(lambda: shipper.source._gathering._blocks or shipper.source._gathering._unsure)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "1 messages" in record.getMessage()
    assert "secret" not in caplog.text


# -- changes while it runs ---------------------------------------------------------------------------------------------


async def test_other_settings_hold_for_the_next_message_of_an_open_connection():
    async with running(TCP, timezone="UTC") as shipper, await shipper.connect() as stream:
        await shipper.hears(stream, b"2026-05-17T12:00:00 web-1 su: one")
        await shipper.change(TCP, timezone="+02:00", keep_original=True)
        await shipper.hears(stream, b"2026-05-17T12:00:00 web-1 su: two")

    one, two = shipper.context.events
    assert (one["@timestamp"], two["@timestamp"]) == ("2026-05-17T12:00:00Z", "2026-05-17T10:00:00Z")
    assert two["event"]["original"].startswith("<13>2026")


async def test_another_certificate_ends_connections_of_the_old_one_after_what_they_sent(authority):
    other = trustme.CA()
    async with running(TLS, TCP, tls=shown(authority)) as shipper, await shipper.connect(1) as plain:
        old = await shipper.connect_tls(trusting(authority))
        await shipper.hears(old, b"one")
        async with trio.open_nursery() as nursery:
            await old.send_all(b"<13>two\n")
            nursery.start_soon(lambda: shipper.change(TLS, TCP, tls=shown(other)))
            await shipper.has_left()
            await old.send_all(b"<13>three\n")
            await old.aclose()
        assert len(shipper.source._streams) == 1
        new = await shipper.connect_tls(trusting(other))
        await new.send_all(b"<13>four\n")
        await plain.send_all(b"<13>five\n")
        await shipper.context.wait_for(5)
        await new.aclose()

    assert sorted(shipper.messages) == ["five", "four", "one", "three", "two"]


async def test_the_same_certificate_keeps_its_connections(authority):
    tls = shown(authority)
    async with running(TLS, tls=tls) as shipper, await shipper.connect_tls(trusting(authority)) as stream:
        await shipper.change(TLS, tls=tls, encoding="latin-1")
        await stream.send_all(b"<13>caf\xe9\n")
        await shipper.context.wait_for(1)

    assert shipper.messages == ["café"]


async def test_a_peer_that_stays_is_closed_before_the_change_is_over(authority, monkeypatch):
    monkeypatch.setattr(syslog_streams, "LEAVING_SECONDS", 0.05)
    async with running(TLS, tls=shown(authority)) as shipper, await shipper.connect_tls(trusting(authority)):
        await shipper.change(TLS, tls=shown(authority))
        assert not shipper.source.figures()["connections"]


async def test_only_a_certificate_of_the_authority_may_send(authority):
    stranger, tls = trustme.CA(), shown(authority, client_ca=material(authority.cert_pem))
    async with running(TLS, tls=tls) as shipper:
        for issuer in (None, stranger, authority):
            client = issuer and issuer.issue_cert("a")
            stream = await shipper.connect_tls(trusting(authority, client))
            if issuer is authority:
                await send_quietly(stream, b"<13>su: text\n")
            else:
                await ended(stream)
            await trio.aclose_forcefully(stream)
        await shipper.context.wait_for(1)

    assert shipper.messages == ["text"]


async def send_quietly(stream, data):
    with suppress(trio.BrokenResourceError):
        await stream.send_all(data)


def certificate(authority):
    leaf = authority.issue_cert("127.0.0.1")
    return Credential.parse(
        {
            "certificate": leaf.cert_chain_pems[0].bytes().decode(),
            "key": leaf.private_key_pem.bytes().decode(),
        }
    )


async def test_a_certificate_that_is_withdrawn_is_shown_to_nobody_until_it_is_there_again(authority):
    credentials = {"tls-1": certificate(authority)}
    context, tls = RecordingInputContext(credentials=credentials), SyslogTls(credential="tls-1")
    async with running(TLS, context=context, tls=tls) as shipper:
        async with await shipper.connect_tls(trusting(authority)) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(lambda: shipper.change(TLS, tls=tls))
            await ended(stream)
            await stream.aclose()
        assert context.codes[-1] == Code.CREDENTIAL_INVALID
        with pytest.raises(trio.BrokenResourceError):
            await shipper.connect_tls(trusting(authority))
        await shipper.change(TLS, tls=tls, credentials=credentials)
        assert context.problem is None
        async with await shipper.connect_tls(trusting(authority)) as stream:
            await shipper.hears(stream, b"back")


async def test_a_credential_that_is_no_certificate_cannot_start():
    context = RecordingInputContext(credentials={"tls-1": Credential.parse({"api_key": "a:b"})})
    with pytest.raises(StartFailed) as refused:
        async with running(TLS, context=context, tls=SyslogTls(credential="tls-1")):
            pass
    assert refused.value.code == Code.CREDENTIAL_INVALID
