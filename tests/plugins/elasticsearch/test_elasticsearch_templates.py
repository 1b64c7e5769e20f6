"""Which templates a policy needs, and how a template that is there is known again."""

from shipper_plugins.elasticsearch.client.templates import MAPPINGS, stock, templates

STREAMS = ["logs-app-prod", "logs-app-dev", "metrics-nginx.stub-default"]


def test_each_dataset_has_one_template_for_all_its_namespaces():
    first, *others = templates(STREAMS)

    assert (first.kind, first.name, first.path) == ("component template", MAPPINGS, f"/_component_template/{MAPPINGS}")
    assert [(one.name, one.body["index_patterns"]) for one in others] == [
        ("shipper-logs-app", ["logs-app-*"]),
        ("shipper-metrics-nginx.stub", ["metrics-nginx.stub-*"]),
    ]
    assert all(one.body["composed_of"] == [MAPPINGS] for one in others)


def test_a_place_that_is_no_data_stream_needs_nothing():
    assert templates(["mine", "a-b", "state-*", "logs-app-*"]) == []
    assert stock(["mine"]) == []


def test_what_elasticsearch_has_itself_stays_a_part():
    """Its lifecycle and its fields of ECS would be lost otherwise, since a template of a higher priority replaces."""
    assert stock(STREAMS) == [
        "logs@mappings",
        "logs@settings",
        "metrics@mappings",
        "metrics@settings",
        "ecs@mappings",
    ]
    _, app, nginx = templates(STREAMS, ["ecs@mappings", "logs@settings"])

    assert app.body["composed_of"] == ["logs@settings", "ecs@mappings", MAPPINGS]
    assert nginx.body["composed_of"] == ["ecs@mappings", MAPPINGS]


def test_a_template_is_known_again_by_its_digest_and_another_owner_is_respected():
    (one, *_) = templates(STREAMS)
    (other, *_) = templates(STREAMS, ["ecs@mappings"])[1:]

    assert one.state(None) == "missing"
    assert one.state(one.content) == "same"
    assert other.state(one.content) == "different"
    assert one.state({}) == one.state({"_meta": {"managed_by": "me"}}) == one.state(7) == "foreign"
