"""`shipper fleet` and `shipper supervise` where the store is an API server that is wrong, or not there."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shipper import __main__ as program


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a server that is not there."""
    names = {"cluster": "a", "user": "a"}
    document = {
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "a", "user": {"token": "CANARY"}}],
        "contexts": [{"name": "a", "context": names}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    file.chmod(0o600)
    return file


def ended(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        program.main([*arguments])
    said = capfd.readouterr()
    assert "CANARY" not in said.out + said.err
    return int(caught.value.code or 0), said.out, said.err


def config(folder: Path, **store: Any) -> str:
    key = folder / "fleet.key"
    key.write_text(base64.b64encode(b"k" * 32).decode())
    key.chmod(0o600)
    file = folder / "supervise.yaml"
    file.write_text(json.dumps({"fleet": {"name": "prod", "member": "a", "keys": [{"file": str(key)}], **store}}))
    return str(file)


def test_a_server_that_cannot_be_reached_is_69_and_one_line(
    kubeconfig: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path, kubernetes={"kubeconfig": str(kubeconfig)})
    status, out, err = ended(capfd, "fleet", "wait", "1", "--config", file)

    assert (status, out) == (69, "")
    assert err.startswith("shipper: the store of the fleet: ")
    assert "127.0.0.1:9: connection refused" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ({"kubernetes": {"kubeconfig": "/no/such"}}, "/no/such: No such file"),
        ({"kubernetes": {"kubeconfig": "KUBECONFIG", "context": "prod"}}, "prod"),
        ({"kubernetes": {}, "etcd": ["https://etcd:2379"]}, "not both"),
        ({}, "a fleet needs a store"),
    ],
)
def test_a_wrong_configuration_is_78_and_one_line_for_each_command(
    store: dict[str, Any], said: str, kubeconfig: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path, **json.loads(json.dumps(store).replace("KUBECONFIG", str(kubeconfig))))
    status, _, err = ended(capfd, "fleet", "status", "--config", file)
    command = [sys.executable, "-m", "shipper", "supervise", "--state", str(tmp_path / "state"), "--config", file]
    supervised = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (status, err.count("\n")) == (78, 1)
    assert said in err
    assert supervised.returncode == 78
    assert said in supervised.stdout + supervised.stderr
    assert "Traceback" not in supervised.stdout + supervised.stderr
