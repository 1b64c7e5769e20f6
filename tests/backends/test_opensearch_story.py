"""The promise against a real OpenSearch: the old user is deleted in the instant `drained` is read."""

from pathlib import Path

import pytest
import trio

from tests.story.driver import launched, policy

pytestmark = pytest.mark.backend

LINES = 4000
ROTATIONS = 4


async def test_rotations_from_one_user_to_the_next_lose_no_line_and_see_no_401(opensearch, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.touch()
    released: list[str] = []

    def heed(message: dict) -> None:
        if message["type"] == "ack" and message["stage"] == "drained":
            for user in message["credentials"]["released"]:
                opensearch.delete_user(user)
                released.append(user)

    def text(user: str) -> str:
        tls = f"tls: {{ca: {opensearch.ca}}}"
        output = f'  main: {{type: elasticsearch, hosts: ["{opensearch.url}"], {tls}, credential: {user}}}\n'
        stream = "data_stream: {dataset: rotation}"
        return policy(outputs=output, inputs=f'  access: {{type: file, paths: ["{log}"], {stream}}}\n')

    async with launched(tmp_path / "state") as sidecar:
        sidecar.on_message = heed
        await sidecar.hello()
        for rotation in range(ROTATIONS):
            name, password = await trio.to_thread.run_sync(opensearch.create_writer, f"writer-{rotation}")
            secret = {name: {"username": name, "password": password}}
            await sidecar.policy(rotation + 1, text(name), secret)
            part = LINES // ROTATIONS
            lines = [f"line {n} of a log that a user reads" for n in range(rotation * part, (rotation + 1) * part)]
            async with await trio.open_file(log, "a") as file:
                await file.write("\n".join([*lines, ""]))
            await sidecar.ack(rotation + 1, "drained", seconds=120)
        await sidecar.state(lambda observed: observed["queue"]["events"] == 0, seconds=120)
        observed = await sidecar.observe()
        stopped = await sidecar.stop()

    found = [hit["_source"]["message"] for hit in opensearch.documents("logs-rotation-default")]
    assert sorted(int(message.split()[1]) for message in found) == list(range(LINES))
    assert released == [f"writer-{n}" for n in range(ROTATIONS - 1)]
    assert observed["state"] == "HEALTHY"
    assert stopped["undelivered"] == 0
    told = [unit["message"] for m in sidecar.said if m["type"] == "observed" for unit in (m, *m["units"])]
    assert not [message for message in told if "401" in message]
