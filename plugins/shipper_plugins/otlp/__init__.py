"""Logs of OpenTelemetry, for the input and the output `otlp`. Modules without I/O, from the top to the bottom:

    protobuf, jsons   requests and answers on the wire: bytes to `Group`s and back
    status            what an answer says: codes of gRPC and HTTP, and how long to wait
    events            `Group`s to batches and back: what the fields of an event mean
    model             `Group`, `Resource`, `Scope`, `Record`
    wire, grpc        fields of protobuf, and calls of gRPC, as far as they need no library

Only `protobuf` needs a library that may be missing (see `libraries`).
"""
