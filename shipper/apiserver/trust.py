"""How the API server is verified, and the certificate for it: PEM texts, or files that are read when they are used.

A context is made in a thread, and one is kept for each content, so that a connection costs no parsing.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from functools import lru_cache

from shipper.sdk.errors import OptionError
from shipper.sdk.tls import ClientTls, Material, NotNow, client_context, load_identity


@dataclass(frozen=True, slots=True)
class Pem:
    """A PEM text, or a file with one."""

    where: str
    """The path of the file, or the place of the text in the configuration."""
    text: str | None = field(default=None, repr=False)

    def read(self) -> str:
        """Returns the text; raises ValueError in words. Blocks."""
        if self.text is not None:
            return self.text
        try:
            return Material.read(self.where).pem
        except ValueError as error:
            raise ValueError(f"{self.where}: {error}") from None


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's certificate and its key."""

    certificate: Pem
    key: Pem


@dataclass(frozen=True, slots=True)
class Trust:
    """What a connection to the server needs; `ca` None: the authorities of the system."""

    ca: Pem | None = None
    identity: Identity | None = None
    server_name: str | None = None
    """Asked for and checked instead of the host."""
    verify: bool = True

    def context(self, identity: Identity | None = None) -> ssl.SSLContext:
        """Returns the context of what the files hold now, with another identity if there is one.

        Raises ValueError in words. Blocks.
        """
        own = identity or self.identity
        pair = None if own is None else (own.certificate.read(), own.key.read())
        try:
            return _context(None if self.ca is None else self.ca.read(), pair, self.verify)
        except NotNow:
            raise
        except ValueError as error:
            places = [pem.where for pem in (self.ca, own and own.certificate, own and own.key) if pem]
            raise ValueError(f"{', '.join(places)}: {error}") from None

    def checked(self) -> Trust:
        """Returns itself; raises OptionError if no context can be made of it. Blocks."""
        try:
            self.context()
        except ValueError as error:
            raise OptionError(f"TLS to the API server: {error}") from None
        return self


@lru_cache(maxsize=8)
def _context(ca: str | None, identity: tuple[str, str] | None, verify: bool) -> ssl.SSLContext:
    authorities = None if ca is None else Material("", ca)
    context = client_context(ClientTls(ca=authorities, verification="full" if verify else "none"))
    context.set_alpn_protocols(["http/1.1"])
    if identity is not None:
        load_identity(context, *identity)
    return context
