"""What the promise rests on, seen on a real backend: which answers a revoked credential gets, and when."""

import base64
import http.client
import json
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.backend


def bulk(*ids, index="logs-smoke-default"):
    lines = []
    for number in ids:
        lines.append({"create": {"_index": index, "_id": str(number)}})
        lines.append({"@timestamp": "2026-01-01T00:00:00Z", "message": f"line {number}"})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_a_deleted_user_gets_401_at_once_on_a_connection_that_it_used(opensearch):
    """`drained` promises that nothing follows; here is what would follow if it were wrong."""
    old = opensearch.create_writer("smoke-old")
    new = opensearch.create_writer("smoke-new")
    address = urlsplit(opensearch.url)
    connection = http.client.HTTPSConnection(address.hostname, address.port, context=opensearch.tls(), timeout=30)

    def write(user, *ids):
        pair = base64.b64encode(":".join(user).encode()).decode()
        headers = {"Authorization": f"Basic {pair}", "Content-Type": "application/x-ndjson"}
        connection.request("POST", "/_bulk", bulk(*ids), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    try:
        before = [write(old, number)[0] for number in range(5)]
        opensearch.delete_user("smoke-old")
        after = [write(old, number)[0] for number in range(5, 8)]
        status, body = write(new, *range(5, 10))
    finally:
        connection.close()

    assert before == [200] * 5
    assert after == [401] * 3
    assert status == 200
    assert json.loads(body)["errors"] is False
    assert opensearch.count("logs-smoke-default") == 10


def test_the_id_of_an_event_makes_a_retry_a_duplicate(opensearch):
    user = opensearch.create_writer("smoke-twice")
    first = opensearch.request("POST", "/_bulk", bulk(1, 2, index="logs-twice-default"), user=user)
    second = opensearch.request("POST", "/_bulk", bulk(1, 2, 3, index="logs-twice-default"), user=user)

    assert [item["create"]["status"] for item in first.json()["items"]] == [201, 201]
    assert [item["create"]["status"] for item in second.json()["items"]] == [409, 409, 201]
    assert {hit["_id"] for hit in opensearch.documents("logs-twice-default")} == {"1", "2", "3"}


def test_an_index_without_permission_is_refused_by_item(opensearch):
    user = opensearch.create_writer("smoke-narrow")
    body = bulk(1, index="logs-narrow-default") + bulk(2, index="secret-narrow")
    answer = opensearch.request("POST", "/_bulk", body, user=user)

    assert answer.status == 200
    assert [item["create"]["status"] for item in answer.json()["items"]] == [201, 403]
