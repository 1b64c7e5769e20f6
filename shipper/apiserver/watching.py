"""One watch, from its request to its end.

A connection may be dead without a sign: a proxy has lost its other half, or the server hangs. So the server is asked to
end each watch after some minutes, and one that says nothing for SILENT_SECONDS is given up. The server sends a bookmark
about each minute, but none of a resource that has not changed, so a quiet resource is simply watched anew.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from urllib.parse import urlencode

import trio

from shipper.apiserver.connections import Answer, Request
from shipper.apiserver.errors import Asked, Unreachable, of_object
from shipper.apiserver.objects import Event
from shipper.apiserver.stream import Lines, NotAWatch
from shipper.sdk.codes import Code
from shipper.sdk.http_answer import NoAnswer

SILENT_SECONDS = 70.0
LASTS = (240, 300)
"""Seconds after which the server ends a watch; at random, so that not all clients come back together."""
OPEN_SECONDS = 15.0
"""For the answer to begin, which may take the server a while: of a watch with all objects, for example."""

Begin = Callable[[Request, Asked], AbstractAsyncContextManager[Answer]]


class Silent(Unreachable):
    """Nothing came for SILENT_SECONDS; nothing is wrong with a resource that does not change."""

    code = Code.TIMED_OUT


@asynccontextmanager
async def watch(
    begin: Begin,
    path: str,
    query: Mapping[str, str],
    asked: Asked,
    host: str,
    *,
    initial: bool,
    accept: str = "application/json",
) -> AsyncIterator[AsyncIterator[Event]]:
    """See `Client.watch`."""
    wanted = {**query, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(random.randint(*LASTS))}
    if initial:
        wanted |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    target = f"{path}?{urlencode({key: value for key, value in wanted.items() if value})}"
    request = Request("GET", target, accept=accept)
    block = begin(request, asked)
    answer = await _begun(block, asked, host)
    try:
        async with aclosing(_events(answer, asked, initial=initial)) as events:  # type: ignore[type-var]
            yield events
    finally:
        with trio.CancelScope(shield=True):
            await block.__aexit__(None, None, None)


async def _begun(block: AbstractAsyncContextManager[Answer], asked: Asked, host: str) -> Answer:
    try:
        with trio.move_on_after(OPEN_SECONDS):
            return await block.__aenter__()
    except NoAnswer as error:
        raise Unreachable(f"{error}, to: {asked}", code=error.code) from None
    raise Unreachable(f"{host}: {asked}: no answer within {OPEN_SECONDS:g} s", code=Code.TIMED_OUT)


async def _events(answer: Answer, asked: Asked, *, initial: bool) -> AsyncIterator[Event]:
    lines = Lines()
    try:
        async with aclosing(answer.blocks()) as blocks:  # type: ignore[type-var]
            while (block := await _next(blocks, asked, answer.host)) is not None:
                for item in lines.feed(block):
                    if item.type == "ERROR":
                        raise of_object(item.object, asked, answer.host)
                    if item.type != "BOOKMARK":
                        yield Event(item.type, item.object)  # type: ignore[arg-type]
                    elif not initial or item.ends_initial:
                        initial = False
                        yield Event("SYNCED", {"metadata": {"resourceVersion": _version(item.object)}})
    except NotAWatch as error:
        raise Unreachable(f"{answer.host}: {asked}: {error}", code=Code.BAD_ANSWER) from None
    except NoAnswer as error:
        raise Unreachable(f"{error}: {asked}", code=error.code) from None


async def _next(blocks: AsyncIterator[bytes], asked: Asked, host: str) -> bytes | None:
    with trio.move_on_after(SILENT_SECONDS):
        return await anext(blocks, None)
    raise Silent(f"{host}: {asked}: nothing came for {SILENT_SECONDS:g} s")


def _version(bookmark: Mapping[str, dict[str, str]]) -> str:
    return (bookmark.get("metadata") or {}).get("resourceVersion") or ""
