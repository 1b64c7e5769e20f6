"""Messages between a supervisor and a shipper: their types, their framing and their limits."""
