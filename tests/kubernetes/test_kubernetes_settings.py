"""The section of Kubernetes: mistakes have places, and members are named by what their directory lives as long as."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.kubernetes import settings
from shipper.kubernetes.kinds import MemberSpec, PodName
from shipper.kubernetes.settings import Found, labels_of, read
from shipper.sdk.errors import OptionError
from shipper.supervise.config import read_config

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
ENVIRONMENT = {**POD, "NODE_NAME": "node-1", "POD_NAME": "web-0", "POD_UID": "2f1c"}


@pytest.fixture(autouse=True)
def no_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(settings, "LABELS", str(tmp_path / "none"))


def section(folder: Path, text: str, environment: dict[str, str] = ENVIRONMENT) -> Found:
    file = folder / "c.yaml"
    file.write_text(f"http: 127.0.0.1:1\nkubernetes:\n{text}")
    return read(read_config(file, environment).kubernetes, environment)


def complaint(folder: Path, text: str, environment: dict[str, str] = ENVIRONMENT) -> str:
    with pytest.raises(OptionError) as caught:
        section(folder, text, environment)
    return str(caught.value).replace(f"{folder}/", "")


def test_nothing_has_to_be_written() -> None:
    found = read(None, ENVIRONMENT)

    assert found.member == "node-1"
    assert found.spec == MemberSpec(node="node-1", pod=PodName("web-0", "2f1c"), keeps="node")
    assert (float(found.settings.lease), found.settings.on_lapse, found.settings.elect) == (40, "continue", True)
    assert (found.settings.labels, found.settings.namespace, found.settings.allow_host_references) == ({}, None, False)


@pytest.mark.parametrize(("keeps", "name"), [("node", "node-1"), ("ordinal", "web-0"), ("pod", "2f1c")])
def test_a_member_has_the_name_of_what_its_directory_lives_as_long_as(tmp_path: Path, keeps: str, name: str) -> None:
    found = section(tmp_path, f"  keeps: {keeps}\n")

    assert found.member == name
    assert found.spec.keeps == keeps


def test_all_settings_are_read(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text('app="web"\ntier="front"\n')
    text = (
        "  kubeconfig: config\n  context: prod\n  namespace: logging\n  member: ${POD_NAME}.x\n  keeps: pod\n"
        "  labels: labels\n  lease: 3s\n  on_lapse: hold\n  rebind_revoked: true\n  elect: false\n"
        "  allow_host_references: true\n"
    )

    found = section(tmp_path, text).settings

    assert (found.kubeconfig, found.context, found.namespace) == (str(tmp_path / "config"), "prod", "logging")
    assert (found.member, found.keeps, found.labels) == ("web-0.x", "pod", {"app": "web", "tier": "front"})
    assert found.rebind_revoked
    assert (float(found.lease), found.on_lapse, found.elect, found.allow_host_references) == (3, "hold", False, True)


def test_labels_may_be_written_in_the_section(tmp_path: Path) -> None:
    assert section(tmp_path, "  labels: {app: web}\n").settings.labels == {"app": "web"}


def test_the_labels_that_a_pod_mounts_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "podinfo").write_text('app="web"')
    monkeypatch.setattr(settings, "LABELS", str(tmp_path / "podinfo"))

    assert read(None, ENVIRONMENT).settings.labels == {"app": "web"}


def test_outside_of_a_cluster_the_host_is_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Web-1")

    assert read(None, {}).member == "web-1"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("  lease: 1s\n", "c.yaml:3:10: kubernetes.lease: must be from 2s to 10m, not 1s"),
        ("  lease: 2500ms\n", "c.yaml:3:10: kubernetes.lease: must be in whole seconds, not 2500ms"),
        ("  member: Web_1\n", "c.yaml:3:11: kubernetes.member: the name of a member is at most 238"),
        ("  member: ${NONE}\n", "c.yaml:3:11: kubernetes.member: the variable NONE is not set"),
        ("  labels: absent\n", "c.yaml:3:11: kubernetes.labels: "),
        ("  keeps: disk\n", "c.yaml:3:10: kubernetes.keeps: expected one of node, ordinal, pod"),
        ("  namespace: Logging\n", "c.yaml:3:14: kubernetes.namespace: "),
        ("  on_laps: hold\n", 'c.yaml:3:3: kubernetes.on_laps: unknown key "on_laps"'),
        ("  []\n", "c.yaml:3:3: kubernetes: expected a mapping"),
    ],
)
def test_a_mistake_is_named_by_its_place(tmp_path: Path, text: str, place: str) -> None:
    assert complaint(tmp_path, text).startswith(place)


def test_a_pod_that_names_no_member_says_how_it_is_done() -> None:
    with pytest.raises(OptionError, match=r"NODE_NAME is not set, .*downward API"):
        read(None, POD)


def test_a_member_that_ends_with_its_pod_has_to_know_the_pod(tmp_path: Path) -> None:
    assert "`pod` needs POD_NAME and POD_UID" in complaint(tmp_path, "  keeps: pod\n  member: a\n", POD)


def test_a_file_that_is_not_of_the_downward_api_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("app: web\n")

    assert "labels: each line is KEY=" in complaint(tmp_path, "  labels: labels\n")


@given(st.dictionaries(st.from_regex(r"\A[a-z/.-]{1,30}\Z"), st.from_regex(r"\A[A-Za-z0-9._\"\\-]{0,30}\Z")))
def test_labels_come_back_as_they_are(labels: dict[str, str]) -> None:
    from tempfile import TemporaryDirectory

    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"')

    with TemporaryDirectory() as name:
        file = Path(name, "labels")
        file.write_text("".join(f'{key}="{quoted(value)}"\n' for key, value in labels.items()))

        assert labels_of(file) == labels
