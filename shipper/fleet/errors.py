"""The error of an order that a fleet cannot carry out; `store` and `seal` define their own."""

from __future__ import annotations

from shipper.sdk.errors import ShipperError


class Refused(ShipperError):
    """The order of a person is refused, and nothing was changed; the text has the remedy."""
