"""Host names to addresses, without holding anybody up: a resolver that gets no answer hangs for half a minute.

The C library's call cannot be cancelled. It runs in a thread of its own, beside any limit on threads, and is left
behind where it takes too long: no other unit waits for it, and neither does the end of the process. All who want the
same name wait for one question, so there are as many threads as names without an answer, and at most `MOST_ASKED`. An
answer that came too late for those who asked is kept for the next one: a resolver that takes 6 s is slow, not dead.
"""

from __future__ import annotations

import socket
from typing import Any

import msgspec
import trio

from shipper.sdk.errors import forget_frames

RESOLVE_SECONDS = 5.0
MOST_ASKED = 256
"""Questions under way at once; more names are refused, not queued behind those that hang."""
_KEPT_SECONDS = 60.0

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""As of `socket.getaddrinfo`: family, type, protocol, canonical name, address."""

_Key = tuple[str, int]


class _Question(msgspec.Struct, eq=False):
    """What is asked of the resolver; `answered` is set once one of `found` and `error` is there."""

    began: float
    answered: trio.Event = msgspec.field(default_factory=trio.Event)
    found: list[AddressInfo] = msgspec.field(default_factory=list)
    error: OSError | None = None
    until: float = 0.0
    """When a late answer is asked for anew."""

    async def ask(self, host: str, flags: int) -> None:
        try:
            self.found = await trio.to_thread.run_sync(
                _look, host, 0, flags, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
        except OSError as error:
            forget_frames(error)
            self.error = error
        except UnicodeError:
            self.error = OSError(0, "this cannot be the name of a host")
        except RuntimeError as error:  # no thread can be started
            self.error = OSError(0, str(error))
        finally:
            now = trio.current_time()
            self.until = now + _KEPT_SECONDS if self.found and now - self.began > RESOLVE_SECONDS else now
            self.answered.set()

    def addresses(self, port: int) -> list[AddressInfo]:
        """Raises the error anew for each who asked."""
        if self.error is not None:
            raise type(self.error)(*self.error.args)
        return [(*info[:4], (info[4][0], port, *info[4][2:])) for info in self.found]


_asked: trio.lowlevel.RunVar[dict[_Key, _Question]] = trio.lowlevel.RunVar("questions for names")


async def resolve(host: str, port: int, *, flags: int = 0) -> list[AddressInfo]:
    """The addresses of a host, at least one; one that is an address already asks nobody. `flags` are `socket.AI_…`.

    Raises OSError, which says what is wrong in `strerror`; TimeoutError after RESOLVE_SECONDS.
    """
    try:
        return _look(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    except UnicodeError:
        raise OSError(0, "this cannot be the name of a host") from None
    question = _question(host, flags)
    with trio.move_on_after(RESOLVE_SECONDS):
        await question.answered.wait()
        return question.addresses(port)
    raise TimeoutError(0, f"no answer to the question for this name within {RESOLVE_SECONDS:g} s")


def _question(host: str, flags: int) -> _Question:
    """The one that is under way for this name, or whose late answer is still good; else a new one."""
    try:
        asked = _asked.get()
    except LookupError:
        asked = {}
        _asked.set(asked)
    now = trio.current_time()
    for key, question in list(asked.items()):
        if question.answered.is_set() and question.until <= now:
            del asked[key]
    found = asked.get((host, flags))
    if found is None:
        if len(asked) >= MOST_ASKED:
            raise OSError(0, f"{len(asked)} other names wait for an answer of the resolver")
        found = asked[host, flags] = _Question(now)
        trio.lowlevel.spawn_system_task(found.ask, host, flags, name=f"resolve {host}")
    return found


def _look(host: str, port: int, flags: int) -> list[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
