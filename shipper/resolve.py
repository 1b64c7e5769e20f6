"""Host names to addresses, without holding anybody up: a resolver that gets no answer hangs for half a minute.

The C library's call cannot be cancelled. It runs in a thread of its own, beside any limit on threads, and is left
behind where it takes too long: no other unit waits for it, and neither does the end of the process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

RESOLVE_SECONDS = 5.0

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""As of `socket.getaddrinfo`: family, type, protocol, canonical name, address."""


async def resolve(host: str, port: int) -> list[AddressInfo]:
    """Where to bind for a host, at least one address; one that is an address already asks nobody.

    Raises OSError, which says what is wrong in `strerror`.
    """
    look: Callable[..., list[Any]] = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        return look(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    except UnicodeError:
        raise OSError(0, "this cannot be the name of a host") from None
    with trio.move_on_after(RESOLVE_SECONDS):
        return await trio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))
    raise TimeoutError(0, f"no answer to the question for this name within {RESOLVE_SECONDS:g} s")
