"""Regular expressions of a policy: which are taken, what a refusal says, and that none can stop the process."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import BadOption
from shipper.sdk import patterns
from tests.examples import examples


def refusal(pattern: str) -> str:
    with pytest.raises(BadOption) as refused:
        patterns.check_pattern(pattern, "regexp", "message")
    assert refused.value.at == ("regexp", "message")
    return str(refused.value)


def found(pattern: str, text: str) -> bool:
    patterns.check_pattern(pattern)
    return patterns.searcher(pattern)(text)


def test_an_ordinary_pattern_is_taken() -> None:
    for pattern in [
        r"(\d{1,3}\.){3}\d{1,3}",
        r"(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
        r"(GET|POST)? \S+ \S+ \S+ \S+ \S+ (?:ab|cd){2}",
        r"(?i)error|warn|fatal",
        r"(?P<level>error|warn)",
        r"(?<level>error|warn)",
        r"[(+*|]+x",
        r"[]a]+",
        r"[{,3}\\]\{,3}\\1",
        r"([a-z]+[.]?)+",
        r"\p{L}+ \p{Lu}",
        r".{0,300}x",
        r"\123",
        r"",
    ]:
        patterns.check_pattern(pattern)


def test_a_refusal_says_what_to_write_instead() -> None:
    for pattern, instead in [
        ("(?=a)b", "use not or negate"),
        ("(?<=a)b", "use not or negate"),
        (r"(a)\1", "such as aa|bb for (a|b)\\1"),
        (r"(?P<q>a)(?P=q)", "such as aa|bb for (a|b)\\1"),
        ("(?>a+)b", "write (?:…)"),
        ("a++b", "write one, or (?:a{2})* for a{2}*"),
        ("(?#why)a", "leave it out"),
        ("(a)?(?(1)b|c)", "write both cases"),
        ("(?x) a", "flags out of i, m, s and U"),
        ("(?P<a b>x)", "write (?P<name>…)"),
        (r"a\Z", r"write \z for the end"),
        (r"\u00e9", r"\x{e9} for a character"),
        ("a{,3}", "write {0,3} for {,3}"),
        ("a{1001}", "at most 1000 times"),
        ("(?:(?:a{100}){100}){100}", "at most 1000 times"),
        ("(", "write ) at its end"),
        ("a)", r"write \)"),
        ("[a", "write ] at its end"),
        ("a\\", r"write \\"),
        ("*a", r"write \*"),
        ("[z-a]", "write a-z"),
        (r"\p{L}{90}", "repeat less often"),
        ("(?:.?){900}", "repeat less often"),
        ("a" * 4097, "longer than 4096 characters"),
        ("\ud800", "not Unicode"),
    ]:
        assert instead in refusal(pattern)


def test_a_refusal_quotes_nothing_of_the_pattern() -> None:
    for pattern in ["(hunter2", "hunter2)", "[hunter2", "(?P<hunter2 >x)", r"\p{hunter2}", "(?hunter2)"]:
        assert "hunter2" not in refusal(pattern)


def test_a_pattern_means_what_the_syntax_of_re2_says() -> None:
    for pattern, text, is_found in [
        ("^b", "a\nb", False),
        ("(?m)^b", "a\nb", True),
        ("a$", "a\n", False),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("^.{3}$", "aéü", True),
        ("(?i)É", "é", True),
        (r"^\w$", "é", False),
        (r"^\p{L}$", "é", True),
        ("\0", "a\0", True),
    ]:
        assert found(pattern, text) == is_found


ATOMS = st.sampled_from(["a", "b", "ab", ".", "[ab]", "[^a]", r"\d", r"\w", r"\s", r"\S", "^", r"\b", r"\.", "(?i:A)"])
REPEATS = st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{0,2}?", "{2,}"])
KNOWN_TO_BOTH = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        inner.map("({})".format),
        st.tuples(inner, REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(5))
@given(KNOWN_TO_BOTH, st.sampled_from(["", "(?i)", "(?s)", "(?m)"]), st.text("abAB .1\n_", max_size=8))
def test_a_pattern_that_re_knows_too_finds_the_same(pattern: str, flags: str, text: str) -> None:
    """`re.ASCII`, since classes are of ASCII; `$` is left out, which takes a line feed in `re`."""
    assert found(flags + pattern, text) == (re.search(flags + pattern, text, re.ASCII) is not None)


HEAVY = [
    "^(?:(?:a?){4}){4}(?:(?:a?){4}){4}b",
    "(a+)+$",
    "(x+x+)+y",
    ".*a.*a.*a.*a.*a.*b",
    "(?:a?){500}(?:a?){400}a{50}b",
    "[ab]*a[ab]{900}c",
    "(?:a|aa|b){500}c",
]


def test_no_pattern_takes_long_for_a_text() -> None:
    for text in ["a" * 4096 + "c", "ab" * 2048, "é" * 4096]:
        for pattern in HEAVY:
            patterns.check_pattern(pattern)
            search = patterns.searcher(pattern)
            started = time.process_time()
            search(text)

            assert time.process_time() - started < 2


def test_other_threads_run_while_a_pattern_is_searched_for() -> None:
    search = patterns.searcher("[ab]*a[ab]{900}c")
    searching = threading.Thread(target=search, args=("ab" * 20_000,))
    searching.start()
    turns = 0
    while searching.is_alive():
        turns += 1

    assert turns > 1000


def test_nothing_is_written_to_standard_error() -> None:
    """RE2 would, with the pattern, where it refuses one and where an automaton has no room."""
    program = f"""
from shipper.sdk import patterns
for pattern in ("(hunter2", "(?=hunter2)", "a{{2000}}"):
    try: patterns.check_pattern(pattern)
    except ValueError: pass
for pattern in {HEAVY!r}:
    patterns.searcher(pattern)("ab" * 2048)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_named_groups_hold_what_those_of_re_hold() -> None:
    """They are asked for below RE2's public wrapper, which takes twice the time."""
    for text in ["k=v", "é=ü, x", "=", "a=", ""]:
        pattern = r"(?P<key>\p{L}+)?(=)(?P<value>[^,]*)"
        found = re.search(pattern.replace(r"\p{L}", "[^=, ]"), text)
        held = {name: value.encode() for name, value in found.groupdict().items() if value} if found else None

        assert patterns.grouper(pattern)(text.encode()) == held


def test_a_pattern_without_named_groups_is_refused_where_they_are_needed() -> None:
    with pytest.raises(BadOption, match="no group of it has a name"):
        patterns.check_groups("(a)")
