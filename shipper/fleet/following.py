"""Waits for an answer, and shows meanwhile how far it is."""

from __future__ import annotations

import trio

from shipper.fleet.judge import Asked, Verdict, judge
from shipper.fleet.observer import Observers, wait
from shipper.fleet.progress import PAUSE_SECONDS, Show
from shipper.fleet.records import Version
from shipper.fleet.seal import Seals
from shipper.fleet.store import Store, StoreError
from shipper.supervise.answers import Stage


async def follow(
    store: Store,
    seals: Seals,
    number: int | Asked | Version,
    stage: Stage,
    seconds: float,
    nack_grace: float,
    show: Show,
) -> Verdict:
    """Returns the answer of `observer.wait`; shows at the start, and then once a second, how far it is.

    Raises StoreError at once if the store is away at the start; later only if it is away when the seconds are over.
    """
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        observers = Observers(store, seals, nursery)
        async with observers.observing() as seen, observers.observing() as decided:
            await seen.fresh()

            async def look() -> None:
                while True:
                    try:
                        found: Verdict | str = judge(seen.view(), number, stage, nack_grace)
                    except StoreError as error:
                        found = str(error)
                    if isinstance(found, str) or found.state == "closed":
                        show(found, trio.current_time() - began)
                    await trio.sleep(PAUSE_SECONDS)

            nursery.start_soon(look)
            verdict = await wait(decided, number, stage, seconds, nack_grace)
            nursery.cancel_scope.cancel()
    return verdict
