"""What the relay's input and output share: the format on the wire, and what the receiving side decides. No I/O."""
