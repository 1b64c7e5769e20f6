"""Programs that print a credential (client.authentication.k8s.io): `exec` of a kubeconfig.

A program has no terminal, so it cannot ask anybody, and has SECONDS. What it writes to its standard error is not
shown, since it may be part of a credential; who runs it by hand sees it.
"""

from __future__ import annotations

import math
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import trio

from shipper.apiserver.credentials import Command
from shipper.apiserver.errors import Unauthorized
from shipper.apiserver.trust import Identity, Pem
from shipper.process import log
from shipper.process.environment import Environment
from shipper.sdk import descriptors

SECONDS = 30.0
NEVER = math.inf
EARLY_SECONDS = 10.0
"""How long before its end another credential is asked for."""
_LARGEST = 1 << 20


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Printed(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    status: _Status


@dataclass(frozen=True, slots=True)
class Obtained:
    """A credential of a program, good until an instant of trio's clock."""

    token: str = field(repr=False)
    identity: Identity | None
    until: float


async def run(command: Command, environment: Environment) -> Obtained:
    """Runs the program once; raises Unauthorized. A cancel kills it."""
    output = b""
    try:
        with trio.move_on_after(SECONDS) as scope:
            output = await _output(command)
    except OSError as error:
        hint = f"; {log.printable(command.hint)}" if command.hint else ""
        raise _failed(command, f"{descriptors.in_words(error)}{hint}") from None
    if scope.cancelled_caught:
        raise _failed(command, f"it has printed no credential within {SECONDS:g} s")
    return _obtained(command, output, environment)


async def _output(command: Command) -> bytes:
    process = await trio.lowlevel.open_process(
        [command.command, *command.arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **command.environment, "KUBERNETES_EXEC_INFO": _told(command)},
        start_new_session=True,
    )
    descriptors.give_back(process.pid)
    assert process.stdout is not None
    found = bytearray()
    try:
        while len(found) <= _LARGEST and (block := await process.stdout.receive_some(1 << 16)):
            found += block
        if len(found) > _LARGEST:
            raise _failed(command, "it printed more than 1 MiB")
        if status := await process.wait():
            raise _failed(command, f"exit status {status}; run it by hand to see why")
    finally:
        with trio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await trio.aclose_forcefully(process.stdout)
    return bytes(found)


def _told(command: Command) -> str:
    cluster = {} if command.cluster is None else {"cluster": dict(command.cluster)}
    told = {"kind": "ExecCredential", "apiVersion": command.api_version, "spec": {"interactive": False, **cluster}}
    return msgspec.json.encode(told).decode()


def _obtained(command: Command, output: bytes, environment: Environment) -> Obtained:
    try:
        printed = msgspec.json.decode(output, type=_Printed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _failed(command, "what it printed is no ExecCredential") from None
    status = printed.status
    if printed.kind != "ExecCredential" or printed.api_version != command.api_version:
        raise _failed(command, f"what it printed is no ExecCredential of {command.api_version}")
    if bool(status.client_certificate_data) is not bool(status.client_key_data):
        raise _failed(command, "it printed one of clientCertificateData and clientKeyData without the other")
    if not status.token and not status.client_certificate_data:
        raise _failed(command, "it printed neither a token nor a certificate")
    if not status.token.isascii() or not status.token.isprintable():
        raise _failed(command, "it printed a token that cannot be sent")
    log.hide(status.token)
    identity = None
    if status.client_certificate_data:
        where = f"the output of {command.command}"
        identity = Identity(Pem(where, status.client_certificate_data), Pem(where, status.client_key_data))
    return Obtained(status.token, identity, _until(status.expiration_timestamp, environment))


def _until(end: datetime | None, environment: Environment) -> float:
    if end is None:
        return NEVER
    left = (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp() - environment.wall()
    return trio.current_time() + max(0.0, left - EARLY_SECONDS)


def _failed(command: Command, problem: str) -> Unauthorized:
    return Unauthorized(f"{command.where}: {command.command}: {problem}")
