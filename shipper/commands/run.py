"""`shipper run`: the sidecar process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from shipper.process import collector
from shipper.sdk import descriptors

FOR_A_PERSON = """\
shipper run waits for `hello` on standard input: it speaks a protocol with a supervising agent, one JSON object a line.
For people there is `shipper supervise POLICY.yaml --state DIR`, which launches it. To stop: Ctrl-C.
To try the protocol by hand:  {"type":"hello","protocol":1}
"""
STOPPING = (signal.SIGTERM, signal.SIGINT)


@click.command("run")
@click.option("--state", required=True, type=click.Path(), help="The state directory; made if absent.")
@click.option("--http", metavar="HOST:PORT", help="Serve /livez, /readyz, /metrics and /status there (port 0: any).")
@click.option("--otlp", metavar="URL", help="Send own metrics and log there, by OTLP over HTTP (OTEL_… variables).")
def command(state: str, http: str | None, otlp: str | None) -> int:
    """Run the sidecar: it takes policies on standard input, and answers on standard output.

    It is launched by a supervising agent; people use `shipper supervise`. Logs go to standard error: as ECS JSON, on a
    terminal as text, or as SHIPPER_LOG_FORMAT says, which is `json` or `text`.

    \b
    Example:
      echo '{"type":"hello","protocol":1}' | shipper run --state /tmp/shipper
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until the sidecar handles them
    descriptors.open_closed()
    stdout = os.dup(1)
    os.dup2(2, 1)  # output of libraries is not part of the protocol
    if sys.stdin is not None and sys.stdin.isatty():
        click.echo(FOR_A_PERSON, err=True)
    with collector.importing():
        import trio

        from shipper.control.pipes import Stdin, Stdout
        from shipper.process import hardening, log, memory
        from shipper.sdk.errors import OptionError
        from shipper.sidecar import Options, Outside, run
        from shipper.status import export
        from shipper.status.http import parse_address

    log.configure()
    if os.path.exists(state) and not os.path.isdir(state):
        raise OptionError(f"--state {state}: not a directory")
    if http is not None:
        parse_address(http)
    to = None if otlp is None else export.settings(otlp, Path(state), os.environ)
    hardening.harden()
    descriptors.raise_limit()
    memory.tune()
    try:
        return trio.run(run, Options(Path(state), http, to, is_asked=True), Outside(Stdin(0), Stdout(stdout)))
    finally:
        log.flush()
