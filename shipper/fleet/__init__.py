"""Fleets: one policy for many hosts, and one answer to "has everyone drained?".

    publisher ── swap ──> head (store) ── watch ──> member ── source ──> agent ──> sidecar
                            ▲    │                    │ report
                  release ──┘    └── observer <───────┘
                                       └── judge ──> `fleet wait`, `fleet status`, HTTP on every member

`store` is the contract of the store with its laws; `etcd` and `kubernetes` are the two. `records` is all that is kept
in it, each record sealed by `seal` for its own place. `publishing`, `member`, `judge` and `release` decide without I/O;
`publisher`, `membership`, `observer` and `releasing` act. Traffic never waits for any of this: a member ships on under
what it runs, unless it was told to hold.
"""
