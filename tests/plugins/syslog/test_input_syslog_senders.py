"""The syslog input and real senders: `logger`, rsyslog and syslog-ng, over each transport and in each framing.

The daemons read a file of numbered lines and send them; each must come once.
"""

import socket
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

from shipper.plugin import Material
from shipper.testing import RecordingInputContext
from shipper_plugins.syslog.input import SyslogInput, SyslogTls
from tests import needs
from tests.plugins.running import running
from tests.programs import Running

COUNT = 300
PATIENCE = 60
TEXTS = [f"message {number:05d} of app é" for number in range(COUNT)]

RSYSLOG = """
global(workDirectory="{folder}" defaultNetstreamDriverCAFile="{folder}/ca.pem")
module(load="imfile" PollingInterval="1")
module(load="builtin:omfwd")
input(type="imfile" File="{folder}/in.log" Tag="app:")
{action}
"""
FORWARD = (
    'action(type="omfwd" target="127.0.0.1" port="{port}" protocol="{protocol}" action.resumeRetryCount="-1" {options})'
)
SYSLOG_NG = """
@version: 3.38
options {{ stats-freq(0); time-reopen(1); }};
source s {{ file("{folder}/in.log" flags(no-parse) program-override("app") follow-freq(0.1)); }};
destination d {{ {destination}; }};
log {{ source(s); destination(d); }};
"""


def forward(protocol, options=""):
    return lambda **of: FORWARD.format(protocol=protocol, options=options, **of)


def rsyslog(action):
    def prepare(folder, **of):
        text = RSYSLOG.format(folder=folder, action=action(**of) if callable(action) else action.format(**of))
        (folder / "rsyslog.conf").write_text(text)
        return [needs.path("rsyslogd"), "-n", "-f", f"{folder}/rsyslog.conf", "-i", f"{folder}/pid"]

    return prepare


def syslog_ng(destination):
    def prepare(folder, **of):
        text = SYSLOG_NG.format(folder=folder, destination=destination.format(folder=folder, **of))
        (folder / "syslog-ng.conf").write_text(text)
        files = ["-R", f"{folder}/persist", "-p", f"{folder}/pid", "-c", f"{folder}/control"]
        return [needs.path("syslog-ng"), "-F", "--no-caps", "-f", f"{folder}/syslog-ng.conf", *files]

    return prepare


def logger(*options):
    def prepare(folder, **of):
        return [needs.path("logger"), "-t", "app", "-f", f"{folder}/in.log", *[one.format(**of) for one in options]]

    return prepare


OSSL = 'StreamDriver="ossl" StreamDriverMode="1" StreamDriverAuthMode="anon"'
SENDERS = {
    "logger udp": ("udp", logger("-d", "-n", "127.0.0.1", "-P", "{port}")),
    "logger udp 3164": ("udp", logger("-d", "-n", "127.0.0.1", "-P", "{port}", "--rfc3164")),
    "logger tcp": ("tcp", logger("-T", "-n", "127.0.0.1", "-P", "{port}")),
    "logger tcp counted": ("tcp", logger("-T", "-n", "127.0.0.1", "-P", "{port}", "--octet-count", "--rfc5424")),
    "logger unixgram": ("unixgram", logger("-u", "{path}", "--socket-errors=on")),
    "logger unix": ("unix", logger("-u", "{path}", "--socket-errors=on")),
    "rsyslog udp": ("udp", rsyslog(forward("udp"))),
    "rsyslog tcp": ("tcp", rsyslog(forward("tcp"))),
    "rsyslog tcp counted": ("tcp", rsyslog(forward("tcp", 'TCP_Framing="octet-counted"'))),
    "rsyslog tcp 5424": ("tcp", rsyslog(forward("tcp", 'template="RSYSLOG_SyslogProtocol23Format"'))),
    "rsyslog tls": ("tls", rsyslog(forward("tcp", OSSL))),
    "rsyslog tls counted": ("tls", rsyslog(forward("tcp", f'{OSSL} TCP_Framing="octet-counted"'))),
    "rsyslog unixgram": ("unixgram", rsyslog('module(load="omuxsock")\n$OMUxSockSocket {path}\n*.* :omuxsock:')),
    "syslog-ng udp": ("udp", syslog_ng('network("127.0.0.1" port({port}) transport("udp"))')),
    "syslog-ng udp 5424": ("udp", syslog_ng('syslog("127.0.0.1" port({port}) transport("udp"))')),
    "syslog-ng tcp": ("tcp", syslog_ng('network("127.0.0.1" port({port}) transport("tcp"))')),
    "syslog-ng tcp counted": ("tcp", syslog_ng('syslog("127.0.0.1" port({port}) transport("tcp"))')),
    "syslog-ng tls": (
        "tls",
        syslog_ng('network("127.0.0.1" port({port}) transport("tls") tls(ca-file("{folder}/ca.pem")))'),
    ),
    "syslog-ng tls counted": (
        "tls",
        syslog_ng('syslog("127.0.0.1" port({port}) transport("tls") tls(ca-file("{folder}/ca.pem")))'),
    ),
    "syslog-ng unix": ("unix", syslog_ng('unix-stream("{path}")')),
    "syslog-ng unixgram": ("unixgram", syslog_ng('unix-dgram("{path}")')),
}


@pytest.fixture
def authority(tmp_path):
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made


def shown(authority):
    leaf = authority.issue_cert("127.0.0.1")
    certificate, key = leaf.cert_chain_pems[0], leaf.private_key_pem
    return SyslogTls(certificate=Material("c", certificate.bytes().decode()), key=Material("k", key.bytes().decode()))


@asynccontextmanager
async def receiver(scheme, folder, authority):
    """A context that records, and where to send."""
    address = f"{scheme}:{folder}/socket" if scheme.startswith("unix") else f"{scheme}://127.0.0.1:0"
    settings = SyslogInput(addresses=(address,), tls=shown(authority) if scheme == "tls" else None)
    context = RecordingInputContext()
    async with running(settings, context, seconds=2 * PATIENCE):
        name = (await context.listen(settings.endpoints[0])).getsockname()
        yield context, {"path": name, "port": 0} if isinstance(name, str) else {"port": name[1], "path": ""}


@asynccontextmanager
async def sending(command):
    sender = Running(command)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(never_fails, sender)
            yield sender
            nursery.cancel_scope.cancel()
    finally:
        sender.end(seconds=5)


async def never_fails(sender):
    while not sender.poll():  # noqa: ASYNC110 - a process sets no event
        await trio.sleep(0.1)
    sender.must_run()


def asked_for(name):
    sender, transport, *_ = name.split()
    program = "rsyslogd" if sender == "rsyslog" else sender
    module = ["rsyslog-openssl"] if (sender, transport) == ("rsyslog", "tls") else []
    return pytest.param(name, marks=pytest.mark.needs(program, *module))


@pytest.mark.parametrize("name", [asked_for(name) for name in SENDERS])
async def test_every_message_of_a_real_sender_comes_once(tmp_path, authority, name):
    scheme, prepare = SENDERS[name]
    (tmp_path / "in.log").write_text("".join(f"{text}\n" for text in TEXTS))
    async with (
        receiver(scheme, tmp_path, authority) as (context, place),
        sending(prepare(tmp_path, **place)) as sender,
    ):
        with trio.move_on_after(PATIENCE):
            await context.wait_for(COUNT)
        assert len(context.events) >= COUNT, sender.said
    of_app = [event for event in context.events if event.get("process", {}).get("name") == "app"]

    assert sorted(event["message"] for event in of_app) == TEXTS
    assert not [event for event in context.events if "tags" in event]
    host = socket.gethostname().partition(".")[0]
    assert {event.get("host", {}).get("name", host).partition(".")[0] for event in of_app} <= {host, "127"}
