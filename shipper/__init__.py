"""A log shipper sidecar that says `drained`.

Its promise: when `ack … drained` is written, the credentials that it releases can be destroyed in the same instant. No
event is lost by that, and none is sent with them afterwards; through `kill -9`, full disks, dead destinations and
floods of revisions.

Reading order, as an event travels and a policy does:

    event      a batch of events                    messages   what is said on standard input and output
    plugin     what an input, a processor,          control    the conversation
               an output is                         plan       a policy, as what it would run
    intake     from an input into the spool         rollout    the life of a revision
    spool/     the durable store; the barrier       orders     ends drains that cannot end
    attempt    one request's answers                observer   what a supervisor sees
    lane       a destination's todos, until settled requeue    dead letters enter again
    delivery   all lanes                            sidecar    the process that holds all this
                                                    supervise/ the agent that launches it, for people
"""

__version__ = "0.1.0"
