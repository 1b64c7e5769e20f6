"""Decides what one member does next; a state machine without I/O and without a clock. See `machine`."""
