"""What every membership has, whatever keeps it: a fleet on a store, or Kubernetes. What one decides stays in its room.

http, page, door, sidecar_http    the address of a member: questions about it, and those passed on to its sidecar
longest                           how long a request of a policy may last
"""
