"""Programs that print a credential, run as real programs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.apiserver import program
from shipper.apiserver.credentials import Command
from shipper.apiserver.errors import Unauthorized
from shipper.apiserver.program import NEVER, run
from shipper.process.environment import REAL
from tests.apiserver.server import THINGS, Exchange, client_of, scripted, thing

V1 = "client.authentication.k8s.io/v1"


def command(script: str, **environment: str) -> Command:
    return Command(sys.executable, ("-c", script), V1, environment, "config: users[u].user.exec", "pip install it")


def printing(status: dict[str, Any], version: str = V1) -> Command:
    return command(f"print({json.dumps({'kind': 'ExecCredential', 'apiVersion': version, 'status': status})!r})")


async def test_a_program_is_told_that_nobody_can_be_asked_and_prints_a_token():
    script = (
        "import json, os; told = json.loads(os.environ['KUBERNETES_EXEC_INFO']); "
        "assert told['spec'] == {'interactive': False}; "
        "told['status'] = {'token': os.environ['TOKEN']}; print(json.dumps(told))"
    )

    found = await run(command(script, TOKEN="t-1"), REAL)

    assert (found.token, found.identity, found.until) == ("t-1", None, NEVER)


async def test_a_credential_with_an_end_is_asked_for_anew_before_it():
    found = await run(printing({"token": "t", "expirationTimestamp": "2100-01-01T00:00:00Z"}), REAL)

    assert trio.current_time() < found.until < NEVER


async def test_a_program_may_print_a_certificate():
    found = await run(printing({"clientCertificateData": "CERT", "clientKeyData": "KEY"}), REAL)

    assert found.identity is not None
    assert (found.identity.certificate.read(), found.identity.key.read()) == ("CERT", "KEY")


async def test_a_program_that_gives_no_credential_is_named_with_its_place():
    for of, problem in [
        (command("raise SystemExit(3)"), "exit status 3; run it by hand to see why"),
        (command("print('no json')"), "no ExecCredential"),
        (command("print('x' * (2 << 20))"), "more than 1 MiB"),
        (printing({}), "neither a token nor a certificate"),
        (printing({"token": "a\nb"}), "a token that cannot be sent"),
        (printing({"clientKeyData": "KEY"}), "one of clientCertificateData and clientKeyData"),
        (printing({"token": "t"}, "client.authentication.k8s.io/v1beta1"), "no ExecCredential of"),
        (Command("/none/login", (), V1, {}, "config: users[u].user.exec", "see docs"), "No such file.*; see docs"),
    ]:
        with pytest.raises(Unauthorized, match=r"^config: users\[u\]\.user\.exec: .*" + problem):
            await run(of, REAL)


async def test_a_program_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program, "SECONDS", 1.0)
    file = tmp_path / "pid"

    with pytest.raises(Unauthorized, match="no credential within 1 s"):
        await run(command(f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"), REAL)

    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


async def test_a_client_uses_what_a_program_prints_and_runs_it_again_when_that_is_refused(tmp_path: Path):
    count = tmp_path / "count"
    script = (
        f"import json; open({str(count)!r}, 'a').write('x'); n = len(open({str(count)!r}).read()); "
        f"print(json.dumps({{'kind': 'ExecCredential', 'apiVersion': {V1!r}, 'status': {{'token': f't-{{n}}'}}}}))"
    )

    async def talk(exchange: Exchange) -> None:
        if exchange.asked.headers["authorization"] == "Bearer t-2":
            await exchange.answer(thing("a", 7))
        else:
            await exchange.refuse(401, "Unauthorized")

    async with scripted(talk) as server, client_of(server, command(script)) as client:
        await client.get(THINGS, "a")
        await client.get(THINGS, "a")

    assert count.read_text() == "xx"
