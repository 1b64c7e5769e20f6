"""The keys of the demo, and whether a door takes them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import trio

from shipper.plugin import Credential

_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: its name is no secret."""

    name: str
    secret: str = field(repr=False)

    @classmethod
    def drawn(cls, name: str) -> Key:
        """A new one."""
        return cls(name, secrets.token_urlsafe(24))

    @property
    def text(self) -> str:
        """As it stands in a key file."""
        return f"{self.name}:{self.secret}"

    @property
    def authorization(self) -> str:
        """As requests show it."""
        return Credential.parse({"api_key": self.text}).authorization()


async def answer_to(key: Key, port: int, request: str = "GET /") -> int:
    """The HTTP status of a request with this key to a port of loopback, made just now."""
    head = f"{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {key.authorization}\r\n"
    with trio.fail_after(_PATIENCE):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while b"\r\n" not in answer and (chunk := await stream.receive_some(4096)):
                answer += chunk
    return int(answer.split(b" ", 2)[1])
