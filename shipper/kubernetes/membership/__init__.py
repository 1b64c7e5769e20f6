"""One member: performs on the API server what `member` decides, and offers the newest vector to the agent.

    membership   `Membership`: performs the steps one after the other, and is what the agent sees
    session      the member's own objects: the ShipperMember with its status, and the Lease
    following    the watches of policies, of each Secret in use, and of the own ShipperMember
    offers       what the agent is to run: the newest vector, or the one that is kept from before
    troubles     what keeps the member from taking part, for the host
    host         what a member needs of its supervisor

One task performs the steps of the state machine; each call has a bound. Watches run beside it, and tell the machine of
each change in the moment in which it is read. Whatever fails is a trouble of the host, and is tried again after a
backoff of at most a third of the lease.
"""
