"""References to keys of Secrets."""

from __future__ import annotations

import pytest

from shipper.policy import document
from shipper.supervise.secrets import Reference, exposed, read, watched


def reference(text: str) -> Reference:
    return Reference.parse(document.read(text))


def test_a_reference_names_a_key_of_a_secret() -> None:
    es = reference("{secret: {name: es, key: api_key}}")

    assert (str(es), es.label) == ("secret:es/api_key", "api-key")
    assert es == reference("{secret: {key: api_key, name: es}}") != reference("{secret: {name: es, key: other}}")
    assert (exposed(es), list(watched(es, {}))) == (None, [])


def test_its_shape_is_written_beside_it() -> None:
    assert reference("{secret: {name: es, key: token}, as: bearer_token}").shape == "bearer_token"


def test_anything_else_is_refused_and_not_quoted() -> None:
    for value in [
        "es",
        "[es]",
        "{name: es}",
        "{key: k}",
        "{name: es, key: k, more: x}",
        "{name: ES, key: k}",
        "{name: a/b, key: k}",
        "{name: es, key: 'a b'}",
        "{name: es, key: [k]}",
        "{name: [es], key: k}",
        "{name: '', key: k}",
        f"{{name: {'x' * 254}, key: k}}",
        "{name: es, key: k, id: 7}",
    ]:
        with pytest.raises(ValueError, match=r"Secret|`secret`") as caught:
            reference(f"{{secret: {value}}}")
        assert "x" * 64 not in str(caught.value)


def test_a_supervisor_without_kubernetes_cannot_read_it() -> None:
    with pytest.raises(ValueError, match=r"the secret secret:es/k is a Secret of Kubernetes, and .* without `--kube"):
        read(reference("{secret: {name: es, key: k}}"), {})
