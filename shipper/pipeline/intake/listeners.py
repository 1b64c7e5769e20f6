"""The listening sockets of the process: they belong to no input, so they stay open while inputs take turns on them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

from shipper.sdk.endpoints import Endpoint
from shipper.sdk.resolve import resolve
from shipper.sdk.sockets import Bound, as_start_failed, bind, refused

FILE_SECONDS = 5.0
"""Seconds that a file system may take for the file of a socket."""
MOST_THREADS = 8
"""Concurrent calls to file systems, with those that hang and were given up."""

_Place = tuple[str, str, int]
_T = TypeVar("_T")


class Listeners:
    """Sockets by their place. Port 0 means one free port for each name."""

    def __init__(self) -> None:
        self._bound: dict[_Place, Bound] = {}
        self._users: dict[_Place, set[int]] = {}
        self._threads = trio.CapacityLimiter(MOST_THREADS)
        self._files = trio.Lock()
        """Held while the file of a socket is made or removed, so that a new file is never removed."""
        self._leaving: dict[_Place, Bound] = {}
        """Released sockets that stay open until their files are removed, so that no other process replaces those
        meanwhile."""

    async def get(
        self, user: object, name: str, endpoint: Endpoint, *, mode: int | None = None, receive_buffer: int | None = None
    ) -> socket.socket:
        """Returns the socket of an endpoint; `user` holds it until `release`. Raises StartFailed.

        `mode` and `receive_buffer` also apply to a socket that is open already.
        """
        place = endpoint.place or (endpoint.scheme, f"{endpoint.host} {name}", 0)
        opening = partial(bind, endpoint, mode=mode, receive_buffer=receive_buffer)
        if endpoint.path:
            bound = await self._at_path(place, endpoint, opening, mode, receive_buffer)
        else:
            bound = await self._at_address(place, endpoint, opening, receive_buffer)
        self._users.setdefault(place, set()).add(id(user))
        return bound.socket

    async def _at_address(
        self, place: _Place, endpoint: Endpoint, opening: Callable[..., Bound], receive_buffer: int | None
    ) -> Bound:
        if place not in self._bound:
            family, address = await _resolved(endpoint)
            if place not in self._bound:
                self._bound[place] = opening(family, address)
                return self._bound[place]
        with as_start_failed(endpoint):
            self._bound[place].change(mode=None, receive_buffer=receive_buffer)
        return self._bound[place]

    async def _at_path(
        self,
        place: _Place,
        endpoint: Endpoint,
        opening: Callable[..., Bound],
        mode: int | None,
        receive_buffer: int | None,
    ) -> Bound:
        async with self._files:
            if place in self._leaving:
                self._bound[place] = self._leaving.pop(place)
            bound = self._bound.get(place)
            if bound is None:
                bound = self._bound[place] = await self._in_time(
                    endpoint, partial(opening, socket.AF_UNIX, endpoint.path), _discard
                )
            else:
                with as_start_failed(endpoint):
                    await self._in_time(
                        endpoint, partial(bound.change, mode=mode, receive_buffer=receive_buffer), lambda _: None
                    )
            return bound

    async def _in_time(self, endpoint: Endpoint, work: Callable[[], _T], discard: Callable[[_T], None]) -> _T:
        """Returns the result of `work` in a thread; raises StartFailed if that takes too long, and discards a late
        result."""
        given_up = threading.Event()

        def run() -> _T:
            result = work()
            if given_up.is_set():
                discard(result)
            return result

        try:
            with trio.move_on_after(FILE_SECONDS):
                return await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads)
        finally:
            given_up.set()
        raise refused(endpoint, f"its file system does not answer within {FILE_SECONDS:g} s")

    def release(self, user: object) -> None:
        """The user no longer needs its sockets; one that nobody holds is closed, and peers are refused."""
        for place, users in list(self._users.items()):
            users.discard(id(user))
            if not users:
                del self._users[place]
                bound = self._bound.pop(place)
                if bound.path:
                    self._leaving[place] = bound
                    trio.lowlevel.spawn_system_task(self._remove, place, name=f"remove {bound.path}")
                else:
                    bound.close()

    async def _remove(self, place: _Place) -> None:
        """Removes the file; where the file system hangs, the file stays until the next listener replaces it."""
        async with self._files:
            bound = self._leaving.pop(place, None)
            if bound is None:
                return
            try:
                with trio.move_on_after(FILE_SECONDS):
                    await trio.to_thread.run_sync(bound.remove, abandon_on_cancel=True, limiter=self._threads)
            finally:
                bound.close()


def _discard(bound: Bound) -> None:
    bound.remove()
    bound.close()


async def _resolved(endpoint: Endpoint) -> tuple[int, object]:
    """Returns the family and the address of its host."""
    host = endpoint.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    try:
        family, _, _, _, address = (await resolve(host, endpoint.port))[0]
    except OSError as error:
        raise refused(endpoint, error.strerror or "unknown host") from None
    return family, address
