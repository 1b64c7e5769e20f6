"""Fleets: many members with the product's own asynchronous code, over one store in memory, in virtual time.

    scenario    what a seed draws: how many members, what fails, and what is done when
    transcript  what the simulated parts did and were answered: all that the oracle reads
    sidecar     a small sidecar behind a pipe, and the directory that outlives it
    machine     one host: its membership, its candidate for releases, its clock, its connection to the store
    people      publishers, those who ask, and the operator who mends what is broken
    world       puts these together, does what the scenario says, and heals
    oracle      judges the transcript by the laws
    figures     the same parts without faults, many of them, measured

The product's part is `Membership`, `Publisher`, `Releasing`, the observer and the orders of an operator. Simulated are
the store (`tests/fleet/memory.py`), the files of `Home`, the sidecar, and the command of `on_release`.

    L1  a triple is never used twice for different contents
    L2  an answer is `open` only if each member that had begun has reached the version, or the answer names it
    L3  a fleet secret whose release has begun is never used again, but by members that the release names
    L4  a member that an answer named as fenced begins no request before it has caught up
    L5  when the faults are over, the newest version drains everywhere, and `on_release` has run for each retired secret
    L6  a fencing token belongs to one candidate, and never falls
    L7  the stages that a directory reports never go back within an epoch
    L8  an answer that is not open names who keeps it so, and why; it is not behind the reports of its own revision
"""
