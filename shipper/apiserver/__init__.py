"""The border to a Kubernetes API server: requests, watches, and what is known of objects.

`config` finds the server and the credential, `client` asks one thing, `reflector` follows a kind for ever. `versions`,
`expectations` and `reflection` decide without I/O. Here is nothing of shipper's own objects: who reads or writes those
is in `shipper.kubernetes` and `shipper.fleet.kubernetes`.

Any failure of the network, of HTTP or of the server is an ApiError of `errors` outside of this room.
"""
