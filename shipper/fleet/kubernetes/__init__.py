"""A store on a Kubernetes API server, so that a fleet in a cluster needs no etcd of its own.

    store     the contract of `shipper.fleet.store`: one object a key, a condition in each write
    watch     a watch that outlives its connection
    leases    Lease objects: granted, renewed, and ended
    keeper    one client of each fleet ends the leases that nobody renews
    lives     which leases were not renewed for too long; no I/O
    objects   keys as ShipperFleetRecords; no I/O
    answers   what errors of the API server mean to a fleet; no I/O

The objects of a fleet are in one namespace: ShipperFleetRecords and Leases, by a label with the fleet's name. Nothing
else is read or written there.
"""
