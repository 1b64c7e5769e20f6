"""PUBLIC: the TLS settings of a policy, and the contexts made from them.

A policy names files; their bytes are read once, when the policy is validated, and belong to the plan from then on. So a
lane that drains after a restart uses the certificate authorities of its own revision, even if the file has changed, and
a changed file is a changed destination.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Literal

import msgspec

from shipper.sdk.credentials import API_KEY, BASIC, BEARER_TOKEN, CERTIFICATE, Credential
from shipper.sdk.descriptors import in_words

READ_SECONDS = 5.0
"""Bounded, since the shipper handles no other message while it reads a policy."""
_LARGEST = 1 << 20
_readers = threading.BoundedSemaphore(8)


class Material(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a PEM file when the policy was validated."""

    path: str
    pem: str

    @classmethod
    def read(cls, path: str) -> Material:
        """Reads a file; raises ValueError with the problem."""
        try:
            raw = _read_in_time(path)
        except OSError as error:
            where = "" if Path(path).is_absolute() else f"; a relative path counts from {Path.cwd()}"
            raise ValueError(f"cannot read this file: {error.strerror}{where}") from None
        if len(raw) > _LARGEST:
            raise ValueError("this file is larger than 1MiB")
        if b"-----BEGIN " not in raw:
            raise ValueError("this file holds no PEM block")
        return cls(path, raw.decode("ascii", "ignore"))


def _read_in_time(path: str) -> bytes:
    """Returns the content, truncated beyond the largest size; raises ValueError if the path is no file, and OSError.

    Raises TimeoutError if its file system does not answer; the reading thread is abandoned then, and the number of
    these is limited.
    """
    late = TimeoutError(0, f"its file system does not answer within {READ_SECONDS:g} s")
    answers: list[bytes | Exception] = []
    readers, is_read = _readers, threading.Event()

    def read() -> None:
        try:
            answers.append(_read(path))
        except Exception as error:
            answers.append(error)
        finally:
            is_read.set()
            readers.release()

    if not readers.acquire(timeout=READ_SECONDS):
        raise late
    try:
        threading.Thread(target=read, name="read PEM", daemon=True).start()
    except RuntimeError as error:  # no thread can be started
        readers.release()
        raise OSError(0, str(error)) from None
    if not is_read.wait(READ_SECONDS):
        raise late
    (found,) = answers
    if isinstance(found, Exception):
        raise found
    return found


def _read(path: str) -> bytes:
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError("this path is not a file")
    with Path(path).open("rb") as file:
        return file.read(_LARGEST + 1)


class ClientTls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an output verifies its server."""

    ca: Material | None = None
    """PEM file of the authorities to trust (default: those of the system)."""
    server_name: str | None = None
    """Name to ask for and to check instead of the host's."""
    verification: Literal["full", "certificate", "none"] = "full"
    """`certificate` checks the chain but not the name; `none` checks nothing and is for tests only."""


def client_context(
    tls: ClientTls, credential: Credential | None = None, *, trusts_nobody: bool = False
) -> ssl.SSLContext:
    """Returns the context for connections to a server; raises ValueError for bad material.

    With `trusts_nobody` it has no authority, not even those of the system; the caller adds one.
    """
    try:
        context = (
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if trusts_nobody
            else ssl.create_default_context(cadata=None if tls.ca is None else tls.ca.pem)
        )
        if tls.verification != "full":
            context.check_hostname = False
        if tls.verification == "none":
            context.verify_mode = ssl.CERT_NONE
        if credential is not None and credential.fits(CERTIFICATE):
            load_identity(context, credential.fields["certificate"], credential.fields["key"])
    except ssl.SSLError as error:
        raise ValueError(f"bad TLS material: {error.reason or 'not a certificate'}") from None
    return context


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Returns the context of a listener, from PEM texts; raises ValueError for bad material."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake costs a server ten times as much as its client
    load_identity(context, certificate, key)
    return context


class NotNow(ValueError):
    """The material could not be checked, for lack of a descriptor or memory."""


def check_identity(certificate: str, key: str) -> None:
    """Raises ValueError unless these PEM texts are a certificate and its key; takes OpenSSL about a millisecond."""
    load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, key)


def check_usable(credential: Credential) -> None:
    """Raises ValueError for a credential of a built-in shape that no connection could use: a certificate with another
    key or an encrypted one, a text that no header takes. Raises NotNow if that could not be checked."""
    if credential.fits(CERTIFICATE):
        check_identity(credential.fields["certificate"], credential.fields["key"])
    elif credential.fits(API_KEY, BASIC, BEARER_TOKEN):
        credential.authorization()


def load_identity(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Loads a certificate and its key into `context`, from PEM texts; raises ValueError if they do not fit.

    OpenSSL reads them only from a path: an anonymous file in memory (`/proc/self/fd`), never one on disk.
    """
    text = f"{certificate}\n{key}\n".encode()
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
            try:
                os.write(descriptor, text)
                context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
            finally:
                os.close(descriptor)
        else:
            with tempfile.NamedTemporaryFile() as file:
                file.write(text)
                file.flush()
                context.load_cert_chain(file.name, password=_no_password)
    except ssl.SSLError as error:
        raise ValueError(f"bad TLS material: {error.reason or 'not a PEM certificate with its key'}") from None
    except OSError as error:
        raise NotNow(f"TLS material cannot be looked at now: {in_words(error)}") from None


def _no_password() -> str:
    raise ValueError("bad TLS material: the key is encrypted")
