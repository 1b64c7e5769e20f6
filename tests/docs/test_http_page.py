"""The commands of docs/http.md post to the input of its first policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from shipper_demo.ports import free_port
from tests.docs.reader import environment, furnish, running, shell, until
from tests.readme import Block, Page

PAGE = "docs/http.md"


@pytest.mark.needs("curl")
async def test_what_is_posted_is_counted_in_the_answer(tmp_path: Path) -> None:
    page, address = Page(PAGE), f"127.0.0.1:{free_port()}"
    place = furnish(tmp_path, {})
    (place / "bin/curl").unlink()
    (place / "app.log").write_text("one\ntwo\n")
    (policy, *_) = [block.text for block in page.blocks if block.language == "yaml"]
    (place / "policy.yaml").write_text(policy.replace("127.0.0.1:8080", address))
    env = environment(place)
    start = Block("sh", "background", "shipper supervise policy.yaml --state ./state\n")
    with running(place, start, env) as output:
        output.start()
        await until(lambda: "revision 1 active" in output.text)
        said = "".join([await shell(place, one.text.replace("127.0.0.1:8080", address), env) for one in page.shell()])

    assert said.count('{"events":1}') == 1
    assert said.count('{"events":2}') == 1
    assert said.count('{"status":"ok"}') == 1
