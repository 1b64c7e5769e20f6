"""A log shipper sidecar that acknowledges `drained`.

Its guarantee: when `ack … drained` is written, the credentials that it releases can be destroyed in the same instant.
No event is lost by that, and none is sent with them afterwards; through `kill -9`, full disks, dead destinations and
floods of revisions.

The rooms, from the top to the bottom; a room imports from those below it only (`tests/test_layers.py`):

    commands/    the verbs of the command line
    fleet/       one policy for many hosts: versions, members, and the answer to "has everyone drained?"
    supervise/   the reference supervisor: policy files become revisions, and a sidecar is launched
    sidecar      the process `shipper run`: opens everything, and closes it in order
    control/     doors: the conversation over standard input and output; and its actions
    status/      health, figures and metrics, for supervisors and for people
    revisions/   the life of a revision; orders, deadlines and forwarding that end a drain
    pipeline/    the path of an event: `intake` and `delivery`; and the plan of a policy
    spool/       the durable store, and the barrier
    policy/      turns a policy's text into settings; finds plugins
    protocol/    messages, their framing and their limits
    plugin       PUBLIC: all that a plugin may import
    process/     what belongs to the process: log, clocks and threads, memory, hardening
    sdk/         what plugins and the rooms above share: batches, credentials, errors, TLS, asyncio
    values       the domain: numbers of revisions, counts, receipts

The way of an event: `sdk/event`; `port`, `entrance` and `chain` of `pipeline/intake`; `spool/queue`; `lane`, `session`
and `attempt` of `pipeline/delivery`; `spool/queue` again.

The path of a policy: `control/conversation`, `revisions/rollout`, `policy/policy`, `pipeline/plan`,
`revisions/machine`, `spool/revisions`, `control/statements`, `control/outbox`.
"""

__version__ = "0.1.0"
