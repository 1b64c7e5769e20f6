"""TLS in front of the sink, in a process of its own: what the shipper spends on TLS is in its own CPU time.

    python tests/benchmarks/terminator.py PORT CHAIN.pem      listens on any free port, prints it, forwards to PORT

A terminator in Python and not OpenSSL in `sink.c`: it needs no headers of a library, and ciphers run in C without the
interpreter's lock. It takes processor time from the same cores, so of a TLS figure only events a CPU second are to be
compared with plain HTTP.
"""

from __future__ import annotations

import select
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BLOCK = 1 << 18


@contextmanager
def terminator(port: int, directory: Path) -> Iterator[tuple[int, Path]]:
    """Run it; the port to ship to, and the certificate of the authority to trust."""
    import trustme

    authority, chain, root = trustme.CA(), directory / "chain.pem", directory / "root.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(chain)
    authority.cert_pem.write_to_path(root)
    command = [sys.executable, __file__, str(port), str(chain)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline()), root
        finally:
            process.kill()


def forward(raw: socket.socket, context: ssl.SSLContext, port: int) -> None:
    """Serve one connection until either side closes it."""
    upstream = socket.create_connection(("127.0.0.1", port))
    with suppress(OSError), upstream, context.wrap_socket(raw, server_side=True) as client:
        while True:
            ready = [client] if client.pending() else select.select([client, upstream], [], [])[0]
            for end, other in ((client, upstream), (upstream, client)):
                if end in ready:
                    block = end.recv(BLOCK)
                    if not block:
                        return
                    other.sendall(block)


def main() -> None:
    """Accept for ever."""
    port, chain = int(sys.argv[1]), sys.argv[2]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=forward, args=(connection, context, port), daemon=True).start()


if __name__ == "__main__":
    main()
