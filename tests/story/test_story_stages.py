"""The real process aggregates a file: through kill -9, a cut and a stop each line is counted once."""

from __future__ import annotations

import json
from pathlib import Path

import trio

from tests.story.driver import Message, Sidecar, launched


def text(directory: Path, window: str) -> str:
    return f"""
version: 1
inputs: {{access: {{type: file, paths: ["{directory}/access.log"]}}}}
processors: [{{type: aggregate, window: {window}, count_field: lines, fields: {{log.offset: max}}}}]
outputs: {{main: {{type: file, path: {directory}/out.ndjson}}}}
"""


def write(directory: Path, count: int) -> None:
    with (directory / "access.log").open("a") as file:
        file.write("a line\n" * count)


async def has_read(sidecar: Sidecar) -> None:
    """Waits until all lines were emitted."""

    def is_read(observed: Message) -> bool:
        figures = next((unit.get("figures", {}) for unit in observed["units"] if unit["kind"] == "input"), {})
        return bool(figures.get("files") and not figures.get("unread_bytes"))

    await sidecar.state(is_read)


def counted(directory: Path) -> list[int]:
    out = directory / "out.ndjson"
    *events, _ = out.read_text().split("\n") if out.exists() else [""]
    return [json.loads(event)["lines"] for event in events]


async def test_each_line_is_counted_once_through_a_kill_a_cut_and_a_stop(tmp_path: Path) -> None:
    state = tmp_path / "state"
    write(tmp_path, 1000)
    async with launched(state) as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, text(tmp_path, "1h"))
        await has_read(sidecar)
        await sidecar.kill()
    assert counted(tmp_path) == []

    async with launched(state) as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, text(tmp_path, "1h"))
        await has_read(sidecar)
        await sidecar.policy(2, text(tmp_path, "30m"))
        await sidecar.ack(2, "active")
        with trio.fail_after(60):
            while not counted(tmp_path):  # noqa: ASYNC110 - nobody tells when the file is written
                await trio.sleep(0.01)
        assert counted(tmp_path) == [1000]
        write(tmp_path, 500)
        await has_read(sidecar)
        assert (await sidecar.stop())["undelivered"] == 0

    with trio.fail_after(60):
        while sum(counted(tmp_path)) < 1500:  # what was written last may not be looked at before a stop
            async with launched(state) as sidecar:
                await sidecar.hello()
                await sidecar.policy(2, text(tmp_path, "30m"))
                await has_read(sidecar)
                await sidecar.stop()
    assert sum(counted(tmp_path)) == 1500
