"""The durable store: what was accepted, what each lane has still to settle, where inputs stand, and the barriers.

One SQLite file, WAL, `synchronous=FULL`; one writer with group commit, readers beside it. SQLite solves the order of
syncs, torn pages and directory entries; a log of our own would have to prove all that again.

    store      transactions, durable when they return; one writer, group commit, full disks, failed commits
    keys, seal what is written of events and policies is compressed, then AES-256-GCM
    directory  the lock, generations of the file, reserved room, quarantine
    repair     what is intact moves to a new generation; what is not is counted and kept aside

    schema     the tables
    queue      batches enter, are read, are settled
    revisions  texts, the cut, barriers, drained
    credentials  which are in use, which are free
    letters    dead letters            orders   ends drains that cannot end
    forward    which drains go elsewhere
    requeue    dead letters enter again
    limits      limits of a revision     clock    how long barriers have waited
    figures    how much waits          spool    all of it, as the rest of the program sees it

- The cut of an input is one transaction: its batches, their place in every lane's entries, and its positions. A restart
  can neither read again what is stored nor skip what is not.
- The cut of a revision is one transaction: it becomes active, and every lane it retires gets a barrier. An append whose
  revision is not the active one fails in its own transaction, so every event is on one side of the cut.
- What an ack promises is committed before the ack is written.
- All transactions are pure functions of the database: a group whose commit failed is replayed on the new generation.

The lower modules know nothing of batches and lanes, the upper ones nothing of files and keys.
"""
