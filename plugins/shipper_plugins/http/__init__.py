"""The input `http`, and HTTP/1.1 over a `Peer`, for any input."""
