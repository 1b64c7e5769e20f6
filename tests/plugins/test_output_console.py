import json
import os
import subprocess
import sys
import textwrap

import orjson
import pytest
import trio

from shipper.plugin import Batch, OutputContext
from shipper.sdk.aio import open_asyncio
from shipper_plugins.console import ConsoleOutput

EVENTS = Batch.lines(b"one\ntwo\n", offset=0, shared={"service": {"name": "shop"}})


async def shown(output: ConsoleOutput, capfd: pytest.CaptureFixture[str]) -> str:
    async with open_asyncio() as aio, output.open(OutputContext("console", aio)) as sender:
        await sender.send(EVENTS)
    out, err = capfd.readouterr()

    assert out == ""
    return err


async def test_events_are_lines_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    text = await shown(ConsoleOutput(), capfd)

    assert [orjson.loads(line) for line in text.splitlines()] == EVENTS.whole()


async def test_a_pretty_event_takes_several_lines(capfd: pytest.CaptureFixture[str]) -> None:
    text = await shown(ConsoleOutput(pretty=True), capfd)

    assert text == "".join(json.dumps(event, indent=2) + "\n" for event in EVENTS.whole())


def run(program: str, stderr: int) -> subprocess.CompletedProcess[str]:
    head = """
        import trio
        from shipper.sdk.aio import open_asyncio
        from shipper.plugin import Batch, Later, OutputContext
        from shipper_plugins.console import ConsoleOutput

        BATCH = Batch.lines(b"x" * 1000 + b"\\n", offset=0, shared={})
    """
    text = textwrap.dedent(head) + textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=60)


BLOCKED = """
    import os

    async def main():
        async with open_asyncio() as aio, ConsoleOutput().open(OutputContext("console", aio)) as sender:
            with trio.move_on_after(0.3) as scope:
                for _ in range(1000):
                    await sender.send(BATCH)
            print(scope.cancelled_caught)

    trio.run(main)
"""


@pytest.mark.parametrize("blocking", [True, False])
def test_a_standard_error_that_nobody_reads_does_not_hang_the_process(blocking: bool) -> None:
    read, write = os.pipe()
    try:
        os.set_blocking(write, blocking)
        ended = run(BLOCKED, write)
    finally:
        os.close(read)
        os.close(write)

    assert (ended.returncode, ended.stdout) == (0, "True\n")


BROKEN = """
    async def main():
        async with open_asyncio() as aio, ConsoleOutput().open(OutputContext("console", aio)) as sender:
            try:
                await sender.send(BATCH)
            except Later as error:
                print(error)

    trio.run(main)
"""


def test_a_standard_error_that_is_gone_means_later() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = run(BROKEN, write)
    finally:
        os.close(write)

    assert (ended.returncode, ended.stdout) == (0, "standard error: Broken pipe\n")


async def test_a_cancelled_send_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    async with open_asyncio() as aio, ConsoleOutput().open(OutputContext("console", aio)) as sender:
        with trio.CancelScope() as scope:
            scope.cancel()
            await sender.send(EVENTS)

    assert capfd.readouterr().err == ""
