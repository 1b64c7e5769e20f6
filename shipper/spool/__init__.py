"""The durable store: accepted batches, the unsettled entries of each lane, the positions of inputs, and the barriers.

One SQLite file, WAL, `synchronous=FULL`; one writer with group commit, readers beside it. SQLite solves the order of
syncs, torn pages and directory entries; a log of our own would have to prove all of it.

    store         transactions, durable when they return; one writer, group commit, full disks, failed commits
    keys, seal    stored events and policies are compressed, then sealed with AES-256-GCM
    directory     the lock, generations of the file, reserved room, quarantine
    repair        intact rows move to a new generation; damaged ones are counted and kept aside

    schema        the tables
    kinds         lanes of an earlier version, which had both kinds, are divided
    queue         batches enter, are read, are settled
    awaited       batches whose final answers their input waits for
    keyed, slots  versions of keys are admitted; how they are stored
    waiting       the slots of lanes, and what a newer version does to them
    places        the counter that gives each version its place
    feeding       what a cut does to keyed state
    lifting       versions get places above what a destination has
    revisions     texts, the cut, barriers, drained
    credentials   which are in use, which are released
    dead_letters  events that a destination refused
    requests      which events a request has that stays the same
    drain_orders  orders that end drains which cannot end by themselves
    forward       which drains may move to another lane
    requeue       dead letters enter the queue again
    limits        limits of a revision
    clock         how long barriers have waited
    figures       how much waits
    ground        what the parts share: the store, the figures, the limits
    parts         the interface for the rest of the program, by subject
    spool         opens a state directory, and has the parts

- The cut of an input is one transaction: its batches, their place in every lane's entries, and its positions. After a
  restart an input neither repeats stored events nor skips others.
- The cut of a revision is one transaction: it becomes active, and every lane it retires gets a barrier. An append whose
  revision is not the active one fails in its own transaction, so every event is on one side of the cut.
- The promise of an ack is committed before the ack is written.
- All transactions are pure functions of the database: a group whose commit failed is replayed on the new generation.

The lower modules know nothing of batches and lanes, the upper ones nothing of files and keys.
"""
