"""Objects of a namespace, as small as they can be."""

from __future__ import annotations

import base64
from typing import Any

from shipper.apiserver.objects import Object

CREATED = "2026-01-01T00:00:0{}Z"


def policy(
    name: str, *, hosts: str = "http://es:9200", secret: str = "", key: str = "k", members: Any = None, **more: Any
) -> Object:
    """Returns a ShipperPolicy with one output of its own name, which takes a Secret."""
    output: dict[str, Any] = {"type": "elasticsearch", "hosts": [hosts]}
    if secret:
        output["credential"] = {"secret": {"name": secret, "key": key}}
    text = {"version": 1, "outputs": {name: output}, **more}
    return {"metadata": {"name": name}, "spec": {"policy": text, **({"members": members} if members else {})}}


def secret(name: str, *, usable: bool = True, **contents: str) -> Object:
    """Returns a Secret."""
    labels = {"shipper.dev/use": "credential"} if usable else {}
    data = {key: base64.b64encode(content.encode()).decode() for key, content in contents.items()}
    return {"metadata": {"name": name, "labels": labels}, "data": data}


def changed(api: Any, kind: str, name: str, **spec: Any) -> Object:
    """Changes the spec of an object as another person does."""
    found = api.get(kind, name)
    new = api.put(kind, {**found, "spec": {**found["spec"], **spec}})
    assert new is not None
    return new


def rotated(api: Any, name: str, **contents: str) -> Object:
    """Gives a Secret other contents; keys that are not named go."""
    found = api.get("secret", name)
    new = api.put("secret", {**found, "data": secret(name, **contents)["data"]})
    assert new is not None
    return new
