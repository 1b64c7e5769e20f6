"""Batches in a form: three records of OTLP."""

from shipper_plugins.otlp import protobuf, records
from shipper_plugins.otlp.model import Group, Record, Resource

_GROUP = Group(resource=Resource(attributes={"service.name": "shop"}), records=[Record(time=1, body="x")] * 3)
[FORMED] = records.batches(protobuf.encoded([_GROUP])) or ()
