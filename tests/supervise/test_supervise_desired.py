from __future__ import annotations

from pathlib import Path

import pytest

from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError
from shipper.supervise.desired import Desired

POLICY = """version: 1
outputs:
  main: {{type: elasticsearch, hosts: ["https://127.0.0.1:9200"], tls: {{ca: {ca}}}}}
"""


def test_a_certificate_that_is_not_there_yet_is_watched(tmp_path: Path) -> None:
    policy, ca = tmp_path / "policy.yaml", tmp_path / "certificates" / "ca.pem"
    policy.write_text(POLICY.format(ca=ca))
    desired = Desired([policy], {}, Registry.installed())

    with pytest.raises(PolicyError, match="cannot read this file"):
        desired.read({})

    assert desired.watched == {policy, ca}
