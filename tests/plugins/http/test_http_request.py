"""Ordinary requests: whatever is read the short way is what h11 reads."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.http.request import ordinary, written

_NAMES = [
    "Host",
    "host",
    "Content-Length",
    "content-length",
    "Content-Type",
    "Connection",
    "Transfer-Encoding",
    "Expect",
]
_VALUES = [
    "x",
    "",
    " a b ",
    "5",
    "05",
    "+5",
    "5, 5",
    "5 ",
    "٥",
    "chunked",
    "keep-alive",
    "Keep-Alive",
    "close",
    "é",
    "\t",
]
_ENDS = ["\r\n", "\r\n", "\r\n", "\n", "\r", "\r\n ", ""]
_headers = st.tuples(
    st.sampled_from([*_NAMES, "X-Y", "X Y", "", "X:", "é"]),
    st.sampled_from([":", ": ", ":  ", " :", ""]),
    st.sampled_from(_VALUES) | st.text(max_size=5),
    st.sampled_from(_ENDS),
)
_first = st.sampled_from(
    ["POST / HTTP/1.1", "PUT /a?b#c HTTP/1.1", "GET /é HTTP/1.1", "POST  / HTTP/1.1", "POST / HTTP/1.0"]
)


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    """What a client may send: often a request, seldom an ordinary one."""
    body = draw(st.binary(max_size=6))
    lines = [("Host", ": ", "a", "\r\n"), ("Content-Length", ": ", str(len(body)), "\r\n")]
    lines = draw(st.permutations(lines + draw(st.lists(_headers, max_size=2))))
    head = draw(_first) + draw(st.sampled_from(_ENDS)) + "".join(["".join(line) for line in lines])
    return (head + draw(st.sampled_from(["\r\n", "\r\n", "\n", ""]))).encode(errors="replace") + body


def read(block: bytes) -> tuple[str, str, dict[str, str], bytes]:
    """The one request that h11 finds in a block, with nothing behind it."""
    http = h11.Connection(h11.SERVER)
    http.receive_data(block)
    request, body = http.next_event(), b""
    assert isinstance(request, h11.Request)
    while isinstance(event := http.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert http.trailing_data == (b"", False)
    assert not http.they_are_waiting_for_100_continue
    headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
    assert len(headers) == len(list(request.headers))
    http.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
    http.send(h11.EndOfMessage())
    assert http.our_state is h11.DONE, "the connection goes on"
    return request.method.decode(), request.target.decode().partition("?")[0], headers, body


@given(blocks())
def test_what_is_ordinary_is_read_as_h11_reads_it(block: bytes) -> None:
    if (found := ordinary(block)) is not None:
        request, behind = found
        head, missing = block[: len(block) - len(behind)], bytes(max(0, request.declared - len(behind)))
        body = (behind + missing)[: request.declared]

        assert (request.method, request.path, dict(request.headers), body) == read(head + body)


@pytest.mark.parametrize(
    "head",
    [
        "Host: localhost:8080\r\nUser-Agent: python-requests/2.32\r\nAccept-Encoding: gzip, deflate\r\nAccept: */*\r\n"
        "Connection: keep-alive\r\nContent-Type: application/json\r\n",
        "Host: [::1]:80\r\nUser-Agent: curl/8\r\nAccept: */*\r\nContent-Type: text/plain;charset=utf-8\r\n",
        "Host: a\r\nUser-Agent: Go-http-client/1.1\r\nContent-Type: application/x-protobuf\r\n",
    ],
    ids=["requests", "curl", "go"],
)
def test_requests_of_common_clients_are_ordinary(head: str) -> None:
    assert ordinary(f"POST /events?x=1 HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\n{{}}".encode()) is not None


@pytest.mark.parametrize(
    "more",
    ["Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n", "Connection: close\r\n", "Content-Length: 2\r\n"],
)
def test_what_says_something_unusual_is_left_to_h11(more: str) -> None:
    block = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n{more}\r\n{{}}".encode()

    assert ordinary(block) is None
    assert ordinary(block.replace(more.encode(), b"", 1)) is not None


@pytest.mark.parametrize("behind", [b"{", b"{}POST", b""])
def test_what_is_behind_the_head_is_given_back_as_it_came(behind: bytes) -> None:
    found = ordinary(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n" + behind)

    assert found is not None
    assert (found[0].declared, found[1]) == (2, behind)


def test_an_answer_is_read_as_it_was_meant() -> None:
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    http.send(h11.EndOfMessage())
    http.receive_data(written(429, [("Content-Length", "2"), ("Retry-After", "1")], b"{}"))
    answer, content = http.next_event(), http.next_event()

    assert isinstance(answer, h11.Response)
    assert isinstance(content, h11.Data)
    assert (answer.status_code, dict(answer.headers)[b"retry-after"], bytes(content.data)) == (429, b"1", b"{}")
