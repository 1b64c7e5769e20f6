"""What the relay's input and output share: the format on the wire, and the decisions of the receiving side. No I/O."""
