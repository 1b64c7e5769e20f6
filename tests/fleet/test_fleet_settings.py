"""The section of a fleet: every mistake is named by its place, and no secret is quoted."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest
import trustme

from shipper.fleet.settings import Cluster, FleetSettings, read
from shipper.sdk.errors import OptionError, Problem
from shipper.supervise.config import KeyAbsent, read_config

ENVIRONMENT = {"PATH": "/bin:/usr/bin", "NODE": "web-1"}
LEAST = "  name: prod\n  member: ${NODE}\n  etcd: [https://etcd-1:2379]\n  keys: [{file: key}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in (
        ("key", base64.b64encode(b"k" * 32)),
        ("old", base64.b64encode(b"o" * 32)),
        ("user", b"{username: prod, password: canary}"),
        ("token", b"a-long-canary-of-a-token\n"),
        ("short", b"canary"),
    ):
        tmp_path.joinpath(name).write_bytes(content)
        tmp_path.joinpath(name).chmod(0o600)
    return tmp_path


def section(folder: Path, text: str, **more: object) -> FleetSettings:
    file = folder / "c.yaml"
    file.write_text(f"http: 127.0.0.1:1\nfleet:\n{text}")
    node = read_config(file, ENVIRONMENT).fleet
    assert node is not None
    return read(node, ENVIRONMENT, runnable=True, **more)  # type: ignore[arg-type]


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(OptionError) as caught:
        section(folder, text)
    assert "canary" not in str(caught.value)
    return str(caught.value).replace(f"{folder}/", "")


def test_the_least_is_four_lines(folder: Path) -> None:
    settings = section(folder, LEAST)

    assert (settings.name, settings.member, settings.etcd) == ("prod", "web-1", ("https://etcd-1:2379",))
    assert settings.keys == (b"k" * 32,)
    assert (settings.prefix, float(settings.lease), settings.on_lapse) == ("/shipper/", 15, "continue")
    assert (settings.forget_after, settings.on_release, settings.http, settings.tls) == (None, None, None, None)


def test_everything_is_read(folder: Path) -> None:
    authority = trustme.CA()
    identity = authority.issue_cert("etcd-1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    identity.private_key_pem.write_to_path(folder / "key.pem")
    identity.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    files = f"certificate: {folder}/cert.pem, key: {folder}/key.pem"
    settings = section(
        folder,
        "  name: prod\n  member: web-1\n  etcd: [https://etcd-1:2379, 'https://[::1]:2379/']\n"
        f"  tls: {{ca: {folder}/ca.pem, {files}}}\n  credential: {{file: user}}\n"
        "  keys: [{file: key}, {file: old}]\n  prefix: /a/b/\n  lease: 2s\n  on_lapse: hold\n  rebind_revoked: true\n"
        "  forget_after: 24h\n  on_release: {command: [sh, -c, x], timeout: 5s}\n"
        f"  http: {{address: '0.0.0.0:6790', {files}, token: {{file: token}}}}\n",
    )

    assert settings.keys == (b"k" * 32, b"o" * 32)
    assert (settings.on_lapse, settings.rebind_revoked, settings.prefix) == ("hold", True, "/a/b/")
    assert settings.forget_after == 86400
    assert settings.on_release is not None
    assert settings.on_release.command == ("sh", "-c", "x")
    assert settings.credential is not None
    assert settings.credential.fields == {"username": "prod", "password": "canary"}
    assert settings.tls is not None
    assert settings.tls.ca is not None
    assert settings.tls.ca.path == f"{folder}/ca.pem"
    assert settings.http is not None
    assert settings.http.context() is not None
    assert settings.http.token is not None
    assert settings.http.token.fields == {"bearer_token": "a-long-canary-of-a-token"}
    assert all(word not in repr(settings) for word in ("canary", "kkkk", "PRIVATE"))
    assert "PRIVATE" not in repr(settings.tls) + repr(settings.http)


IN_A_POD = LEAST.replace("etcd: [https://etcd-1:2379]", "kubernetes: {}")


def test_an_api_server_is_a_store_in_place_of_etcd_and_needs_no_setting_in_a_pod(folder: Path) -> None:
    text = LEAST.replace("etcd: [https://etcd-1:2379]", "kubernetes: {kubeconfig: /k, context: c, namespace: logging}")
    settings = section(folder, text)

    assert settings.etcd == ()
    assert settings.kubernetes == Cluster(kubeconfig="/k", context="c", namespace="logging")
    assert section(folder, IN_A_POD).kubernetes == Cluster()


def test_a_mistake_is_named_by_its_place_and_the_remedy(folder: Path) -> None:
    for text, expected in [
        (
            LEAST.replace("  etcd: [https://etcd-1:2379]\n", ""),
            "c.yaml:3:3: fleet: a fleet needs a store: write `etcd:` with its URLs, or `kubernetes: {}`",
        ),
        (LEAST + "  kubernetes: {}\n", "c.yaml:7:15: fleet.kubernetes: a fleet has one store: write `etcd` or `kube"),
        (IN_A_POD + "  prefix: /a/\n", "c.yaml:7:11: fleet.prefix: `prefix` is of etcd; an API server is found by"),
        (IN_A_POD + "  tls: {}\n", "c.yaml:7:8: fleet.tls: `tls` is of etcd"),
        (IN_A_POD + "  credential: {file: user}\n", "c.yaml:7:15: fleet.credential: `credential` is of etcd"),
        (
            IN_A_POD.replace("{}", "{namespace: A/b}"),
            "c.yaml:5:27: fleet.kubernetes.namespace: expected the name of a namespace",
        ),
        (IN_A_POD.replace("{}", "{kubeconfig: ''}"), "c.yaml:5:28: fleet.kubernetes.kubeconfig: expected"),
        ("  nmae: x\n", 'c.yaml:3:3: fleet.nmae: unknown key "nmae" (did you mean "name"?)'),
        ("  name: prod\n", 'c.yaml:3:3: fleet.member: the key "member" is missing'),
        ("  - x\n", "c.yaml:3:3: fleet: expected a mapping, got a list"),
        (LEAST.replace("prod", "a/b"), "c.yaml:3:9: fleet.name: expected at most 253 of the characters"),
        (LEAST.replace("NODE", "NOPE"), "c.yaml:4:11: fleet.member: the variable NOPE is not set"),
        (LEAST.replace("https:", "ftp:"), "c.yaml:5:10: fleet.etcd[0]: expected the URL of a host of etcd"),
        (LEAST.replace("https://", "https://a:canary@"), "c.yaml:5:10: fleet.etcd[0]: expected the URL"),
        (LEAST.replace("[https://etcd-1:2379]", "[]"), "c.yaml:5:9: fleet.etcd: expected list of length >= 1"),
        (LEAST.replace(":2379]", ":2379, https://etcd-1:2379]"), "c.yaml:5:31: fleet.etcd[1]: this URL is written twi"),
        (LEAST.replace("{file: key}", "canary"), "c.yaml:6:10: fleet.keys[0]: write a reference to the key: {file:"),
        (LEAST.replace("{file: key}", "{env: X}"), "c.yaml:6:10: fleet.keys[0]: write a reference to the key: {file:"),
        (LEAST.replace("[{file: key}]", "[]"), "c.yaml:6:9: fleet.keys: a fleet has 1 to 8 keys"),
        (
            LEAST.replace("{file: key}", "{file: short}"),
            "c.yaml:6:10: fleet.keys[0]: the key in file:short is not 32 b",
        ),
        (LEAST.replace("}]", "}, {file: key}]"), "c.yaml:6:23: fleet.keys[1]: this key is written twice"),
        (LEAST.replace("file: key", "systemd: key"), "c.yaml:6:10: fleet.keys[0]: the key systemd:key cannot be read"),
        (LEAST + "  lease: 1s\n", "c.yaml:7:10: fleet.lease: must be from 2s to 10m, not 1s"),
        (LEAST + "  lease: 11m\n", "c.yaml:7:10: fleet.lease: must be from 2s to 10m, not 11m"),
        (LEAST + "  on_lapse: stop\n", "c.yaml:7:13: fleet.on_lapse: expected one of continue, hold"),
        (LEAST + "  forget_after: 30s\n", "c.yaml:7:17: fleet.forget_after: write `never`, or at least 1m and more "),
        (LEAST + "  lease: 5m\n  forget_after: 4m\n", "c.yaml:8:17: fleet.forget_after: write `never`, or at least"),
        (LEAST + "  prefix: shipper\n", "c.yaml:7:11: fleet.prefix: expected a path such as /shipper/"),
        (
            LEAST + "  on_release: {command: [/no/such]}\n",
            "c.yaml:7:25: fleet.on_release.command: /no/such is not a pro",
        ),
        (LEAST + "  tls: {ca: /no/such}\n", "c.yaml:7:13: fleet.tls.ca: cannot read this file"),
        (
            LEAST + "  credential: {username: a, password: canary}\n",
            "c.yaml:7:15: fleet.credential: write a reference to",
        ),
        (LEAST + "  credential: {file: token}\n", "c.yaml:7:15: fleet.credential: the secret file:token"),
        (LEAST + "  http: localhost\n", "c.yaml:7:9: fleet.http.address: the address 'localhost' has no port"),
        (LEAST + "  http: 0.0.0.0:1\n", "c.yaml:7:9: fleet.http.address: other hosts can reach this address: write"),
        (
            LEAST + "  http: {address: 'h:1', token: {file: token}}\n",
            "c.yaml:7:19: fleet.http.address: other hosts can",
        ),
        (
            LEAST + "  http: {address: '127.0.0.1:1', token: {file: short}}\n",
            "c.yaml:7:41: fleet.http.token: the secret",
        ),
        (
            LEAST.replace("https://", "http://") + "  credential: {file: user}\n",
            "c.yaml:5:10: fleet.etcd[0]: http:// does not protect the password of `credential`; write https://",
        ),
    ]:
        assert complaint(folder, text).startswith(expected)


def test_all_mistakes_are_named_at_once(folder: Path) -> None:
    text = complaint(folder, "  name: a/b\n  member: ''\n  etcd: x\n  keys: canary\n  on_lapse: never\n")

    assert [f"c.yaml:{line}:" in text for line in range(3, 8)] == [True] * 5


def test_an_address_of_loopback_needs_no_token(folder: Path) -> None:
    http = section(folder, LEAST + "  http: 127.0.0.1:6790\n").http

    assert http is not None
    assert (http.address, http.context(), http.token) == ("127.0.0.1:6790", None, None)


def test_etcd_on_loopback_needs_no_tls_for_a_password(folder: Path) -> None:
    text = LEAST.replace("https://etcd-1", "http://127.0.0.1") + "  credential: {file: user}\n"

    assert section(folder, text).credential is not None


def test_the_name_of_the_host_is_known_where_the_environment_has_none(folder: Path) -> None:
    assert section(folder, LEAST.replace("NODE", "HOSTNAME")).member == socket.gethostname()


def test_files_of_secrets_that_others_can_read_are_warned_of_with_their_places(folder: Path) -> None:
    for name in ("key", "user", "token"):
        (folder / name).chmod(0o644)
    told: list[Problem] = []
    section(
        folder,
        LEAST + "  credential: {file: user}\n  http: {address: '127.0.0.1:1', token: {file: token}}\n",
        warn=told.append,
    )

    assert [(problem.path, problem.line) for problem in told] == [
        ("fleet.keys[0]", 6),
        ("fleet.credential", 7),
        ("fleet.http.token", 8),
    ]
    assert all("mode 0644" in problem.message for problem in told)


def test_absent_files_of_secrets_can_be_waited_for_if_nothing_else_is_wrong(folder: Path) -> None:
    (folder / "key").unlink()
    (folder / "user").unlink()
    text = LEAST + "  credential: {file: user}\n"

    with pytest.raises(KeyAbsent) as caught:
        section(folder, text)
    assert caught.value.paths == (folder / "c.yaml", folder / "key", folder / "user")

    with pytest.raises(OptionError) as also:
        section(folder, text + "  lease: x\n")
    assert not isinstance(also.value, KeyAbsent)


def test_a_section_of_any_content_changes_nothing_for_the_rest(folder: Path) -> None:
    file = folder / "c.yaml"
    file.write_text("fleet: [anything]\nhttp: 127.0.0.1:1\n")

    assert read_config(file, {}).http == "127.0.0.1:1"
