"""The reference supervising agent: it turns policy files into revisions, and launches the sidecar that ships by them.

    files ── watch ──> sources ──> secrets ──> desired ──> conversation ──> child ──> `shipper run`
                                                             │    ▲
                                        vault (sealed) <── ledger └── releases: which credential may be revoked now

`ledger`, `releases`, `answers` and `conversation` decide and do no I/O; a `member` performs what they decide, in their
order. An `agent` has one or several members, and what they share: a `policy_source` (`files` is one), and what all of
them have released (`collected`), for which the `revocations` run. What
does not belong here: anything about events, plugins or destinations. A supervisor of another kind (a fleet agent, an
operator of a cluster) replaces this package and speaks the same protocol.
"""
