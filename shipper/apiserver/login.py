"""The credential of a client while it is used: tokens that are read anew, and the output of a program.

A token in a file is read again after a minute, and when the server has refused it: the kubelet replaces it long before
it expires. One that cannot be read any more leaves the last one in use, since the server is the judge of that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import trio

from shipper.apiserver.credentials import Command, Credential, FileToken, FixedToken
from shipper.apiserver.errors import Unauthorized
from shipper.apiserver.program import NEVER, run
from shipper.apiserver.trust import Identity
from shipper.process import log
from shipper.process.environment import Environment

READ_SECONDS = 60.0
"""The longest time for which a token is used without a look at its file."""
_LARGEST = 64 << 10


@dataclass(frozen=True, slots=True)
class Held:
    """What a request is made with."""

    token: str = field(default="", repr=False)
    identity: Identity | None = None
    """Of the program; None: that of the configuration."""
    until: float = NEVER
    """When another one is to be asked for, by trio's clock."""


class Login:
    """One for a client; who asks while the credential is being obtained waits for it."""

    def __init__(self, credential: Credential, environment: Environment) -> None:
        self._credential = credential
        self._environment = environment
        self._held: Held | None = None
        self._lock = trio.Lock()
        self._reader = trio.CapacityLimiter(1)

    @property
    def can_renew(self) -> bool:
        """Whether a refused credential may be followed by another one."""
        return isinstance(self._credential, FileToken | Command)

    async def held(self, *, refused: Held | None = None) -> Held:
        """Returns the credential; with `refused`, it was read after that one was used. Raises Unauthorized."""
        async with self._lock:
            held = self._held
            if held is None or held is refused or trio.current_time() >= held.until:
                self._held = held = await self._obtained(held)
            return held

    async def _obtained(self, last: Held | None) -> Held:
        match self._credential:
            case FileToken(path):
                return await self._read(path, last)
            case FixedToken(token):
                log.hide(token)
                return Held(token)
            case Command() as command:
                found = await run(command, self._environment)
                return Held(found.token, found.identity, found.until)
        return Held()

    async def _read(self, path: str, last: Held | None) -> Held:
        until = trio.current_time() + READ_SECONDS
        try:
            text = await self._environment.in_thread(_text, path, abandon_on_cancel=True, limiter=self._reader)
        except (OSError, ValueError) as error:
            if last is not None:
                return Held(last.token, until=until)
            cause = error.strerror if isinstance(error, OSError) else str(error)
            raise Unauthorized(f"the token for the API server: {path}: {cause}") from None
        log.hide(text)
        return Held(text, until=until)


def _text(path: str) -> str:
    with Path(path).open("rb") as file:
        raw = file.read(_LARGEST)
    text = raw.decode("ascii", "replace").strip()
    if not text or not text.isprintable() or not text.isascii() or " " in text:
        raise ValueError("this file holds no token")
    return text
