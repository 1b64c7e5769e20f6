"""What docs/rotating.md says of API keys and of certificates; tests/backends/test_rotating_page.py has the rest."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import trio

from shipper.sdk.aio import open_asyncio
from shipper.testing import open_destination
from tests.docs.reader import ACCESS, NEW, OLD, PATIENCE, TLS, environment, furnish, running, shell, until
from tests.readme import FILES, Block, Page

PAGE = Page("docs/rotating.md")
CURL = """#!/bin/sh
echo "$@" >> "$HOME/curl.log"
case "$*" in
  *DELETE*) ;;
  *) echo '{"id":"key2","name":"shipper","api_key":"s3cret","encoded":"a2V5MjpzM2NyZXQ="}' ;;
esac
"""
AUTHORITY = """
[ca]
default_ca = own
[own]
dir = {place}
new_certs_dir = {place}
database = {place}/index.txt
serial = {place}/serial
certificate = {place}/authority.crt
private_key = {place}/authority.key
default_md = sha256
default_days = 2
default_crl_days = 1
policy = any
[any]
commonName = supplied
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    furnish(tmp_path, PAGE.files)
    (tmp_path / "keys").mkdir(mode=0o700)
    for path in tmp_path.iterdir():
        if path.is_file() and path.read_bytes().startswith(b"#!"):
            path.chmod(0o755)
    return tmp_path


async def test_a_key_is_made_taken_and_the_old_one_revoked(place: Path) -> None:
    """By README's policy; the backend's API is played by `curl`."""
    (place / "policy.yaml").write_text(FILES["policy.yaml"])
    (place / "api-key.json").write_text(FILES["api-key.json"])
    (place / "bin/curl").write_text(CURL)
    (place / "keys/es").write_text(OLD.fields["api_key"])
    (place / "keys/es").chmod(0o600)
    command = "shipper supervise policy.yaml --config supervise-elasticsearch.yaml --state ./state\n"
    async with open_asyncio() as aio, open_destination(aio, keys={OLD, NEW}, tls=TLS) as destination:
        env = environment(place, NGINX_LOG=str(place / "access.log"), ES_URL=destination.url)
        with running(place, Block("sh", "background", command), env) as output:
            output.start()
            with trio.fail_after(PATIENCE):
                await destination.wait_for(5)
            await shell(place, "./rotate-key", env)
            await until(lambda: "on_release done" in output.text)
            destination.keys = {NEW}
            with (place / "access.log").open("a") as log:
                log.write(ACCESS)
            with trio.fail_after(PATIENCE):
                await destination.wait_for(6)

    assert destination.refused == 0
    assert (place / "curl.log").read_text().splitlines()[-1].endswith('{"ids": ["key1"]}')
    assert (place / "keys/es").stat().st_mode & 0o777 == 0o600


@pytest.mark.needs("openssl")
async def test_a_certificate_is_replaced_and_the_old_one_revoked_by_its_authority(place: Path) -> None:
    """The destination need not be there: nothing is queued under the old one, and nothing waits for the new one."""
    with (place / "supervise-certificate.yaml").open("a") as config:
        config.write("release_when: at_once\n")
    _make_authority(place)
    for name in ("one", "two", "three"):
        _sign(place, name)
    env = environment(place, ES_URL="https://127.0.0.1:1")
    first, second = PAGE.shell("certificate")
    await shell(place, first.text, env)
    with running(place, PAGE.one("sh", "certificate background"), env) as output:
        output.start()
        await until(lambda: "revision 1 drained" in output.text)
        await shell(place, second.text, env)
        await until(lambda: "on_release done" in output.text)

        assert _revoked(place) == ["one"]
        await shell(place, "./rotate-certificate three.crt three.key", env)
        await until(lambda: output.text.count("on_release done") == 2)

    assert _revoked(place) == ["one", "two"]
    assert (place / "crl.pem").read_text().startswith("-----BEGIN X509 CRL")
    assert list((place / "retired").iterdir()) == []


def _make_authority(place: Path) -> None:
    (place / "ca.cnf").write_text(AUTHORITY.format(place=place))
    (place / "index.txt").touch()
    (place / "serial").write_text("01\n")
    made = "-x509 -days 2 -keyout authority.key -out authority.crt -subj /CN=authority"
    _openssl(place, f"req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes {made}")


def _sign(place: Path, name: str) -> None:
    made = f"-keyout {name}.key -out {name}.csr -subj /CN={name}"
    _openssl(place, f"req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes {made}")
    _openssl(place, f"ca -batch -config ca.cnf -notext -in {name}.csr -out {name}.crt")


def _openssl(place: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=place, check=True, capture_output=True, env=os.environ)


def _revoked(place: Path) -> list[str]:
    lines = (place / "index.txt").read_text().splitlines()
    return [re.split("CN ?= ?", line)[1] for line in lines if line.startswith("R")]
