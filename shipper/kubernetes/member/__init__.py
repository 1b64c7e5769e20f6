"""Decides what one member does next; a state machine without I/O and without a clock.

    machine       `Member`: the order of the steps, and what each outcome changes
    standing      whether this process is the member, and the steps that take, keep and give up the name
    running       what the sidecar runs, what it is to run next, and what has to come before that
    choosing      what to run: of each policy the best choice that it can have, merged
    policies      the policies of the namespace, at their newest generations
    secrets       the Secrets that policies name
    contents      the contents of Secrets by the ids that the sidecar knows
    using         which contents are used, and which may be: announce before use
    proving       what is in use without being proven is looked for, and withdrawn
    introducing   policies that are run for the first time are announced, and read again
    refusals      what the sidecar has refused
    vectors       what was offered, and what the sidecar was seen to run
    entries       what is said of each policy: generation, stage, removal
    reporting     the status, and when it is due
    pace          how often it is written
    own           the own ShipperMember as it is known
    registering   its labels and spec
    losses        directories that were lost under the name of this member
    claim         the Lease: whether the name is free, and its renewal
    fencing       until when the sidecar may send (`on_lapse: hold`)
    memory        what is durable
    steps         the steps, and what the caller brings along

`Member.next` returns one step. The caller performs it, reports the outcome by the method that the step names, of the
member or of what it runs, and asks again. An event in between only changes what the next step is. So nothing is queued,
a burst of changes costs what its last one costs, and a step that failed is decided anew.

    unknown ── Look ──> ours ── Create, Hold, Adjust, Save, Write ──> registered: the watches run
                │        └── on a change:  Judge ── Save ── Offer
                │              first use:  Judge ── Save, Write (announced) ── Confirm (read again) ── Save ── Offer
                │        └── Hold in each third of the lease, Save, Write when there is something to report
                ├> taken   another directory has the name: Look until its Lease is over
                ├> apart   likewise, after this process had it: it runs on, and says nothing
                └> out     it has left

From the event of a change to the offer there is no wait: neither for a time, nor for the API server, but where
something is used for the first time. Instants are seconds of CLOCK_BOOTTIME.
"""
