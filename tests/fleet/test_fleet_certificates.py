"""Renewed certificates of a member's address, in real files."""

import ssl
from contextlib import aclosing

import pytest
import trio
import trustme

from shipper.fleet.certificates import renewals
from shipper.membership.door import Door
from shipper.membership.http import serve
from shipper.sdk.tls import Material, server_context
from tests.fleet.hosts import until
from tests.membership.test_membership_http import Asked, connected

PATIENCE = 60
AUTHORITY = trustme.CA()


class Files:
    """A certificate and its key, which a test renews."""

    def __init__(self, directory):
        self.certificate, self.key = directory / "tls.crt", directory / "tls.key"
        self.troubles = []
        self.first = self.renew()

    def renew(self):
        made = AUTHORITY.issue_cert("127.0.0.1")
        put(self.key, made.private_key_pem.bytes())
        put(self.certificate, b"".join(blob.bytes() for blob in made.cert_chain_pems))
        return Material.read(str(self.certificate)), Material.read(str(self.key))

    def followed(self):
        return aclosing(renewals(*self.first, self.troubles.append))


def put(path, content):
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.rename(path)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def serial(stream):
    return stream.getpeercert()["serialNumber"]


async def test_a_renewed_certificate_is_yielded_once(files):
    async with files.followed() as contexts:
        with trio.fail_after(PATIENCE):
            files.renew()
            context = await anext(contexts)
            with trio.move_on_after(0.2) as again:
                await anext(contexts)

    assert isinstance(context, ssl.SSLContext)
    assert again.cancelled_caught


async def test_a_certificate_without_its_key_is_a_trouble_until_the_key_is_there(files):
    other = AUTHORITY.issue_cert("127.0.0.1")
    put(files.certificate, other.cert_chain_pems[0].bytes())
    async with files.followed() as contexts, trio.open_nursery() as nursery:
        with trio.fail_after(PATIENCE):
            nursery.start_soon(anext, contexts)
            await until(lambda: files.troubles)
            first = files.troubles[0]
            put(files.key, other.private_key_pem.bytes())

    assert str(files.certificate) in first
    assert "the previous certificate is used" in first
    assert files.troubles[-1] is None


async def test_a_file_that_is_gone_is_a_trouble_that_names_it(files):
    files.key.unlink()
    async with files.followed() as contexts:
        with trio.move_on_after(0.2):
            await anext(contexts)

    assert files.troubles[0].startswith(f"{files.key}: cannot read this file")


async def test_a_member_answers_with_its_renewed_certificate_and_ends_idle_connections_of_the_previous_one(files):
    certificate, key = files.first
    door = Door("127.0.0.1", server_context(certificate.pem, key.pem))
    tls = ssl.create_default_context()
    AUTHORITY.configure_trust(tls)
    asked = Asked()
    with trio.fail_after(PATIENCE):
        async with (
            files.followed() as contexts,
            serve("127.0.0.1:0", door, asked, lambda: None, contexts) as address,
            connected(address, tls) as idle,
            connected(address, tls) as waiting,
        ):
            await idle.get("/fleet/members")
            await waiting.send("/fleet/wait")
            await asked.begun.wait()
            files.renew()
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await idle.some()
            asked.free.set()
            answered, _, _ = await waiting.answer()
            async with connected(address, tls) as new:
                status, _, _ = await new.get("/fleet/members")
                serials = serial(waiting.stream), serial(new.stream)

    assert (answered, status) == (200, 200)
    assert serials[0] != serials[1]
