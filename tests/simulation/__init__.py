"""The whole shipper in a world of its own: simulated disk, destinations, supervisor and clock, all from one seed.

The product's own code runs, from the lines on standard input to the answers of the destinations: conversation, rollout,
intake, lanes, sessions, the spool's transactions on a real SQLite. What it needs of the outside comes through
`sidecar.Outside`, and behind that door (`ports`) everything goes wrong that can:

    scenario    what a seed draws: which faults there are in this world, how often, and what is done when
    clock       virtual time, which jumps
    stage       what all simulated parts share: randomness, the notes, the crash
    ports       what the product is given in place of the machine: threads, clocks, entropy, pipes
    disk        the spool's writer and readers, over a database in memory that outlives a crash
    backend     destinations that commit, refuse, lose answers; and the output that speaks to them
    streams     who writes events; and the input that reads them
    things      who changes keys of keyed state; and the input that keeps them
    fences      what destinations know of keys, below which they take no version
    offers      policies that are sent, and what an outsider knows of each
    supervisor  sends policies, keeps and revokes credentials by the rules of the protocol
    steps       what is done at the drawn moments
    node        one process: its pipes, its signals, its death
    world       puts these together and runs them
    case        those notes, sorted
    oracle      judges, from the notes of the outside alone
    last_word   the laws of keyed state, by which it judges too
    relayed     worlds of several machines: edges, principals, and the wires between them
    fleets      worlds with a fleet

Many worlds are a campaign of `tests.march`.

A world has two phases. In the first, faults strike as the scenario says; in the second there are none, and within a
bounded time every event must be delivered, every revision drained and every old credential released.

Same seed, same trace: trio's scheduler draws from the seed, its clock jumps, a thread is a pause and a call, and every
part has a stream of random numbers of its own, so that leaving out one fault does not change the draws of the others.

A process dies between two effects on the outside (a commit, a line, a request, an acknowledged batch), which are
counted: a death at any other instant cannot be told from one just before the next effect.
"""
