"""What a store stands on: its directory, the generation that is open there, its writer and its readers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from shipper.process.environment import Entropy, Environment
from shipper.spool import database
from shipper.spool.database import Connect, Generation, Prepare
from shipper.spool.directory import StateDirectory, own, starting
from shipper.spool.keys import Keyring, StateKey, open_keyring
from shipper.spool.opening import forget_unused_keys, open_newest, refuse_takeover
from shipper.spool.readers import Readers
from shipper.spool.seal import Sealer
from shipper.spool.writer import Listener, Writer


class Opened(msgspec.Struct, frozen=True):
    """A state directory that this process owns."""

    directory: StateDirectory
    ring: Keyring
    sealer: Sealer
    generation: Generation


class Disk:
    """The machine's own, whose databases are opened by `connect`."""

    def __init__(self, connect: Connect = database.connect) -> None:
        self._connect = connect

    def open(
        self,
        owned: ExitStack,
        path: Path,
        keys: Sequence[StateKey] | None,
        prepare: Prepare,
        sealed: Collection[tuple[str, str]],
        entropy: Entropy,
    ) -> Opened:
        """Own a directory until `owned` is closed, and open its newest generation. Blocks.

        Raises StateBusy, StateLocked or StartFailed.
        """
        directory = owned.enter_context(own(path))
        with starting(directory.path):
            ring = open_keyring(directory, keys, entropy)
            generation = open_newest(directory, prepare, self._connect, locked_out=ring.fresh)
            try:
                if ring.takes_over:
                    refuse_takeover(ring, generation.db, sealed)
                forget_unused_keys(directory, ring, generation.db)
                return Opened(directory, ring, ring.sealer(), generation)
            except BaseException:
                generation.close(failed=True)
                raise

    def writer(self, opened: Opened, prepare: Prepare, listener: Listener, environment: Environment) -> Writer:
        """The writer, not yet started."""
        return Writer(opened.directory, opened.generation, prepare, self._connect, listener, environment)

    def readers(self, opened: Opened, environment: Environment) -> Readers:
        """The readers, none of them opened yet."""
        return Readers(opened.generation.path, self._connect, environment)
