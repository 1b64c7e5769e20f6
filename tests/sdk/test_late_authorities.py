"""What plugins that use aiohttp by themselves meet, after shipper.sdk.http was imported: no difference."""

import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from tests.certificates import identity, pem

ASKING = """import asyncio, ssl, sys
from shipper.sdk import http
from shipper.sdk.late_authorities import LateContext
import aiohttp

made = [context for context in vars(aiohttp.connector).values() if isinstance(context, LateContext)]
print(len(made), sum(context.cert_store_stats()["x509_ca"] for context in made))

async def ask():
    async def answer(reader, writer):
        await reader.readuntil(b"\\r\\n\\r\\n")
        writer.write(b"HTTP/1.1 204 No Content\\r\\nConnection: close\\r\\n\\r\\n")
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(sys.argv[1])
    server = await asyncio.start_server(answer, "127.0.0.1", ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"https://127.0.0.1:{port}") as response:
                print(response.status)
        except aiohttp.ClientConnectorCertificateError as error:
            print(error.certificate_error.verify_message)

asyncio.run(ask())
"""


@pytest.mark.parametrize("is_trusted", [True, False])
def test_the_authorities_of_the_system_are_read_for_the_first_connection(tmp_path: Path, *, is_trusted: bool):
    server, other = trustme.CA(), trustme.CA()
    (tmp_path / "server").write_text("\n".join(identity(server, "127.0.0.1")))
    (tmp_path / "system").write_text(pem(server if is_trusted else other))
    (tmp_path / "none").mkdir()

    asked = subprocess.run(
        [sys.executable, "-c", ASKING, tmp_path / "server"],
        env={"SSL_CERT_FILE": str(tmp_path / "system"), "SSL_CERT_DIR": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    before, after = asked.stdout.splitlines()
    assert before == "2 0"
    assert after == "204" if is_trusted else "unable to get local issuer certificate" in after


def test_other_contexts_read_them_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import shipper.sdk.http  # noqa: F401

    (tmp_path / "system").write_text(pem(trustme.CA()))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system"))

    assert ssl.create_default_context().cert_store_stats()["x509_ca"] > 0
