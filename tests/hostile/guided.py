"""Bytes drawn by coverage, for the functions that read foreign ones.

    python -m tests.hostile.guided --seconds 60 [--target NAME]

Each of `targets` runs in a process of its own, in which the modules concerned, and no others, are instrumented by
atheris; libFuzzer keeps what reaches something new (`.cache/guided/NAME/corpus`), so that a later run goes on. A find
ends its target's run and stays in `.cache/guided/NAME/`. atheris has wheels for Linux on x86-64 only.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import click

CONCERNED = {
    "control-line": ("shipper.protocol.messages", "shipper.sdk.credentials"),
    "document": ("shipper.policy.document",),
    "policy": (
        "shipper.policy.policy",
        "shipper.policy.settings",
        "shipper.sdk.units",
        "shipper_plugins.processors.drop",
        "shipper.sdk.patterns",
    ),
    "bulk-request": tuple(
        f"shipper_plugins.inputs.bulk_{part}" for part in ("request", "action", "document", "answer")
    ),
    "bulk-headers": ("shipper_plugins.inputs.bulk_limits", "shipper_plugins.inputs.bulk_answer"),
    "compressed-body": ("shipper.sdk.bodies",),
    "backend-answer": ("shipper_plugins.outputs.bulk",),
    "backend-headers": ("shipper_plugins.outputs.bulk",),
    "stored": ("shipper.sdk.event", "shipper_plugins.inputs.tail.stream"),
    "log-lines": (
        *(
            f"shipper_plugins.processors.{part}"
            for part in ("parse", "access", "nginx", "apache", "pairs", "separated")
        ),
        *("shipper_plugins.processors.syslog_lines", "shipper_plugins.inputs.syslog_message"),
        "shipper.sdk.event",
    ),
}
"""By target."""
WORK = Path(".cache") / "guided"
LIMITS = ("-rss_limit_mb=1024", "-timeout=20", "-max_len=32768", "-print_final_stats=1", "-verbosity=1")
_FIGURES = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_FIND = re.compile(r"Uncaught Python exception: ===\n(.*?)\n(?:==\d+==|NOTE: )|(SUMMARY: libFuzzer: .*)", re.DOTALL)


@click.command()
@click.option("--seconds", default=60, show_default=True, help="For each target.")
@click.option("--target", "only", type=click.Choice(list(CONCERNED)), help="One of them (default: all).")
@click.option("--inside", is_flag=True, hidden=True)
@click.argument("arguments", nargs=-1)
def main(seconds: int, only: str | None, inside: bool, arguments: tuple[str, ...]) -> None:
    """Draw bytes, and say how many, how fast and how far they came; exit status 1 if there was a find."""
    if importlib.util.find_spec("atheris") is None:
        raise click.ClickException(
            f"atheris is missing: {sys.executable} -m pip install --group guided (Linux, x86-64)"
        )
    if inside:
        assert only is not None
        fuzz(only, list(arguments))
    sound = [explore(name, seconds) for name in ([only] if only else CONCERNED)]
    sys.exit(0 if all(sound) else 1)


def explore(name: str, seconds: int) -> bool:
    """Run one target in a process, and tell of it; whether there was no find."""
    corpus = WORK / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.hostile.guided", "--target", name, "--inside", "--", *LIMITS]
    command += [f"-max_total_time={seconds}", f"-artifact_prefix={corpus.parent}/", str(corpus)]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    print(summary(name, said.stdout), flush=True)
    if said.returncode:
        (corpus.parent / "find.txt").write_text(said.stdout)
        print(f"  FOUND: {_reason(said.stdout)}\n  see {corpus.parent}/find.txt", flush=True)
    return said.returncode == 0


def summary(name: str, said: str) -> str:
    """One line of figures."""
    stats = dict(re.findall(r"stat::(\w+): +(\d+)", said))
    edges, features, kept = [("0", "0", "0"), *_FIGURES.findall(said)][-1]
    return (
        f"{name}: {int(stats.get('number_of_executed_units', 0)):,} executions "
        f"({stats.get('average_exec_per_sec', '?')}/s), {edges} edges, {features} features, {kept} inputs kept, "
        f"at most {stats.get('peak_rss_mb', '?')} MiB"
    )


def _reason(said: str) -> str:
    found = _FIND.search(said)
    return (found[1] or found[2]).strip() if found else said[-2000:]


def fuzz(name: str, arguments: list[str]) -> None:
    """In the process of one target: never returns."""
    import atheris

    unconcerned = set(modules()).difference(CONCERNED[name])
    with atheris.instrument_imports(include=["shipper", "shipper_plugins"], exclude=unconcerned):
        from tests.hostile.frames import mutated
        from tests.hostile.seeds import SEEDS
        from tests.hostile.targets import TARGETS, within_time

    def change(content: bytes, limit: int, seed: int) -> bytes:
        """By libFuzzer, or as hostile frames are damaged: with what stands in JSON and YAML."""
        return atheris.Mutate(content, limit) if seed % 2 else mutated(Random(seed), content)[:limit]

    for seed in SEEDS[name]:
        (Path(arguments[-1]) / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    atheris.Setup([sys.argv[0], *arguments], within_time(TARGETS[name]), custom_mutator=change)
    atheris.Fuzz()


def modules() -> list[str]:
    """All modules of the product; imports its two packages only."""
    names = []
    for package in map(importlib.import_module, ("shipper", "shipper_plugins")):
        names += [package.__name__, *_below(list(package.__path__), package.__name__)]
    return names


def _below(paths: list[str], package: str) -> Iterator[str]:
    for module in pkgutil.iter_modules(paths):
        name = f"{package}.{module.name}"
        yield name
        if module.ispkg:
            yield from _below([f"{path}/{module.name}" for path in paths], name)


if __name__ == "__main__":
    main()
