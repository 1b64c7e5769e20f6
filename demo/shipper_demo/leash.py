"""The command line of shipper, ended in order when whoever holds the other end of its standard input is gone.

`shipper supervise` outlives its terminal and its parent, as a service must. In the demo it must not, however that ends:
the pipe closes even when the demo is killed, and on every system.

    python -m shipper_demo.leash supervise policy.yaml --state DIR
"""

from __future__ import annotations

import os
import runpy
import signal
import threading


def _heed_the_end() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_heed_the_end, daemon=True).start()
    runpy.run_module("shipper", run_name="__main__", alter_sys=True)
