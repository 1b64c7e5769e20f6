"""The command that the demo's `on_release` runs: it has the destination revoke the key, and waits until that is done.

    python -I -S revoke.py SOCKET [NAME OF THIS HOST]

It imports little, for it runs while the old key is still alive. In real use, here would stand the call that deletes an
API key or a user; it may run twice for one key, so a key that is gone already is no error. In a fleet it passes on the
fencing token: a host that was elected before may still run it, and its token is lower.
"""

from __future__ import annotations

import os
import socket
import sys

DONE = b"revoked\n"


def main() -> int:
    """Returns the exit status; on any but 0 the supervisor runs it again."""
    words = [os.environ["SHIPPER_CREDENTIAL_NAME"], os.environ.get("SHIPPER_FENCING_TOKEN", "0"), *sys.argv[2:]]
    with socket.socket(socket.AF_UNIX) as destination:
        destination.settimeout(10)
        destination.connect(sys.argv[1])
        destination.sendall(" ".join(words).encode() + b"\n")
        return 0 if destination.recv(len(DONE)) == DONE else 1


if __name__ == "__main__":
    sys.exit(main())
