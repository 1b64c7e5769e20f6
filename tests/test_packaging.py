"""What is installed: the systemd unit, and the wheel, which must work away from the checkout."""

import base64
import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from shipper import __version__
from shipper.supervise.config import read_config

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "packaging" / "linux" / "shipper.service"
MOST_EXPOSED = 20
"""In tenths, as `systemd-analyze security --threshold` counts: 2.0 of 10."""

PR_SET_MDWE = 65


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*command, **more):
    more = {"env": clean_environment(), "timeout": 120, "check": True} | more
    return subprocess.run(command, capture_output=True, text=True, **more)


# -- the unit ----------------------------------------------------------------------------------------------------------


def setting(name):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(UNIT)
    return unit["Service"][name]


@pytest.mark.needs("systemd-analyze")
def test_the_unit_is_what_systemd_understands(tmp_path):
    """With the path of an installed program, for systemd checks that it can be run."""
    program, *arguments = setting("ExecStart").split()
    rendered = tmp_path / UNIT.name
    installed = Path(sysconfig.get_path("scripts")) / "shipper"
    rendered.write_text(UNIT.read_text().replace(program, str(installed)))
    ended = run("systemd-analyze", "verify", "--man=no", str(rendered), check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert program == "/usr/bin/shipper"
    assert arguments[0] == "supervise"


@pytest.mark.needs("systemd-analyze")
def test_the_unit_leaves_little_open():
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSED}", str(UNIT)]
    ended = run(*command, check=False)

    assert ended.returncode == 0, ended.stdout[-500:]


def test_the_unit_starts_a_command_line_that_exists():
    """Parsed by the verb itself, up to where it would run."""
    import click

    from shipper.__main__ import shipper

    _, verb, *arguments = setting("ExecStart").split()
    context = click.Context(shipper)
    command = shipper.get_command(context, verb)

    with command.make_context(verb, arguments, parent=context) as parsed:
        assert parsed.params


def test_the_example_of_the_supervisors_settings_is_valid(tmp_path):
    """As it is, and with the settings in its comments."""
    example = UNIT.with_name("supervise.yaml")
    whole = tmp_path / "supervise.yaml"
    settings = r"^# (on_release|  command|  timeout|state_key)"
    whole.write_text(re.sub(settings, r"\1", example.read_text(), flags=re.MULTILINE))
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "state").write_text(base64.b64encode(bytes(32)).decode())
    config = read_config(whole, {})

    assert read_config(example, {}).http == "127.0.0.1:6780"
    assert config.on_release.command == ("/usr/local/bin/revoke-key",)
    assert config.state_keys == (bytes(32),)


def test_the_program_runs_without_memory_that_is_both_writable_and_executable():
    """The unit says MemoryDenyWriteExecute; ctypes and cryptography are those who might not cope."""
    program = f"""
import ctypes, sys
if ctypes.CDLL(None, use_errno=True).prctl({PR_SET_MDWE}, 1, 0, 0, 0):
    sys.exit(77)
import aiohttp, isal.igzip, msgspec, orjson, re2, trio, yaml
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from shipper.sdk.aio import open_asyncio
from shipper.sdk.inotify import Inotify, Mask
nonce = bytes(12)
assert AESGCM(bytes(32)).encrypt(nonce, b"x", b"")
assert re2.search("(a+)+b", "aab")
async def main():
    async with open_asyncio():
        with Inotify() as inotify:
            inotify.add("/tmp", Mask.CREATE)
trio.run(main)
print("done")
"""
    ended = run(sys.executable, "-c", program, check=False)
    if ended.returncode == 77:
        pytest.skip("this kernel is older than 6.3: it has no PR_SET_MDWE")

    assert ended.stdout == "done\n", ended.stderr


# -- the wheel ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A virtual environment with the built wheel, and the dependencies of the one that runs the tests."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info"))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(source))
    (wheel,) = place.glob("*.whl")
    home = place / "venv"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run(*pip, "install", "--quiet", "--no-deps", "--no-compile", str(wheel))
    site = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.rmtree(source)
    return home


def in_wheel(installed, program):
    return run(str(installed / "bin" / "python"), "-c", program, cwd="/").stdout.splitlines()


def test_the_installed_program_says_its_version(installed):
    ended = run(str(installed / "bin" / "shipper"), "--version", cwd="/")

    assert ended.stdout == f"shipper, version {__version__}\n"


def test_the_wheel_holds_what_it_runs_on_and_no_more(installed):
    program = (
        "import shipper, shipper_demo, shipper_plugins as p\nfor one in (shipper, shipper_demo, p): print(one.__file__)"
    )
    places = in_wheel(installed, program)
    site = next((installed / "lib").glob("python*/site-packages"))

    assert all(Path(place).is_relative_to(installed) for place in places)
    assert (site / "shipper" / "py.typed").exists()
    assert not list(site.glob("tests*"))


def test_every_plugin_of_the_wheel_can_be_imported(installed):
    program = """
from importlib.metadata import entry_points
for kind in ("inputs", "processors", "outputs"):
    for point in entry_points(group=f"shipper.{kind}"):
        print(kind, point.name, point.load().__name__)
"""
    found = {tuple(line.split()[:2]) for line in in_wheel(installed, program)}

    assert {("inputs", "file"), ("processors", "parse"), ("outputs", "elasticsearch")} <= found


def test_the_policy_of_the_demo_is_in_the_wheel(installed):
    program = "from importlib.resources import files; print((files('shipper_demo') / 'policy.yaml').read_text())"

    assert "version: 1" in in_wheel(installed, program)


def test_what_to_do_about_each_code_is_in_the_wheel(installed):
    program = "from shipper.status.page.troubles import sections; print('queue_full' in sections())"

    assert in_wheel(installed, program) == ["True"]


def test_the_licence_comes_with_the_wheel(installed):
    (licence,) = (installed / "lib").glob("python*/site-packages/shipper-*/licenses/LICENSE")

    assert licence.read_text() == (ROOT / "LICENSE").read_text()
