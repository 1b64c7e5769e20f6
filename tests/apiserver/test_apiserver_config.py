"""Where the API server is looked for, and what is said of files that do not fit."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from shipper.apiserver.config import configured, find
from shipper.apiserver.credentials import Command, FileToken, FixedToken
from shipper.sdk.errors import OptionError

AUTHORITY = trustme.CA()
CA = AUTHORITY.cert_pem.bytes().decode()
PAIR = AUTHORITY.issue_cert("member@example.dev")
CERTIFICATE, KEY = PAIR.cert_chain_pems[0].bytes().decode(), PAIR.private_key_pem.bytes().decode()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(path: Path, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "prod",
        "contexts": [
            {"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "logging"}},
            {"name": "bare", "context": {"cluster": "c", "user": "u"}},
            {"name": "lost", "context": {"cluster": "none", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """What a Pod has of its ServiceAccount."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("token-of-pod")
    (directory / "namespace").write_text("logging")
    (directory / "ca.crt").write_text(CA)
    return directory


def in_pod(directory: Path, **more: str) -> dict[str, str]:
    return {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "SHIPPER_SERVICE_ACCOUNT": str(directory),
        **more,
    }


# -- in a Pod ----------------------------------------------------------------------------------------------------------


def test_a_pod_has_its_service_account(mounted):
    found = find(in_pod(mounted))

    assert str(found.server) == "10.0.0.1:443"
    assert found.server.secure
    assert found.namespace == "logging"
    assert found.credential == FileToken(str(mounted / "token"))
    assert found.trust.ca is not None
    assert found.trust.ca.where == str(mounted / "ca.crt")


def test_a_server_with_an_address_of_ipv6_is_found(mounted):
    assert str(find(in_pod(mounted, KUBERNETES_SERVICE_HOST="fd00::1")).server) == "[fd00::1]:443"


def test_a_namespace_of_the_caller_comes_before_that_of_the_pod(mounted):
    assert find(in_pod(mounted), namespace="other").namespace == "other"


def test_a_kubeconfig_that_is_named_comes_before_the_service_account(mounted, tmp_path):
    path = kubeconfig(tmp_path / "config")

    assert str(find(in_pod(mounted), kubeconfig=str(path)).server) == "api.example:6443"
    assert str(find(in_pod(mounted, KUBECONFIG=str(path))).server) == "api.example:6443"


@pytest.mark.parametrize("missing", ["token", "namespace"])
def test_a_missing_file_of_a_service_account_is_said_with_the_remedy(mounted, missing):
    (mounted / missing).unlink()

    with pytest.raises(OptionError, match=f"{missing}: No such file.*automountServiceAccountToken"):
        find(in_pod(mounted))


def test_an_authority_that_is_none_is_said(mounted):
    (mounted / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")

    with pytest.raises(OptionError, match=r"ca\.crt"):
        find(in_pod(mounted))


# -- a kubeconfig ------------------------------------------------------------------------------------------------------


def test_a_kubeconfig_in_the_home_directory_is_the_last_resort(tmp_path):
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config")

    found = find({"HOME": str(tmp_path)})

    assert found.namespace == "logging"
    assert found.source == f"context prod of {tmp_path}/.kube/config"


def test_a_context_without_a_namespace_has_the_default_one(tmp_path):
    assert find({}, kubeconfig=str(kubeconfig(tmp_path / "c")), context="bare").namespace == "default"


def test_all_of_a_cluster_and_a_user_is_taken(tmp_path):
    cluster = {"certificate-authority-data": encoded(CA), "tls-server-name": "kubernetes"}
    user = {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(KEY), "token": "t"}

    found = find({}, kubeconfig=str(kubeconfig(tmp_path / "c", cluster, user)))

    assert found.trust.server_name == "kubernetes"
    assert found.trust.identity is not None
    assert found.trust.identity.key.read() == KEY
    assert found.credential == FixedToken("t")


def test_no_secret_is_in_the_text_of_a_configuration(tmp_path):
    user = {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(KEY), "token": "hunter2"}

    found = find({}, kubeconfig=str(kubeconfig(tmp_path / "c", {}, user)))

    assert "hunter2" not in repr(found)
    assert "PRIVATE" not in repr(found)


def test_paths_are_relative_to_their_file(tmp_path):
    (tmp_path / "ca.pem").write_text(CA)
    user = {"tokenFile": "token", "token": "the file comes first"}

    found = find({}, kubeconfig=str(kubeconfig(tmp_path / "c", {"certificate-authority": "ca.pem"}, user)))

    assert found.trust.ca is not None
    assert found.trust.ca.where == str(tmp_path / "ca.pem")
    assert found.credential == FileToken(str(tmp_path / "token"))


def test_a_program_is_taken_with_its_arguments(tmp_path):
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "bin/login",
            "args": ["get-token"],
            "env": [{"name": "PROFILE", "value": "prod"}],
            "installHint": "install it",
            "provideClusterInfo": True,
        }
    }

    found = find({}, kubeconfig=str(kubeconfig(tmp_path / "c", {}, user)))

    assert isinstance(found.credential, Command)
    assert found.credential.command == str(tmp_path / "bin/login")
    assert found.credential.arguments == ("get-token",)
    assert found.credential.environment == {"PROFILE": "prod"}
    assert found.credential.cluster == {"server": "https://api.example:6443"}


def test_several_files_are_one_in_which_the_first_entry_of_a_name_counts(tmp_path):
    first, second = tmp_path / "first", kubeconfig(tmp_path / "second", {}, {"token": "second"})
    first.write_text(yaml.safe_dump({"users": [{"name": "u", "user": {"token": "first"}}]}))

    found = find({"KUBECONFIG": f"{first}:{tmp_path / 'none'}:{second}"})

    assert found.credential == FixedToken("first")
    assert found.namespace == "logging"


def test_what_does_not_fit_is_said_with_its_file_and_its_place(tmp_path):
    for cluster, user, problem in [
        ({"server": "ftp://x"}, {}, r"clusters\[c\]\.cluster\.server: the address of an API server is https://host"),
        ({"proxy-url": "http://p"}, {}, r"clusters\[c\]\.cluster\.proxy-url: a proxy is not supported"),
        ({"certificate-authority-data": "%"}, {}, r"certificate-authority-data: this is not PEM in base64"),
        ({"certificate-authority": "/none"}, {}, r"/none: cannot read this file"),
        (
            {"certificate-authority-data": encoded(CA), "insecure-skip-tls-verify": True},
            {},
            r"insecure-skip-tls-verify: there is a certificate authority as well",
        ),
        ({}, {"username": "u"}, r"users\[u\]\.user\.username: not supported; use a token"),
        ({}, {"auth-provider": {"name": "gcp"}}, r"auth-provider: not supported"),
        ({}, {"as": "admin"}, r"users\[u\]\.user\.as: not supported"),
        ({}, {"client-certificate-data": encoded(CERTIFICATE)}, r"client-key belong together"),
        ({}, {"exec": {"command": "x", "apiVersion": "v0"}}, r"exec\.apiVersion: not supported"),
        (
            {},
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Always"}},
            r"exec\.interactiveMode: nobody is there",
        ),
        ({"server": 7}, {}, r"Expected `str`, got `int` - at `\$\.clusters\[0\]\.cluster\.server`"),
    ]:
        path = kubeconfig(tmp_path / "config", cluster, user)

        with pytest.raises(OptionError, match=problem) as caught:
            find({}, kubeconfig=str(path))

        assert str(path) in str(caught.value) or "/none" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b: c", r"line 1, column 5: this is not YAML"),
        ("[]", r"Expected `object`"),
        ("a: b", r"current-context: missing; name a context"),
        ("\x00", r"this is not YAML"),
        ("", r"current-context: missing"),
        ("!!python/object:os.system {}", r"this is not YAML"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_said(tmp_path, text, problem):
    (tmp_path / "config").write_text(text)

    with pytest.raises(OptionError, match=problem):
        find({}, kubeconfig=str(tmp_path / "config"))


def test_an_unknown_context_is_said_with_those_that_there_are(tmp_path):
    path = kubeconfig(tmp_path / "config")

    with pytest.raises(OptionError, match="contexts: there is no 'x'; there is: prod, bare, lost"):
        find({}, kubeconfig=str(path), context="x")
    with pytest.raises(OptionError, match="clusters: there is no 'none'; there is: c"):
        find({}, kubeconfig=str(path), context="lost")


def test_no_file_at_all_is_said_with_the_remedy(tmp_path):
    with pytest.raises(OptionError, match=r"\.kube/config: No such file or directory; give a kubeconfig by KUBECONFIG"):
        find({"HOME": str(tmp_path)})
    with pytest.raises(OptionError, match="no such file; KUBECONFIG names kubeconfig files"):
        find({"KUBECONFIG": f"{tmp_path}/a:{tmp_path}/b"})


async def test_files_are_read_in_a_thread(mounted):
    assert (await configured(in_pod(mounted))).namespace == "logging"
