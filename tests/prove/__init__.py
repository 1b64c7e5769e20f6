"""`make prove`: the long campaigns, at a given size, and the report `tests/PROOF.md`.

    sizes          the table of campaigns: the command of each, and how much a size is: 1 is the whole
    branches       the coverage of what `drained` stands on
    explorations   every state of small models of the protocols
    crashes        real processes that lose their power
    report         puts what the campaigns wrote into one text, with the bugs they found (`found.md`, kept by hand)

Each campaign is a command of its own; one that fails stops no other. All but `branches` keep their state in
`.cache/prove/` below a digest of the program, and go on where they stopped: after an interrupt, or when a larger size
is asked for. A changed program is another one: its campaigns begin anew.
"""
