"""Logs of OpenTelemetry: the input, which `server` receives for, and the output, which `client` sends for. What both
share has no I/O; from the top to the bottom:

    records           records as the bytes that came, to batches and back
    documents         those records as JSON, by columns
    protobuf, jsons   requests and answers on the wire: bytes to `Group`s and back
    views             the same wire, read less deeply
    lines             text lines as records, by columns
    status            the status of an answer: codes of gRPC and HTTP, delay of a retry
    events            `Group`s to batches and back: the mapping of records to events
    model             `Group`, `Resource`, `Scope`, `Record`
    wire, grpc        fields of protobuf, and framing of gRPC, without a library

Only `protobuf`, and the three that read its wire, need a library that may be missing (see `libraries`).
"""
