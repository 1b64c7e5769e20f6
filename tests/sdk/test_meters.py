"""What plugins count of themselves."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.meters import MOST, Meters, Panel, measured, meters


def test_a_name_that_is_asked_for_again_is_the_same_figure():
    figures = Meters()
    figures.counter("lost", "Lost.").add(2)
    figures.counter("lost", "Lost.").add()
    figures.gauge("peers", "Peers.").set(7)
    figures.histogram("size", "Size.", [1, 10]).observe(5)

    assert figures.numbers() == {"lost": 3, "peers": 7, "size": 1}
    assert figures.view()["size"]["buckets"] == [("1.0", 0), ("10.0", 1), ("+Inf", 1)]


def test_a_name_that_metrics_cannot_have_is_refused():
    for name in ["", "Lost", "1st", "a-b", "a b", "a\n", "x" * 49, "lost_total", "x_bucket", "x_sum"]:
        with pytest.raises(ValueError, match="the name of a figure"):
            Meters().counter(name, "")


@pytest.mark.parametrize("help", ["two\nlines", "x" * 201])
def test_a_help_is_one_line(help):
    with pytest.raises(ValueError, match="one line"):
        Meters().gauge("x", help)


@pytest.mark.parametrize("bounds", [[], [1, 1], [2, 1], list(range(33))])
def test_bounds_grow_and_are_few(bounds):
    with pytest.raises(ValueError, match="bounds"):
        Meters().histogram("x", "", bounds)


def test_a_name_has_one_kind():
    figures = Meters()
    figures.counter("x", "")
    with pytest.raises(ValueError, match="a counter already"):
        figures.gauge("x", "")


def test_there_are_so_many_names_and_no_more():
    figures = Meters()
    for number in range(MOST):
        figures.counter(f"x{number}", "")
    with pytest.raises(ValueError, match="at most"):
        figures.counter("more", "")
    figures.counter("x0", "").add()


def test_a_counter_only_grows():
    with pytest.raises(ValueError, match="only grows"):
        Meters().counter("x", "").add(-1)


def test_nothing_is_lost_that_threads_count_at_once():
    figures = Meters()

    def count():
        for _ in range(5000):
            figures.counter("x", "").add()
            figures.histogram("y", "").observe(1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert figures.numbers() == {"x": 20000, "y": 20000}


@given(st.lists(st.floats(0, 100)))
def test_each_number_is_in_the_buckets_that_it_is_not_above(numbers):
    histogram = Meters().histogram("x", "", [1, 10, 50])
    for number in numbers:
        histogram.observe(number)

    counts = dict(histogram.view()["buckets"])
    assert counts == {str(bound): sum(n <= bound for n in numbers) for bound in (1.0, 10.0, 50.0)} | {
        "+Inf": len(numbers)
    }


def test_units_that_are_kept_go_on_and_others_begin_anew():
    panel = Panel()
    for unit in ("a", "b"):
        panel.of(unit, "t").counter("x", "").add()
    panel.keep({("a", "t")})

    assert panel.of("a", "t").numbers() == {"x": 1}
    assert panel.of("b", "t").numbers() == panel.of("a", "another").numbers() == {}
    assert list(panel.view()) == ["a"]


def test_a_processor_counts_within_its_call_only():
    figures = Meters()
    with measured(figures):
        with measured(Meters()):
            meters().counter("x", "").add()
        meters().counter("x", "").add()
    meters().counter("x", "").add()

    assert figures.numbers() == {"x": 1}
