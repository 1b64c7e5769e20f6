"""Loads the libraries of plugins in a worker thread: an import of aiohttp takes 0.1 s and 10 MiB.

A library that is loaded before a revision becomes active is in memory before the heap grows. One that is missing or
broken refuses the revision instead of stopping a lane.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from shipper.plugin import Input, Output
from shipper.process import collector
from shipper.process.groups import contained
from shipper.sdk.codes import Code
from shipper.sdk.errors import PluginFault, StartFailed, raised_at

_loaded: set[type[Input | Output]] = set()


async def load(unit: str, config: Input | Output) -> None:
    """Imports what a plugin needs, once; raises StartFailed, which names the unit and the library.

    On cancel the thread goes on unattended, since an import cannot be ended.
    """
    if type(config) in _loaded or type(config).load in (Input.load, Output.load):
        return
    try:
        with contained():
            await trio.to_thread.run_sync(_load, config, abandon_on_cancel=True)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name
        cause = f"{missing} is not installed" if missing else f"a library cannot be imported: {raised_at(error)}"
        raise StartFailed(f"{unit}: {cause}") from None
    except StartFailed as error:
        raise StartFailed(f"{unit}: {error}", code=error.code) from None
    except Exception as error:
        said = str(error) if isinstance(error, PluginFault) else raised_at(error)
        cause = f"its libraries cannot be loaded: {said}"
        raise StartFailed(f"{unit}: {cause}", code=Code.INTERNAL_ERROR) from None
    _loaded.add(type(config))


def _load(config: Input | Output) -> None:
    with collector.importing():
        config.load()


async def load_all(outputs: Mapping[str, Output]) -> None:
    """Calls `load` for each output, by name."""
    for name, output in outputs.items():
        await load(f"output {name}", output)
