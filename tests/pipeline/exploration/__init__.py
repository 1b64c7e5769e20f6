"""Explores what lanes can do: the real decisions (`machine`, `session`, `request`, `attempt`) on the real tables.

    rows     the spool: an in-memory database, which is taken and given back as rows
    pickled  turns the rest into bytes
    actor    performs what a machine decides, one small step at a time
    world    what may happen in a state: steps of lanes, answers, revisions, orders, faults, the passing of time
    laws     what must hold in every state, and from every state on once all faults have ended
    broken   a law that does not hold, and anything else that is raised
    explore  visits the states
    mutants  faults in the decisions, which it finds

A state is a value: the rows, and the pickled rest. Instants are relative to now, so that states merge which differ by
the time at which they were reached. A step is as small as its parts are in the process: a lane decides to read, the
store is read, and the lane takes what was read, and anything may happen in between.
"""
