"""The reference supervising agent: it turns policy files into revisions, and launches the sidecar that ships by them.

    files ── watch ──> sources ──> secrets ──> desired ──> conversation ──> child ──> `shipper run`
                                                             │    ▲
                                        vault (sealed) <── ledger └── releases: which credential may be revoked now

`ledger`, `releases` and `conversation` decide and do no I/O; `agent` performs what they decide, in their order. What
does not belong here: anything about events, plugins or destinations. A supervisor of another kind (a fleet agent, an
operator of a cluster) replaces this package and speaks the same protocol.
"""
