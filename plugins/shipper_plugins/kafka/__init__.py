"""The output `kafka`. Only `output` and `rows` are imported before one is open."""
