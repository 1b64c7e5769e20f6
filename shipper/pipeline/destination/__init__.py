"""A destination: what is open of it, what it said, and whether anything may be sent to it."""
