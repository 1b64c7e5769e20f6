"""A kind of object for tests of the API server itself: a status of its own, and a field with a bound."""

from __future__ import annotations

from tests.backends.kubernetes_api import Object

WIDGETS = "example.org/v1"


def crd(group: str = "example.org") -> Object:
    """The CRD of `Widget`: `spec.size` is at most 9, of which the server makes sure."""
    size = {"type": "integer", "maximum": 9}
    spec = {"type": "object", "properties": {"size": size, "color": {"type": "string"}}}
    status = {"type": "object", "properties": {"seen": {"type": "integer"}, "note": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def widget(name: str, *, api: str = WIDGETS, **spec: object) -> Object:
    return {"apiVersion": api, "kind": "Widget", "metadata": {"name": name}, "spec": spec}
