"""Requests to an API server: one object, a list, a write, or a watch.

    async with connected(config) as client:
        policy = await client.get(POLICIES, "web")
        at = {"uid": uid(policy), "version": version(policy)}
        await client.patch(POLICIES, "web", {"status": {…}}, subresource="status", **at)

Every read is a quorum read: the server's cache, which may be old, is not asked (resourceVersion is empty). Every call
ends within its seconds: 429 and 503 with Retry-After are obeyed within them, and a refused credential is read anew
once. A read whose connection broke is asked once more; a write is not, since nobody knows what became of it.

A write names what it is for by `uid` and `version`, and is refused with Conflict if the object is another one by then.
Unknown fields are refused (`fieldValidation=Strict`), so a CustomResourceDefinition that is older than this program
says so, instead of dropping what it does not know.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
import trio

from shipper.apiserver import watching
from shipper.apiserver.config import Configuration
from shipper.apiserver.connections import Connections, Request, TooLarge
from shipper.apiserver.errors import ApiError, Asked, Busy, Gone, Invalid, Unauthorized, Unreachable, failure
from shipper.apiserver.login import Held, Login
from shipper.apiserver.objects import SECRETS, Event, Kind, Listing, Object
from shipper.process.environment import REAL, Environment
from shipper.sdk.http_answer import NoAnswer
from shipper.sdk.http_answer import Unreachable as NotConnected

SECONDS = 10.0
SHORT_PAGE_SECONDS = 0.05
"""After a page that has fewer items than it may have, and is not the last one: there may be any number of these."""
"""The longest call, where nothing else is said."""
MOST_CALLS = 8
"""At a time; more wait for their turn, within their seconds."""
PAGE = 200
"""Objects of one answer to a list."""
MERGE_PATCH = "application/merge-patch+json"
ONLY_METADATA = "application/json;as=PartialObjectMetadata{s};v=v1;g=meta.k8s.io"
LARGEST_LISTING = 256 << 20
"""Bytes of all pages of a list together: anybody who may write to the server makes its objects."""
_LONGEST_PAUSE = 120.0

T = TypeVar("T")


class _ListMetadata(msgspec.Struct, frozen=True):
    version: str = msgspec.field(default="", name="resourceVersion")
    goes_on: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct, frozen=True):
    """A page of a list."""

    items: list[Object] | None = None
    metadata: _ListMetadata = _ListMetadata()


class Client:
    """See the module; use `connected`."""

    def __init__(self, connections: Connections, namespace: str) -> None:
        self.namespace = namespace
        """That of the configuration, which an empty `namespace` means in all methods."""
        self._connections = connections
        self._turns = trio.CapacityLimiter(MOST_CALLS)

    @property
    def host(self) -> str:
        """The server's address."""
        return self._connections.host

    async def get(self, kind: Kind, name: str, *, namespace: str = "", seconds: float = SECONDS) -> Object:
        """Returns an object as it is now. Raises ApiError."""
        asked = self._asked("get", kind, namespace, name)
        return await self._call(Request("GET", kind.path(asked.namespace, name)), asked, seconds)

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        seconds: float = SECONDS,
    ) -> Listing:
        """Returns all objects of a kind as they are at one instant, which `Listing.version` names. Raises ApiError.

        `labels` and `fields` are selectors; with `metadata_only` objects have nothing but their metadata.
        """
        asked = self._asked("list", kind, namespace)
        query = {"labelSelector": labels, "fieldSelector": fields}
        accept = ONLY_METADATA.format(s="List") if metadata_only else "application/json"

        async def pages() -> Listing:
            while True:
                try:
                    return await self._pages(kind, asked, query, accept)
                except Gone:  # the instant is too long ago to go on with its pages
                    await trio.sleep(0.1)

        return await self._within(seconds, asked, pages)

    async def version(self, kind: Kind, *, namespace: str = "", fields: str = "", seconds: float = SECONDS) -> str:
        """Returns the version of a list of this kind, without its items. Raises ApiError."""
        asked = self._asked("list", kind, namespace)
        path = kind.path(asked.namespace) + _query({"fieldSelector": fields, "limit": "1"})
        found = await self._call(Request("GET", path, accept=ONLY_METADATA.format(s="List")), asked, seconds)
        return _list_version(found)

    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", seconds: float = SECONDS) -> Object:
        """Returns the new object. Raises ApiError, AlreadyExists among them."""
        asked = self._asked("create", kind, namespace)
        body = msgspec.json.encode(obj)
        return await self._call(Request("POST", kind.path(asked.namespace) + _STRICT, body), asked, seconds)

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        uid: str = "",
        version: str = "",
        namespace: str = "",
        seconds: float = SECONDS,
    ) -> Object:
        """Merges `patch` into an object, and returns it as it is then. Raises ApiError, Conflict among them.

        With `uid` or `version`, nothing is written to another object of the name, or to a newer state.
        """
        asked = self._asked("patch", kind, namespace, name, subresource)
        conditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        whole = {**patch, "metadata": {**(patch.get("metadata") or {}), **conditions}} if conditions else patch
        path = kind.path(asked.namespace, name, subresource) + _STRICT
        return await self._call(Request("PATCH", path, msgspec.json.encode(whole), MERGE_PATCH), asked, seconds)

    async def replace(
        self,
        kind: Kind,
        name: str,
        obj: Object,
        *,
        subresource: str = "",
        namespace: str = "",
        seconds: float = SECONDS,
    ) -> Object:
        """Puts an object in the place of that with the resourceVersion in it, and returns it as it is then.

        Raises ApiError, Conflict among them.
        """
        asked = self._asked("update", kind, namespace, name, subresource)
        path = kind.path(asked.namespace, name, subresource) + _STRICT
        return await self._call(Request("PUT", path, msgspec.json.encode(obj)), asked, seconds)

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        namespace: str = "",
        seconds: float = SECONDS,
    ) -> None:
        """Deletes an object; with finalizers, it is there until they are gone. Raises ApiError, as `patch` does."""
        asked = self._asked("delete", kind, namespace, name)
        conditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        body = msgspec.json.encode({"preconditions": conditions} if conditions else {})
        await self._call(Request("DELETE", kind.path(asked.namespace, name), body), asked, seconds)

    def watch(
        self,
        kind: Kind,
        *,
        after: str,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        initial: bool = False,
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Iterates over the changes after a version, once and in order, until the server ends that.

        With `metadata_only` objects have nothing but their metadata. With `initial`, all objects come first, and SYNCED
        after them. The object of SYNCED has only a version: all changes up to it were yielded; it comes at other times
        too. The iterator raises ApiError: Gone if there are changes that cannot be had any more, Unreachable for a
        connection that broke or is silent.
        """
        asked = self._asked("watch", kind, namespace)
        query = {"labelSelector": labels, "fieldSelector": fields, "resourceVersion": "" if initial else after}
        accept = ONLY_METADATA.format(s="") if metadata_only else "application/json"
        path = kind.path(asked.namespace)
        return watching.watch(self._begin, path, query, asked, self.host, initial=initial, accept=accept)

    # -- a call --------------------------------------------------------------------------------------------------------

    def _asked(self, verb: str, kind: Kind, namespace: str, name: str = "", subresource: str = "") -> Asked:
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        is_secret = (kind.group, kind.plural) == (SECRETS.group, SECRETS.plural)
        return Asked(verb, resource, kind.group, namespace or self.namespace, name, is_secret)

    async def _pages(self, kind: Kind, asked: Asked, query: Mapping[str, str], accept: str) -> Listing:
        items: list[Object] = []
        goes_on, limit, size = "", PAGE, 0
        while True:
            path = kind.path(asked.namespace) + _query({**query, "limit": str(limit), "continue": goes_on})
            try:
                body = await self._body(Request("GET", path, accept=accept), asked)
            except TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            size += len(body)
            if size > LARGEST_LISTING:
                most = LARGEST_LISTING >> 20
                raise Invalid(f"{self.host}: {asked}: more than {most} MiB; delete what nobody needs of it")
            page = self._decoded(body, asked, _Page)
            items += page.items or ()
            goes_on = page.metadata.goes_on or ""
            if not goes_on:
                return Listing([_of(kind, item) for item in items], page.metadata.version)
            if len(page.items or ()) < limit:
                await trio.sleep(SHORT_PAGE_SECONDS)

    async def _call(self, request: Request, asked: Asked, seconds: float) -> Object:
        return await self._within(seconds, asked, lambda: self._answered(request, asked))

    async def _within(self, seconds: float, asked: Asked, call: Callable[[], Awaitable[T]]) -> T:
        try:
            with trio.move_on_after(seconds):
                async with self._turns:
                    return await call()
        except NoAnswer as error:
            raise unanswered(error, asked) from None
        raise Unreachable(f"{self.host}: {asked}: no answer within {seconds:g} s", code="timed_out")

    async def _answered(self, request: Request, asked: Asked) -> Object:
        """Returns the object of a good answer; raises ApiError and NoAnswer."""
        return self._decoded(await self._body(request, asked), asked, dict[str, Any])

    async def _body(self, request: Request, asked: Asked) -> bytes:
        async with self._begin(request, asked) as answer:
            body: bytes = await answer.body()
            return body

    def _decoded(self, body: bytes, asked: Asked, into: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=into)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Unreachable(f"{self.host}: {asked}: the answer is not an object", code="bad_answer") from None

    @asynccontextmanager
    async def _begin(self, request: Request, asked: Asked) -> AsyncIterator[Any]:
        """Yields the beginning of a good answer, after as many requests as that takes; raises ApiError and NoAnswer."""
        async with Attempts(self._connections, request, asked) as answer:
            yield answer


class Attempts:
    """The requests of one call, until an answer is good or final."""

    def __init__(self, connections: Connections, request: Request, asked: Asked) -> None:
        self._connections, self._request, self._asked = connections, request, asked
        self._open: AbstractAsyncContextManager[Any] | None = None
        self._is_renewed = False
        self._is_repeated = not asked.is_read

    async def __aenter__(self) -> Any:
        held = await self._connections.login.held()
        while True:
            try:
                answer = await self._enter(held)
            except NoAnswer as error:
                if self._is_repeated or isinstance(error, NotConnected):
                    raise
                self._is_repeated = True
                continue
            if 200 <= answer.status < 300:
                return answer
            held = await self._after(answer, held)

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._leave(*raised)

    async def _enter(self, held: Held) -> Any:
        block = self._connections.begin(self._request, held)
        answer = await block.__aenter__()
        self._open = block
        return answer

    async def _leave(self, *raised: Any) -> bool | None:
        block, self._open = self._open, None
        return None if block is None else await block.__aexit__(*(raised or (None, None, None)))

    async def _after(self, answer: Any, held: Held) -> Held:
        """Returns the credential for the next request, after the wait that the server wants; raises ApiError."""
        try:
            error = failure(answer.status, await answer.body(), self._asked, self._connections.host)
        finally:
            await self._leave()
        if isinstance(error, Unauthorized) and not self._is_renewed and self._connections.login.can_renew:
            self._is_renewed = True
            return await self._connections.login.held(refused=held)
        if not isinstance(error, Busy):
            raise error
        await self._pause(error, answer.headers.get("retry-after", ""))
        return await self._connections.login.held()

    async def _pause(self, error: Busy, said: str) -> None:
        """Waits as long as the server wants; raises the error if the call would be over by then."""
        error.retry_after = min(float(said), _LONGEST_PAUSE) if said.isascii() and said.isdigit() else 0.0
        is_too_long = trio.current_time() + error.retry_after >= trio.current_effective_deadline()
        if not said or is_too_long:
            raise error
        await trio.sleep(max(0.1, error.retry_after))


@asynccontextmanager
async def connected(config: Configuration, environment: Environment = REAL) -> AsyncIterator[Client]:
    """Yields a client; contacts nobody. Its connections are aborted at the end of the block."""
    login = Login(config.credential, environment)
    connections = Connections(config.server, config.trust, login, environment)
    try:
        yield Client(connections, config.namespace)
    finally:
        await connections.aclose()


def unanswered(error: NoAnswer, asked: Asked) -> ApiError:
    """Returns the error of a call without an answer."""
    return Unreachable(f"{error}, to: {asked}", code=error.code)


def _query(values: Mapping[str, str]) -> str:
    given = {key: value for key, value in values.items() if value}
    return f"?{urlencode(given)}" if given else ""


_STRICT = _query({"fieldValidation": "Strict", "fieldManager": "shipper"})


def _list_version(found: Object) -> str:
    version = (found.get("metadata") or {}).get("resourceVersion")
    return version if isinstance(version, str) else ""


def _of(kind: Kind, item: Object) -> Object:
    """An item of a list, which comes without the kind that each object has elsewhere."""
    return {"apiVersion": kind.api_version, "kind": kind.name, **item}
