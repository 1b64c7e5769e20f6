"""People at a fleet: publishers, those who ask, and the operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import trio

from shipper.fleet import operations
from shipper.fleet.judge import Verdict
from shipper.fleet.observer import observing, wait
from shipper.fleet.publisher import Publisher
from shipper.fleet.records import Version
from shipper.fleet.seal import Seals
from shipper.fleet.store import Store
from shipper.sdk.errors import ShipperError
from tests.fleet.memory import Client
from tests.simulation.fleets.transcript import Answer, Transcript

SECRETS = ("es", "hec")
STAGES = ("received", "active", "drained")
CONTENTS = 3
"""Contents of each secret, so that the same one comes again."""


def policy(names: tuple[str, ...], number: int) -> str:
    """Returns a valid policy that names these secrets of the fleet."""
    outputs = [
        f"  {name}: {{type: elasticsearch, hosts: ['https://{name}:9200'], credential: {{fleet: {name}}}}}\n"
        for name in names
    ]
    return f"# {number}\nversion: 1\noutputs:\n  out: {{type: console}}\n" + "".join(outputs)


class People:
    """Each of them has a connection of its own."""

    def __init__(self, client: Callable[[str], Client], seals: Seals, transcript: Transcript, random: Random) -> None:
        self._client, self.seals, self.transcript, self.random = client, seals, transcript, random
        self._texts = 0

    async def publish(self, name: str) -> None:
        """Publishes, rolls back and sets secrets for ever; dies now and then in the middle of it."""
        random, client = self.random, self._client(name)
        while True:
            await trio.sleep(random.expovariate(1 / 12))
            if random.random() < 0.1:
                client.lose(
                    random.choice(("before", "after", "late")), random.choice(("head", "versions/", "secrets/"))
                )
            killed_after = random.uniform(0.0, 1.0) if random.random() < 0.15 else 200.0
            with trio.move_on_after(killed_after):
                await self.change(Publisher(client, self.seals, name), random.random())

    async def change(self, publisher: Publisher, kind: float) -> None:
        """Makes one change; what is refused is no trouble."""
        random = self.random
        try:
            if kind < 0.3:
                secret, content = random.choice(SECRETS), random.randrange(CONTENTS)
                await publisher.set_secret(secret, f"{secret}-content-{content}".encode())
            elif kind < 0.4:
                head, _ = await publisher.head()
                number = random.randint(max(1, head.number - 5), max(1, head.number))
                await publisher.rollback(number)
            elif kind < 0.45:
                await publisher.remove_secret(random.choice(SECRETS))
            else:
                await self.publish_one(publisher, tuple(one for one in SECRETS if random.random() < 0.6))
        except ShipperError as error:
            self.log(f"{publisher._by}: {error}")

    async def publish_one(self, publisher: Publisher, names: tuple[str, ...]) -> Version:
        self._texts += 1
        text = policy(names, self._texts)
        version = await publisher.publish(text)
        self.transcript.published.append((version, text))
        return version

    async def ask(self, name: str) -> None:
        """Asks for ever whether versions are everywhere."""
        random, client = self.random, self._client(name)
        publisher = Publisher(client, self.seals, name)
        while True:
            await trio.sleep(random.expovariate(1 / 6))
            client.set(watch_delay=random.choice((0.0, 0.0, 2.0)))
            try:
                head, _ = await publisher.head()
                number = random.randint(max(1, head.number - 2), max(1, head.number))
                await self.answer(client, number, random.choice(STAGES), random.choice((0.0, 5.0, 30.0, 60.0)))
            except ShipperError as error:
                self.log(f"{name}: {error}")

    async def answer(self, store: Store, number: int | Version, stage: str, seconds: float) -> Verdict:
        """Returns the answer to one question."""
        asked = trio.current_time()
        async with observing(store, self.seals) as observer:
            verdict = await wait(observer, number, stage, seconds, 5.0)  # type: ignore[arg-type]
        self.transcript.answers.append(Answer(asked, trio.current_time(), verdict))
        return verdict

    async def forget(self, store: Store, target: str, *, force: bool = False) -> None:
        await self.order(lambda: operations.forget(store, self.seals, target, force=force))

    async def order(self, order: Callable[[], Awaitable[object]]) -> bool:
        """Gives an order; returns whether it was done."""
        try:
            self.log(f"operator: {await order()}")
        except ShipperError as error:
            self.log(f"operator: {error}")
            return False
        return True

    def log(self, text: str) -> None:
        self.transcript.log.append(f"{trio.current_time():9.3f} {text}")
