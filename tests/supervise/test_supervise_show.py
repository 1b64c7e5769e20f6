"""Tables for people."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.supervise.show import Screen, Table, of_status, show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", ["[b]bold[/b]", "/logs/[/b].log", "failed to parse field [age] of type [long]"])
def test_nothing_in_a_table_is_markup(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    terminal = Terminal()
    show([(f"shipper: {text}", [("units", text)])], terminal)

    assert terminal.getvalue().count(text) == 2


def status(**observed: Any) -> dict[str, Any]:
    supervisor = {"version": "1", "pid": 1}
    fixed = {"state": "DEGRADED", "message": "x", "troubles": [], "sidecar": None, "wanted": None}
    return {**fixed, "supervisor": supervisor, "observed": observed, "credentials": []}


def of_key(id: str, *, current: bool) -> dict[str, Any]:
    fixed = {"name": "k", "released": False, "units": ["outputs.main"], "sources": ["file:/keys/es"]}
    return {"id": id, **fixed, "current": current}


@pytest.mark.parametrize(
    ("key", "in_use", "words"),
    [
        ({"current": True}, True, "in use"),
        ({"current": False}, True, "needed by a drain"),
        ({"current": True}, False, "held"),
        ({"current": False, "released": True}, False, "released, on_release pending"),
        ({"current": False, "released": True, "revoked": False}, False, "it can be revoked now"),
    ],
)
def test_a_key_is_shown_with_what_needs_it_or_who_has_to_revoke_it(
    key: dict[str, bool], in_use: bool, words: str
) -> None:
    seen = status(credentials_in_use=["es-1"] if in_use else [])
    seen["credentials"] = [of_key("es-1", current=True) | key]

    assert dict(of_status(seen))["credentials"][0][2] == words


EDGE: dict[str, Any] = {
    "input": "door",
    "name": "berlin",
    "connected_seconds": 5400.0,
    "heard_seconds": 3.2,
    "waiting_events": 0,
    "versions_behind": 1,
    "keys": 1200,
    "bytes": 4096,
}
PRINCIPAL: dict[str, Any] = {
    "output": "up",
    "host": "principal-1:6789",
    "connected_seconds": None,
    "reason": "connection refused",
    "confirms": "stored",
    "unconfirmed_events": 3,
    "unconfirmed_keys": 1,
    "oldest_seconds": 9.0,
}


def test_the_edges_of_a_principal_are_named_with_what_waits_there() -> None:
    unknown = {**EDGE, "name": "paris", "connected_seconds": None, "heard_seconds": None, "keys": 0, "bytes": 0}
    tables = dict(of_status(status(edges=[EDGE, unknown])))

    assert tables["edges"] == [
        (
            "inputs.door",
            "berlin",
            "connected for 90 min",
            "heard 3.2 s ago",
            "1,200 keys, 4KiB",
            "waiting there: 1 version",
        ),
        ("inputs.door", "paris", "not connected", "not heard of since the start", "0 keys, 0B", ""),
    ]


def test_the_principal_of_an_edge_is_named_with_what_it_has_not_confirmed() -> None:
    near = {**PRINCIPAL, "connected_seconds": 4.0, "reason": "", "unconfirmed_events": 0, "unconfirmed_keys": 0}
    tables = dict(of_status(status(principals=[PRINCIPAL, {**near, "oldest_seconds": 0.0}])))

    host, waits = "principal-1:6789", "3 events and 1 key unconfirmed, oldest 9.0 s"
    assert tables["principals"] == [
        ("outputs.up", host, "not connected", "confirms stored", waits, "connection refused"),
        ("outputs.up", host, "connected for 4.0 s", "confirms stored", "nothing unconfirmed", ""),
    ]


WAITING = {
    "events": 8,
    "reason": "401",
    "credentials": ["es-1"],
    "held": True,
    "rebind_from": ["es-1"],
    "rebind_to": "es-2",
    "forward": True,
}
DRAIN = {"epoch": 0, "revision": 6, "oldest_seconds": 3.0, "outputs": {"main": WAITING}}


def test_of_two_keys_of_one_file_the_one_that_a_drain_needs_says_which_drain() -> None:
    seen = status(draining=[DRAIN], credentials_in_use=["es-1", "es-2"])
    seen["credentials"] = [of_key("es-1", current=False), of_key("es-2", current=True)]
    tables = dict(of_status(seen, "DIR", ["rebind"]))

    assert [row[2] for row in tables["credentials"]] == ["needed by revision 6 of main", "in use"]
    assert tables["draining"][0][4:] == ("needs es-1", "401")
    (title,) = (title for title in tables if title.startswith("to end"))
    assert tables[title][-1] == ("  shipper order rebind --from es-1 --to es-2 --state DIR",)


def test_a_batch_that_holds_up_an_output_comes_with_the_orders_that_end_it() -> None:
    unit = {"id": "outputs.main", "type": "fake", "state": "DEGRADED", "message": "503"}
    seen = status(units=[unit | {"failing": {"batch": 1207, "seconds": 61.0}}])
    tables = dict(of_status(seen, "/x", ["dead-letter", "drop"]))

    rows = tables["if nothing else ends batch 1207, which holds up outputs.main, one of"]
    assert rows[-1] == ("  shipper order drop --output main --batch 1207 --state /x",)


def test_a_refused_credential_comes_with_what_to_do_about_it() -> None:
    unit = {"id": "outputs.main", "type": "fake", "state": "DEGRADED", "message": "401", "code": "unauthorized"}
    seen = status(units=[unit])
    (unknown,) = dict(of_status(seen, "/x", ["drop"]))["to have outputs.main accepted again"]
    seen["supervisor"]["policy"] = ["/etc/shipper/policy.d", "/srv/my policy.yaml"]
    words, command = (row[0] for row in dict(of_status(seen, "/x", ["drop"]))["to have outputs.main accepted again"])

    assert words.startswith("put a valid credential")
    assert command == "  shipper test credential /etc/shipper/policy.d '/srv/my policy.yaml' --output main"
    assert f"{unknown[0]}:" == words


def test_an_ordinary_outage_shows_what_ends_it_and_no_order_that_gives_events_up() -> None:
    unit = {"id": "outputs.main", "type": "fake", "state": "DEGRADED", "message": "refused", "code": "unreachable"}
    waiting = {"events": 3, "reason": "refused", "code": "unreachable", "forward": False}
    drain = {"epoch": 0, "revision": 6, "oldest_seconds": 7000.0, "outputs": {"main": waiting}}
    tables = of_status(status(units=[unit], draining=[drain]), "/x", ["forward", "dead-letter", "drop"])
    (row,) = dict(tables)["units"]

    assert row[-1] == "refused; ends when the host answers"
    assert not [title for title, _ in tables if "nothing else ends" in title or title.startswith("to end")]


def test_dead_letters_come_with_the_command_that_delivers_them() -> None:
    tables = of_status(status(dead_letters={"events": 3, "bytes": 9}), "/x", ["dead-letters"])

    assert tables[-1][1][-1] == ("  shipper order dead-letters requeue --state /x",)


def test_where_nobody_takes_an_order_none_is_proposed() -> None:
    seen = status(draining=[DRAIN], dead_letters={"events": 3, "bytes": 9}) | {"supervisor": None}
    titles = [title for title, _ in of_status(seen, "/x", ["rebind", "dead-letters"])]

    assert titles == ["shipper: DEGRADED, x", "draining"]


def plain(text: str) -> str:
    return re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", text)


def drawn(tables: list[Table], width: int, height: int = 50, times: int = 0) -> str:
    """As a terminal of this size gets it, once or, for `--watch`, so many times."""
    terminal = Terminal()
    screen = Screen(terminal)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(width))
        patched.setenv("LINES", str(height))
        for _ in range(times):
            screen.redraw(tables)
        if not times:
            screen.draw(tables)
    return terminal.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_id_is_broken_where_a_line_of_its_own_has_room_for_it(width: int) -> None:
    row = ("es-3f9c0a7be2d1", "VuaCfGcBCdbkQm-e5aOx", "needed by revision 6 of main", "outputs.main", "file:/etc/keys")
    text = plain(drawn([("credentials", [row, row])], width))

    assert all(text.count(cell) == 2 for cell in row)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [20, 80])
def test_a_command_is_never_broken_so_that_it_can_be_copied(width: int) -> None:
    command = "shipper order rebind --from es-3f9c0a7be2d1 --to es-81d04c5f6a77 --state '/var/lib/a directory'"

    assert f"  {command}\n" in plain(drawn([("to do", [(command,)])], width))


HOSTILE = st.text(st.sampled_from("a [/]b\x1b\x07\r\n\u202e\udcffé漢\U0001f600"), max_size=30)


@given(st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE), max_size=3), HOSTILE, st.integers(1, 100), st.booleans())
def test_whatever_a_cell_holds_nothing_fails_and_nothing_steers_the_terminal(
    rows: list[tuple[str, ...]], title: str, width: int, again: bool
) -> None:
    text = plain(drawn([(title, rows)], width, times=2 if again else 0))

    assert not set("\x1b\x07\r\u202e\udcff").intersection(text)


def test_a_screen_that_is_drawn_again_begins_at_the_top_and_leaves_nothing_of_before() -> None:
    text = drawn([("shipper", [("a", "b")])], 80, times=2)

    assert text.count("\x1b[H") == 2
    assert text.count("\x1b[2J") == 1
    assert text.count("\x1b[K\n") == 4
    assert text.count("\x1b[J") == 2


@pytest.mark.parametrize(("figures", "said"), [({}, ""), ({"lost_files": 1}, ", 1 gone before their end was read")])
def test_an_input_says_what_it_has_not_read_and_what_it_lost(figures: dict[str, int], said: str) -> None:
    figures = {"files": 2, "unread_bytes": 0, **figures}
    unit = {"id": "inputs.in", "type": "file", "state": "HEALTHY", "message": "", "figures": figures}
    tables = dict(of_status(status(units=[unit])))

    assert any(f"2 files, 0 bytes not read{said}" in row for rows in tables.values() for row in rows)
