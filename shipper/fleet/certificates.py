"""Follows the certificate with which a member answers over HTTP, so that a renewed one needs no restart.

A pair that does not fit leaves the previous one in use, and is a trouble until it fits: certificate and key are seldom
replaced in one instant.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import trio

from shipper.sdk.tls import Material, server_context
from shipper.supervise.watch import Watch

AGAIN_SECONDS = 10.0
"""After which a pair that does not fit is read again: no change of a file shows that descriptors are free again."""
_readers = trio.CapacityLimiter(1)

Pair = tuple[Material, Material]


async def renewals(
    certificate: Material, key: Material, trouble: Callable[[str | None], None]
) -> AsyncGenerator[ssl.SSLContext]:
    """Yields a context for each pair that replaces this one in its files; never ends.

    `trouble` is called with the reason while the files hold none, and with None at its end.
    """
    paths = [Path(certificate.path), Path(key.path)]
    known = certificate, key
    with Watch() as watch:
        watch.follow(paths)
        while True:
            seconds = math.inf
            try:
                renewed = await trio.to_thread.run_sync(_renewed, known, abandon_on_cancel=True, limiter=_readers)
            except ValueError as error:
                trouble(f"{error}; the previous certificate is used")
                seconds = AGAIN_SECONDS
            else:
                trouble(None)
                if renewed is not None:
                    known, context = renewed
                    yield context
            if not watch.follow(paths):
                with trio.move_on_after(seconds):
                    await watch.changed()


def _renewed(known: Pair) -> tuple[Pair, ssl.SSLContext] | None:
    """Returns the pair that is in the files of `known` now, with its context; None if it is the same.

    Raises ValueError with the files and the problem.
    """
    certificate, key = found = _material(known[0].path), _material(known[1].path)
    if found == known:
        return None
    try:
        return found, server_context(certificate.pem, key.pem)
    except ValueError as error:
        raise ValueError(f"{certificate.path} and {key.path}: {error}") from None


def _material(path: str) -> Material:
    try:
        return Material.read(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
