"""Many released credentials at once, and real commands."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from shipper.process import log
from shipper.sdk import descriptors
from shipper.sdk.units import Duration
from shipper.supervise.config import OnRelease
from shipper.supervise.ledger import Kept, Wait
from shipper.supervise.revocations import Revocations
from shipper.supervise.revoke import LastLine, Revoker
from shipper.supervise.standing import Troubles, unrevoked


async def test_of_many_credentials_four_are_revoked_at_a_time(tmp_path: Path) -> None:
    """Else a supervisor that comes back after a long rotation starts a process for each of them in one moment."""
    log = tmp_path / "log"
    script = f"echo begins >> {log}; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo ends >> {log}"
    revoked: list[str] = []

    def written() -> list[str]:
        return log.read_text().split() if log.exists() else []

    async def done(id: str) -> None:
        revoked.append(id)

    revocations = Revocations(
        OnRelease(command=("sh", "-c", script)), lambda: os.environ, Troubles(), lambda what, **_: None, done
    )
    async with trio.open_nursery() as nursery:
        for number in range(8):
            revocations.begin(nursery, Kept(f"es-{number}", {}, [], []))
        with trio.fail_after(60):
            while len(written()) < 4:  # noqa: ASYNC110 (other processes act)
                await trio.sleep(0.005)
            (tmp_path / "go").touch()
            await revocations.ended()

    at_once = [written()[:end].count("begins") - written()[:end].count("ends") for end in range(1, 17)]
    assert (max(at_once), len(revoked)) == (4, 8)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
async def test_a_command_gets_the_limit_of_open_files_that_the_supervisor_was_started_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors, "_found", (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    command = ("sh", "-c", "until [ $(ulimit -Sn) = 300 ]; do sleep 0.01; done")
    troubles, revoked = Troubles(), trio.Event()

    async def done(id: str) -> None:
        revoked.set()

    revocations = Revocations(OnRelease(command=command), lambda: os.environ, troubles, lambda what, **_: None, done)
    async with trio.open_nursery() as nursery:
        revocations.begin(nursery, Kept("es-1", {}, [], []))
        with trio.fail_after(60):
            await revoked.wait()


@pytest.mark.parametrize(("command", "words"), [(("true",), ["released", "revoked"]), (None, ["released"])])
async def test_a_release_is_told_once_with_the_name_that_the_backend_knows(
    command: tuple[str, ...] | None, words: list[str]
) -> None:
    """Without a command nothing is revoked, and the credential is forgotten all the same."""
    told: list[tuple[str, str]] = []
    forgotten: list[str] = []

    def say(what: str, **fields: Any) -> None:
        told.append((what, fields["name"]))

    async def done(id: str) -> None:
        forgotten.append(id)

    config = OnRelease(command=command) if command else None
    revocations = Revocations(config, lambda: os.environ, Troubles(), say, done)
    async with trio.open_nursery() as nursery:
        for again in (False, True):
            revocations.begin(nursery, Kept("es-1", {"api_key": "id:es-1"}, [], []), again=again)
        with trio.fail_after(60):
            await revocations.ended()

    assert told == [(word, "id") for word in words]
    assert forgotten == ["es-1"]


class Same:
    """Revocations by a command that notes names, beside credentials in use."""

    def __init__(self, *used: Kept) -> None:
        self.used = [*used]
        self.told: list[tuple[str, str]] = []
        self.forgotten: list[str] = []
        self.covered: list[str] = []
        self.revocations = Revocations(
            OnRelease(command=("true",)),
            lambda: os.environ,
            Troubles(),
            self.say,
            self.done,
            waits_for=self.waits_for,
            covered=self.covered.append,
        )

    def waits_for(self, kept: Kept) -> Wait | None:
        return next((Wait(one.id, "released") for one in self.used if one.known_as == kept.known_as), None)

    def say(self, what: str, **fields: Any) -> None:
        self.told.append((what, fields["credential"]))

    async def done(self, id: str) -> None:
        self.forgotten.append(id)


def user(id: str, password: str, source: str = "file:/es") -> Kept:
    return Kept(id, {"username": "ann", "password": password}, [source], ["outputs.main"])


async def test_a_credential_waits_while_one_of_its_name_is_in_use_and_then_goes_on() -> None:
    same = Same(user("es-2", "new"))
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            same.revocations.begin(nursery, user("es-1", "old"))
        assert same.revocations.waiting == {"es-1": Wait("es-2", "released")}
        same.used.clear()
        same.revocations.begin(nursery, user("es-1", "old"))
        assert same.revocations.waiting == {}

    assert same.told == [("release_waits", "es-1"), ("released", "es-1"), ("revoked", "es-1")]
    assert same.forgotten == ["es-1"]


async def test_a_revocation_that_fails_is_given_up_when_one_of_its_name_comes_into_use(
    autojump_clock: trio.testing.MockClock,
) -> None:
    same = Same()
    same.revocations = Revocations(
        OnRelease(command=("/absent",)), lambda: os.environ, Troubles(), same.say, same.done, waits_for=same.waits_for
    )
    async with trio.open_nursery() as nursery:
        same.revocations.begin(nursery, user("es-1", "old"))
        while ("revoke_failed", "es-1") not in same.told:  # noqa: ASYNC110 (the command is another process)
            await trio.sleep(0.1)
        same.used.append(user("es-2", "old"))
        await same.revocations.ended()

    assert (same.told[-1], same.forgotten) == (("release_waits", "es-1"), [])


async def test_of_the_passwords_of_one_user_in_one_place_the_newest_waits_for_all() -> None:
    same = Same(user("es-4", "d"), user("es-5", "e", "file:/other"))
    async with trio.open_nursery() as nursery:
        for id, source in [("es-1", "file:/es"), ("es-2", "file:/other"), ("es-3", "file:/es")]:
            same.revocations.begin(nursery, user(id, id, source))

    assert (same.covered, list(same.revocations.waiting)) == (["es-1"], ["es-2", "es-3"])


async def failure(script: str, longest: str = "20s") -> str:
    """Why one attempt of a command fails."""
    reasons: list[str] = []
    async with trio.open_nursery() as nursery:

        def failed(id: str, reason: str, seconds: float) -> None:
            reasons.append(reason)
            nursery.cancel_scope.cancel("one attempt is enough")

        command = OnRelease(command=("sh", "-c", script), timeout=Duration.parse(longest))
        with trio.fail_after(60):
            await Revoker(command, lambda: os.environ, failed).revoke(Kept("es-1", {}, [], []))
    return reasons[0]


async def test_a_command_whose_time_is_over_says_where_it_stood() -> None:
    assert await failure("echo asking >&2; sleep 60", "300ms") == "it took longer than 300ms: asking"


async def test_what_a_command_leaves_running_does_not_hold_its_standard_error_up() -> None:
    assert await failure("echo denied >&2; sleep 60 & exit 7") == "exit status 7: denied"


async def test_a_command_that_writes_a_great_deal_ends_all_the_same() -> None:
    assert await failure("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1") == f"exit status 1: {'x' * 300}…"


def test_the_last_line_that_is_not_blank_is_kept() -> None:
    for chunks, expected in [
        ([b"one\ntw", b"o\n", b"\n  \n"], "two"),
        ([b"10 %\r20 %\rcurl: (22) 403\r\n"], "curl: (22) 403"),
        ([b"one\nnot ended"], "not ended"),
        ([b"\xff\x1b]0;title\x07"], "\ufffd\ufffd]0;title\ufffd"),
        ([], ""),
    ]:
        last = LastLine()
        for chunk in chunks:
            last.feed(chunk)

        assert str(last) == expected


def test_of_a_line_that_is_cut_no_secret_shows_its_beginning() -> None:
    """A long token does not fit into what is kept of a line, and a short one may stand at its end."""
    token, last = "t" * 100 + "o" * 8000, LastLine()
    for secret in (token, "-hunter2-hunter2"):
        log.hide(secret)

    last.feed(f"  refused: {token}\n".encode())
    assert str(last) == "refused:"
    last.feed(b"x" * 4084 + b" -hunter2-hunter2\n")
    assert "hunter" not in str(last)
    last.feed((f"{'-hunter2-hunter2 ' * 600}\n").encode())
    assert str(last).count("[hidden]") > 30
    assert "hunter" not in str(last)


async def test_a_revocation_that_a_restart_begins_again_is_not_told_again_and_its_failure_is(tmp_path: Path) -> None:
    told: list[str] = []
    failed, troubles = trio.Event(), Troubles()

    def say(what: str, **_: Any) -> None:
        told.append(what)
        failed.set()

    async def done(id: str) -> None:
        raise AssertionError("it was not revoked")

    revocations = Revocations(OnRelease(command=("false",)), lambda: os.environ, troubles, say, done)
    async with trio.open_nursery() as nursery:
        revocations.begin(nursery, Kept("es-1", {}, [], []), again=True)
        with trio.fail_after(60):
            await failed.wait()
        nursery.cancel_scope.cancel("it would be tried again")

    assert told == ["revoke_failed"]
    assert unrevoked("es-1") in troubles
