"""Files come and go, directories hide and come back: no key is deleted while its file may be there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shipper_plugins.state.documents import read_some
from shipper_plugins.state.keys import Known, Plan, Refused, facts_of, plan
from shipper_plugins.state.view import Viewer
from shipper_plugins.tail.discovery import Found
from tests.examples import examples

DIRECTORIES = st.sampled_from(["one", "two"])
NAMES = st.sampled_from(["a.json", "a.yaml", "b.json"])


class Files(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.temporary = TemporaryDirectory()
        self.root = Path(self.temporary.name)
        self.there: dict[tuple[str, str], int] = {}
        """The files, also those in hidden directories: number of the document."""
        self.hidden: set[str] = set()
        self.known: dict[str, Known] = {}
        self.kept: dict[str, int] = {}
        self.count = 0
        for name in ("one", "two"):
            (self.root / name).mkdir()
        self.viewer = Viewer([str(self.root / "one" / "*"), str(self.root / "t[w]o" / "*")])

    def path(self, directory: str, name: str) -> Path:
        return self.root / (f"{directory}.away" if directory in self.hidden else directory) / name

    @rule(directory=DIRECTORIES, name=NAMES)
    def write(self, directory: str, name: str) -> None:
        self.count += 1
        self.there[directory, name] = self.count
        beside = self.root / "beside"
        beside.write_text(f'{{"n":{self.count}}}')
        beside.replace(self.path(directory, name))

    @rule(directory=DIRECTORIES, name=NAMES)
    def remove(self, directory: str, name: str) -> None:
        if self.there.pop((directory, name), None) is not None:
            self.path(directory, name).unlink()

    @rule(directory=DIRECTORIES)
    def hide(self, directory: str) -> None:
        if directory not in self.hidden:
            (self.root / directory).rename(self.root / f"{directory}.away")
            self.hidden.add(directory)

    @rule(directory=DIRECTORIES)
    def show(self, directory: str) -> None:
        if directory in self.hidden:
            (self.root / f"{directory}.away").rename(self.root / directory)
            self.hidden.remove(directory)

    @rule()
    def restart(self) -> None:
        self.known = {key: Known(known.path) for key, known in self.known.items()}

    @rule()
    def look(self) -> None:
        known = dict(self.known)
        view = self.viewer.look([known.path for known in self.known.values()], lambda _: False)
        asked = plan(view, self.known, {}, self.viewer.covers, 10)
        for key in asked.removed:
            del self.known[key], self.kept[key]
        for one in read_some(asked.read, 1000, 10000):
            assert one.document is not None
            self.known[one.key] = Known(one.found.path, facts_of(one.found), one.digest)
            self.kept[one.key] = int(one.document.split(b":")[1][:-1])
        self.check(known, asked)

    def check(self, before: dict[str, Known], asked: Plan) -> None:
        places = {str(self.root / directory / name): number for (directory, name), number in self.there.items()}
        assert not [key for key in asked.removed if before[key].path in places]
        for key in ("a", "b"):
            files = [path for path in places if Path(path).stem == key]
            seen = [path for path in files if Path(path).parent.name not in self.hidden]
            if len(files) == 1 and files == seen and (key not in before or not self.is_away(before[key])):
                assert self.kept[key] == places[files[0]]
            if not files and (key not in before or not self.is_away(before[key])):
                assert key not in self.kept
            if len(seen) > 1:
                assert key not in [key for key, _ in asked.read]
                assert all(any(path in text for text in asked.problems.items() for path in text) for path in seen[:1])

    def is_away(self, known: Known) -> bool:
        return Path(known.path).parent.name in self.hidden

    @invariant()
    def what_is_known_was_kept(self) -> None:
        assert self.known.keys() == self.kept.keys()

    def teardown(self) -> None:
        self.temporary.cleanup()


TestFiles = Files.TestCase
TestFiles.settings = settings(max_examples=examples(1), stateful_step_count=25)


def found(path: str, changed: int = 0) -> Found:
    return Found(path, (1, changed), 2, changed, changed)


def planned(*files: Found, known: dict[str, Known] | None = None, most: int = 10, **others: object) -> Plan:
    from shipper_plugins.state.view import View

    refused: dict[str, Refused] = others.pop("refused", {})  # type: ignore[assignment]
    covers: Callable[[str], bool] = others.pop("covers", lambda _: True)  # type: ignore[assignment]
    view = View(10**18, {file.path: file for file in files}, **others)  # type: ignore[arg-type]
    return plan(view, known or {}, refused, covers, most)


def test_a_file_that_is_the_same_is_not_read() -> None:
    same = found("/d/a.json", 1)

    assert planned(same, known={"a": Known("/d/a.json", facts_of(same))}).read == []
    assert planned(same, known={"a": Known("/d/a.json")}).read == [("a", same)]
    assert planned(found("/d/a.json", 2), known={"a": Known("/d/a.json", facts_of(same))}).read


def test_a_file_that_holds_no_document_is_read_again_when_it_changes() -> None:
    same = found("/d/a.json", 1)
    refused = {"/d/a.json": Refused(facts_of(same), "no JSON")}

    again = planned(same, refused=refused)
    assert (again.read, again.problems) == ([], {"/d/a.json": "no JSON"})
    assert planned(found("/d/a.json", 2), refused=refused).read


def test_a_key_whose_file_may_be_there_is_not_taken_from_another_one() -> None:
    known = {"a": Known("/gone/a.json")}
    asked = planned(found("/d/a.json"), known=known, unclear={"/gone/a.json": "its directory is not there"})

    assert asked.read == []
    assert asked.removed == []
    assert "another file of its key" in asked.problems["/gone/a.json"]


def test_a_path_that_is_no_longer_named_holds_up_nothing() -> None:
    known = {"a": Known("/gone/a.json"), "b": Known("/gone/b.json")}
    asked = planned(
        found("/d/a.json"),
        known=known,
        unclear={"/gone/a.json": "its directory is not there", "/gone/b.json": "its directory is not there"},
        covers=lambda path: not path.startswith("/gone"),
    )

    assert [key for key, _ in asked.read] == ["a"]
    assert (asked.removed, asked.problems) == ([], {})


def test_keys_that_are_known_have_room_before_new_ones() -> None:
    files = [found("/d/a.json"), found("/d/b.json"), found("/d/c.json")]
    asked = planned(*files, known={"c": Known("/d/c.json"), "x": Known("/d/x.json")}, most=2, removed={"/d/x.json"})

    assert [key for key, _ in asked.read] == ["a", "c"]
    assert asked.left_out == 1
