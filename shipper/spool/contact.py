"""Which hosts a request has begun to: whoever they are, events that were bound for them may be there.

By hosts, not by lanes: a revision that changes an index alone makes another lane to a host that has answered for long,
and that one is no typo. A lane is *reached* once a request of its own has begun, or if one of any lane had begun to one
of its hosts when a cut retired it. (Later ones do not count: the revision that names the right authority goes to the
same host, and may be there before the events are.) All of it is durable before the first byte of a request leaves, so a
crash forgets nothing. Hosts are kept as digests, for ever: a few bytes for each that a policy has named.

A lane of an output that does not say when it asks its hosts has none here, and is reached from the start.
"""

from __future__ import annotations

import sqlite3


def note(db: sqlite3.Connection, lane: int) -> None:
    """Stores that a request of a lane begins."""
    db.execute("UPDATE lane SET reached = 1 WHERE id = ? AND NOT reached", (lane,))
    db.execute(
        "INSERT OR IGNORE INTO contact SELECT value FROM lane, json_each(lane.contacts) WHERE lane.id = ?", (lane,)
    )


def judge(db: sqlite3.Connection) -> None:
    """Before a cut: marks the lanes whose hosts are known by now, whichever lane has asked them."""
    db.execute(
        "UPDATE lane SET reached = 1 WHERE NOT reached"
        " AND EXISTS (SELECT 1 FROM json_each(lane.contacts) JOIN contact ON contact.host = value)"
    )
