"""The `kubernetes:` section of the supervisor's configuration, and what the downward API says of the Pod.

kubernetes:                                      # all of it is optional
  kubeconfig: /etc/shipper/kubeconfig            # default: KUBECONFIG, the Pod's ServiceAccount, ~/.kube/config
  context: prod                                  # of the kubeconfig; default: its current one
  namespace: logging                             # default: that of the ServiceAccount, or of the context
  member: ${NODE_NAME}                           # unique in the namespace; variables as in policies
  keeps: node                                    # what --state lives as long as: node, ordinal (StatefulSet), or pod
  labels: /etc/podinfo/labels                    # a file of the downward API, or a mapping
  lease: 40s
  on_lapse: continue                             # or hold: nothing is sent after the lease
  rebind_revoked: false                          # events of a released content go with the one that replaced it
  elect: true                                    # this member may be elected to sum up the status of policies
  allow_host_references: false                   # policies may read variables, files and secrets of this host

The variables NODE_NAME, POD_NAME and POD_UID are those of the downward API. A member is named by what its directory
lives as long as: NODE_NAME for `node`, POD_NAME for `ordinal`, POD_UID for `pod`. Another name would let two
directories be one member, or make each Pod a member that is missed for ever after it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from shipper.kubernetes.kinds import MEMBER_LEASE, MemberSpec, PodName
from shipper.policy.document import Mark, Node, below
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import BadOption
from shipper.sdk.units import Duration
from shipper.supervise.config import ConfigReader
from shipper.supervise.reading import content
from shipper.supervise.variables import replaced

SHORTEST_LEASE, LONGEST_LEASE = Duration(2), Duration(600)
LABELS = "/etc/podinfo/labels"
"""Where Pods commonly mount their labels; read if it is there."""
_LARGEST_LABELS = 1 << 18
_LONGEST_NAME = 253 - len(MEMBER_LEASE)
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_LABEL = re.compile(r'([^=\s]+)="((?:[^"\\]|\\.)*)"')
_NAMED_BY = {"node": "NODE_NAME", "ordinal": "POD_NAME", "pod": "POD_UID"}

Text = Annotated[str, msgspec.Meta(min_length=1)]
Namespace = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="the name of a namespace")
]


class KubernetesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The section; see the module. `read` finds what is not written."""

    kubeconfig: Text | None = None
    context: Text | None = None
    namespace: Namespace | None = None
    member: str = ""
    keeps: Literal["node", "ordinal", "pod"] = "node"
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    lease: Duration = Duration(40)
    on_lapse: Literal["continue", "hold"] = "continue"
    rebind_revoked: bool = False
    elect: bool = True
    allow_host_references: bool = False

    def __post_init__(self) -> None:
        if not SHORTEST_LEASE <= self.lease <= LONGEST_LEASE:
            raise BadOption(f"must be from 2s to 10m, not {self.lease}", "lease")
        if float(self.lease) % 1:
            raise BadOption(f"must be in whole seconds, not {self.lease}", "lease")


class Found(msgspec.Struct, frozen=True):
    """The settings, and who the member is by them and by the downward API."""

    settings: KubernetesSettings
    spec: MemberSpec

    @property
    def member(self) -> str:
        """Its name."""
        return self.settings.member


def read(node: Node | None, environment: Mapping[str, str]) -> Found:
    """Returns the settings of a section, or of none; raises OptionError with file, line and remedy. Blocks on files."""
    written = Node({}, Mark(1, 1, "--kubernetes")) if node is None or node.value is None else node
    settings = _Reading(environment).all(KubernetesSettings, written, "kubernetes")
    pod, uid = environment.get("POD_NAME", ""), environment.get("POD_UID", "")
    found = MemberSpec(
        node=environment.get("NODE_NAME", ""),
        pod=PodName(pod, uid) if pod and uid else None,
        keeps=settings.keeps,
    )
    return Found(settings, found)


class _Reading(ConfigReader):
    """Reads the section."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment, False, lambda problem: None)

    def made(self, struct: type[Any], values: dict[str, Any], node: Node, path: str) -> Any:
        if struct is KubernetesSettings:
            with self.problems_of(self._at(node, "labels"), below(path, "labels")):
                values.setdefault("labels", labels_of(Path(LABELS)) if Path(LABELS).exists() else {})
            with self.problems_of(self._at(node, "member"), below(path, "member")):
                keeps = values.get("keeps", "node")
                values["member"] = _name(values.get("member") or self._default_name(keeps))
            if keeps == "pod" and not (self.environment.get("POD_NAME") and self.environment.get("POD_UID")):
                at = self._at(node, "keeps")
                self.problem(below(path, "keeps"), at.mark, f"`pod` needs POD_NAME and POD_UID; {_DOWNWARD}")
            if self.problems:
                return None
        return super().made(struct, values, node, path)

    def value(self, type: Any, node: Node, path: str) -> Any:
        if isinstance(node.value, str) and "${" in node.value:
            with self.problems_of(node, path):
                node = replace(node, value=replaced(node.value, self.environment))
        if path == "kubernetes.labels" and isinstance(node.value, str):
            with self.problems_of(node, path):
                return labels_of(_beside(node))
            return {}
        if path == "kubernetes.kubeconfig" and isinstance(node.value, str) and node.value:
            return str(_beside(node))
        return super().value(type, node, path)

    def _default_name(self, keeps: str) -> str:
        variable = _NAMED_BY[keeps]
        if found := self.environment.get(variable, ""):
            return found
        if "KUBERNETES_SERVICE_HOST" not in self.environment:
            return socket.gethostname().lower()
        raise ValueError(f"the variable {variable} is not set, and names a member that keeps {keeps}; {_DOWNWARD}")

    @staticmethod
    def _at(node: Node, key: str) -> Node:
        return node.value.get(key, node) if isinstance(node.value, dict) else node


_DOWNWARD = "set it by the downward API (valueFrom: fieldRef), or write `member`"


def _name(text: str) -> str:
    if len(text) > _LONGEST_NAME or not _NAME.fullmatch(text):
        raise ValueError(
            f"the name of a member is at most {_LONGEST_NAME} of the characters a-z, 0-9, `-` and `.`, and begins and "
            "ends with a letter or a digit"
        )
    return text


def _beside(node: Node) -> Path:
    """Returns a path that may be relative to the file of the configuration."""
    folder = Path(node.mark.file).parent.absolute() if node.mark.file else Path()
    return folder / str(node.value)


def labels_of(path: Path) -> dict[str, str]:
    """Returns the labels in a file of the downward API: a line `KEY="VALUE"` each. Raises ValueError. Blocks."""
    try:
        text = content(path, _LARGEST_LABELS).decode()
    except OSError as error:
        raise ValueError(f"{path}: {in_words(error)}; mount it by the downward API, or write a mapping") from None
    except UnicodeDecodeError:
        raise ValueError(f'{path}: each line is KEY="VALUE", as the downward API writes it') from None
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _LABEL.fullmatch(line.strip())
        if match is None:
            if line.strip():
                raise ValueError(f'{path}: each line is KEY="VALUE", as the downward API writes it')
            continue
        found[match[1]] = re.sub(r"\\(.)", r"\1", match[2])
    return found
