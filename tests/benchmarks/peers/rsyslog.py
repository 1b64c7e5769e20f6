"""rsyslog with imfile and omelasticsearch, as Debian packages them (rsyslog's own bulk mode; it knows no compression).

One queue between the input and the action; the size of a bulk request is the queue's `dequeueBatchSize`. Of 500, 1,000,
5,000 and 20,000 events and 1, 2 and 4 workers, 1,000 and 2 did best. Its disk queue does not sync; `synced` adds
`syncQueueFiles`, which syncs at each event, whatever the interval of checkpoints.
"""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import debian
from tests.benchmarks.job import CACHE
from tests.benchmarks.peers.peer import Job, Peer

_QUEUES = {
    "memory": 'queue.type="FixedArray" queue.size="100000"',
    "disk": 'queue.type="Disk" queue.fileName="queue" queue.maxDiskSpace="8g" queue.maxFileSize="64m"',
    "synced": 'queue.type="Disk" queue.fileName="queue" queue.maxDiskSpace="8g" queue.maxFileSize="64m"'
    ' queue.syncQueueFiles="on"',
}


class Rsyslog(Peer):
    name = "rsyslog"
    binary = "rsyslogd"
    how_to_get = "apt-get install rsyslog rsyslog-elasticsearch, or --fetch"
    fetched = True
    compressions = ("none",)
    configuration_name = "rsyslog.conf"
    version_option = "-v"

    @classmethod
    def find(cls) -> Path | None:
        for program in (super().find(), CACHE / "rsyslog/usr/sbin/rsyslogd"):
            if program and program.exists() and _modules(program):
                return program
        return None

    @classmethod
    def fetch(cls) -> None:
        debian.unpack(["rsyslog", "rsyslog-elasticsearch"], "rsyslog")

    def environment(self) -> dict[str, str]:
        return debian.library_path(self.program)

    def configuration(self, job: Job) -> str:
        return f"""\
global(workDirectory="{job.state}" maxMessageSize="64k")
module(load="imfile")
module(load="omelasticsearch")
template(name="event" type="list") {{
  constant(value="{{\\"@timestamp\\":\\"") property(name="timegenerated" dateFormat="rfc3339")
  constant(value="\\",\\"host\\":{{\\"name\\":\\"") property(name="hostname")
  constant(value="\\"}},\\"message\\":\\"") property(name="msg" format="json")
  constant(value="\\"}}")
}}
ruleset(name="ship" {_QUEUES[job.queue]} queue.dequeueBatchSize="1000" queue.workerThreads="2") {{
  action(type="omelasticsearch" server="127.0.0.1" serverport="{job.port}" bulkmode="on" template="event"
         searchIndex="logs-nginx.access-default" searchType="" action.resumeRetryCount="-1")
}}
input(type="imfile" file="{job.log}" tag="access:" ruleset="ship")
"""

    def command(self, configuration: Path, job: Job) -> list[str]:
        modules = _modules(self.program)
        where = ["-M", str(modules)] if modules else []
        return [str(self.program), "-n", "-f", str(configuration), "-i", f"{job.state}/pid", *where]

    def version(self) -> str:
        return " ".join(super().version().split()[:2])


def _modules(program: Path) -> Path | None:
    """The directory with the module that this needs."""
    found = debian.tree_of(program).glob("usr/lib/*/rsyslog/omelasticsearch.so")
    return next((module.parent for module in found), None)
