"""What a principal says before anything is relayed, and that it notices nothing of being asked."""

import pytest
from multidict import CIMultiDict

from shipper.plugin import Credential, OutputContext
from shipper.plugin.asking import Question
from shipper.sdk.aio import open_asyncio
from shipper.sdk.http_answer import Response
from shipper_plugins.relay.edge.asked import _read
from shipper_plugins.relay.output import RelayOutput
from tests.plugins.relay.pair import KEYS, edge, entry, principal


async def findings(aio, url, secret):
    told = []
    output = RelayOutput(name="berlin", hosts=(url, "http://127.0.0.1:1"), credential="k1")
    await output.ask(OutputContext("main", aio, {"k1": secret}), Question(), told.append)
    return [(finding.asked, finding.verdict) for finding in told], told


async def test_a_principal_knows_the_credential_of_an_edge():
    async with open_asyncio() as aio, principal(aio) as door:
        found, told = await findings(aio, door.url, KEYS["k1"])

    assert found == [("address", "good"), ("login", "good"), ("destination", "good"), ("address", "bad")]
    assert told[-1].of == "127.0.0.1:1"


async def test_a_principal_does_not_know_another_credential():
    other = Credential.parse({"api_key": "who:hunter2"})
    async with open_asyncio() as aio, principal(aio) as door:
        found, told = await findings(aio, door.url, other)

    assert found[:2] == [("address", "good"), ("login", "bad")]
    assert "hunter2" not in repr(told)


async def test_asking_ends_no_session_of_a_running_shipper():
    async with open_asyncio() as aio, principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(1))
        session = sender._sessions.current
        found, _ = await findings(aio, door.url, KEYS["k1"])
        await sender.send(entry(2))

        assert found[1] == ("login", "good")
        assert door.numbers == [1, 2]
        assert sender._sessions.current is session is not None


@pytest.mark.parametrize(("status", "of", "verdict"), [(429, "destination", "unknown"), (200, "destination", "bad")])
def test_what_answers_as_no_principal_does_is_none(status, of, verdict):
    (finding,) = _read(Response(status, CIMultiDict(), b""), "127.0.0.1:1")

    assert (finding.asked, finding.verdict) == (of, verdict)
