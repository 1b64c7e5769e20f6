"""Which contents the sidecar uses or may use, and which of them may be used: announce before use.

Before a leader releases the contents of a Secret that are older than version R, it reads the Secret at R or later.
After that it must find no entry of `using` for this uid and key with a version before R. So a content c may be used by
this member

- because an older content p of the same uid and key may be used, and is in each status until c is: the entry of p holds
  the bound at the version of p, or below, and so below that of c (*covered*);
- or because c was in the status, and then a read of the Secret has shown c (*confirmed*): a leader that has not seen
  the entry has read the Secret before that, so it was at R or earlier when c was current.

What may be used is *proven*; it stays so while each status has it. An entry has the newest version at which its content
was current, and is written anew when the Secret changes in other ways, so that the bound can go on.

A bound in the Lease is one that was set without this member, while its Lease was over: what is older is *barred*, until
a read shows it as current at a newer version. What is in use without being proven, or barred, is withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shipper.apiserver.versions import compare, is_older
from shipper.kubernetes.kinds import Using
from shipper.kubernetes.member.contents import Contents
from shipper.kubernetes.member.memory import Content


class Usage:
    """See the module."""

    def __init__(self, contents: Contents, proven: Iterable[str]) -> None:
        self._contents = contents
        self.proven = set(proven)
        self.bounds: Mapping[str, str] = {}
        """By `UID/KEY`, as the Lease has them."""
        self.withdrawn: set[str] = set()
        self._announced: set[str] = set()
        """In the status that was written last, and not proven."""
        self._pins: dict[str, int] = {}
        """The newest vector with each content that was offered and not answered: the ledger may not have it yet."""
        self._late: dict[str, int] = {}
        """The pins of what was withdrawn: the agent may read such a vector after that, and supply its contents."""
        self.again: set[str] = set()
        """Withdrawn ones that such a vector may have brought back."""

    # -- what is used --------------------------------------------------------------------------------------------------

    def ids(self, ledger: Iterable[str], also: Iterable[str] = ()) -> frozenset[str]:
        """Returns what is used or may be: by the ledger, by offers on their way, and by what is to be offered."""
        return frozenset({*ledger, *self._pins, *also} - self.withdrawn)

    def entries(self, ids: Iterable[str]) -> tuple[Using, ...]:
        """Returns the entries of the status."""
        found = {(one.secret, one.uid, one.key, one.version) for one in self._contents.of(ids)}
        return tuple(
            Using(secret=secret, uid=uid, key=key, resource_version=at) for secret, uid, key, at in sorted(found)
        )

    def offered(self, ids: Iterable[str], number: int) -> None:
        """A vector with these contents was offered."""
        self._pins |= dict.fromkeys(ids, number)

    def answered(self, number: int) -> None:
        """A vector was answered: the ledger has it, and has passed over older ones."""
        self._pins = {id: newest for id, newest in self._pins.items() if newest > number}
        self.again |= {id for id, newest in self._late.items() if newest <= number}
        self._late = {id: newest for id, newest in self._late.items() if newest > number}

    # -- what may be used ----------------------------------------------------------------------------------------------

    def is_usable(self, one: Content) -> bool:
        """Whether a content may be given to the sidecar; a covered one is proven by that."""
        if one.id in self.withdrawn or self.is_barred(one):
            return False
        if one.id not in self.proven and self._is_covered(one):
            self.proven.add(one.id)
        return one.id in self.proven

    def may_become_usable(self, one: Content) -> bool:
        """Whether a content is usable, or may be so once it was announced and confirmed."""
        return one.id not in self.withdrawn

    def is_barred(self, one: Content) -> bool:
        """Whether a bound was set above a content without this member."""
        bound = self.bounds.get(f"{one.uid}/{one.key}", "")
        return bool(bound) and is_older(one.version, bound)

    def _is_covered(self, one: Content) -> bool:
        older = (other for other in self._contents.of(self.proven) if (other.uid, other.key) == (one.uid, one.key))
        return any(compare(other.version, one.version) in (-1, 0) and not self.is_barred(other) for other in older)

    def is_announced(self, one: Content) -> bool:
        """Whether the status has a content, or need not have it before the Secret is read."""
        return one.id in self._announced or one.id in self.proven

    def writing(self, ids: frozenset[str]) -> None:
        """A status with these contents is about to be written, and no other from now on."""
        self.proven &= ids
        self._announced &= ids

    def wrote(self, ids: frozenset[str]) -> None:
        """The API server has such a status."""
        self._announced = set(ids) - self.proven

    def confirmed(self, one: Content) -> None:
        """A read that began after the content was announced has shown it as current."""
        if one.id in self._announced:
            self.proven.add(one.id)

    def check(self, there: Iterable[Using]) -> None:
        """Keeps as proven what these entries, and nothing else, have covered all the time."""
        there = list(there)
        self.proven = {one.id for one in self._contents.of(self.proven) if any(_covers(use, one) for use in there)}
        self._announced.clear()

    def doubt(self) -> None:
        """The API server may have had no status of this directory for a while: nothing is proven."""
        self.proven.clear()
        self._announced.clear()

    def withdrew(self, ids: Iterable[str]) -> None:
        """The sidecar has these no more, for ever."""
        ids = set(ids)
        self._late |= {id: number for id, number in self._pins.items() if id in ids}
        self.again -= ids
        self.withdrawn |= ids
        self.proven -= self.withdrawn
        self._pins = {id: number for id, number in self._pins.items() if id not in self.withdrawn}

    def forgot(self, ids: Iterable[str]) -> None:
        """The ledger has these no more."""
        self.withdrawn -= set(ids)


def _covers(use: Using, one: Content) -> bool:
    return (use.uid, use.key) == (one.uid, one.key) and compare(use.resource_version, one.version) in (-1, 0)
