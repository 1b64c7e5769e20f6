"""Faults of the kind that shippers in the field have shipped, each a small patch; every one must be killed by a test.

    mutant      a patch file and its header: what it breaks, and the check that is to kill it
    tree        copies of the source tree, so that no fault ever comes near the checkout
    check       runs a pytest selection or simulated worlds in a copy, with a time limit
    trial       a mutant on trial: its own check, then wider ones; what was found is kept
    table       what is printed

A suite is as good as the faults that it would notice. `tests.simulation.mutants` shows that of the oracle, by
replacing functions of the running program; here a fault may stand anywhere, in the middle of a function or in SQL, and
all tests are judged.

What counts as killed is narrow, or the table would flatter. A test must *fail*: an import that breaks, a selection that
names nothing or a world that ends in a traceback of the simulation is no kill but a broken check. The same check must
pass on an unchanged copy. Only for a check that does not end within its time, which passes without the fault, the time
is the kill, and the table says so.

A patch is made by hand in a copy of the tree, and kept as `git diff -U1` shows it: with one line of context it survives
most changes around it. One that does not apply any more is told as stale, and must be made anew: the fault it stands
for may have become impossible, or may have moved.
"""
