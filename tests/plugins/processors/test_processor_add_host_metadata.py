import ipaddress
import platform
import socket

from shipper.plugin import Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.add_host_metadata import AddHostMetadata

HOST = socket.gethostname()


def test_the_host_is_described_once_for_all_lines() -> None:
    batch = Batch.lines(b"a\nb\n", offset=0, shared={"host": {"name": HOST}})
    made = check_processor(AddHostMetadata(geo={"name": "dc-1"}), batch)
    host = made.shared["host"]

    assert made.body is batch.body
    assert (host["name"], host["hostname"], host["geo"]) == (HOST, HOST, {"name": "dc-1"})
    assert (host["architecture"], host["os"]["kernel"]) == (platform.machine(), platform.release())
    assert not any(ipaddress.ip_address(one).is_loopback for one in host.get("ip", ()))


def test_addresses_can_be_left_out() -> None:
    made = check_processor(AddHostMetadata(netinfo=False), Batch.lines(b"a\n", offset=0, shared={}))

    assert not {"ip", "mac"} & made.shared["host"].keys()


def test_an_event_of_another_host_is_left_alone() -> None:
    events: list[Fields] = [{"host": {"name": "other"}}, {"host": {"name": HOST}}, {}]
    other, ours, unnamed = check_processor(AddHostMetadata(), Batch.events(events)).whole()

    assert other == {"host": {"name": "other"}}
    assert ours["host"]["hostname"] == unnamed["host"]["hostname"] == HOST


def test_a_batch_of_another_host_is_left_alone() -> None:
    batch = Batch.lines(b"a\n", offset=0, shared={"host": {"name": "other"}})

    assert check_processor(AddHostMetadata(), batch).shared == batch.shared
