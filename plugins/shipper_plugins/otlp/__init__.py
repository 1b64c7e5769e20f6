"""Logs of OpenTelemetry, for the input and the output `otlp`. Modules without I/O, from the top to the bottom:

    protobuf, jsons   requests and answers on the wire: bytes to `Group`s and back
    status            the status of an answer: codes of gRPC and HTTP, delay of a retry
    events            `Group`s to batches and back: the mapping of records to events
    model             `Group`, `Resource`, `Scope`, `Record`
    wire, grpc        fields of protobuf, and framing of gRPC, without a library

Only `protobuf` needs a library that may be missing (see `libraries`).
"""
