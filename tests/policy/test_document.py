import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shipper.policy.document import DEEPEST, LARGEST, Mark, Node, below, plain, read, shown, suggest, write
from shipper.sdk.errors import PolicyError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(
        ["no", "on", "0o17", "1e3", "08", "12:30", "<<", "=", "2001-01-01", "~", "null", ".inf", "'", " x"]
    )
)
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)
FRAGMENTS = st.lists(
    st.sampled_from([*"ab[]{},'\"|>#1~\n\t\r\x85\u2028\0\ufeff", ": ", "  ", "- ", "? ", "<<", "---", "..."])
    | st.sampled_from(["&x ", "*x", "!t ", "%", "0x", ".nan", "9" * 50])
).map("".join)


def problems(text):
    with pytest.raises(PolicyError) as caught:
        read(text)
    return caught.value.problems


def refusals(text):
    try:
        read(text)
    except PolicyError as error:
        return error.problems
    return ()


def only(text):
    (problem,) = problems(text)
    return problem


def lines(text):
    return len(re.split("\r\n|[\r\n\x85\u2028\u2029]", text))


# -- what is read ------------------------------------------------------------------------------------------------------


def test_every_value_and_every_key_knows_its_place():
    root = read("a: 1\nbé: {c: [x, yy]}\n", file="p.yaml")

    assert root.keys == {"a": Mark(1, 1, "p.yaml"), "bé": Mark(2, 1, "p.yaml")}
    assert root.value["bé"].value["c"].value[1] == Node("yy", Mark(2, 13, "p.yaml"))


def test_a_scalar_is_what_the_core_schema_of_yaml_1_2_says():
    for text, value in [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("1:20:30", "1:20:30"),
        ("2001-01-01", "2001-01-01"),
        ("2001-01-01T00:00:00Z", "2001-01-01T00:00:00Z"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("=", "="),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("'1'", "1"),
        ('"true"', "true"),
        ("|\n  true", "true"),
    ]:
        found = read(f"a: {text}").value["a"].value

        assert (type(found), found) == (type(value), value)


def test_an_empty_text_is_null():
    for text in ["", "\n", "# only a comment\n", "---\n", "---\n...\n"]:
        assert read(text).value is None


def test_a_byte_order_mark_is_not_part_of_the_text():
    assert plain(read(b"\xef\xbb\xbfa: 1")) == {"a": 1}


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_refusal_names_place_path_and_remedy():
    for text, place, path, remedy in [
        ("a: 1\nb: {c: 1, c: 2}", (2, 11), "b.c", "twice"),
        ("a: &x 1", (1, 4), "a", "an anchor is refused; remove it"),
        ("a: [*x]", (1, 5), "a[0]", "write the value out"),
        ("a: !!python/object:os.system 1", (1, 4), "a", "a tag is refused; remove it"),
        ("a: !!str 1", (1, 4), "a", "quote"),
        ("a: ! 1", (1, 4), "a", "a tag is refused"),
        ("a:\n  <<: {b: 1}", (2, 3), "a", "merge key"),
        ("a: {404: 1}", (1, 5), "a", "a key is a string; quote it"),
        ("true: 1", (1, 1), "", "a key is a string; quote it"),
        ("? [a, b]\n: 1", (1, 3), "", "a key is a string"),
        ("a: 1\n---\nb: 2", (2, 1), "", "second document"),
        ("a: .inf", (1, 4), "a", "finite"),
        ("a: 1e999", (1, 4), "a", "finite"),
        ("a: 9223372036854775808", (1, 4), "a", "64 bits"),
        ("a: " + "9" * 5000, (1, 4), "a", "64 bits"),
        ("a:\n\tb: 1", (2, 1), "", "indent with spaces"),
        ("a: b: c", (1, 5), "", "quote a text"),
        ("a: [1, 2\nb: 3", (2, 2), "", "close the list"),
        ("a: {b: 1\n", (2, 1), "", "close the mapping"),
        ("a: 'x\n", (2, 1), "", "a quote is not closed"),
        ("a: @x", (1, 4), "", "quote such a value"),
        ("a: 1\nb: \0", (2, 4), "", "control character"),
        (b"a: 1\nb\xc3\xa9: \xff", (2, 5), "", "UTF-8"),
        ("\ud800", (1, 1), "", "UTF-8"),
        ("a: 1\r\nb: 2\r\na: 3", (3, 1), "a", "twice (first in line 1)"),
    ]:
        problem = only(text)

        assert ((problem.line, problem.column), problem.path) == (place, path)
        assert remedy in problem.message


def test_all_problems_of_one_reading_are_told_together():
    found = problems("a: &x 1\nb: *x\na: 2\nc: !t 3\n4: 5\n")

    assert [(p.line, p.path) for p in found] == [(1, "a"), (2, "b"), (3, "a"), (4, "c"), (5, "")]


def test_the_number_of_problems_is_bounded():
    assert len(problems("".join(f"{n}: &x 1\n" for n in range(10_000)))) == 50


def test_a_problem_carries_the_file():
    with pytest.raises(PolicyError, match=r"^p\.yaml:1:4: a: an anchor"):
        read("a: &x 1", file="p.yaml")


def test_depth_32_is_read_and_33_is_refused_however_much_follows():
    assert read("[" * DEEPEST + "]" * DEEPEST)
    assert "deeper than 32" in only("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)).message
    assert "deeper than 32" in only("[" * 1_000_000).message
    assert "deeper than 32" in only("- " * 500_000).message
    assert "deeper than 32" in only("{a: " * 250_000).message


def test_one_mebibyte_is_read_and_a_byte_more_is_refused():
    text = "a: " + "x" * (LARGEST - 3)

    assert len(read(text).value["a"].value) == LARGEST - 3
    assert "larger than 1MiB" in only(text + "x").message
    assert "larger than 1MiB" in only("é" * (LARGEST // 2 + 1)).message


def test_a_syntax_error_never_quotes_the_line():
    for text in ["a: 'hunter2", "hunter2: @hunter2", "a: hunter2: b", "a: [hunter2", 'a: "\\hunter2"']:
        assert "hunter2" not in str(only(text))


@example("a: [\n")
@given(st.text() | FRAGMENTS)
def test_any_text_is_read_or_refused_at_a_place_inside_it(text):
    assert all(1 <= problem.line <= lines(text) and problem.column >= 1 for problem in refusals(text))


# -- writing, paths, suggestions ---------------------------------------------------------------------------------------


@given(TREES)
def test_what_is_written_reads_back_equal(tree):
    again = plain(read(write(tree)))

    assert again == tree
    assert repr(again) == repr(tree)


@given(TREES)
def test_a_node_is_written_like_its_plain_value(tree):
    assert write(read(write(tree))) == write(tree)


def test_equal_parts_are_written_without_anchors():
    shared = {"a": [1]}

    assert plain(read(write([shared, shared]))) == [shared, shared]


def test_a_path_shows_names_and_hides_what_is_none():
    assert below(below(below("", "outputs"), "main"), "hosts") + "[0]" == below("outputs.main.hosts", 0)
    assert below("headers", "id:VnVhQ2ZH") == "headers.…"
    assert shown("VnVhQ2ZHY0JDZGJrUW0") == "…"


def test_a_near_miss_is_suggested_and_a_far_one_is_not():
    assert suggest("hots", ["hosts", "tls"]) == ' (did you mean "hosts"?)'
    assert suggest("frobnicate", ["hosts", "tls"]) == ""
    assert suggest("x" * 1_000_000, ["hosts"]) == ""


def test_nothing_is_suggested_that_a_terminal_would_take_for_an_order():
    assert suggest("search", ["sea\t\x1b[2Jch", "sea\udc80rch", "serch"]) == ' (did you mean "serch"?)'
