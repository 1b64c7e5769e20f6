import os
import string

from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin.state import Version, digest_of
from shipper_plugins.file.document_names import escaped, path_of

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.text("./%oOwn\0é", max_size=6)
LONG = st.text("aé/", min_size=60, max_size=4096)
KEYS = st.tuples(NAMES, NAMES.filter(bool), (NAMES | LONG).filter(bool))
PLAIN = string.ascii_letters + string.digits + "-_.%"


def path(owner: str, collection: str, key: str) -> str:
    return path_of(Version(owner, collection, key, 1, digest_of(None), True))


def test_a_plain_key_has_a_file_of_its_name_below_its_owner_and_collection() -> None:
    assert path("berlin", "inventory", "web-1.example") == "berlin/inventory/web-1.example.json"


def test_keys_of_this_shipper_stand_apart_from_those_of_an_edge_that_is_called_so() -> None:
    assert path("", "inventory", "a") == "own/inventory/a.json"
    assert path("own", "inventory", "a") == "%6Fwn/inventory/a.json"


def test_a_name_leads_nowhere_else() -> None:
    assert path("..", "/etc", "../passwd\0") == "%2E./%2Fetc/%2E.%2Fpasswd%00.json"


def test_a_key_that_looks_like_the_escape_of_another_one_is_escaped_itself() -> None:
    assert escaped("%2F") != escaped("/")


def test_long_names_that_begin_alike_differ() -> None:
    assert escaped("a" * 4000) != escaped("a" * 4001)
    assert escaped(escaped("a" * 4000)) != escaped("a" * 4000)


@given(KEYS)
def test_each_part_of_a_path_is_the_name_of_a_file(key: tuple[str, str, str]) -> None:
    parts = path(*key).split("/")

    assert len(parts) == 3
    assert all(0 < len(os.fsencode(part)) <= 255 and set(part) <= set(PLAIN) for part in parts)
    assert not any(part.startswith(".") for part in parts)


@given(KEYS, KEYS)
def test_two_keys_have_two_files(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (path(*one) == path(*other)) == (one == other)
