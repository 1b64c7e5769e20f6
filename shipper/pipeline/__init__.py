"""The way of an event, from an input into the spool and from the spool to a destination."""
