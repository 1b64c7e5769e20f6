"""The examples of docs/supervisors.md, said to a real sidecar. In a transcript, `…` stands for anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shipper.sdk.aio import open_asyncio
from shipper.testing import open_destination
from tests.readme import Page
from tests.story.driver import launched

PAGE = Page("docs/supervisors.md")


async def test_the_transcript_is_what_a_sidecar_answers(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one\n")
    lines = PAGE.one("json", "transcript").text.splitlines()
    async with open_asyncio() as aio, open_destination(aio) as destination, launched(tmp_path / "state") as sidecar:
        heard = 0
        for line in lines:
            direction, text = line[0], line[2:]
            if direction == ">":
                text = text.replace("/var/log/app.log", str(tmp_path / "app.log"))
                await sidecar.send(text.replace("http://127.0.0.1:9200", destination.url).encode())
                continue
            said = await sidecar.wait(lambda m: m["type"] != "observed", since=heard)
            heard = sidecar.said.index(said, heard) + 1

            assert fits(json.loads(text), said), f"{text}\nwas answered by\n{json.dumps(said)}"


def fits(shown: Any, said: Any) -> bool:
    """Whether they are equal, but for what `…` stands for."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(said, dict):
        return shown.keys() == said.keys() and all(fits(shown[key], said[key]) for key in shown)
    if isinstance(shown, list) and isinstance(said, list):
        return len(shown) == len(said) and all(map(fits, shown, said))
    return bool(shown == said)
