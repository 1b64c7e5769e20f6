"""`docs/fleet.md` names the fields of what programs read, with their types."""

import re
from pathlib import Path
from typing import Any

from msgspec import inspect

from shipper.fleet.changes import Changes, Plan
from shipper.fleet.judge import Verdict
from shipper.fleet.operations import Accepted, Forgotten
from shipper.fleet.overview import Failing, Fleet, Member, Row
from shipper.fleet.records import Release, Undelivered
from shipper.fleet.release import Obstacle, Retired
from shipper.fleet.standings import Standing
from shipper.values import Counts

SHAPES = (
    Verdict,
    Standing,
    Counts,
    Undelivered,
    Fleet,
    Member,
    Row,
    Failing,
    Plan,
    Changes,
    Release,
    Retired,
    Obstacle,
    Forgotten,
    Accepted,
)
TEXT = (Path(__file__).parents[2] / "docs/fleet.md").read_text().partition("## For programs")[2]


def named(kind: Any) -> str:
    """Returns the name of a type as the document has it."""
    match kind:
        case inspect.UnionType(types=types):
            return " or ".join(sorted((named(one) for one in types), key=lambda name: name == "null"))
        case inspect.ListType(item_type=item):
            return f"[{named(item)}]"
        case inspect.DictType(value_type=value):
            return f"{{string: {named(value)}}}"
        case inspect.NamedTupleType(fields=fields):
            return f"[{', '.join(named(field.type) for field in fields)}]"
        case inspect.StructType(cls=cls):
            return cls.__name__
        case inspect.LiteralType() | inspect.StrType() | inspect.EnumType():
            return "string"
    simple = {inspect.IntType: "integer", inspect.FloatType: "number", inspect.BoolType: "boolean"}
    return {**simple, inspect.NoneType: "null"}[type(kind)]


def test_the_document_has_the_fields_of_each_object_with_their_types() -> None:
    for shape in SHAPES:
        (table,) = re.findall(rf"^\| {shape.__name__} \|.*\n\|.*\n((?:\|.*\n)+)", TEXT, re.M)
        documented = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| .+ \|$", table, re.M)
        info = inspect.type_info(shape)

        assert isinstance(info, inspect.StructType)
        assert documented == [(field.encode_name, named(field.type)) for field in info.fields]
        assert len(documented) == table.count("\n")


def test_the_document_has_no_object_that_does_not_exist() -> None:
    assert re.findall(r"^\| ([A-Z]\w+) \|", TEXT, re.M) == [shape.__name__ for shape in SHAPES]
