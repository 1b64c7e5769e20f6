"""The reference supervising agent: it turns policy files into revisions, and launches the sidecar.

    files ── watch ──> sources ──> secrets ──> desired ──> conversation ──> child ──> `shipper run`
                                                             │    ▲
                                        vault (sealed) <── ledger └── releases: which credential may be revoked now

`ledger`, `releases`, `answers` and `conversation` decide without I/O; a `member` performs their effects in order. An
`agent` has one or several members, a `policy_source` (`files` is one), and the credentials that all members have
released (`collected`), for which the `revocations` run. Events, plugins and destinations do not belong here. A
supervisor of another kind (a fleet agent, an operator of a cluster) replaces this package and speaks the same protocol.
"""
