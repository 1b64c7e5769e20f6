"""Other views of a request in protobuf, which read it in C without an object for each value. No I/O.

    Layer    any message whose fields 1 and 2 are messages, as bytes: to count them before an object is made for each
    Cut      the same messages, but records are bytes
    Read     a scope whose records have bodies and attributes that are bytes
    Texts    values that are texts, one after the other
    Checked  resources and scopes left out; values have at most LEVELS levels, and deeper ones lack a required field

A field on the wire is its number and its bytes, so a message may be read by any type that gives its numbers others
meanings: as bytes, or not at all. Only the types here know more than the specification's own.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import EDITION_2023, FeatureSet, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2

LEVELS: Final = 4
"""Levels of lists and objects in values of `Checked`."""

_PACKAGE = "views"
_COMMON = "opentelemetry.proto.common.v1"
_TYPES = {
    "text": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "fixed32": FieldDescriptorProto.TYPE_FIXED32,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
}
_OF_SCALARS = "1 string_value text, 2 bool_value bool, 3 int_value int64, 4 double_value double, 7 bytes_value bytes"
_OF_RECORD = (
    "1 time_unix_nano fixed64, 2 severity_number int32, 3 severity_text text, 5 body {body},"
    " 6 attributes {attributes}*, 7 dropped_attributes_count uint32, 8 flags fixed32, 9 trace_id bytes,"
    " 10 span_id bytes, 11 observed_time_unix_nano fixed64, 12 event_name text"
)


def _made() -> list[Any]:
    """Returns the classes of the views."""
    file = FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="editions", edition=EDITION_2023)
    file.options.features.field_presence = FeatureSet.IMPLICIT
    pool = DescriptorPool()
    for known in (common_pb2, resource_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        file.dependency.append(known.DESCRIPTOR.name)
    of_records = "2 log_records"
    _add(file, "Layer", "1 first bytes*, 2 second bytes*")
    _add(file, "Texts", "1 texts text*")
    _add(file, "Cut", "1 resource_logs CutResource*")
    resource, scope = "opentelemetry.proto.resource.v1.Resource", f"{_COMMON}.InstrumentationScope"
    _add(file, "CutResource", f"1 resource .{resource}, 2 scope_logs CutScope*, 3 schema_url text")
    _add(file, "CutScope", f"1 scope .{scope}, {of_records} bytes*, 3 schema_url text")
    _add(file, "Checked", "1 resource_logs CheckedResource*")
    _add(file, "CheckedResource", "2 scope_logs CheckedScope*")
    _add(file, "CheckedScope", f"{of_records} Record*")
    _add(file, "Record", _OF_RECORD.format(body="Value0", attributes="Pair0"))
    _add(file, "Read", f"{of_records} ReadRecord*")
    _add(file, "ReadRecord", _OF_RECORD.format(body="bytes*", attributes="bytes"))
    for level in range(LEVELS + 1):
        deeper = (f"List{level}", f"Object{level}") if level < LEVELS else ("TooDeep", "TooDeep")
        _add(file, f"Value{level}", f"{_OF_SCALARS}, 5 array_value {deeper[0]}, 6 kvlist_value {deeper[1]}", "value")
        _add(file, f"Pair{level}", f"1 key text, 2 value Value{level}")
        _add(file, f"List{level}", f"1 values Value{level + 1}*") if level < LEVELS else None
        _add(file, f"Object{level}", f"1 values Pair{level + 1}*") if level < LEVELS else None
    _add(file, "TooDeep", "1000 never int32")
    file.message_type[-1].field[0].options.features.field_presence = FeatureSet.LEGACY_REQUIRED
    pool.AddSerializedFile(file.SerializeToString())
    public = ("Layer", "Texts", "Cut", "Read", "Checked")
    return [GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in public]


def _add(file: FileDescriptorProto, name: str, fields: str, oneof: str = "") -> None:
    """Adds a type with fields such as `2 log_records bytes*`: a number, a name and a type; `*`: any number of them.

    Of those of a `oneof`, a message has only the last, and takes half of the memory.
    """
    message = file.message_type.add(name=name)
    if oneof:
        message.oneof_decl.add(name=oneof)
    for field in fields.split(", "):
        number, field_name, kind = field.split(" ")
        label = FieldDescriptorProto.LABEL_REPEATED if kind.endswith("*") else FieldDescriptorProto.LABEL_OPTIONAL
        added = message.field.add(number=int(number), name=field_name, label=label)
        if oneof:
            added.oneof_index = 0
        kind = kind.rstrip("*")
        if kind in _TYPES:
            added.type = _TYPES[kind]
        else:
            added.type_name = kind if kind.startswith(".") else f".{_PACKAGE}.{kind}"


Layer, Texts, Cut, Read, Checked = _made()
