"""What the ledger knows of a credential that has come in the place of a released one."""

from __future__ import annotations

from shipper.policy.document import Node
from shipper.supervise.ledger import Kept, Ledger, Wanted


def kept(id: str, *units: str, **more: bool) -> Kept:
    return Kept(id, {"api_key": f"{id}:key"}, ["file:/es"], [*units], **more)


def ledger(old: Kept, new: Kept, *, tells: bool = True) -> Ledger:
    return Ledger(ids=[new.id], kept={old.id: old, new.id: new}, tells_accepted=tells)


def test_a_credential_that_has_come_in_its_place_at_an_output_is_awaited_until_it_is_accepted() -> None:
    old, new = kept("k1", "outputs.main", released=True), kept("k2", "outputs.main", "inputs.app")
    has = ledger(old, new)
    before = has.unaccepted(old)

    assert (before, has.accept(["k2", "k9"]), has.accept(["k2"]), has.unaccepted(old)) == ("k2", ["k2"], [], "")


def test_a_credential_of_another_output_or_of_an_input_is_not_awaited() -> None:
    """An input has no destination, and an output that was removed no successor."""
    old = kept("k1", "outputs.main", "inputs.app", released=True)

    assert ledger(old, kept("k2", "outputs.other", "inputs.app")).unaccepted(old) == ""


def test_nothing_is_awaited_from_a_sidecar_that_does_not_tell() -> None:
    old, new = kept("k1", "outputs.main", released=True), kept("k2", "outputs.main")

    assert ledger(old, new, tells=False).unaccepted(old) == ""


def test_what_was_accepted_once_stays_so_when_the_files_are_read_again() -> None:
    has = ledger(kept("k1", "outputs.main", released=True), kept("k2", "outputs.main", accepted=True))
    has.adopt(Wanted(Node({}, None), "", "s", {"k2": kept("k2", "outputs.main")}))  # type: ignore[arg-type]

    assert has.kept["k2"].accepted


def test_a_shared_credential_is_delayed_by_its_successor_unless_a_person_has_ordered_its_end() -> None:
    old, new = kept("k1", "outputs.main", released=True, shared=True), kept("k2", "outputs.main", shared=True)
    has = ledger(old, new)
    before = has.delayed()
    old.ordered = True

    assert (before, has.delayed()) == ({"k1": "k2"}, {})


def test_a_credential_of_an_output_is_awaited_until_a_destination_has_accepted_it() -> None:
    of_input, of_output = kept("k1", "inputs.in"), kept("k2", "inputs.in", "outputs.main")
    assert [one.is_awaited for one in (of_input, of_output)] == [False, True]
    of_output.accepted = True

    assert not of_output.is_awaited
