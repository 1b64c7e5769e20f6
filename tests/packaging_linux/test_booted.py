"""The package in a booted Debian: installed, rotated, killed, hung, rebooted, upgraded and purged.

The commands are those of docs/install.md. The destination runs here, and the machine reaches it over loopback.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from shipper import __version__
from shipper.plugin import Credential
from shipper.sdk.aio import open_asyncio
from shipper.sdk.tls import server_context
from shipper.testing import open_destination
from shipper.testing.destination import BulkDestination
from tests.packaging_linux.conftest import LATER, ROOT
from tests.packaging_linux.machine import PATIENCE, Machine, booted, until

ACCESS = '203.0.113.9 - - [02/Jan/2026:13:55:36 +0000] "GET /cart HTTP/1.1" 200 512 "-" "curl/8.14.1"\n'
KEYS = [f"key{number}:s3cret-{number}" for number in range(3)]
PAGE = dict(re.findall(r"^```sh (\w+)\n(.*?)^```$", (ROOT / "docs/install.md").read_text(), re.S | re.M))
DROP_IN = "/run/systemd/system/shipper.service.d/test.conf"
SUPERVISOR = "systemctl show --property=MainPID --value shipper"
SIDECAR = f"cat /proc/$({SUPERVISOR})/task/*/children"
"""Commands that print process ids."""
ON_RELEASE = """
on_release:
  command: [sh, -c, 'echo $SHIPPER_CREDENTIAL_NAME >> /var/lib/shipper/revoked']
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(1200),
    # The service keeps its connections, and a destination that ends leaves them to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.needs("systemd-nspawn", "mmdebstrap", "nsenter"),
]


class Service:
    """The installed service in its machine, and what it ships."""

    def __init__(self, machine: Machine, authority: trustme.CA) -> None:
        self.machine, self.run = machine, machine.run
        certificate = authority.issue_cert("127.0.0.1")
        chain = b"".join(part.bytes() for part in certificate.cert_chain_pems).decode()
        self._tls = server_context(chain, certificate.private_key_pem.bytes().decode())
        self._port = 0
        self._known: dict[str, dict[str, bytes]] = {}
        self.written = 0
        self._key = 0

    @property
    def key(self) -> Credential:
        return Credential.parse({"api_key": KEYS[self._key]})

    def new_key(self) -> Credential:
        """Makes the next key, and puts it where the commands of the page take it from."""
        self._key += 1
        self.put_key()
        return self.key

    def put_key(self) -> None:
        (self.machine.root / "root/keys").mkdir(exist_ok=True)
        (self.machine.root / "root/keys/es").write_text(f"{KEYS[self._key]}\n")

    def put_packages(self, packages: Path) -> None:
        for version in (__version__, LATER):
            shutil.copy(*packages.glob(f"shipper_{version}_*.deb"), self.machine.root / "root" / f"{version}.deb")

    @asynccontextmanager
    async def destination(self) -> AsyncIterator[BulkDestination]:
        """The same destination as before: with its port, and the documents that it has."""
        async with (
            open_asyncio() as aio,
            open_destination(aio, keys={self.key}, tls=self._tls, port=self._port) as destination,
        ):
            destination.documents, destination.total = self._known, sum(map(len, self._known.values()))
            self._port = int(destination.url.rpartition(":")[2])
            yield destination

    def write(self, lines: int) -> None:
        with (self.machine.root / "var/log/nginx/access.log").open("a") as log:
            log.write(ACCESS * lines)
        self.written += lines

    async def shipped(self, destination: BulkDestination) -> None:
        """Returns when every line that was written is a document; none is twice."""
        with trio.fail_after(PATIENCE):
            await destination.wait_for(self.written)
        assert len(destination.events) == self.written

    def property(self, name: str) -> str:
        return self.run(f"systemctl show --property={name} --value shipper").strip()

    def status(self) -> Any:
        """The answer of `shipper status`, whose exit status says how well it is."""
        return json.loads(self.run("shipper status --json --state /var/lib/shipper || [ $? -lt 4 ]"))

    def sidecar(self) -> int | None:
        """The process id of a sidecar that ships; None if there is none."""
        status = self.status()
        return status["sidecar"]["pid"] if status["running"] and status["observed"] else None

    def queued(self) -> int:
        observed = self.status()["observed"]
        return observed["queue"]["events"] if observed else -1

    def set(self, text: str) -> None:
        """Changes settings of the unit until the next boot, and starts it with these."""
        self.run(f"mkdir -p $(dirname {DROP_IN}); cat > {DROP_IN} <<'X'\n[Service]\n{text}\nX\nsystemctl daemon-reload")
        self.run("systemctl restart shipper")

    def unset(self) -> None:
        self.run(f"rm -f {DROP_IN}; systemctl daemon-reload; systemctl restart shipper")


async def do(action: Callable[..., Any], *arguments: Any) -> Any:
    """Runs what waits for the machine beside the loop, where the destination notes what arrives."""
    return await trio.to_thread.run_sync(partial(action, *arguments))


@pytest.fixture(scope="module")
def service(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Installed by the words of the page; the tests use it one after the other."""
    authority = trustme.CA()
    with booted(tmp_path_factory.mktemp("machine")) as machine:
        shutil.copy(*packages.glob(f"shipper_{__version__}_*.deb"), machine.root / "root")
        machine.run(PAGE["install"].replace("apt install", "apt-get install --yes --quiet"))
        authority.cert_pem.write_to_path(str(machine.root / "root/ca.pem"))
        settings = machine.root / "etc/shipper/supervise.yaml"
        settings.write_text(settings.read_text().replace("127.0.0.1:6780", "127.0.0.1:0") + ON_RELEASE)
        machine.run(
            "install -d -m 0750 -g adm /var/log/nginx; install -m 0640 -g adm /dev/null /var/log/nginx/access.log"
        )
        yield Service(machine, authority)


def test_the_package_makes_what_the_service_needs_and_does_not_start_it(service: Service) -> None:
    modes = service.run("stat -c '%n %a %U %G' /etc/shipper/* /var/lib/shipper").splitlines()

    assert modes == [
        "/etc/shipper/keys 750 root shipper",
        "/etc/shipper/policy.d 755 root root",
        "/etc/shipper/supervise.yaml 644 root root",
        "/var/lib/shipper 700 shipper shipper",
    ]
    assert service.run("shipper --version") == f"shipper, version {__version__}\n"
    assert service.run("systemctl is-enabled shipper || :") == "disabled\n"
    assert service.property("ActiveState") == "inactive"
    assert service.run("ls /usr/lib/shipper/common/shipper/__pycache__ | head -1")


async def test_the_words_of_the_page_lead_to_the_first_event(service: Service) -> None:
    service.put_key()
    service.write(5)
    async with service.destination() as destination:
        await do(service.run, f"ES_URL={destination.url}\n{PAGE['configure']}")
        await service.shipped(destination)
        shown = await do(service.run, PAGE["look"])
        asked = await do(service.run, PAGE["ask"])

    assert shown.startswith("shipper: HEALTHY\n")
    assert "revision 1 active" in shown
    assert "  good     tls 127.0.0.1:" in asked
    assert service.property("StatusText") == "shipping"
    assert service.run("systemctl is-enabled shipper") == "enabled\n"
    assert service.run(f"stat -c %U /proc/$({SUPERVISOR})") == "shipper\n"


async def test_a_key_is_rotated_as_the_page_says_and_revoked(service: Service) -> None:
    former = KEYS[0].partition(":")[0]
    async with service.destination() as destination:
        destination.keys.add(service.new_key())
        await do(service.run, PAGE["rotate"])
        revoked = service.machine.root / "var/lib/shipper/revoked"
        await do(until, lambda: revoked.exists() and revoked.read_text() == f"{former}\n", "the old key is revoked")
        destination.keys = {service.key}
        service.write(3)
        await service.shipped(destination)

        assert destination.refused == 0


@pytest.mark.parametrize("who", [SUPERVISOR, SIDECAR], ids=["supervisor", "sidecar"])
async def test_what_is_killed_runs_again_and_loses_nothing(service: Service, who: str) -> None:
    async with service.destination() as destination:
        await do(until, lambda: service.sidecar() is not None, "it runs")
        former = await do(service.sidecar)
        service.write(200)
        await do(service.run, f"kill -9 $({who})")
        await do(until, lambda: service.sidecar() not in (None, former), "it runs again")
        service.write(3)
        await service.shipped(destination)


async def test_a_service_that_hangs_is_started_again_by_the_watchdog(service: Service) -> None:
    await do(service.set, "WatchdogSec=15s")
    try:
        async with service.destination() as destination:
            await do(service.run, f"kill -STOP $({SUPERVISOR})")
            await do(until, lambda: int(service.property("NRestarts")) > 0, "the watchdog starts it again")
            service.write(3)
            await service.shipped(destination)
    finally:
        await do(service.unset)

    journal = service.run("journalctl --unit shipper --no-pager")
    assert "Watchdog timeout" in journal
    assert "Fatal Python error: Aborted" in journal, "the stack of what hung is missing"


async def test_lines_of_a_boot_are_shipped_after_it(service: Service) -> None:
    async with service.destination() as destination:
        await do(service.machine.reboot)
        service.write(3)
        await service.shipped(destination)

    assert service.property("ActiveState") == "active"


async def test_the_health_check_of_the_image_knows_health_from_a_destination_that_is_away(service: Service) -> None:
    """The command is that of the Containerfile; status 1 is DEGRADED, which no new container mends."""
    (check,) = re.findall(r"^ *CMD (\[.*?\])$", (ROOT / "packaging/container/Containerfile").read_text(), re.M)[:1]
    command = shlex.join(json.loads(check))
    async with service.destination() as destination:
        service.write(1)
        await service.shipped(destination)
        await do(service.run, command)
        await destination.stop()
        service.write(1)
        await do(until, lambda: service.status()["state"] == "DEGRADED", "it is degraded")
        await do(service.run, command)
        await destination.start()
        await service.shipped(destination)
    await do(service.run, f"systemctl stop shipper; ! {command}; systemctl start shipper")


def test_each_line_of_the_log_has_its_level_in_the_journal(service: Service) -> None:
    entries = map(json.loads, service.run("journalctl --unit shipper --output json").splitlines())
    own = [entry for entry in entries if str(entry["MESSAGE"]).startswith("{")]
    levels = {(json.loads(entry["MESSAGE"])["log.level"], entry["PRIORITY"]) for entry in own}

    assert {("info", "6"), ("warning", "4")} <= levels
    assert levels <= {("debug", "7"), ("info", "6"), ("warning", "4"), ("error", "3"), ("critical", "2")}


async def test_a_queue_survives_an_upgrade_and_a_downgrade(packages: Path, service: Service) -> None:
    """The stop for the upgrade takes longer than the unit allows, for which the supervisor asks."""
    service.put_packages(packages)
    command = service.property("ExecStart").partition("argv[]=")[2].partition(" ;")[0]
    await do(service.set, f"TimeoutStopSec=20s\nExecStart=\nExecStart={command} --grace 22s")
    async with service.destination() as destination:
        await destination.stop()
        service.write(500)
        await do(until, lambda: service.queued() == 500, "all events wait")
        for version in (LATER, __version__):
            await do(service.run, f"dpkg --install {version}.deb")
            await do(until, lambda: service.sidecar() is not None, "it runs again")
            assert service.status()["supervisor"]["version"] == version
            assert await do(service.queued) == 500
            await do(service.set, f"ExecStart=\nExecStart={command} --grace 0s")
        await destination.start()
        await service.shipped(destination)
    journal = service.run("journalctl --unit shipper --no-pager --boot")

    assert "timed out" not in journal
    assert "Failed with result" not in journal


async def test_a_purge_says_what_it_keeps(service: Service) -> None:
    said = await do(service.run, "apt-get purge --yes --quiet shipper")

    assert "/var/lib/shipper" in said
    assert service.run("ls /etc/shipper /etc/shipper/keys") == (
        "/etc/shipper:\nca.pem\nenvironment\nkeys\npolicy.d\n\n/etc/shipper/keys:\nes\n"
    )
    assert service.run("ls /var/lib/shipper/sidecar | wc -l") != "0\n"
    assert service.run("ls -d /usr/lib/shipper /usr/bin/shipper 2>/dev/null | wc -l") == "0\n"
    assert service.run("systemctl is-enabled shipper 2>&1 || :").startswith("Failed")
