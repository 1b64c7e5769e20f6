"""Edges and principals in one world: whole sidecars, each on a simulated machine, and the wires between them.

    scenario    what a seed draws: how many of them there are, what fails, and what is done when
    site        one machine: its disk, its process, and who operates it
    wire        connections between machines: what is cut, late, or comes twice; the client and the server at their ends
    feeds       who writes log events and changes keys at an edge, and the inputs that read them
    backend     the one destination of all principals, and their output
    deeds       what is done at the drawn moments
    world       puts these together and runs them
    tour        runs some worlds, for the command
    oracle      judges, from the notes of the outside alone
    mutants     faults made by hand, one or more for each rule of the contract

The principals are one, or two beside each other, or two in a chain: the one of the edges is an edge of the last one.

Each machine runs `shipper.sidecar` as it is, with the plugins `relay` on both sides as they are: the policy, the spool,
the barrier and the ledger belong to what is promised, so a smaller world without them would have to imitate them. Only
what is below a request is simulated: `shipper.sdk.http.open_client` at an edge and, at a principal, the sockets of
`RelayServer`, whose way from the bytes of a body to the bytes of an answer is the product's own.

Notes are those of an outsider: who wrote what, which bytes went over a wire, what was said on standard output, and what
the destination was given.
"""
