"""What people change in the head of a fleet, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shipper.fleet import publishing
from shipper.fleet.errors import Refused
from shipper.fleet.publishing import Draft, Publishing
from shipper.fleet.records import Accepting, Head, Release, Secret, Settings, Text, Version
from shipper.fleet.seal import Seals, digest

SEALS = Seals("prod", [b"k" * 32])
EMPTY = Head("prod")
nonces = iter(f"{number:032x}" for number in range(1 << 20))


def now() -> Publishing:
    return Publishing("me@host", 1.5, next(nonces)[::-1])


def published(head: Head, policy: str = "version: 1\n", *names: str) -> Head:
    return publishing.publish(head, policy, names, now()).after


def with_secret(head: Head, name: str, content: bytes, policy: str | None = None) -> Draft:
    prints = SEALS.fingerprints(publishing.essence(content))
    return publishing.set_secret(head, name, content, now(), policy, fingerprints=prints)


def with_es(content: bytes = b"id:first") -> Head:
    return with_secret(EMPTY, "es", content).after


# -- versions


def test_a_version_is_the_next_number_with_the_digest_of_its_text() -> None:
    draft = publishing.publish(with_es(), "a policy", ["es"], now())
    ((key, text),) = draft.records.items()
    (line,) = draft.after.history

    assert draft.version is not None
    assert draft.version[:2] == (0, 1)
    assert isinstance(text, Text)
    assert (text.policy, text.secrets) == ("a policy", draft.after.secrets)
    assert key == f"versions/{draft.version.sha256}"
    assert draft.version.sha256 == digest(text)
    assert draft.after.newest == draft.version
    assert (line.version, line.by, line.at, line.why, line.secrets) == (
        draft.version,
        "me@host",
        1.5,
        "publish",
        text.secrets,
    )
    assert line.publish == text.nonce


@given(kept=st.integers(-1, 6), count=st.integers(1, 12))
def test_t152_1_numbers_rise_by_one_and_the_history_keeps_the_newest(kept: int, count: int) -> None:
    head = replace(EMPTY, settings=Settings(history=kept))
    for _ in range(count):
        head = published(head)

    assert [line.version.number for line in head.history] == list(range(1, count + 1))[-max(1, kept) :]
    assert head.newest == head.history[-1].version


def test_the_same_text_published_twice_has_two_digests() -> None:
    head = published(published(EMPTY, "same"), "same")

    assert head.history[0].version.sha256 != head.history[1].version.sha256


@pytest.mark.parametrize(("wanted", "given_"), [(0, True), ("0", True), (1, False), (2, False)])
def test_a_first_version_may_be_bound_to_there_being_none(wanted: int | str, given_: bool) -> None:
    if given_:
        assert publishing.publish(EMPTY, "", [], now(), if_version=wanted).version
    else:
        with pytest.raises(Refused, match=f"the newest version is 0, not {wanted}: look at what was published"):
            publishing.publish(EMPTY, "", [], now(), if_version=wanted)


def test_a_version_may_be_bound_to_the_newest_one_also_of_a_later_epoch() -> None:
    head = published(published(EMPTY))
    later = published(replace(head, epoch=1))

    assert publishing.publish(head, "", [], now(), if_version=2).version
    assert publishing.publish(later, "", [], now(), if_version="1.3").version
    for wanted in (1, 3):
        with pytest.raises(Refused):
            publishing.publish(head, "", [], now(), if_version=wanted)
    with pytest.raises(Refused, match=r"the newest version is 1\.3, not 3"):
        publishing.publish(later, "", [], now(), if_version=3)


def test_secrets_that_the_fleet_does_not_have_are_named_with_the_remedy() -> None:
    with pytest.raises(Refused, match=r"names kafka, nats, which the fleet does not have; .* secret set kafka --file"):
        publishing.publish(with_es(), "", ["es", "kafka", "nats"], now())


def test_a_text_of_more_than_a_mebibyte_is_refused() -> None:
    publishing.publish(EMPTY, "x" * (1 << 20), [], now())
    with pytest.raises(Refused, match="larger than 1MiB"):
        publishing.publish(EMPTY, "é" * (1 << 19) + "x", [], now())


def test_nothing_is_changed_while_a_restored_store_is_accepted() -> None:
    head = replace(published(with_es()), accepting=Accepting(1, 2.0, "you@there"))
    changes = [
        lambda: publishing.publish(head, "", [], now()),
        lambda: publishing.rollback(head, head.history[0], "", now()),
        lambda: with_secret(head, "es", b"id:second"),
        lambda: publishing.remove_secret(head, "es"),
        lambda: publishing.configure(head, history=9),
    ]
    for change in changes:
        with pytest.raises(
            Refused, match="since you@there accepted a restored store, and epoch 1 begins a lease later"
        ):
            change()


# -- rolling back


def test_a_rollback_to_a_version_with_a_removed_secret_is_refused() -> None:
    head = published(published(with_es(), "old", "es"), "new")
    head = publishing.remove_secret(head, "es").after

    with pytest.raises(Refused, match="version 1 names es, which the fleet no longer has; set each with: "):
        publishing.rollback(head, publishing.line_of(head, 1), "old", now())


def test_a_version_is_found_by_its_number_in_the_newest_epoch_or_by_its_full_name() -> None:
    old, new = Version(0, 1, "a"), Version(1, 1, "b")
    line = published(EMPTY).history[0]
    head = replace(EMPTY, epoch=1, number=1, history=[replace(line, version=old), replace(line, version=new)])

    assert publishing.line_of(head, 1).version == new
    assert publishing.line_of(head, "1.1").version == new
    with pytest.raises(Refused, match=r"there is no version 7: 1 to 1\.1 are kept"):
        publishing.line_of(head, 7)
    with pytest.raises(Refused, match="there is none yet"):
        publishing.line_of(EMPTY, 1)


# -- secrets


def test_a_new_content_gets_a_new_id_and_a_record() -> None:
    draft = with_secret(EMPTY, "es", b"id:first\n")
    ((name, id),) = draft.after.secrets.items()

    assert draft.secret == (name, id) == ("es", id)
    assert id.startswith("es-")
    assert len(id) == 3 + 16
    assert draft.records == {f"secrets/{id}": Secret("es", b"id:first\n")}
    assert draft.version is None
    assert with_secret(draft.after, "es", b"id:second").after.secrets["es"] != id


@pytest.mark.parametrize("again", [b"id:first", b"id:first\n", b"id:first\r\n", b"\xef\xbb\xbfid:first"])
def test_the_present_content_changes_nothing(again: bytes) -> None:
    head = with_es()
    draft = with_secret(head, "es", again)

    assert not draft.changes
    assert draft.secret == ("es", head.secrets["es"])


def test_an_earlier_content_gets_its_id_again_under_any_name_and_any_key() -> None:
    first = with_es()
    second = with_secret(first, "es", b"id:second").after
    newer = Seals("prod", [b"n" * 32, b"k" * 32]).fingerprints(publishing.essence(b"id:first"))

    assert with_secret(second, "es", b"id:first").after.secrets == first.secrets
    assert with_secret(second, "es", b"id:first").records == {}
    assert with_secret(second, "other", b"id:first").after.secrets["other"] == first.secrets["es"]
    assert with_secret(second, "es", b"aWQ6Zmlyc3Q=\r\n").after.secrets == first.secrets  # its base64
    again = publishing.set_secret(second, "es", b"id:first", now(), None, fingerprints=newer)
    assert again.after.secrets == first.secrets


def test_the_present_content_is_sealed_and_published_anew_under_a_new_key_of_the_fleet() -> None:
    head = published(with_es(), "policy", "es")
    id = head.secrets["es"]
    prints = Seals("prod", [b"n" * 32, b"k" * 32]).fingerprints(publishing.essence(b"id:first"))
    draft = publishing.set_secret(head, "es", b"id:first", now(), "policy", fingerprints=prints)

    assert draft.secret == ("es", id)
    assert draft.after.secrets == head.secrets
    assert draft.after.fingerprints == {id: prints[0]}
    assert draft.records[f"secrets/{id}"] == Secret("es", b"id:first")
    assert draft.version is not None
    assert draft.version.number == 2
    assert not publishing.set_secret(draft.after, "es", b"id:first", now(), "policy", fingerprints=prints).changes


def test_a_lost_answer_to_a_sealing_anew_is_judged_by_the_fingerprint() -> None:
    head = with_es()
    prints = Seals("prod", [b"n" * 32, b"k" * 32]).fingerprints(publishing.essence(b"id:first"))
    draft = publishing.set_secret(head, "es", b"id:first", now(), None, fingerprints=prints)

    assert draft.version is None
    assert draft.was_done(head) is False
    assert draft.was_done(draft.after) is True


def test_the_order_of_keys_makes_no_other_secret() -> None:
    head = with_es(b"{username: a, password: b}")

    assert not with_secret(head, "es", b'{"password": "b", "username": "a"}').changes
    assert with_secret(head, "es", b"{username: a, password: c}").changes


def test_new_content_of_a_secret_that_the_newest_version_names_is_published_at_once() -> None:
    head = published(with_es(), "policy", "es")
    draft = with_secret(head, "es", b"id:second", "policy")

    assert draft.version is not None
    assert draft.version.number == 2
    assert draft.after.history[-1].secrets == draft.after.secrets != head.secrets
    assert draft.after.history[-1].why == "secret es"
    assert sorted(key.partition("/")[0] for key in draft.records) == ["secrets", "versions"]
    assert publishing.needs_text(head, "es") == head.history[0]
    assert publishing.needs_text(head, "kafka") is None
    assert publishing.needs_text(published(head), "es") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b" \n", "is empty"), (b"canary\xff", "is not UTF-8"), (b"x" * (1 << 20) + b"x", "than 1MiB")],
)
def test_a_content_that_no_secret_can_have_is_refused_and_not_quoted(content: bytes, message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        publishing.essence(content)
    assert "canary" not in str(caught.value)


def test_another_name_of_a_secret_is_refused() -> None:
    for name in ["", "ES", "a/b", "-a", "x" * 64]:
        with pytest.raises(Refused, match="the name of a secret is of a-z"):
            with_secret(EMPTY, name, b"id:x")


def test_secrets_and_their_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MOST_SECRETS", 1)
    with pytest.raises(Refused, match="at most 1 secrets"):
        with_secret(with_es(), "kafka", b"id:k")
    monkeypatch.setattr(publishing, "MOST_IDS", 1)
    with pytest.raises(Refused, match="1 contents of secrets are not yet released"):
        with_secret(with_es(), "es", b"id:second")


def test_a_secret_is_removed_only_when_the_newest_version_does_not_name_it() -> None:
    head = published(with_es(), "policy", "es")

    with pytest.raises(Refused, match="version 1 names the secret es: publish a policy without it first"):
        publishing.remove_secret(head, "es")
    after = publishing.remove_secret(published(head), "es").after
    assert after.secrets == {}
    assert after.fingerprints.keys() == {head.secrets["es"]}, "its release is still to come"
    with pytest.raises(Refused, match="the fleet has no secret of this name; it has none"):
        publishing.remove_secret(after, "es")


# -- releases


def retired(state: str) -> tuple[Head, str]:
    """Returns a head in which the first content of `es` is being released."""
    first = with_es()
    head = with_secret(first, "es", b"id:second").after
    id = first.secrets["es"]
    return replace(head, released={id: Release("es", 1.0, state), "kafka-1": Release("kafka", 1.0)}), id  # type: ignore[arg-type]


def test_a_release_that_has_not_begun_is_withdrawn_by_the_return_of_the_content() -> None:
    head, id = retired("released")
    after = with_secret(head, "es", b"id:first").after

    assert after.secrets == {"es": id}
    assert after.released.keys() == {"kafka-1"}


@pytest.mark.parametrize("state", ["begun", "done"])
def test_a_content_that_may_have_been_revoked_does_not_come_back(state: str) -> None:
    head, id = retired(state)

    with pytest.raises(
        Refused, match=f"the secret {id} was released, and may have been revoked: set es to new content"
    ):
        with_secret(head, "es", b"id:first")


def test_a_version_that_pins_a_released_id_withdraws_the_release_or_is_refused() -> None:
    head, id = retired("released")
    head = replace(head, secrets={"es": id})

    assert publishing.publish(head, "", ["es"], now()).after.released.keys() == {"kafka-1"}
    for state in ("begun", "done"):
        head, id = retired(state)
        with pytest.raises(Refused, match="may have been revoked"):
            publishing.publish(replace(head, secrets={"es": id}), "", ["es"], now())


# -- lost answers


def test_a_later_head_tells_whether_a_version_was_published() -> None:
    head = published(EMPTY)
    draft = publishing.publish(head, "mine", [], now())
    other = published(head, "of another")

    assert draft.was_done(draft.after) is True
    assert draft.was_done(published(published(draft.after))) is True
    assert draft.was_done(head) is False
    assert draft.was_done(with_secret(head, "es", b"id:x").after) is False
    assert draft.was_done(other) is False
    assert draft.was_done(published(other)) is False
    few = replace(head, settings=Settings(history=1))
    assert publishing.publish(few, "mine", [], now()).was_done(published(published(few))) is None


def test_a_later_head_tells_whether_a_secret_was_set_or_removed() -> None:
    head = with_es()
    second = with_secret(head, "es", b"id:second")
    third = with_secret(second.after, "es", b"id:third").after

    assert second.was_done(second.after) is True
    assert second.was_done(third) is True
    assert second.was_done(with_secret(head, "es", b"id:third").after) is False
    back = with_secret(second.after, "es", b"id:first")
    assert [back.was_done(one) for one in (back.after, second.after, third)] == [True, False, None]
    removed = publishing.remove_secret(head, "es")
    assert [removed.was_done(one) for one in (removed.after, head, third)] == [True, False, None]


# -- settings


def test_a_setting_is_changed_alone_and_a_shorter_history_ends_with_the_next_publish() -> None:
    head = EMPTY
    for _ in range(5):
        head = published(head)
    shorter = publishing.configure(head, history=2).after

    assert shorter.settings == Settings(history=2, release_grace=Settings().release_grace)
    assert shorter.history == head.history
    assert [line.version.number for line in published(shorter).history] == [5, 6]
    assert publishing.configure(shorter, release_grace=0.0).after.settings == Settings(history=2, release_grace=0.0)
    assert not publishing.configure(shorter, history=2).changes


@pytest.mark.parametrize(
    "wrong",
    [{"history": 1}, {"history": 501}, {"release_grace": -1.0}, {"release_grace": 365 * 86400.0 + 1}],
)
def test_a_setting_out_of_its_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=r"2 to 500|at most 365 days"):
        publishing.configure(EMPTY, **wrong)
    bounds = publishing.configure(
        publishing.configure(EMPTY, history=500).after, history=2, release_grace=365 * 86400.0
    )
    assert bounds.after.settings == Settings(2, 365 * 86400.0)


def test_a_later_head_tells_whether_a_setting_was_changed() -> None:
    draft = publishing.configure(EMPTY, history=9)

    assert draft.was_done(draft.after) is True
    assert draft.was_done(EMPTY) is False
    assert draft.was_done(publishing.configure(draft.after, release_grace=0.0).after) is True
    assert draft.was_done(publishing.configure(EMPTY, release_grace=0.0).after) is False
    assert draft.was_done(publishing.configure(EMPTY, history=8).after) is None


# -- garbage


def test_what_falls_out_of_the_history_is_garbage_and_what_may_come_back_is_not() -> None:
    head = replace(with_es(), settings=Settings(history=2))
    head = published(head, "one", "es")
    first = head.secrets["es"]
    before = with_secret(head, "es", b"id:second", "one").after
    after = published(before, "three", "es")
    gone = f"versions/{before.history[0].version.sha256}"

    assert list(publishing.garbage(head, before)) == []
    assert list(publishing.garbage(before, after)) == [gone], "its content may be set again"
    begun = replace(after, released={first: Release("es", 1.0, "begun")})
    assert list(publishing.garbage(before, begun)) == [gone], "`on_release` gets its public name"
    done = replace(after, released={first: Release("es", 1.0, "done")})
    assert set(publishing.garbage(before, done)) == {gone, f"secrets/{first}"}
    forgotten = replace(after, fingerprints={})
    assert set(publishing.garbage(before, forgotten)) == {gone, f"secrets/{first}"}
    assert not publishing.is_garbage(done, f"secrets/{after.secrets['es']}")
    assert publishing.is_garbage(after, "secrets/unknown")
