"""Policies from Kubernetes: `shipper supervise --kubernetes`.

    ShipperPolicy, Secret ── reflectors ──> membership ── vector ──> source ──> agent ──> sidecar
    ShipperMember (own)   <── reports  ──       └ announces, reads by quorum, then offers
    ShipperPolicy.status, ShipperSecret.status <── summing: one elected member

Each member runs a vector: the generations of the policies that select it, and the contents of the Secrets that they
name. It writes what it is about to use into its own ShipperMember before it uses it, and reads the objects again
after that. So whoever reads a policy or a Secret, and lists the members after that, knows everything that any of them
uses or will use; that makes `Drained` and `releasedBefore` true.
"""
