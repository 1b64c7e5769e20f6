"""The collector of cycles leaves out what lives as long as the process, and nothing else."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from shipper.process import collector


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
    with collector.importing():
        assert not gc.isenabled()

    assert gc.isenabled()


def test_what_was_imported_is_left_out_of_later_collections() -> None:
    with collector.importing():
        imported = weakref.ref(Knot())

    gc.collect()

    assert imported() is not None


def test_what_comes_after_the_imports_is_collected() -> None:
    with collector.importing():
        pass
    later = weakref.ref(Knot())

    gc.collect()

    assert later() is None


def test_an_import_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(ImportError), collector.importing():
        raise ImportError

    assert gc.isenabled()
