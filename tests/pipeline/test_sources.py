"""Whose word counts for a key: that of documents which are read again, else of those who were sent it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from shipper.pipeline.sources import Sources
from shipper.plugin import Input
from shipper.spool.resync import Claim
from shipper_plugins.file.input import FileInput
from shipper_plugins.relay.input import Edge, RelayInput
from shipper_plugins.state.input import StateInput


class Running(NamedTuple):
    source: str
    is_complete: bool = False
    adopted: Callable[[Collection[str]], None] = lambda owners: None


class Plugin(Input, frozen=True):
    @property
    def gives_state(self) -> bool:
        return True


DOOR = RelayInput(address="127.0.0.1:0", edges={"local": Edge(credentials=("k1",), collections=("things",))})  # type: ignore[arg-type]
FILES = StateInput(paths=("/files/*.json",), collection="inventory")
LOGS = FileInput(paths=("/logs/*.log",))


def test_before_there_are_inputs_nothing_is_said() -> None:
    assert Sources().claim("", "things") == Claim("", "unread")


def test_the_documents_of_a_source_count_once_it_has_read_all() -> None:
    sources = Sources()
    for is_complete, rule in ((False, "unread"), (True, "source")):
        sources.switch({"a": (Plugin(), Running("a")), "f": (FILES, Running("f", is_complete))})
        assert sources.claim("", "inventory") == Claim("f", rule)  # type: ignore[arg-type]


def test_what_comes_by_a_door_or_from_a_plugin_is_adopted() -> None:
    sources = Sources()
    sources.switch({"d": (DOOR, Running("d")), "p": (Plugin(), Running("p")), "f": (FILES, Running("f"))})

    assert sources.claim("local", "things") == Claim("d", "adopt")
    assert sources.claim("local/below", "things") == Claim("d", "adopt")
    assert sources.claim("", "things") == Claim("p", "adopt")


def test_for_keys_that_no_input_gives_any_more_nobody_has_the_word() -> None:
    sources = Sources()
    sources.switch({"d": (DOOR, Running("d")), "f": (FILES, Running("f")), "l": (LOGS, Running("l"))})

    assert [sources.claim(*key) for key in (("", "things"), ("other", "things"), ("local", "inventory"))] == [None] * 3


def test_an_input_hears_whose_keys_of_it_were_adopted() -> None:
    sources = Sources()
    door, files = list[set[str]](), list[set[str]]()
    sources.adopted([("local", "things")])
    sources.switch(
        {
            "d": (DOOR, Running("d", adopted=lambda owners: door.append(set(owners)))),
            "f": (FILES, Running("f", adopted=lambda owners: files.append(set(owners)))),
        }
    )
    sources.adopted([("local", "things"), ("local/below", "things"), ("other", "things"), ("", "inventory")])

    assert (door, files) == ([{"local", "local/below"}], [])


def test_a_change_of_the_inputs_is_news() -> None:
    sources = Sources()
    before = sources.news
    sources.switch({})

    assert before.is_set()
    assert not sources.news.is_set()
