"""TLS contexts, proved by handshakes in memory."""

from __future__ import annotations

import errno
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from shipper.sdk import tls
from shipper.sdk.tls import ClientTls, Material, NotNow, check_identity, client_context, server_context
from tests.certificates import credential, identity, pem, trust

_CA = trustme.CA()
_OTHER_CA = trustme.CA()


_SERVER = identity(_CA, "es-1.test")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after the handshake; raises what either side raises."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends


# -- clients -----------------------------------------------------------------------------------------------------------


def test_a_server_of_the_named_authority_is_trusted() -> None:
    client, _ = shake_hands(client_context(trust(_CA)), server_context(*_SERVER), "es-1.test")

    assert client.version() == "TLSv1.3"


def test_a_client_cannot_ask_a_listener_for_one_handshake_after_the_other() -> None:
    """OpenSSL 3 permits none by itself, earlier ones do."""
    assert server_context(*_SERVER).options & ssl.OP_NO_RENEGOTIATION


def test_a_server_of_another_authority_is_not() -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake_hands(client_context(trust(_OTHER_CA)), server_context(*_SERVER), "es-1.test")


def test_without_an_authority_those_of_the_system_are_trusted_and_no_other() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client_context(ClientTls()), server_context(*_SERVER), "es-1.test")


def test_a_server_of_another_name_is_refused() -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(client_context(trust(_CA)), server_context(*_SERVER), "es-2.test")


def test_verification_of_the_certificate_alone_takes_any_name_and_no_other_authority() -> None:
    shake_hands(client_context(trust(_CA, verification="certificate")), server_context(*_SERVER), "es-2.test")

    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client_context(trust(_OTHER_CA, verification="certificate")), server_context(*_SERVER), "x")


def test_verification_none_takes_all() -> None:
    shake_hands(client_context(ClientTls(verification="none")), server_context(*_SERVER), "anything")


def test_a_client_certificate_is_shown_to_the_server() -> None:
    context = server_context(*_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=pem(_CA))

    _, server = shake_hands(client_context(trust(_CA), credential(_CA, "shipper-1")), context, "es-1.test")

    shown = server.getpeercert()
    assert shown is not None
    assert (("commonName", "shipper-1"),) in shown["subject"]


# -- bad material ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n",
        _SERVER[1],
    ],
)
def test_an_authority_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"TLS|cadata"):
        client_context(ClientTls(ca=Material("ca.pem", text)))


def _encrypted() -> str:
    key = serialization.load_pem_private_key(_SERVER[1].encode(), None)
    kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(kind, form, serialization.BestAvailableEncryption(b"hunter2")).decode()


@pytest.mark.parametrize(
    ("certificate", "key"),
    [
        (_SERVER[0], identity(_CA, "es-1.test")[1]),
        (_SERVER[0], "no key"),
        ("no certificate", _SERVER[1]),
        (_SERVER[0], _encrypted()),
    ],
    ids=["of another", "no key", "no certificate", "encrypted"],
)
def test_an_identity_that_does_not_fit_is_refused_without_showing_it(certificate: str, key: str) -> None:
    with pytest.raises(ValueError, match="bad TLS material") as error:
        server_context(certificate, key)

    assert not any(line and line in str(error.value) for line in key.splitlines())


@pytest.fixture
def _nothing_left_open() -> Iterator[None]:
    before = len(os.listdir("/dev/fd"))
    yield
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.usefixtures("_nothing_left_open")
def test_a_private_key_is_never_a_file_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))

    server_context(*_SERVER)
    with pytest.raises(ValueError):
        server_context("no", "no")


# -- files -------------------------------------------------------------------------------------------------------------


def test_material_is_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(pem(_CA))
    material = Material.read(str(file))
    file.write_text(pem(_OTHER_CA))

    assert material == Material(str(file), pem(_CA))


def test_a_bundle_may_have_comments_in_any_script(tmp_path: Path) -> None:
    """Those that distributions ship name their authorities in UTF-8, or Latin-1."""
    file = tmp_path / "ca.pem"
    file.write_bytes("# NetLock Arany (Class Gold) Főtanúsítvány\n".encode() + b"# \xff\n" + pem(_CA).encode())

    context = client_context(ClientTls(ca=Material.read(str(file))))

    shake_hands(context, server_context(*_SERVER), "es-1.test")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"nothing", "holds no PEM block"), (b"-----BEGIN X-----" + b"x" * (1 << 20), "larger than 1MiB")],
)
def test_a_file_that_is_no_pem_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(content)

    with pytest.raises(ValueError, match=message):
        Material.read(str(file))


def test_a_relative_path_that_is_missing_says_from_where_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"No such file or directory; a relative path counts from {tmp_path}$"):
        Material.read("none.pem")


def test_material_that_cannot_be_looked_at_is_not_called_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_descriptors(*arguments: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "memfd_create", without_descriptors)
    with pytest.raises(NotNow, match="cannot be looked at now: Too many open files"):
        check_identity("certificate", "key")


def test_a_file_whose_file_system_hangs_is_refused_in_time_however_often_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls, "READ_SECONDS", 0.05)
    monkeypatch.setattr(tls, "_readers", threading.BoundedSemaphore(2))
    go_on, hanging = threading.Event(), list[str]()

    def hang(path: str) -> bytes:
        hanging.append(path)
        go_on.wait(25)
        return b"-----BEGIN "

    monkeypatch.setattr(tls, "_read", hang)
    try:
        for _ in range(4):
            with pytest.raises(ValueError, match=r"^cannot read this file: its file system does not answer within"):
                Material.read("/remote/ca.pem")
    finally:
        go_on.set()

    assert len(hanging) == 2


def test_a_file_that_no_thread_can_read_now_is_refused_and_can_be_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    monkeypatch.setattr(tls, "READ_SECONDS", 0.05)
    monkeypatch.setattr(tls, "_readers", threading.BoundedSemaphore(1))
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", no_thread)
        for _ in range(2):
            with pytest.raises(ValueError, match=r"^cannot read this file: can't start new thread$"):
                Material.read(str(tmp_path / "ca.pem"))
    monkeypatch.setattr(tls, "READ_SECONDS", 30)

    assert Material.read(str(tmp_path / "ca.pem")).pem == "-----BEGIN CERTIFICATE-----"


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
