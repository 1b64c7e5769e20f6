"""Where a campaign is played: an API server with an audit log, its etcd, a destination with keys, and members."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

import trio

from shipper.plugin import Credential
from shipper.sdk.aio import open_asyncio
from shipper.testing import BulkDestination, open_destination
from shipper.testing.destination import digest
from tests.backends import kubernetes as server
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import Api, Refused
from tests.backends.kubernetes_proxy import open_proxy
from tests.campaign_kubernetes import manifests
from tests.campaign_kubernetes.history import History
from tests.campaign_kubernetes.kept import KeptApi
from tests.campaign_kubernetes.member import Member
from tests.campaign_kubernetes.records import CANARY, Secret, content, name_of
from tests.campaign_kubernetes.seen import Contents, contents_of, spent_by
from tests.canary import EVENT

LEASE = 8
"""Seconds."""
INSISTS = 60.0
"""Seconds for which the third party repeats what the server does not answer."""
SECRETS = {"es": ("api_key",), "keys": ("first", "second")}

T = TypeVar("T")


class Stage:
    """Made by `open_stage`."""

    def __init__(self, directory: Path, kubernetes: Kubernetes, destination: BulkDestination, history: History) -> None:
        self.directory, self.kubernetes, self.destination, self.history = directory, kubernetes, destination, history
        self.namespace = history.namespace
        self.members: list[Member] = []
        self.names: dict[str, str] = {}
        """The names of contents, by what the destination's log shows of them."""
        self.revoked: dict[str, float] = {}
        self.kept: set[str] = set()
        """The names of contents that are not revoked, for they may come back."""
        self.written: dict[tuple[str, str], list[str]] = {
            (one, key): [] for one, keys in SECRETS.items() for key in keys
        }
        """The contents that the third party has made for each key, in order."""
        self.changed = trio.Event()
        self.of_etcd, self.of_server = trio.Lock(), trio.Lock()
        self.api = KeptApi(kubernetes.url, kubernetes.ca, kubernetes.token)
        self._keys: dict[str, Credential] = {}
        self._bounds: dict[tuple[str, str], int] = {}

    async def ask(self, call: Callable[[Api], T]) -> T:
        """Returns what the API server answers, asked again while it is away; raises Refused for all else."""
        until = trio.current_time() + INSISTS
        while True:
            try:
                return await trio.to_thread.run_sync(call, self.api)
            except (OSError, HTTPException):
                if trio.current_time() > until:
                    raise
            except Refused as refused:
                if (refused.status < 500 and refused.status != 429) or trio.current_time() > until:
                    raise
            await trio.sleep(0.1)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def new_content(self, secret: str, key: str) -> str:
        """Returns a content that nobody has had, which the destination takes from now on."""
        made = self.written[secret, key]
        text = content(secret, key, len(made) + 1)
        credential = Credential.parse({"api_key": text})
        name = name_of(text)
        made.append(text)
        self._keys[name] = credential
        self.names[digest(credential)] = name
        assert self.destination.keys is not None
        self.destination.keys.add(credential)
        return text

    def revoke_released(self) -> None:
        """Has the destination forget each content that nobody may use any more; in the thread of the history."""
        contents: Mapping[tuple[str, str], Contents] = {}
        for one in [*self.history.newest.values()]:
            for release in one.releases if isinstance(one, Secret) else ():
                of = release.uid, release.key
                if release.before > self._bounds.get(of, 0):
                    self._bounds[of] = release.before
                    contents = contents or contents_of([*self.history.secrets])
                    self._revoke(spent_by(contents.get(of, ()), release.before))

    def keep(self, text: str) -> bool:
        """Sees to it that a content is not revoked for now, though it may be released; returns whether it was not yet.

        Only so may somebody who has replaced a content write it again.
        """
        self.kept.add(name_of(text))
        return name_of(text) not in self.revoked

    def _revoke(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.revoked and name not in self.kept:
                self.revoked[name] = time.monotonic()
                assert self.destination.keys is not None
                self.destination.keys.discard(self._keys[name])

    # -- for all -------------------------------------------------------------------------------------------------------

    def tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, holds: Callable[[], Any], seconds: float) -> bool:
        """Waits until something holds of the history or of the destination; returns whether it did in time."""
        end = trio.current_time() + seconds
        while not holds():
            left = end - trio.current_time()
            if left <= 0:
                return False
            with trio.move_on_after(min(left, 0.5)):
                await self.changed.wait()
        return True

    def arrived(self, policy: str, member: str) -> int:
        return len(self.destination.documents.get(f"{policy}-{member}", ()))


def canaries() -> frozenset[bytes]:
    """What must be seen nowhere: a part of each secret and of each line, also within something longer in base64."""
    found: set[bytes] = set()
    for text in (CANARY, EVENT):
        found |= {text.encode(), text[::-1].encode()}
        for before in range(3):
            coded = base64.b64encode(b"\0" * before + text.encode()).rstrip(b"=")
            found.add(coded[4 if before else 0 : -2])
    return frozenset(found)


@contextmanager
def open_kubernetes() -> Iterator[Kubernetes]:
    """An API server that keeps an audit log; raises Unavailable."""
    with server.running(audit=True) as kubernetes:
        yield kubernetes


@asynccontextmanager
async def open_stage(directory: Path, kubernetes: Kubernetes, members: int, seed: int) -> AsyncIterator[Stage]:
    """A stage with its objects; no member runs yet, and all end with it."""
    chance = random.Random(seed)
    await trio.to_thread.run_sync(kubernetes.admin.apply, manifests.package())
    namespace = await trio.to_thread.run_sync(kubernetes.namespace)
    history = History(kubernetes.etcd_url, namespace, canaries=canaries())
    async with AsyncExitStack() as stack:
        aio = await stack.enter_async_context(open_asyncio())
        destination = await stack.enter_async_context(open_destination(aio, keys=set()))
        stage = Stage(directory, kubernetes, destination, history)
        token = trio.lowlevel.current_trio_token()

        def changed() -> None:
            stage.revoke_released()
            token.run_sync_soon(stage.tell, idempotent=True)

        history.changed = changed
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(partial(trio.to_thread.run_sync, history.follow, abandon_on_cancel=True))
        try:
            for number in range(1, members + 1):
                stage.members.append(await _member(stage, stack, number, chance))
            yield stage
        finally:
            history.stop()
            stage.api.close()
            for member in stage.members:
                member.end_at_once()
            nursery.cancel_scope.cancel("the campaign is over")


async def _member(stage: Stage, stack: AsyncExitStack, number: int, chance: random.Random) -> Member:
    name, user = f"web-{number}", f"user-{number}"
    kubernetes, namespace = stage.kubernetes, stage.namespace
    proxy = await stack.enter_async_context(open_proxy(kubernetes))
    grant = partial(kubernetes.grant, namespace, user, manifests.rights(name, SECRETS))
    await trio.to_thread.run_sync(grant)
    bindings = [manifests.binding(role, user) for role in manifests.ROLES]
    await trio.to_thread.run_sync(kubernetes.admin.apply, bindings, namespace)
    config = stage.directory / f"{name}.kubeconfig"
    kubernetes.kubeconfig(config, kubernetes.user_token(number), namespace=namespace, url=proxy.url)
    section = {
        "kubeconfig": str(config),
        "namespace": namespace,
        "member": name,
        "labels": {"app": "web", "parity": "even" if number % 2 == 0 else "odd"},
        "lease": f"{LEASE}s",
        "on_lapse": "hold" if number % 3 == 0 else "continue",
        "allow_host_references": True,
    }
    return Member(stage.directory / name, name, section, proxy, user)
