"""One plugin of each kind, as another author would write it."""
