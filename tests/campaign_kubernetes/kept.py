"""A client of the API server that keeps its connections: who edits thousands of times has no time for handshakes."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from tests.backends.kubernetes_api import Api


@dataclass
class KeptApi(Api):
    """One connection for each thread; one that breaks is made anew with the next request."""

    _here: threading.local = field(default_factory=threading.local, repr=False)
    _made: list[http.client.HTTPSConnection] = field(default_factory=list, repr=False)

    def close(self) -> None:
        """Closes all connections; no request may be under way."""
        for connection in self._made:
            connection.close()

    @contextmanager
    def _asked(
        self, method: str, path: str, body: object, media: str, seconds: float, query: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        headers = {"Accept": "application/json", "Content-Type": media, "User-Agent": self.agent}
        headers["Authorization"] = f"Bearer {self.token}"
        target = f"{path}?{urlencode(query)}" if query else path
        connection = self._connection(seconds)
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            reply = connection.getresponse()
            yield reply
            reply.read()
        except BaseException:
            connection.close()
            raise

    def _connection(self, seconds: float) -> http.client.HTTPSConnection:
        found: http.client.HTTPSConnection | None = getattr(self._here, "connection", None)
        if found is None:
            to = urlsplit(self.url)
            assert to.hostname
            found = http.client.HTTPSConnection(to.hostname, to.port, timeout=seconds, context=self._tls)
            self._here.connection = found
            self._made.append(found)
        return found
