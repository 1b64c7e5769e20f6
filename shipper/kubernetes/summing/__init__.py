"""The one elected member that sums up status.

    Lease `shipper-leader` ── seat, election ── token ┐
    watches ── picture ── due ──> judge, release ──> term ── tasks ──> writing
       └ echoes: what own writes have made of an object, until a watch has come to it

Nothing else needs it: members run on without it, and whoever is elected next concludes the same from the same objects.
`records`, `parts`, `judge`, `release`, `finalizing`, `liveness` and `picture` decide without I/O; the others act.
"""
