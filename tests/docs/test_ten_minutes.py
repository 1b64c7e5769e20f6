"""A newcomer does what docs/ten-minutes.md says, and sees what it shows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.docs.reader import assert_in_order, environment, furnish, running, shell, until
from tests.readme import Page

PAGE = Page("docs/ten-minutes.md")


async def test_the_first_event_is_there_and_a_change_of_the_policy_is_told(tmp_path: Path) -> None:
    place = furnish(tmp_path, PAGE.files)
    env = environment(place)
    events = place / "events.ndjson"
    with running(place, PAGE.one("sh", "background"), env) as output:
        for block in PAGE.shell("", "background"):
            if block.info == "background":
                output.start()
                await until(lambda: "revision 2 drained" in output.text)
                continue
            said = await shell(place, block.text, env)
            if ">> app.log" in block.text and "cart filled" in block.text:
                await until(lambda: len(events.read_text().splitlines()) == 3)
            if "jobs.yaml" in block.text:
                await until(lambda: "revision 3 drained" in output.text and "job 7" in events.read_text())

    first, second, third, fourth = map(json.loads, events.read_text().splitlines())
    assert [first["user"]["name"], second["log"]["level"]] == ["ada", "error"]
    assert [third["message"], fourth["message"]] == ["cart filled", "job 7 failed"]
    assert "HEALTHY" in said
    assert_in_order(output.text, PAGE.one("text", "output").text)
