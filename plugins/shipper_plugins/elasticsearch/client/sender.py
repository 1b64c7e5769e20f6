"""The sender of an open `elasticsearch` output: which request goes where, and what its answer means for a batch.

No retry and no backoff: a request gets one answer, or the lane gets the reason. Only if no connection could be made, so
that nothing was sent, the same body goes to the next host at once, at most once to each. Which host is the next one,
and which gets nothing for a while, is decided by `host_rotation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from shipper.plugin import Answer, Answers, Batch, Held, Later, NotBegun, Sender, TooLarge
from shipper.sdk.http_answer import NoAnswer, Response, Unreachable, address
from shipper_plugins.bad_answers import reading
from shipper_plugins.elasticsearch.client import bulk, encoding, keyed
from shipper_plugins.elasticsearch.client.host_rotation import Probes, Rotation
from shipper_plugins.encoders import encoded

if TYPE_CHECKING:
    from shipper.sdk.http import Client
    from shipper_plugins.elasticsearch.client.pinned_authority import Authority
    from shipper_plugins.elasticsearch.output import ElasticsearchOutput

_JSON = {"Content-Type": "application/json"}
_NO_BODY = {"Content-Type": "application/json", "Content-Encoding": "identity"}

Said = TypeVar("Said")


class BulkSender(Sender):
    """The Sender of an open `elasticsearch` output."""

    def __init__(
        self,
        output: ElasticsearchOutput,
        client: Client,
        rotation: Rotation,
        probes: Probes,
        authority: Authority | None = None,
    ) -> None:
        self._output = output
        self.client = client
        self.authority = authority
        self._rotation, self._probes = rotation, probes

    async def send(self, batch: Batch) -> Answers:
        """Delivers a batch by as many requests as necessary.

        If the first one gets no answer for its events, raises that error. If a later one does, its events and those
        after it are later or held, since the answers to the first ones count.
        """
        unfit = encoding.unfit(batch) if batch.versions is None else await encoded(batch, keyed.unfit, batch)
        if not unfit:
            return await self._send(batch)
        fit = [position for position in range(batch.count) if position not in unfit]
        answers = await self._send(batch.pick(fit))
        others = {fit[position]: answer for position, answer in answers.others.items()}
        return Answers(batch.count, others | unfit, answers.retry_after)

    async def _send(self, batch: Batch) -> Answers:
        encode, deliver = (
            (self._encode, self._deliver) if batch.versions is None else (self._encode_state, self._deliver_state)
        )
        others: dict[int, Answer] = {}
        for request in await encoded(batch, encode, batch):
            try:
                others |= await deliver(request)
            except (Later, Held, TooLarge, NotBegun) as error:
                if request.first == 0:
                    raise
                return Answers.until(request.first, error, batch.count, others)
        return Answers(batch.count, others)

    # -- events ----------------------------------------------------------------------------------------------------

    def _encode(self, batch: Batch) -> list[encoding.Request]:
        output = self._output
        limit = int(output.bulk_max_bytes)
        return encoding.encode(
            batch,
            index=output.index,
            limit=limit,
            compression=output.compression,
            indices=[one.case for one in output.indices],
            pipelines=[one.case for one in output.pipelines],
        )

    async def _deliver(self, request: encoding.Request) -> dict[int, Answer]:
        query = {"filter_path": bulk.FILTER} | ({"pipeline": self._output.pipeline} if self._output.pipeline else {})
        path = f"{f'/{request.index}' if request.index else ''}/_bulk?{urlencode(query, safe=',*')}"
        return await self._ask(path, request.body, lambda answer: bulk.read(answer, request), request.count)

    # -- keyed state -----------------------------------------------------------------------------------------------

    def _encode_state(self, batch: Batch) -> list[encoding.Request]:
        output = self._output
        return keyed.encode(
            batch,
            template=output.state_index,
            deletions=output.deletions,
            limit=int(output.bulk_max_bytes),
            compression=output.compression,
        )

    async def _deliver_state(self, request: encoding.Request) -> dict[int, Answer]:
        names = keyed.targets(request.batch, self._output.state_index)
        reading = await self._ask(
            keyed.BULK, request.body, lambda answer: keyed.read(answer, request, names), request.count
        )
        return reading.others | await self._resolve(reading.conflicts)

    async def _resolve(self, conflicts: Sequence[keyed.Conflict]) -> dict[int, Answer]:
        if not conflicts:
            return {}
        body = encoding.compressed(keyed.lookup(conflicts), self._output.compression)
        try:
            read = partial(keyed.resolved, conflicts=conflicts)
            return await self._ask(keyed.LOOKUP, [body], read, len(conflicts), _JSON)
        except (Later, Held, TooLarge, NotBegun) as error:  # the answers for the others count
            return dict.fromkeys([conflict.position for conflict in conflicts], Answer.of(error))

    # -- both ------------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        path: str,
        body: Sequence[bytes],
        read: Callable[[bytes], Said],
        count: int,
        headers: Mapping[str, str] | None = None,
    ) -> Said:
        """Returns the answer of one host, about `count` events.

        Raises Later, Held, TooLarge or NotBegun if none can be reached.
        """
        *others, last = self._rotation.order()
        for host in others:
            with suppress(Unreachable):
                return await self._ask_host(host, path, body, read, count, headers)
        return await self._ask_host(last, path, body, read, count, headers)

    async def _ask_host(
        self,
        host: str,
        path: str,
        body: Sequence[bytes],
        read: Callable[[bytes], Said],
        count: int,
        headers: Mapping[str, str] | None,
    ) -> Said:
        """Returns the answer of this host; it gets no more requests if it gives none, or none that can be read."""
        try:
            if self.authority is not None:
                await self.authority.find(host)
            response = await self.client.post(host, path, body, headers=headers, most=bulk.longest(count))
        except NoAnswer as error:
            self._probes.failed(host, error)
            raise
        if response.status != 200:
            with reading(address(host)):
                raise self._refusal(host, response)
        try:
            said = _read(response, read, count)
        except Later as error:
            raise self._unreadable(host, error) from None
        self._probes.answered(host)
        return said

    def _refusal(self, host: str, response: Response) -> Exception:
        """Returns why a host refused a request.

        It is raised from no variable: an error and the frame that holds both it and the request would be a cycle, and
        keep the request until the collector comes.
        """
        refusal = bulk.refusal(response.status, response.headers, response.body, address(host))
        if isinstance(refusal, Later) and response.status >= 500:
            self._probes.failed(host, refusal)
        else:
            self._probes.answered(host)
        return refusal

    def _unreadable(self, host: str, why: Later) -> Later:
        """Returns what is raised for an answer that cannot be read."""
        unreadable = Later(f"{address(host)}: {why}", code=why.code)
        self._probes.failed(host, unreadable)
        return unreadable


def _read(response: Response, read: Callable[[bytes], Said], count: int) -> Said:
    """Returns what an answer about `count` events says; raises Later for one that cannot be read."""
    with reading(None):  # who asks names the host
        return read(bulk.inflated(response.body, response.headers.get("Content-Encoding", ""), bulk.longest(count)))


async def probe(client: Client, host: str) -> None:
    """Asks a host for what it is; raises Later unless it answers, and NotBegun."""
    response = await client.request("GET", host, "/", headers=_NO_BODY)
    if response.status >= 500:
        raise bulk.refusal(response.status, response.headers, response.body, address(host))
