"""`make prove`: the long campaigns, at a given size, and the report `tests/PROOF.md`.

    sizes      how much of each campaign a size is: 1 is the whole
    branches   the coverage of what `drained` stands on
    report     puts what the campaigns wrote into one text, with the bugs they found (`found.md`, kept by hand)

Each campaign is a command of its own. `tests.mutants`, `tests.hostile` and `tests.simulation` keep their state in
`.cache/prove/` below a digest of the program, and go on where they stopped: after an interrupt, or when a larger size
is asked for. A changed program is another one: its campaigns begin anew.
"""
