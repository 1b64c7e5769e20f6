"""What a leader says of its troubles: each once, and when it is over."""

from __future__ import annotations

from shipper.kubernetes.summing.troubles import Troubles


def told() -> tuple[Troubles, list[tuple[str, str | None]]]:
    said: list[tuple[str, str | None]] = []
    return Troubles(lambda cause, text: said.append((cause, text))), said


def test_a_trouble_is_said_once_and_when_it_is_over():
    troubles, said = told()
    troubles.failed("forbidden", "web", "no right")
    troubles.failed("forbidden", "web", "no right")
    troubles.over("web")
    troubles.over("web")

    assert said == [("forbidden", "no right"), ("forbidden", None)]


def test_what_concerns_many_objects_is_one_sentence():
    troubles, said = told()
    for number in range(3):
        troubles.failed("forbidden", f"web-{number}", f"no right to web-{number}")
    troubles.over("web-0")

    assert said[-2:] == [
        ("forbidden", "no right to web-0 (and 2 more like it)"),
        ("forbidden", "no right to web-1 (and 1 more like it)"),
    ]


def test_an_object_may_have_two_troubles():
    troubles, said = told()
    troubles.failed("forbidden", "web", "no right")
    troubles.failed("refused", "web", "a bad field")
    troubles.over("web")

    assert said[2:] == [("forbidden", None), ("refused", None)]


def test_a_leader_that_ends_takes_its_troubles_back():
    troubles, said = told()
    troubles.failed("forbidden", "web", "no right")
    troubles.clear()

    assert said[-1] == ("forbidden", None)
