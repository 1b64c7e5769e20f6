"""The shipper and its peers, in the order of the table."""

from tests.benchmarks.peers.fluent_bit import FluentBit
from tests.benchmarks.peers.otelcol import Otelcol
from tests.benchmarks.peers.peer import Peer
from tests.benchmarks.peers.rsyslog import Rsyslog
from tests.benchmarks.peers.shipper import Shipper
from tests.benchmarks.peers.syslog_ng import SyslogNg

PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Shipper, Rsyslog, SyslogNg, FluentBit, Otelcol)}
