"""The collector of cycles leaves out what lives as long as the process, and nothing else."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from shipper.process.collector import Collector


class Knot:
    """Refers to itself: the collector alone frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_while_modules_are_imported() -> None:
    with Collector().importing():
        assert not gc.isenabled()

    assert gc.isenabled()


def test_nothing_is_collected_until_the_last_import_of_several_ends() -> None:
    collector = Collector()

    with collector.importing():
        with collector.importing():
            pass

        assert not gc.isenabled()


def test_what_was_imported_at_the_start_is_left_out_of_later_collections() -> None:
    with Collector().importing():
        imported = weakref.ref(Knot())

    gc.collect()

    assert imported() is not None


def test_after_the_start_nothing_is_left_out() -> None:
    collector = Collector()
    collector.started()

    with collector.importing():
        there = weakref.ref(Knot())
    gc.collect()

    assert there() is None


def test_what_comes_after_the_imports_is_collected() -> None:
    with Collector().importing():
        pass
    later = weakref.ref(Knot())

    gc.collect()

    assert later() is None


def test_an_import_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(ImportError), Collector().importing():
        raise ImportError

    assert gc.isenabled()
