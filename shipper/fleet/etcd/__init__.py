"""A store on etcd, by the JSON gateway of its version 3 API, over HTTP/1.1.

    store     the contract of `shipper.fleet.store`: transactions, pages, leases
    watch     a watch that outlives its connection
    gateway   calls: failover over the hosts, authentication, a bounded time
    hosts     URLs, TLS files and connections
    http      one connection; h11 without I/O over a stream of trio
    answers   what etcd answers, and what its errors mean; no I/O

A client keeps two idle connections at most, and one for each watch. Calls and watches prefer one and the same host,
which a client chooses at random, and which it leaves as soon as it fails.

The gateway takes a user's name from a token only, never from a client certificate: with authentication in etcd, a
client needs a user and a password, with or without a certificate.
"""
