"""Decides what one member of a fleet does next; a state machine without I/O and without a clock.

    machine        `Member`: the next step, and what each outcome and event changes
    reporting      when a report is due, and what it says
    registration   whether the record in the store is this member's, and what a joiner takes over from it
    claim          whether the name is free for this process: the key of the lease
    losses         directories that were registered under this name before, and were lost
    marking        the record by which everybody sees that this member takes no part
    fencing        until when the sidecar may send, and what a lapse demands (`on_lapse: hold`)
    rollout        which version to fetch and offer
    withdrawals    released secrets that the sidecar has to give up
    answers        what the sidecar has answered to versions
    head           the head as this member knows it, and the newest version that it has ever seen
    order          which of two versions is the newer one
    steps          the steps, and what the caller brings along

`Member.next` returns one step. The caller performs it, reports the outcome by the method that the step names, and asks
again. An event in between (`saw_head`, `answered`, `leave`) only changes what the next step is. So nothing is queued,
a step that failed is decided anew, and the newest version and the newest answers always win.

    unknown ── Look ──> ours ── Claim, Look ── Save, Write (joining) ── Look ── Save, Write (member) ── Fetch, Offer
                         │  └ Save, Write: in every third of the lease, and when the sidecar has answered
                         ├> taken   another directory has the name: Look until its lease is over for long enough
                         ├> apart   the record is not what this directory wrote last, or the store lost versions:
                         │          only Mark is written until a person accepts (`Head.accepting`), or it passes
                         └> out     the member left or was forgotten

Instants are seconds of CLOCK_BOOTTIME.
"""
