"""A sidecar that ships nothing: for what a real one cannot be made to do on demand.

It speaks the protocol on its standard channels and keeps its revisions in DIR/fake.json. What it hears goes to
DIR/heard.jsonl, and these files in DIR order it about: `hold` keeps back `drained`, `refuse` nacks with the reason in
it, `want` names a credential to ask for, `say` is written as it stands, once, `slow` keeps back `ready`, `fail` holds
why it cannot start (`message` and `code`), and `ail` why its output is DEGRADED, in words or as `fail`. An action is
answered by what `result` holds, and not at all without it. It gives no codes of its own, as an older one.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from pathlib import Path
from typing import Any

DIR = Path(sys.argv[sys.argv.index("--state") + 1])
DIR.mkdir(parents=True, exist_ok=True)
STATE = DIR / "fake.json"


class Sidecar:
    def __init__(self) -> None:
        self.durable: dict[str, Any] = {"received": None, "active": None, "drained": None, "ids": {}, "in_use": []}
        if STATE.exists():
            self.durable = json.loads(STATE.read_text())
        self.acks: list[dict[str, Any]] = []
        self.held: set[str] = set()

    def say(self, **message: Any) -> None:
        os.write(1, json.dumps(message).encode() + b"\n")

    def save(self) -> None:
        (DIR / "fake.new").write_text(json.dumps(self.durable))
        os.replace(DIR / "fake.new", STATE)

    @property
    def revisions(self) -> dict[str, Any]:
        return {stage: self.durable[stage] for stage in ("received", "active", "drained")}

    @property
    def use(self) -> dict[str, Any]:
        in_use = self.durable["in_use"]
        return {"credentials_in_use": in_use, "credentials_wanted": [id for id in in_use if id not in self.held]}

    def observe(self) -> None:
        queue = {"events": 0, "bytes": 0, "limit_bytes": 1, "oldest_seconds": 0, "disk_bytes": 0}
        ail = (DIR / "ail").read_text() if (DIR / "ail").exists() else ""
        health = {"state": "DEGRADED" if ail else "HEALTHY", "message": ail}
        health |= json.loads(ail) if ail.startswith("{") else {}
        units = [{"id": "outputs.main", "kind": "output", "type": "elasticsearch", **health}]
        letters = {"events": 0, "bytes": 0, "oldest_seconds": 0}
        fixed = {"state": "HEALTHY", "message": "", "draining": [], "units": units, "queue": queue}
        self.say(type="observed", revisions=self.revisions, dead_letters=letters, **fixed, **self.use)

    def hear(self, message: dict[str, Any]) -> None:
        with (DIR / "heard.jsonl").open("a") as log:
            log.write(json.dumps(message) + "\n")
        match message["type"]:
            case "hello" if (DIR / "fail").exists():
                self.say(type="error", line=1, **json.loads((DIR / "fail").read_text()))
                sys.exit(1)
            case "hello":
                orders = select.poll()
                orders.register(0, 0)  # its end alone, told as POLLHUP: what was written stays unread
                while (DIR / "slow").exists() and not orders.poll(5):
                    continue
                fixed = {"protocol": 1, "version": "0", "pid": os.getpid(), "instance": "x", "max_line_bytes": 1 << 22}
                self.say(type="ready", http=None, revisions=self.revisions, **fixed, **self.use)
            case "policy":
                self.policy(message)
            case "credentials":
                self.held.update(message["credentials"])
            case "action":
                if (DIR / "result").exists():
                    self.say(type="result", id=message["id"], **json.loads((DIR / "result").read_text()))
            case "stop":
                self.say(type="stopped", clean=True, undelivered=0)
                sys.exit(0)
        self.observe()

    def policy(self, message: dict[str, Any]) -> None:
        at = [message.get("epoch", 0), message["revision"]]
        head = {"epoch": at[0], "revision": at[1], "sha256": message["sha256"]}
        if (DIR / "refuse").exists():
            errors = [{"path": "outputs.main.hosts[0]", "line": 1, "column": 1, "message": "not a host of mine"}]
            reason = (DIR / "refuse").read_text()
            self.say(type="nack", **head, reason=reason, errors=errors, released=list(message["credentials"]))
            return
        ids = re.findall(r"credential: ([a-z0-9-]+)", message["policy"])
        self.held.update(message["credentials"])
        before = self.durable["in_use"]
        self.durable |= {"received": at, "active": at, "in_use": sorted({*before, *ids})}
        self.durable["ids"] = ids
        self.save()
        for stage in ("received", "active"):
            self.say(type="ack", **head, stage=stage, change="barrier")
        self.acks.append(head)

    def drain(self) -> None:
        for head in self.acks:
            ids = self.durable["ids"]
            released = [id for id in self.durable["in_use"] if id not in ids]
            self.durable |= {"drained": [head["epoch"], head["revision"]], "in_use": sorted(ids)}
            self.save()
            counts = {"accepted": 3, "delivered": 2, "duplicate": 0, "dead_letter": 1, "dropped": 0}
            use = {"in_use": ids, "released": released}
            self.say(type="ack", **head, stage="drained", change="barrier", credentials=use, ledger=counts)
        self.acks.clear()
        self.observe()

    def obey(self) -> None:
        if self.acks and not (DIR / "hold").exists():
            self.drain()
        if (DIR / "say").exists():
            os.write(1, (DIR / "say").read_bytes())
            (DIR / "say").unlink()
        if (DIR / "want").exists():
            self.held.discard((DIR / "want").read_text())
            (DIR / "want").unlink()
            self.observe()

    def run(self) -> None:
        rest = b""
        while True:
            if select.select([0], [], [], 0.005)[0]:
                chunk = os.read(0, 65536)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self.hear(json.loads(line))
            self.obey()


Sidecar().run()
