"""What a member remembers of its fleet, in its state directory."""

from __future__ import annotations

from pathlib import Path


class Home:
    """Opened once by the owner of the state directory."""

    @classmethod
    def open(cls, directory: Path, fleet: str, member: str) -> Home:
        """Reads what the last process has left; raises StateLocked for a damaged or newer file, and changes nothing.

        Blocks: call it in a worker thread, or before the event loop runs.
        """
        raise NotImplementedError
