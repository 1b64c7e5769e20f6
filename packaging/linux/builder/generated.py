"""Man pages and shell completions, from the commands themselves."""

from __future__ import annotations

import gzip
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from shipper import __version__
from shipper.__main__ import shipper

COMPLETIONS: dict[str, type[ShellComplete]] = {
    "usr/share/bash-completion/completions/shipper": BashComplete,
    "usr/share/zsh/vendor-completions/_shipper": ZshComplete,
    "usr/share/zsh/site-functions/_shipper": ZshComplete,
    "usr/share/fish/vendor_completions.d/shipper.fish": FishComplete,
}


def write(root: Path) -> None:
    """Writes all of them below `root`."""
    for command, context in commands(click.Context(shipper, info_name="shipper")):
        name = context.command_path.replace(" ", "-")
        _write(root / f"usr/share/man/man1/{name}.1.gz", gzip.compress(page(command, context).encode(), mtime=0))
    for place, kind in COMPLETIONS.items():
        complete = kind(shipper, {}, "shipper", "_SHIPPER_COMPLETE")
        script = complete.source_template % complete.source_vars()
        _write(root / place, script.encode())


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def commands(context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yields a command and, in turn, the commands below it."""
    command = context.command
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands(click.Context(below, parent=context, info_name=name))


def page(command: click.Command, context: click.Context) -> str:
    """Returns a man page in roff."""
    name = context.command_path.replace(" ", "-")
    sections = {
        "NAME": f"{_text(name)} \\- {_text(command.get_short_help_str(200))}",
        "SYNOPSIS": f".B {_text(context.command_path)}\n{_text(' '.join(command.collect_usage_pieces(context)))}",
        "DESCRIPTION": _description(command.help or ""),
        "OPTIONS": _definitions(_options(command, context)),
        "COMMANDS": _definitions(_below(command, context)),
        "SEE ALSO": _see(command, context),
    }
    head = f'.TH "{_text(name.upper())}" 1 "" "shipper {_text(__version__)}" "Commands"\n.nh\n.ad l\n'
    return head + "".join(f".SH {title}\n{body}\n" for title, body in sections.items() if body)


def _description(help: str) -> str:
    """Paragraphs; those after a line `\\b` keep their lines."""
    paragraphs = inspect.cleandoc(help).split("\n\n")
    return "\n.PP\n".join(
        f".nf\n{_text(one[2:])}\n.fi" if one.startswith("\b\n") else _text(one.replace("\n", " ")) for one in paragraphs
    )


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    options = (one for one in command.get_params(context) if isinstance(one, click.Option))
    records = (one.get_help_record(context) for one in options)
    return (record for record in records if record is not None)


def _below(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for one, its in commands(context):
        if one is not command and its.parent is context:
            yield its.command_path, one.get_short_help_str(200)


def _definitions(rows: Iterator[tuple[str, str]]) -> str:
    return "\n".join(f".TP\n\\fB{_text(term)}\\fR\n{_text(meaning)}" for term, meaning in rows)


def _see(command: click.Command, context: click.Context) -> str:
    near = [context.parent.command_path] if context.parent is not None else []
    near += [term for term, _ in _below(command, context)]
    return ", ".join(f"\\fB{_text(one.replace(' ', '-'))}\\fR(1)" for one in near)


def _text(text: str) -> str:
    """The text without any meaning for roff; a line may begin with a dot or an apostrophe."""
    plain = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq").replace("…", "...")
    )
    return re.sub(r"^(?=\.)", r"\\&", plain, flags=re.M)
