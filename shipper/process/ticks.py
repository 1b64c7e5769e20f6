"""What looks at something again and again, and need not do so at an instant of its own, does it at a common one.

A wake-up of a process at rest costs as much as ten looks: so tasks that each look once a second wake it once.
"""

from __future__ import annotations

import math

import trio


async def tick(seconds: float) -> None:
    """Sleeps until the next multiple of `seconds` on trio's clock that is at least half of it away."""
    await trio.sleep_until(math.ceil(trio.current_time() / seconds + 0.5) * seconds)
