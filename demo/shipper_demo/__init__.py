"""`shipper demo`: the real program at work, and its promise checked against the destination's own record.

    access_log ──> shipper supervise ──> wire ──> destination: a second shipper ──> record ──> tally
       grows        launches the sidecar  counts      `elasticsearch` input          NDJSON     what arrived
                    │ drained: on_release ──> revoke ──> the destination's next policy, without the old key

Nothing here is simulated, and each process is one that a user could start: the supervising agent by its command line,
the destination by the control protocol. The demo writes a log, rewrites a key file, and looks. It is no part of the
program: nothing of `shipper` imports it but the verb, and it imports nothing but what plugins do, and the errors.

    show         what happens, in order       process      a child that speaks lines of JSON
    rotation     one row of what is shown     leash        ends a process when the demo is gone
    screen       how it is shown              revoke       the command of `on_release`; `revoking` hears it

`shipper demo relay` is another story, with the same wire, destination and tally: `relay` tells it, `hop` has the edges
and their principal, and `sidecar` drives each by the control protocol, as often as it is killed.

`shipper demo fleet` is the third: `fleet` tells it, `host` is a member, `operator` gives the verbs of `shipper fleet`,
and `etcd` is where they meet. `replacement` and `waits` note what became of the shared key, and for whom that waited.
"""
