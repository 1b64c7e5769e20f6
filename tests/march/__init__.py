"""What all campaigns over seeds share, whatever a seed draws: a simulated world, a fleet, or a round of real processes.

kind      what a campaign is of: how a seed becomes a scenario, how that is run, and what became of it
sums      of many rounds, kept in a file, and those that failed
tour      runs some rounds, one after the other; a failure is told with the command that repeats it
shrink    a smaller scenario that fails in the same way
march     goes on with a campaign, in as many processes as there are to be
command   the options that all these campaigns have
played    rounds of real processes, which are played by a wall clock
"""
