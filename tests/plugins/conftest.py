"""What many tests of plugins need."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from shipper.plugin import Asyncio
from shipper.sdk.aio import open_asyncio


@pytest.fixture
async def aio() -> AsyncIterator[Asyncio]:
    with trio.fail_after(55):
        async with open_asyncio() as opened:
            yield opened


@pytest.fixture
def no_proxy_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
