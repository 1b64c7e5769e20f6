"""How an exploration ends before its time."""

from __future__ import annotations


class Broken(Exception):
    """A law does not hold."""


class Failed(Exception):
    """Anything else was raised, by the program or by the exploration: it cannot go on, and says nothing of the laws."""
