"""aiohttp, imported without the certificate authorities of the system: 50 ms and 2 MB of every start.

It reads them twice when it is imported, for clients that say nothing of TLS, and for those that trust everybody. Ours
say whom they trust (`sdk/http.py`), and often a policy names the authority. So they are read when such a context is
used for the first time: for another plugin that uses aiohttp nothing changes.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LateContext(ssl.SSLContext):
    """An ordinary context from its first connection on, before which it reads the authorities."""

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        self._read()
        return self.wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        self._read()
        return self.wrap_socket(*args, **options)

    def _read(self) -> None:
        self.set_default_verify_paths()
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]


@contextmanager
def _late() -> Iterator[None]:
    """Contexts that this thread makes within the block read the authorities late; those of other threads do not."""
    read, here = ssl.SSLContext.set_default_verify_paths, threading.get_ident()

    def later(context: ssl.SSLContext) -> None:
        if threading.get_ident() == here:
            context.__class__ = LateContext
        else:
            read(context)

    ssl.SSLContext.set_default_verify_paths = later  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        ssl.SSLContext.set_default_verify_paths = read  # type: ignore[method-assign]


with _late():  # one thread at a time, as every import
    import aiohttp as aiohttp
