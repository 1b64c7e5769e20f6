"""What the members of every membership have, whatever keeps it: a fleet on a store, or Kubernetes.

    leases, steps                     until when a sidecar may send, and the steps that every member has
    offers                            what the agent is to run
    host, agent_host                  what every member needs of its supervisor, and that on the supervisor's agent
    causes                            what keeps a member from taking part
    http, page, door, sidecar_http    the address of a member: questions about it, and those passed on to its sidecar
    longest, ids                      how long a request may last; ids of directories, processes and boots

What one membership decides stays in its room: who has drained, what is released, whose name it is, what a lapse ends.
"""
