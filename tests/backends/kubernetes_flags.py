"""The arguments and the files of the API server under test and of its etcd."""

from __future__ import annotations

import csv
from pathlib import Path

import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

USERS = 1000
GROUP = "users"
"""Of all users but the administrator."""
ADMIN_TOKEN = "token-of-admin"
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "RequestResponse",
            "resources": [{"group": "shipper.dev"}, {"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        {"level": "Metadata"},
    ],
}
_ISSUER = "https://kubernetes.default.svc"


def etcd_arguments(directory: Path, url: str, peer: str) -> list[str]:
    return [
        "--name=tests",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=tests={peer}",
        "--log-level=warn",
        "--unsafe-no-fsync",
    ]


def apiserver_arguments(directory: Path, port: int, etcd: str) -> list[str]:
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--advertise-address=127.0.0.1",  # without it, it looks for a default route and ends where there is none
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--tls-cert-file={directory / 'server.pem'}",
        f"--tls-private-key-file={directory / 'server.key'}",
        f"--client-ca-file={directory / 'ca.pem'}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={directory / 'accounts.key'}",
        f"--service-account-signing-key-file={directory / 'accounts.key'}",
        "--shutdown-watch-termination-grace-period=1s",  # without it, SIGTERM waits a minute for open watches
    ]


def audit_arguments(directory: Path) -> list[str]:
    file = directory / "audit.yaml"
    file.write_text(yaml.safe_dump(_AUDIT))
    log = directory / "audit.log"
    log.touch()
    return [f"--audit-policy-file={file}", f"--audit-log-path={log}", "--audit-log-mode=blocking"]


def write_files(directory: Path, authority: trustme.CA) -> None:
    authority.cert_pem.write_to_path(directory / "ca.pem")
    write(authority.issue_cert("localhost", "127.0.0.1"), directory / "server")
    key = ec.generate_private_key(ec.SECP256R1())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    (directory / "accounts.key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    users = [(f"token-of-user-{n}", f"user-{n}", f"uid-{n}", GROUP) for n in range(1, USERS + 1)]
    with (directory / "tokens.csv").open("w", newline="") as file:
        csv.writer(file).writerows([(ADMIN_TOKEN, "admin", "uid-admin", "system:masters"), *users])


def write(issued: trustme.LeafCert, place: Path) -> tuple[Path, Path]:
    certificate, key = place.with_suffix(".pem"), place.with_suffix(".key")
    certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    return certificate, key
