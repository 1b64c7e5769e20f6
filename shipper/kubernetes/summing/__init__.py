"""The one elected member that sums up status.

    reflectors of policies, members, Leases ──> leader ── judge, release, finalizing (pure) ──> status writes
    Lease `shipper-leader` ── election ── token ┘

Nothing else needs it: members run on without it, and whoever is elected next concludes the same from the same objects.
`records`, `liveness`, `judge`, `release` and `finalizing` decide without I/O; `election`, `writing` and `leader` act.
"""
