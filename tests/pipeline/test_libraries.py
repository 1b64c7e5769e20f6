"""Libraries of plugins are loaded in a worker thread, and one that is missing is named."""

import threading

import pytest
import trio

from shipper.pipeline import libraries
from shipper.pipeline.libraries import load
from shipper.plugin import Input, Output
from shipper.sdk.errors import StartFailed


@pytest.fixture(autouse=True)
def _nothing_is_loaded(monkeypatch):
    monkeypatch.setattr(libraries, "_loaded", set())


async def test_a_plugin_is_loaded_once_and_not_in_the_thread_of_the_loop():
    threads = []

    class Loading(Output, frozen=True):
        def load(self):
            threads.append(threading.current_thread())

    await load("output a", Loading())
    await load("output b", Loading())

    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


async def test_a_library_that_is_not_installed_is_named():
    class Missing(Output, frozen=True):
        def load(self):
            import no_such_library  # noqa: F401

    with pytest.raises(StartFailed, match=r"^output main: no_such_library is not installed$"):
        await load("output main", Missing())


async def test_a_broken_library_is_told_by_its_place_not_by_its_words():
    class Broken(Input, frozen=True):
        def load(self):
            raise ValueError("secret")

    with pytest.raises(StartFailed, match=r"^input main: its libraries cannot be loaded: ValueError at ") as refused:
        await load("input main", Broken())
    assert "secret" not in str(refused.value)


async def test_what_a_plugin_says_itself_is_told_with_its_code():
    class Unfit(Input, frozen=True):
        def load(self):
            raise StartFailed("too old", code="too_old")

    with pytest.raises(StartFailed, match=r"^input main: too old$") as refused:
        await load("input main", Unfit())
    assert refused.value.code == "too_old"


async def test_a_library_that_failed_is_tried_again():
    tries = []

    class Late(Output, frozen=True):
        def load(self):
            tries.append(1)
            if len(tries) == 1:
                raise ImportError

    with pytest.raises(StartFailed, match="a library cannot be imported"):
        await load("output main", Late())
    await load("output main", Late())

    assert len(tries) == 2


async def test_nobody_waits_for_an_import_that_is_given_up():
    ends = threading.Event()

    class Hanging(Output, frozen=True):
        def load(self):
            ends.wait(30)

    with trio.fail_after(30), trio.move_on_after(0.01) as scope:
        await load("output main", Hanging())
    ends.set()

    assert scope.cancelled_caught
