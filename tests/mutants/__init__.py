"""Faults of the kind that shippers in the field have shipped, and faults made by rule; tests must notice them.

    faults/     the faults made by hand, a file for each part of the program
    mutant      a fault made by hand: what it breaks, where, and the check that is to kill it
    generated   faults made by rule
    source      finds the place of a fault in the program
    tree        copies of the source tree, so that no fault ever comes near the checkout
    check       runs a pytest selection or simulated worlds in a copy, with a time limit
    trial       a fault on trial: its own check, then wider ones; what was found is kept
    table       what is printed

A suite is as good as the faults that it would notice. `tests.simulation.mutants` shows that of the oracle, by
replacing functions of the running program; here a fault may stand anywhere, in the middle of a function or in SQL, and
all tests are judged.

What counts as killed is narrow, or the table would flatter. A test must *fail*: an import that breaks, a selection that
names nothing or a world that ends in a traceback of the simulation is no kill but a broken check. The same check must
pass on an unchanged copy. A check that does not end within its time is counted apart, as hung: a test that hangs fails
by its own limit long before (`tests/hangs.py`), so the time says more of the machine than of the tests.

A fault made by hand guards a promise of the program (nothing lost, `drained` true, no credential used after its
release, bounded memory, no hang, secrecy) and is one that no rule makes, or one whose promise is too dear to leave to
rules. It names its function and a fragment of it, so it survives whatever happens around that. One whose fragment is
not there any more is stale, and must be made anew: the fault it stands for may have become impossible, or may have
moved; where a rule has come to make it, it goes. Of the generated ones not all can be killed, for some change nothing
that anybody could see: a survivor is a question, and no failure.
"""
