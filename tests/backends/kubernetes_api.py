"""A client of an API server for tests: no retries, no cache but of the paths of kinds.

It blocks: a test of trio that may not block its loop calls it in a thread.
"""

from __future__ import annotations

import http.client
import json
import select
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import yaml

PATIENCE = 60.0
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
AGENT = "shipper-tests"
_KIND_OF_CRD = "CustomResourceDefinition"

Object = dict[str, Any]


class Answer(NamedTuple):
    """An answer of the server; also of a refusal."""

    status: int
    body: Object
    headers: http.client.HTTPMessage

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Refused(Exception):
    """The server refused a request."""

    def __init__(self, request: str, answer: Answer) -> None:
        super().__init__(f"{request}: {answer.status} {answer.reason}: {answer.message}")
        self.answer = answer
        self.status = answer.status
        self.reason = answer.reason


def path(plural: str, namespace: str = "", name: str = "", sub: str = "", *, api: str = "v1") -> str:
    """The path of objects or of one: `path("leases", "ns", "a", api="coordination.k8s.io/v1")`."""
    root = f"/api/{api}" if "/" not in api else f"/apis/{api}"
    return "/".join(part for part in (root, f"namespaces/{namespace}" if namespace else "", plural, name, sub) if part)


@dataclass
class Api:
    """The server as one user sees it.

    One that `keeps` uses its connections again, which saves a handshake with each request, until `close`.
    """

    url: str
    ca: Path
    token: str = ""
    agent: str = AGENT
    keeps: bool = False
    _plurals: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict, repr=False)
    _idle: list[http.client.HTTPSConnection] = field(default_factory=list, repr=False)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    # -- any request ---------------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        media: str = "application/json",
        seconds: float = PATIENCE,
        **query: str,
    ) -> Answer:
        """Sends one request; a refusal is an answer too. Raises OSError and HTTPException of the connection."""
        with self._asked(method, path, body, media, seconds, query) as reply:
            text = reply.read()
            is_json = "json" in reply.headers.get("Content-Type", "")
            return Answer(reply.status, json.loads(text) if is_json else {"message": text.decode()}, reply.headers)

    def must(self, method: str, path: str, body: object = None, **how: Any) -> Object:
        """As `call`, again where the server asks for that, as for kinds that it was just given; raises Refused."""
        ends = time.monotonic() + PATIENCE
        while (answer := self.call(method, path, body, **how)).status == 429 and time.monotonic() < ends:
            time.sleep(0.1)
        if answer.status >= 400:
            raise Refused(f"{method} {path}", answer)
        return answer.body

    @contextmanager
    def watch(self, path: str, *, seconds: float = PATIENCE, **query: str) -> Iterator[Iterator[Object]]:
        """The events of a watch as they come, until the server ends it. `seconds` bounds the wait for each event.

        They raise IncompleteRead or OSError where the connection breaks off, and TimeoutError.
        """
        with self._asked("GET", path, None, "application/json", seconds, {"watch": "true", **query}) as reply:
            if reply.status != 200:
                raise Refused(f"WATCH {path}", Answer(reply.status, json.loads(reply.read()), reply.headers))
            yield (json.loads(line) for line in _lines(reply))

    @contextmanager
    def _asked(
        self, method: str, path: str, body: object, media: str, seconds: float, query: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        headers = {"Accept": "application/json", "Content-Type": media, "User-Agent": self.agent}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        target = f"{path}{'&' if '?' in path else '?'}{urlencode(query)}" if query else path
        connection = self._connection(seconds)
        is_done = False
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as reply:
                yield reply
                is_done = reply.isclosed() and not reply.will_close
        finally:
            if is_done and self.keeps:
                self._idle.append(connection)
            else:
                connection.close()

    def _connection(self, seconds: float) -> http.client.HTTPSConnection:
        """An idle one that the server has not ended, or a new one."""
        with suppress(IndexError):
            while not _is_quiet(found := self._idle.pop()):
                found.close()
            found.sock.settimeout(seconds)
            return found
        to = urlsplit(self.url)
        assert to.hostname
        return http.client.HTTPSConnection(to.hostname, to.port, timeout=seconds, context=self._tls)

    def close(self) -> None:
        """Closes the connections that it has kept."""
        while self._idle:
            self._idle.pop().close()

    # -- objects; each raises Refused ----------------------------------------------------------------------------------

    def get(self, path: str, **query: str) -> Object:
        """An object, or a list."""
        return self.must("GET", path, **query)

    def items(self, path: str, **query: str) -> list[Object]:
        found = self.get(path, **query)["items"]
        assert isinstance(found, list)
        return found

    def create(self, path: str, obj: Object, **query: str) -> Object:
        return self.must("POST", path, obj, **query)

    def replace(self, path: str, obj: Object, **query: str) -> Object:
        return self.must("PUT", path, obj, **query)

    def patch(self, path: str, change: Object, **query: str) -> Object:
        """A merge patch."""
        return self.must("PATCH", path, change, media=MERGE, **query)

    def delete(self, path: str, **query: str) -> Object:
        return self.must("DELETE", path, **query)

    # -- manifests -----------------------------------------------------------------------------------------------------

    def apply(self, manifests: str | Iterable[Object], namespace: str = "") -> list[Object]:
        """Applies objects, or the objects of a text of YAML, on the server's side.

        Those that belong to a namespace and name none go into `namespace`. Returns when the kinds of CRDs are served.
        """
        objects = yaml.safe_load_all(manifests) if isinstance(manifests, str) else manifests
        return [self._apply(obj, namespace) for obj in objects if obj]

    def _apply(self, obj: Object, namespace: str) -> Object:
        where = self.path_of(obj, namespace)
        done = self.must("PATCH", where, obj, media=APPLY, fieldManager=AGENT, force="true", fieldValidation="Strict")
        if obj["kind"] == _KIND_OF_CRD:
            self._wait_for(obj["spec"])
        return done

    def path_of(self, obj: Object, namespace: str = "") -> str:
        """The path of an object, by what the server says of its kind."""
        api, kind, metadata = obj["apiVersion"], obj["kind"], obj["metadata"]
        if (api, kind) not in self._plurals:
            served = self.get(path("", api=api))["resources"]
            self._plurals |= {
                (api, one["kind"]): (one["name"], one["namespaced"]) for one in served if "/" not in one["name"]
            }
        plural, namespaced = self._plurals[api, kind]
        return path(plural, metadata.get("namespace", namespace) if namespaced else "", metadata["name"], api=api)

    def _wait_for(self, crd: Object) -> None:
        """An answer of 404 says that a kind is not served yet, though its CRD may be established."""
        for version in crd["versions"]:
            if version["served"]:
                self._wait_until_served(path(crd["names"]["plural"], api=f"{crd['group']}/{version['name']}"))

    def _wait_until_served(self, plural: str) -> None:
        until(lambda: self.call("GET", plural, limit="1").status == 200, f"{plural} is served")


def _is_quiet(connection: http.client.HTTPSConnection) -> bool:
    """Whether the server has said nothing, such as that it ends."""
    heard = select.poll()
    heard.register(connection.sock, select.POLLIN)
    return not heard.poll(0)


def _lines(reply: http.client.HTTPResponse) -> Iterator[bytes]:
    """As `readline`, which takes a body that breaks off for one that ends."""
    rest = b""
    while chunk := reply.read1(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


def until(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Waits until something holds that a server does by itself."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
