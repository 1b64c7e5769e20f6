"""The way of an event: `intake` brings it from an input into the spool, `delivery` from the spool to a destination."""
