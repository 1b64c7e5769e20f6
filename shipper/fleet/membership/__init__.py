"""One member of a fleet: performs on the store what `member` decides, and offers the newest version to the agent.

    membership   `Membership`: performs the steps one after the other, and is what the agent sees
    session      the member's own records in the store: the lease and its renewal, reports, the mark
    watching     follows the head
    fetching     reads a version and its secrets
    offers       what the agent is to run: the newest version, or the one that is kept from before
    pace         whether the store answers in time for the lease
    troubles     what keeps the member from taking part, for the host
    sealed       opens records, and remembers forged ones
    offered      `Offered`: a version to run, and its name in answers
    host         what a member needs of its supervisor

Two tasks run side by side. One performs the steps of the state machine; each call of the store has a bound. The other
watches the head; after each break of the watch it reads the head again. Whatever fails is a trouble of the host, and
tried again after a backoff of at most a third of the lease.
"""
