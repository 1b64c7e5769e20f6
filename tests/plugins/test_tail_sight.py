"""What a thread sees of the files of streams."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

from shipper_plugins.inputs.tail.content import Moved
from shipper_plugins.inputs.tail.identity import Identity
from shipper_plugins.inputs.tail.open_files import OpenFiles
from shipper_plugins.inputs.tail.sight import Wish, see
from shipper_plugins.inputs.tail.stream import Stream


def wish(path: Path) -> Wish:
    found = path.stat()
    wished = Wish.of(Stream(str(path), Identity(str(path), (found.st_dev, found.st_ino))))
    assert wished is not None
    return wished


def test_a_file_that_is_gone_does_not_keep_what_was_seen_of_others(tmp_path: Path) -> None:
    """Not even until Python's collector comes: up to a chunk of each look would wait for that."""
    paths = tmp_path / "a.log", tmp_path / "b.log"
    for path in paths:
        path.write_text("line\n" * 1000)
    wishes = [wish(path) for path in paths]
    os.unlink(paths[1])
    gc.disable()
    try:
        open_files = OpenFiles(lambda stream: False)
        seen, _ = see(wishes, open_files, 1 << 20)
        kinds = [type(one) for one in seen]
        moved = weakref.ref(seen[1])
        open_files.close(wishes[0].stream)
        del seen

        assert kinds[1] is Moved
        assert moved() is None
    finally:
        gc.enable()
