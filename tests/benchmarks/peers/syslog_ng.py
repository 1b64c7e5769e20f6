"""syslog-ng with its http() destination, as Debian packages it.

The body is what its own elasticsearch-http() block makes, with the action line as a constant, which costs it less. Its
3.38 has no compression. `disk` is the reliable disk buffer (every message goes through the file); it is not synced,
and one worker serves it best. It has two paces, in whole runs: about 139,000 events a CPU second or about 69,000.
"""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import debian
from tests.benchmarks.job import CACHE
from tests.benchmarks.peers.peer import Job, Peer

_QUEUES = {
    "memory": "workers(4) log-fifo-size(200000)",
    "disk": "workers(1) disk-buffer(reliable(yes) disk-buf-size(4294967296) mem-buf-size(67108864) dir({state}))",
}


class SyslogNg(Peer):
    name = "syslog-ng"
    binary = "syslog-ng"
    how_to_get = "apt-get install syslog-ng-core syslog-ng-mod-http, or --fetch"
    fetched = True
    queues = ("memory", "disk")
    compressions = ("none",)
    configuration_name = "syslog-ng.conf"

    @classmethod
    def find(cls) -> Path | None:
        for program in (super().find(), CACHE / "syslog-ng/usr/sbin/syslog-ng"):
            if program and program.exists() and _modules(program):
                return program
        return None

    @classmethod
    def fetch(cls) -> None:
        debian.unpack(["syslog-ng-core", "syslog-ng-mod-http"], "syslog-ng")

    def environment(self) -> dict[str, str]:
        return debian.library_path(self.program)

    def configuration(self, job: Job) -> str:
        queue = _QUEUES[job.queue].format(state=job.state)
        return f"""\
@version: current
options {{ threaded(yes); stats-freq(0); use-dns(no); keep-hostname(yes); log-msg-size(65536); }};
source access {{
  file("{job.log}" flags(no-parse) log-fetch-limit(5000) log-iw-size(100000));
}};
destination sink {{
  http(url("http://127.0.0.1:{job.port}/_bulk") method("POST") headers("Content-Type: application/x-ndjson")
       batch-lines(5000) batch-bytes(4194304) batch-timeout(1000) timeout(10) body-suffix("\\n")
       body('{{"create":{{"_index":"logs-nginx.access-default"}}}}
$(format-json --scope none @timestamp=$ISODATE host.name=$HOST message=$MESSAGE)')
       {queue});
}};
log {{ source(access); destination(sink); flags(flow-control); }};
"""

    def command(self, configuration: Path, job: Job) -> list[str]:
        state = job.state
        files = [f"--persist-file={state}/persist", f"--pidfile={state}/pid", f"--control={state}/control"]
        modules = _modules(self.program)
        where = [f"--module-path={modules}"] if modules else []
        return [str(self.program), "-F", "--no-caps", "-f", str(configuration), *files, *where]

    def version(self) -> str:
        return super().version().replace("syslog-ng 3 (", "syslog-ng ").rstrip(")")


def _modules(program: Path) -> Path | None:
    """The directory with the module that this needs."""
    return next((module.parent for module in debian.tree_of(program).glob("usr/lib/syslog-ng/*/libhttp.so")), None)
