"""PUBLIC: connections for an output that speaks a protocol of its own, over TCP, TLS or a socket in the file system.

    stream = await open_stream(Endpoint("tcp", "logs.example", 514), tls, seconds=10)
    try:
        await stream.send_all(…)
    except (OSError, trio.BrokenResourceError) as error:
        raise broken_off("logs.example:514", error) from None
    finally:
        await trio.aclose_forcefully(stream)

*Closing is aborting*, as in `http`: from before the first byte on, SO_LINGER is {1, 0}, so the kernel delivers nothing
of what it still has, and the peer gets a reset. What was cancelled, or closed, sends nothing more, so the credential of
a connection may be released when it is closed. A connection whose `send_all` was cancelled is not to be used again.

Through a proxy the connection is a tunnel (CONNECT) that the proxy has made.

A library of asyncio takes a `connected_socket`, and has to abort its transport.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
from collections.abc import Callable
from weakref import WeakValueDictionary

import trio

from shipper.sdk.codes import Code
from shipper.sdk.descriptors import in_words, is_short
from shipper.sdk.endpoints import Endpoint
from shipper.sdk.errors import NotBegun, forget_frames
from shipper.sdk.http_answer import NoAnswer, Unreachable
from shipper.sdk.proxies import Proxy, status_of
from shipper.sdk.resolve import resolve
from shipper.sdk.tallies import Failure

CONNECT_SECONDS = 10.0
"""For a name, a connection and a handshake together, where nothing else is said."""
_LARGEST_HEAD = 16 << 10
RESET = struct.pack("ii", 1, 0)
"""Of SO_LINGER."""

_askers: WeakValueDictionary[str, trio.CapacityLimiter] = WeakValueDictionary()


async def open_stream(
    endpoint: Endpoint,
    tls: ssl.SSLContext | None = None,
    *,
    server_name: str | None = None,
    seconds: float = CONNECT_SECONDS,
    proxy: Proxy | None = None,
    may_begin: Callable[[], bool] = lambda: True,
) -> trio.abc.Stream:
    """A connection to an endpoint of streams, after the handshake if there is to be TLS; closing it is aborting it.

    `server_name` is asked for and checked instead of the endpoint's host. `may_begin` is asked before a proxy is shown
    its credential. Raises Unreachable, or NotBegun.
    """
    where = by_way_of(endpoint.address, proxy)
    with trio.move_on_after(seconds):
        stream = trio.SocketStream(await _connected(endpoint if proxy is None else proxy.endpoint, where))
        if proxy is not None:
            await _tunnelled(stream, endpoint.address, proxy, where, may_begin)
        return stream if tls is None else await _secured(stream, tls, server_name or endpoint.host, where)
    raise _late(where, seconds)


def by_way_of(where: str, proxy: Proxy | None) -> str:
    """Returns how a host is named in reasons, with its proxy."""
    return where if proxy is None else f"{where} by the proxy {proxy.address}"


async def connected_socket(endpoint: Endpoint, *, seconds: float = CONNECT_SECONDS) -> socket.socket:
    """A connected socket, non-blocking, that is aborted by being closed; raises Unreachable."""
    with trio.move_on_after(seconds):
        joined = await _connected(endpoint, endpoint.address)
        made = socket.socket(joined.family, joined.type, joined.proto, joined.detach())
        made.setblocking(False)
        return made
    raise _late(endpoint.address, seconds)


def _late(where: str, seconds: float) -> Unreachable:
    return Unreachable(f"{where}: no connection within {seconds:g}s", "timeout", Code.TIMED_OUT)


async def _connected(endpoint: Endpoint, where: str) -> trio.socket.SocketType:
    try:
        return await (_at_path(endpoint.path) if endpoint.path else _at_host(endpoint, where))
    except OSError as error:
        raise unreachable(where, error) from None


async def _at_host(endpoint: Endpoint, where: str) -> trio.socket.SocketType:
    """At the first address that takes it."""
    try:
        found = await resolve(endpoint.host, endpoint.port, flags=socket.AI_ADDRCONFIG)
    except OSError as error:
        said = f"{where}: {cause_of_name(error)}"
        raise Unreachable(said, "unreachable", Code.NAME_NOT_FOUND) from None
    last = OSError(0, "no address")
    for family, kind, protocol, _, address in found:
        made = trio.socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await made.connect(address)
        except OSError as error:
            made.close()
            last = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise last


async def _at_path(path: str) -> trio.socket.SocketType:
    """By a thread, which is left behind if the file system does not answer: one for each path at most."""
    limiter = _askers.setdefault(path, trio.CapacityLimiter(1))
    made = await trio.to_thread.run_sync(_joined, path, abandon_on_cancel=True, limiter=limiter)
    return trio.socket.from_stdlib_socket(made)


def _joined(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return made


async def _tunnelled(
    stream: trio.SocketStream, host: str, proxy: Proxy, where: str, may_begin: Callable[[], bool]
) -> None:
    """Makes the stream a tunnel to a host; aborts it if the proxy makes none."""
    try:
        if not may_begin():
            raise NotBegun("nothing may be sent now")
        await stream.send_all(proxy.opening(host))
        status = status_of(await _head(stream))
        if status is None:
            raise Unreachable(f"{where}: the answer is not HTTP", "broken", Code.BAD_ANSWER)
        if not 200 <= status < 300:
            raise Unreachable(f"{where}: the proxy answered {status}", "unreachable", Code.UNREACHABLE)
    except (OSError, trio.BrokenResourceError) as error:
        await trio.aclose_forcefully(stream)
        raise unreachable(where, error) from None
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


async def _head(stream: trio.SocketStream) -> bytes:
    """Returns the head of an answer, byte by byte: what follows it is the host's, which may speak first."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n") and len(head) < _LARGEST_HEAD and (byte := await stream.receive_some(1)):
        head += byte
    if not head:
        raise trio.BrokenResourceError
    return bytes(head) if head.endswith(b"\r\n\r\n") else b""


async def _secured(stream: trio.SocketStream, tls: ssl.SSLContext, name: str, where: str) -> trio.abc.Stream:
    secured = trio.SSLStream(stream, tls, server_hostname=name, https_compatible=True)
    try:
        await secured.do_handshake()
    except (OSError, trio.BrokenResourceError) as error:
        await trio.aclose_forcefully(stream)
        raise unreachable(where, error) from None
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return secured


# -- what went wrong ---------------------------------------------------------------------------------------------------


def unreachable(where: str, error: BaseException) -> Unreachable:
    """What a connection could not be made for, of an OSError or of what trio makes of one; that forgets its frames."""
    forget_frames(error)
    cause = _cause(error)
    if isinstance(cause, ssl.SSLError):
        kind: tuple[Failure, Code] = "tls", Code.TLS_FAILED
    else:
        short = isinstance(cause, OSError) and is_short(cause)
        kind = "unreachable", Code.NO_DESCRIPTORS if short else Code.UNREACHABLE
    return Unreachable(f"{where}: {cause_of(cause)}", *kind)


def broken_off(where: str, error: BaseException | None = None) -> NoAnswer:
    """What a connection ended for before its answer; None: the peer closed it. The error forgets its frames."""
    if error is not None:
        forget_frames(error)
    cause = _cause(error)
    is_tls = isinstance(cause, ssl.SSLError)
    kind: tuple[Failure, Code] = ("tls", Code.TLS_FAILED) if is_tls else ("broken", Code.NO_ANSWER)
    return NoAnswer(f"{where}: {cause_of(cause)}", *kind)


def cause_of(error: BaseException | None) -> str:
    """The cause in a few words, none of them the peer's."""
    match _cause(error):
        case ssl.SSLCertVerificationError() as cause:
            return f"certificate verify failed: {cause.verify_message}"
        case ssl.SSLError(reason=str(reason)):
            return f"TLS: {reason.lower().replace('_', ' ')}"
        case ssl.SSLError():
            return "TLS: failed"
        case OSError() as cause if is_short(cause):
            return in_words(cause)
        case OSError(errno=int(number)) if number:
            return os.strerror(number).lower()
        case OSError(strerror=str(said)) if said:
            return said
        case _:
            return "connection closed before the answer"


def cause_of_name(error: OSError) -> str:
    """What `resolve` raised, in a few words."""
    if isinstance(error, TimeoutError):
        return str(error.strerror)
    return f"name not found ({error.strerror or 'no answer'})"


def _cause(error: BaseException | None) -> BaseException | None:
    return error.__cause__ if isinstance(error, trio.BrokenResourceError) and error.__cause__ else error
