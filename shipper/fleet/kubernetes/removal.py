"""How the object of a key goes: it is written to say that the key was removed, and then deleted."""

from __future__ import annotations

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import ApiError, Conflict, NotFound
from shipper.apiserver.objects import Object, name, uid, version
from shipper.fleet.kubernetes.objects import RECORDS, Keys, Known
from shipper.process import log

DELETE_SECONDS = 2.0

_log = log.get(__name__)


async def remove(client: Client, keys: Keys, found: Object) -> None:
    """Removes the key of an object, unless it was written since; `found` may lack its value. Raises ApiError."""
    key = keys.key(found)
    if key is None:
        return
    wanted = keys.object(key, None, before=Known.of(found))
    try:
        removed = await client.replace(RECORDS, name(found), wanted)
    except (Conflict, NotFound):
        return
    await delete(client, removed)


async def delete(client: Client, removed: Object) -> None:
    """Deletes the object of a key that was removed. If that fails, it counts as no key all the same."""
    with trio.move_on_after(DELETE_SECONDS):
        try:
            await client.delete(RECORDS, name(removed), uid=uid(removed), version=version(removed))
        except (Conflict, NotFound):
            return
        except ApiError as error:
            _log.info("a removed record of the fleet stays as an empty object: %s", error)
