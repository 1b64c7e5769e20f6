"""The program `shipper`: finds the verb, runs it, and turns its end into an exit status.

| status | meaning |
|---|---|
| 0 | done |
| 1 | an error that a person can read above |
| 2 | wrong usage of the command line |
| 69 | the store of a fleet cannot be reached, or refuses this client |
| 74 | the system refused a file or a channel, such as standard output on a full disk |
| 75 | another process owns the state directory: try again when it has ended |
| 78 | a wrong value of an option, or in a configuration file; a refused policy; a state that these keys do not open |
| 130, 141 | interrupted; standard output was closed by its reader |

`status` returns the health as 0 to 3 (`commands/status.py`), and `fleet` an answer as 0 to 5 (`commands/fleet`).

A verb is imported only when it is chosen, since a supervisor waits for the first line of `shipper run` (importing
aiohttp alone takes 0.2 s); therefore the list of verbs is a table here, and not read from the modules.
"""

# The imports stand below the signal, since they take longer than a person who has mistyped.
# ruff: noqa: E402
from __future__ import annotations

import signal

_interrupt = signal.getsignal(signal.SIGINT)
if _interrupt is signal.default_int_handler:
    # Nobody catches KeyboardInterrupt during imports: a Ctrl-C would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NoReturn

import click

from shipper import __version__
from shipper.process import ending
from shipper.sdk.errors import OptionError, PolicyError, ShipperError, StateBusy, StateLocked

signal.signal(signal.SIGINT, _interrupt)

FOR_PEOPLE = {
    "supervise": "Watch policy files, and keep a shipper running.",
    "demo": "Ship a while into a small local backend and rotate its credential.",
    "validate": "Check policy files, and report every mistake with its place.",
    "test": "Run the tests of policy files, or ask the destinations of one.",
    "setup": "Show what a destination should have for a policy, and write it on request.",
    "status": "Show the state of a running shipper.",
    "top": "Watch a running shipper on a terminal.",
    "tap": "Show a sample of the events that pass a point.",
    "order": "End a drain that cannot end by itself, and look after dead letters.",
    "fleet": "Publish one policy for many hosts, and ask whether all have drained.",
    "schema": "Print the JSON Schema of policies, for editors.",
}
FOR_MACHINES = {
    "run": "Run the sidecar: it takes policies on standard input, and answers on standard output.",
}
_VERBS = FOR_PEOPLE | FOR_MACHINES
_STATUS: dict[type[ShipperError], int] = {
    OptionError: 78,
    PolicyError: 78,
    StateLocked: 78,
    StateBusy: 75,
}


class Verbs(click.Group):
    """A group whose commands are imported when they are chosen."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses empty arguments: an unset variable would mean this directory, or all outputs."""
        for before, argument in pairwise(["", *args]):
            if not argument or (argument.startswith("--") and argument.endswith("=")):
                name = argument or (before if before.startswith("-") else "an argument")
                raise click.UsageError(f"{name} is empty (an unset variable?)", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Returns what the verb does; 141 where nobody reads standard output, which click would make 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            return _report(error)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the verb; names one that is written nearly so, as click does for commands that it has imported."""
        name = args[0]
        if name not in _VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, _VERBS, 1)
            ctx.fail(f"No such command '{name}'." + "".join(f" Did you mean '{verb}'?" for verb in near))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        command = importlib.import_module(f"shipper.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in (("For people", FOR_PEOPLE), ("For machines", FOR_MACHINES)):
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="shipper")
def shipper() -> None:
    """Ships logs, and reports when an old credential can be revoked.

    \b
    Try it:        shipper demo
    Use it:        shipper supervise policy.yaml --state /var/lib/shipper
    Embed it:      shipper run --state DIR
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits; without `arguments` it is that of the process."""
    end = ending.prepare() if arguments is None else sys.exit
    _name()
    end(_run(arguments) or _flush())


def _name() -> None:
    """Calls the process `shipper` in `ps`, `top` and the journal, and not after its interpreter."""
    with suppress(OSError), open("/proc/self/comm", "w") as comm:
        comm.write("shipper")


def _run(arguments: Sequence[str] | None) -> int:
    try:
        end = shipper.main(arguments, prog_name="shipper", standalone_mode=False)
    except click.Abort:
        return 130
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (ShipperError, KeyboardInterrupt, OSError) as error:
        return _report(error)
    except BaseExceptionGroup as group:
        single = _single(group)
        if not isinstance(single, ShipperError | KeyboardInterrupt | OSError):
            raise
        return _report(single)
    return end if isinstance(end, int) else 0


def _show(error: click.ClickException) -> None:
    """Prints a wrong usage as click does, or as one error of the journal: without the usage, which is no error."""
    from shipper.process import log

    if log.is_journal(2):
        _say(error.format_message())
    else:
        error.show()


def _single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns an interrupt among the leaves of nested groups, or the only leaf."""
    interrupts, others = group.split(KeyboardInterrupt)
    if interrupts is not None and others is None:
        return KeyboardInterrupt()
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _report(error: ShipperError | KeyboardInterrupt | OSError) -> int:
    """Prints in one line what ended the program; returns the status."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, BrokenPipeError):
        return _discard_output(141)
    if isinstance(error, OSError) and error.filename:
        _say(f"{error.filename}: {error.strerror}")
        return 74
    if isinstance(error, OSError):
        _say(f"standard output or another channel: {error.strerror or error}")
        return _discard_output(74)
    from shipper.fleet.store import StoreError  # most processes are in no fleet

    if isinstance(error, StoreError):
        _say(f"the store of the fleet: {error}")
        return 69
    _say(str(error))
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 1)


def _say(text: str) -> None:
    """Prints to standard error, in the format of the log if it is configured; names of files cannot control a
    terminal."""
    from shipper.process import log

    if log.is_json():
        log.get("shipper").error(text)
    else:
        line = f"shipper: {log.printable(text)}"
        click.echo(log.marked(line.encode(errors="replace"), "error").decode() if log.is_journal(2) else line, err=True)


def _flush() -> int:
    """Flushes standard output, so that a full disk or a closed pipe shows in the status."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return _report(error)
    return 0


def _discard_output(status: int) -> int:
    """Redirects the interpreter's last flush to nothing, since it would report the failure again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


if __name__ == "__main__":
    main()
