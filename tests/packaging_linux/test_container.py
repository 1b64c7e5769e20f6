"""The image of packaging/container: built from a Debian of its own, without a registry, and run with a read-only root.

The base is the installation that the booted machines have, too. The containers have no network: what they ship goes
into their volume.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shipper import __version__
from tests.packaging_linux.conftest import ROOT
from tests.packaging_linux.machine import base, until

SECRET = "id:s3cret-in-the-folder-of-the-build"
USER = 6780
NOT_NEEDED = ("dev/*", "proc/*", "sys/*", "var/cache/*", "var/lib/apt/lists/*", "usr/share/doc/*", "usr/share/locale/*")
POLICY = """\
version: 1
inputs:
  app: {type: file, paths: [/var/log/app/app.log]}
outputs:
  copy: {type: file, path: /var/lib/shipper/shipped.ndjson}
"""
HOW = [
    *("--read-only", "--read-only-tmpfs=false", "--network=none"),
    "--health-interval=disable",  # a timer of systemd, which may not run here
    *("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"),  # root without CAP_SYS_RESOURCE cannot set podman's
]

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(900),
    pytest.mark.needs("podman", "runc", "mmdebstrap"),
]


@dataclass
class Podman:
    """Podman with images and containers of its own, in memory. crun refuses hosts with both kinds of cgroups."""

    place: Path
    image: str = ""

    def __call__(self, *arguments: str, **options: Any) -> str:
        """Returns the standard output; fails as the command does."""
        ended = subprocess.run([*self.command, *arguments], capture_output=True, timeout=600, check=False, **options)
        told = f"podman {' '.join(arguments)}\n{(ended.stdout + ended.stderr).decode(errors='replace')[-4000:]}"
        assert ended.returncode == 0, told
        return ended.stdout.decode()

    @property
    def command(self) -> list[str]:
        storage = ["--root", f"{self.place}/root", "--runroot", f"{self.place}/run", "--storage-driver=overlay"]
        tmp = f"--tmpdir={self.place}/tmp"
        return ["podman", *storage, tmp, "--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=none"]

    def inspected(self) -> Any:
        """Returns what podman knows of the image."""
        return json.loads(self("image", "inspect", self.image))[0]


@pytest.fixture(scope="module")
def podman(packages: Path) -> Iterator[Podman]:
    """Podman, and the image as the Containerfile makes it."""
    place = Path(tempfile.mkdtemp(prefix="shipper-podman-", dir="/dev/shm"))
    podman = Podman(place)
    try:
        context = place / "dist"
        (context / "keys").mkdir(parents=True)
        (context / "keys" / "es").write_text(SECRET)
        shutil.copy(*packages.glob(f"shipper_{__version__}_*.deb"), context)
        excluded = [f"--exclude=./{pattern}" for pattern in NOT_NEEDED]
        with subprocess.Popen(["tar", "-C", str(base()), *excluded, "-c", "."], stdout=subprocess.PIPE) as packed:
            podman("import", "-", "localhost/debian", stdin=packed.stdout)
        options = ["--isolation=chroot", "--network=host", "--build-arg=BASE=localhost/debian", "--format=docker"]
        file = ROOT / "packaging/container/Containerfile"
        podman("build", *options, "--layers=false", f"--file={file}", "--tag=shipper", str(context))
        podman.image = "localhost/shipper"
        yield podman
    finally:
        subprocess.run([*podman.command, "rm", "--all", "--force", "--time=0"], capture_output=True, check=False)
        until(lambda: _is_removed(place), "what podman does in the background ends")


def _is_removed(place: Path) -> bool:
    """Each time anew: what still runs in the background may mount its storage again."""
    mounted = Path("/proc/self/mounts").read_text().splitlines()
    for at in sorted((line.split()[1] for line in mounted if f" {place}/" in line), reverse=True):
        subprocess.run(["umount", "--lazy", at], capture_output=True, check=False)
    shutil.rmtree(place, ignore_errors=True)
    return not place.exists()


def test_the_image_says_who_runs_it_where_it_writes_and_how_it_is(podman: Podman) -> None:
    image = podman.inspected()

    assert image["User"] == f"{USER}:{USER}"
    assert list(image["Config"]["Volumes"]) == ["/var/lib/shipper"]
    assert "shipper status" in image["Healthcheck"]["Test"][-1]
    assert image["Config"]["StopSignal"] == "SIGTERM"


def test_no_layer_has_a_secret_or_what_was_only_needed_to_build(podman: Podman) -> None:
    image = podman.inspected()
    layer = Path(image["GraphDriver"]["Data"]["UpperDir"])
    files = [path for path in layer.rglob("*") if path.is_file() and not path.is_symlink()]
    names = {str(path.relative_to(layer)) for path in files}

    assert len(image["RootFS"]["Layers"]) == 2  # the other one is the base
    assert "etc/shipper/supervise.yaml" in names
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in json.dumps(image)
    assert [name for name in names if name.endswith((".deb", "state.key")) or "etc/shipper/keys/" in name] == []
    assert [name for name in names if name.startswith(("var/lib/shipper/", "var/lib/apt/lists/", "tmp/"))] == []


@contextmanager
def running(podman: Podman, directory: Path) -> Iterator[str]:
    """A container of the image with a read-only root; its volume is `directory`/state."""
    for name in ("log", "policy.d", "state"):
        (directory / name).mkdir()
    os.chown(directory / "state", USER, USER)
    (directory / "policy.d" / "app.yaml").write_text(POLICY)
    (directory / "log" / "app.log").write_text("a line\n")
    directory.chmod(0o755)
    mounts = {"log": "/var/log/app:ro", "policy.d": "/etc/shipper/policy.d:ro", "state": "/var/lib/shipper"}
    volumes = [f"--volume={directory}/{name}:{at}" for name, at in mounts.items()]
    id = podman("run", "--detach", *HOW, *volumes, podman.image).strip()
    try:
        yield id
    finally:
        podman("rm", "--force", "--time=30", id)


def test_a_container_ships_is_healthy_and_writes_into_its_volume_alone(podman: Podman, tmp_path: Path) -> None:
    shipped = tmp_path / "state" / "shipped.ndjson"
    with running(podman, tmp_path) as id:
        until(lambda: shipped.exists() and shipped.read_text().endswith("\n"), "the line is shipped")
        podman("healthcheck", "run", id)
        user = podman("exec", id, "stat", "--format=%u:%g", "/proc/1").strip()
        refused = subprocess.run([*podman.command, "exec", id, "touch", "/etc/x", "/tmp/x"], capture_output=True)
        changed = {line.split()[1] for line in podman("diff", id).splitlines()}
        (event,) = [json.loads(line) for line in shipped.read_text().splitlines()]
        podman("stop", "--time=60", id)
        status = podman("inspect", "--format={{.State.ExitCode}}", id).strip()

    assert event["message"] == "a line"
    assert user == f"{USER}:{USER}"
    assert refused.stderr.count(b"Read-only file system") == 2
    assert changed <= {"/var", "/var/log", "/var/log/app"}  # where something is mounted
    assert status == "0"


def test_a_container_in_which_no_supervisor_runs_is_not_healthy(podman: Podman) -> None:
    id = podman("run", "--detach", *HOW, "--entrypoint=sleep", podman.image, "infinity").strip()
    try:
        asked = subprocess.run([*podman.command, "healthcheck", "run", id], capture_output=True, timeout=120)
    finally:
        podman("rm", "--force", "--time=0", id)

    assert asked.returncode == 1
