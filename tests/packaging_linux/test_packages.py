"""What the packages hold, without their installation."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from shipper import __version__
from tests.packaging_linux.conftest import LATER, ROOT

LINUX = ROOT / "packaging/linux"
PINS = dict(re.findall(r"^(\S+)==(\S+)", (LINUX / "requirements.lock").read_text(), re.M))


def run(*command: str | Path, **more: object) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, **more).stdout


def required() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("requirement", required(), ids=lambda one: one.name)
def test_the_lock_has_a_release_of_each_dependency(requirement: Requirement) -> None:
    """Else: `.venv/bin/python packaging/linux/builder lock`."""
    assert PINS[requirement.name.lower()] in requirement.specifier


@pytest.fixture(scope="module")
def unpacked(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("unpacked")
    (deb,) = packages.glob(f"shipper_{__version__}_*.deb")
    run("dpkg-deb", "--extract", deb, into)
    return into


@pytest.mark.needs("rpm")
def test_both_formats_hold_the_same_files(packages: Path, unpacked: Path) -> None:
    (rpm,) = packages.glob(f"shipper-{__version__}-*.rpm")
    in_rpm = set(run("rpm", "--query", "--package", "--list", rpm).splitlines())
    in_deb = {
        f"/{path.relative_to(unpacked)}" for path in unpacked.rglob("*") if path.is_symlink() or not path.is_dir()
    }

    assert in_deb <= in_rpm
    assert not [path for path in in_rpm - in_deb if not (unpacked / path[1:]).is_dir()]


@pytest.mark.needs("rpm")
def test_the_rpm_has_our_scripts_and_keeps_changed_settings(packages: Path) -> None:
    (rpm,) = packages.glob(f"shipper-{__version__}-*.rpm")
    scripts = run("rpm", "--query", "--package", "--scripts", rpm)

    for name in ("preinstall", "postinstall", "preremove", "postremove"):
        assert (LINUX / "scripts" / name).read_text().strip() in scripts
    assert run("rpm", "--query", "--package", "--configfiles", rpm) == "/etc/shipper/supervise.yaml\n"


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory whose disk is fast, for rpm waits for it after each file."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.mark.root
@pytest.mark.needs("rpm")
def test_an_rpm_is_installed_upgraded_and_erased(packages: Path, memory: Path) -> None:
    """In a root directory of its own, in which nothing runs."""
    root = memory / "root"
    root.mkdir()
    rpm = ["rpm", f"--root={root}", "--nodeps", "--noscripts"]
    before, later = (next(packages.glob(f"shipper-{version}-*.rpm")) for version in (__version__, LATER))
    run(*rpm, "--install", before)
    settings = root / "etc/shipper/supervise.yaml"
    settings.write_text("http: 127.0.0.1:1\n")
    run(*rpm, "--upgrade", later)

    assert settings.read_text() == "http: 127.0.0.1:1\n"
    assert f'"{LATER}"' in (root / "usr/lib/shipper/common/shipper/__init__.py").read_text()
    run(*rpm, "--erase", "shipper")
    assert not (root / "usr/bin/shipper").exists()


@pytest.mark.parametrize("script", sorted((LINUX / "scripts").iterdir()), ids=lambda path: path.name)
def test_the_scripts_are_what_a_shell_understands(script: Path) -> None:
    run("sh", "-n", script)


@pytest.mark.parametrize("argument", ["purge", "0"])
def test_the_last_script_names_what_is_kept(argument: str) -> None:
    said = run("sh", LINUX / "scripts/postremove", argument)

    assert all(path in said for path in ("/var/lib/shipper", "/etc/shipper", "userdel shipper"))


@pytest.mark.needs("man")
def test_every_command_has_a_man_page_without_complaints_of_man(unpacked: Path) -> None:
    pages = sorted((unpacked / "usr/share/man/man1").iterdir())
    names = {page.name for page in pages}

    assert {"shipper.1.gz", "shipper-run.1.gz", "shipper-order-drop.1.gz", "shipper-fleet-wait.1.gz"} <= names
    for page in pages:
        ended = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", str(page)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert ended.stderr == "", page.name


def test_a_man_page_says_what_help_says(unpacked: Path) -> None:
    text = gzip.decompress((unpacked / "usr/share/man/man1/shipper-supervise.1.gz").read_bytes()).decode()

    assert re.findall(r"^\.SH (.*)$", text, re.M) == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"]
    assert "\\fB\\-\\-grace DURATION\\fR\nHow long a stop may deliver." in text


def test_bash_completes_commands(unpacked: Path) -> None:
    script = unpacked / "usr/share/bash-completion/completions/shipper"
    ask = (
        f"source {script}; COMP_WORDS=(shipper val); COMP_CWORD=1; _shipper_completion shipper; echo ${{COMPREPLY[@]}}"
    )
    program = Path(sys.executable).parent

    assert run("bash", "-c", ask, env={"PATH": f"{program}:/usr/bin:/bin"}) == "validate\n"


def test_the_launcher_says_what_is_missing_where_no_python_fits(unpacked: Path, tmp_path: Path) -> None:
    launcher = (unpacked / "usr/bin/shipper").read_text().replace("home=/usr/lib/shipper", f"home={tmp_path}")
    ended = subprocess.run(["sh", "-c", launcher], capture_output=True, text=True, check=False, timeout=60)

    assert (ended.returncode, "no Python from 3.11" in ended.stderr) == (69, True)


def test_all_wheels_are_there_for_a_python(unpacked: Path) -> None:
    home = unpacked / "usr/lib/shipper"
    places = [home / "common", home / "python3.11/lib/python3.11/site-packages"]
    found = {
        path.name.partition("-")[0].lower().replace("_", "-") for place in places for path in place.glob("*.dist-info")
    }

    assert found == {*PINS, "shipper"}
    assert (home / "python3.11/bin/python").readlink() == Path("/usr/bin/python3.11")


def test_the_image_runs_as_the_same_user_as_in_kubernetes_and_starts_what_the_unit_starts() -> None:
    text = (ROOT / "packaging/container/Containerfile").read_text()
    (start,) = re.findall(r"^CMD (.*)$", text, re.M)
    (unit,) = re.findall(r"^ExecStart=/usr/bin/(.*)$", (LINUX / "shipper.service").read_text(), re.M)

    assert ["shipper", *json.loads(start)] == unit.split()
    assert re.findall(r"^USER (.*)$", text, re.M) == re.findall(
        r"^USER (.*)$", (ROOT / "packaging/kubernetes/Containerfile").read_text(), re.M
    )


@pytest.mark.parametrize("name", ["monitoring/rules.yaml", "monitoring/dashboard.json", "troubles.md"])
def test_what_a_service_is_watched_with_comes_with_it(unpacked: Path, name: str) -> None:
    source = ROOT / ("packaging" if name.startswith("monitoring") else "docs") / name

    assert (unpacked / "usr/share/doc/shipper" / name).read_bytes() == source.read_bytes()
