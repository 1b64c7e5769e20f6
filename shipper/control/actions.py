"""The actions of the protocol: each takes `params` and returns one result."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import orjson
import trio

from shipper import __version__
from shipper.control import tapping
from shipper.pipeline.delivery.delivery import Delivery
from shipper.pipeline.intake.intake import Intake
from shipper.process import log
from shipper.protocol.bounds import cut
from shipper.protocol.messages import MAX_LINE_BYTES, Action, Observed, Result, encoded
from shipper.revisions.orders import Orders
from shipper.revisions.requeue import Requeuing
from shipper.revisions.rollout import Rollout
from shipper.sdk.codes import Code
from shipper.sdk.errors import ShipperError, raised_at
from shipper.spool.directory import StateDirectory
from shipper.spool.parts.letters import Letters
from shipper.spool.requeue import Wanted
from shipper.values import LARGEST_COUNT, Count, Revision

_log = log.get(__name__)

Params = TypeVar("Params")
PAGE = 200
SAMPLE_BYTES = 1 << 20
POLICY_BYTES = 2 << 20
"""The limit of policies in `diagnostics`, less if the rest is large; one policy has at most 1 MiB."""
REST_BYTES = 64 << 10
"""Bytes of a line that are reserved for the fields around the policies."""


class _Wrong(ShipperError):
    """The params are invalid."""

    code = Code.BAD_PARAMS


class _Rebind(msgspec.Struct):
    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")


class _Forward(msgspec.Struct):
    revision: Count
    output: str
    epoch: Count = 0


class _End(msgspec.Struct):
    """Names a drain by its revision, or a batch of an output by its number."""

    revision: Count | None = None
    epoch: Count = 0
    output: str | None = None
    batch: Count | None = None


class _Tap(msgspec.Struct):
    point: str
    limit: int = 10
    seconds: float = 5.0


class _Requeue(msgspec.Struct, forbid_unknown_fields=True):
    """Unknown fields are refused, since a misspelled filter would requeue everything."""

    output: str | None = None
    reason: str | None = None
    upto: Count = LARGEST_COUNT
    ids: Sequence[Count] | None = None


class _Letters(msgspec.Struct):
    list: bool | dict[str, Any] | int | None = None
    export: str | None = None
    events: bool = False
    requeue: _Requeue | None = None
    delete: Count | None = None
    after: Count = 0
    limit: int = PAGE


class _ForgetEdge(msgspec.Struct, forbid_unknown_fields=True):
    edge: str
    keys: Literal["keep", "delete"]
    input: str | None = None


class Actions:
    """Performs actions; `look` makes an `observed`."""

    def __init__(
        self,
        *,
        letters: Letters,
        intake: Intake,
        delivery: Delivery,
        rollout: Rollout,
        orders: Orders,
        requeuing: Requeuing,
        look: Callable[[], Awaitable[Observed]],
    ) -> None:
        self._letters, self._intake, self._delivery = letters, intake, delivery
        self._rollout, self._orders, self._requeuing, self._look = rollout, orders, requeuing, look
        self._verbs: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "rebind": self._rebind,
            "forward": self._forward,
            "dead_letter": lambda params: self._end("dead_letter", params),
            "drop": lambda params: self._end("drop", params),
            "diagnostics": self._diagnostics,
            "tap": self._tap,
            "dead_letters": self._dead_letters,
            "forget_edge": self._forget_edge,
        }

    async def perform(self, action: Action) -> Result:
        """Performs an action; always returns one result."""
        verb = self._verbs.get(action.name)
        if verb is None:
            return _failed(action, f"unknown action; actions are {', '.join(self._verbs)}", Code.UNKNOWN_ACTION)
        try:
            result = Result(id=action.id, status="SUCCESS", result=await verb(action.params), code=Code.OK)
            length = len(result.line())
            if length <= MAX_LINE_BYTES:
                return result
            text = f"the answer has {length} bytes, and a line has at most {MAX_LINE_BYTES}"
            return _failed(action, text, Code.LINE_TOO_LONG)
        except ShipperError as error:
            return _failed(action, str(error), error.code)
        except Exception as error:
            _log.error("an action failed", action=action.name, error=raised_at(error))
            return _failed(action, f"failed: {raised_at(error)}", Code.INTERNAL_ERROR)

    async def _rebind(self, params: Mapping[str, Any]) -> dict[str, Any]:
        order = _read(params, _Rebind)
        await self._orders.rebind(order.source, order.target)
        return {"released": await self._rollout.release_now(order.source)}

    async def _forward(self, params: Mapping[str, Any]) -> dict[str, Any]:
        order = _read(params, _Forward)
        done = await self._orders.forward(Revision(order.epoch, order.revision), order.output)
        return {"events": done.events, "released": await self._rollout.release_now(*sorted(done.credentials))}

    async def _end(self, name: Literal["dead_letter", "drop"], params: Mapping[str, Any]) -> dict[str, Any]:
        order = _read(params, _End)
        if order.batch is not None and order.output is not None and order.revision is None:
            return {"events": await self._orders.end_batch(name, order.output, order.batch)}
        if order.revision is None or order.batch is not None:
            raise _Wrong("params: name either a `revision`, or a `batch` and its `output`")
        await self._orders.end(name, Revision(order.epoch, order.revision), order.output)
        return {}

    async def _forget_edge(self, params: Mapping[str, Any]) -> dict[str, Any]:
        order = _read(params, _ForgetEdge)
        return {"deleted": await self._intake.forget_edge(order.edge, order.keys, order.input)}

    async def _tap(self, params: Mapping[str, Any]) -> dict[str, Any]:
        tap = _read(params, _Tap)
        if not (1 <= tap.limit <= PAGE and 0 < tap.seconds <= 60):
            raise _Wrong(f"limit is 1 to {PAGE}, seconds up to 60")
        points = tapping.points(self._intake, self._delivery)
        if tap.point not in points:
            raise _Wrong(tapping.no_such_point(points))
        return {"events": _bounded(await self._intake.entrance.taps.collect(tap.point, tap.limit, tap.seconds))}

    async def _dead_letters(self, params: Mapping[str, Any]) -> dict[str, Any]:
        wanted = _read(params, _Letters)
        if wanted.delete is not None:
            return await self._delete(wanted.delete)
        if wanted.export is not None:
            return await self._export(wanted.export, events_alone=wanted.events)
        if wanted.requeue is not None:
            return await self._requeue(wanted.requeue)
        return {"dead_letters": await self._listed(wanted.after, min(max(1, wanted.limit), PAGE))}

    async def _listed(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Returns letters without their events."""
        listed: list[dict[str, Any]] = []
        while len(listed) < limit and (page := await self._letters.page(after, limit - len(listed))):
            listed += [{key: value for key, value in letter.items() if key != "event"} for letter in page]
            after = page[-1]["id"]
        return listed

    async def _delete(self, upto: int) -> dict[str, Any]:
        if not (deleted := await self._letters.delete(upto)):
            raise _Wrong(f"no dead letter has an id up to {upto}: nothing was deleted", code=Code.NOTHING_TO_ORDER)
        return {"deleted": deleted}

    async def _requeue(self, wanted: _Requeue) -> dict[str, Any]:
        ids = None if wanted.ids is None else orjson.dumps(list(wanted.ids)).decode()
        done = await self._requeuing.requeue(Wanted(wanted.output, wanted.reason, ids, wanted.upto))
        return done._asdict()

    async def _export(self, name: str, *, events_alone: bool) -> dict[str, Any]:
        """Writes all letters, with their events in the clear, to a new file of mode 0600 in the state directory.

        The events alone, in the form for delivery, are readable by a `file` input with `parse: json`.
        """
        path = _new_file(self._letters.store.directory, name)
        count = after = 0
        async with await trio.open_file(path, "xb", opener=_private) as file:
            while page := await self._letters.page(after, PAGE):
                lines = [letter["event"] for letter in page if "event" in letter] if events_alone else page
                await file.write(b"".join(orjson.dumps(line) + b"\n" for line in lines))
                count, after = count + len(lines), page[-1]["id"]
        return {"exported": count, "path": str(path), "upto": after}

    async def _diagnostics(self, params: Mapping[str, Any]) -> dict[str, Any]:
        observed = msgspec.to_builtins(await self._look())
        result: dict[str, Any] = {
            "versions": {"shipper": __version__, "python": sys.version.split()[0], "sqlite": sqlite3.sqlite_version},
            "observed": observed,
            "counters": self._delivery.counters(),
            "outputs": self._delivery.outputs(),
            "inputs": self._intake.inputs(),
            "plugins": self._intake.panel.view() | self._delivery.pool.counts.panel.view(),
            "tasks": _tasks(),
            "state_directory": str(Path(self._letters.store.directory.path)),
        }
        room = MAX_LINE_BYTES - REST_BYTES - len(encoded(result))
        policies, left_out = await self._rollout.texts(min(POLICY_BYTES, room))
        return {**result, "policies": policies, "policies_left_out": left_out}


def _bounded(events: Sequence[Any]) -> list[Any]:
    """Returns as many events as SAMPLE_BYTES allows."""
    sizes = accumulate(len(orjson.dumps(event)) for event in events)
    return [event for event, size in zip(events, sizes, strict=True) if size <= SAMPLE_BYTES]


def _new_file(directory: StateDirectory, name: str) -> Path:
    """Returns the path of an export; raises _Wrong if it is outside, behind a link, not new, or of the spool."""
    with suppress(OSError, ValueError):  # too long, a NUL
        path = _below(directory.path, Path(os.path.normpath(directory.path / name)))
        is_free = path.parent.is_dir() and not path.exists() and not directory.is_own(path)
        if is_free and path == path.resolve():
            return path
    raise _Wrong(
        "export takes the path of a new file in the state directory, or in an existing directory below it, "
        "without links, and with no name that the spool uses"
    )


def _below(directory: Path, path: Path) -> Path:
    """Returns the path below the directory's own name, even if it was given by a link to it. Raises ValueError."""
    for parent in reversed(path.parents):
        if parent.resolve() == directory:
            return directory / path.relative_to(parent)
    raise ValueError("the path is outside of the directory")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _tasks() -> list[str]:
    """Returns the tree of tasks, indented."""
    lines: list[str] = []

    def walk(task: trio.lowlevel.Task, depth: int) -> None:
        lines.append("  " * depth + task.name)
        for nursery in task.child_nurseries:
            for child in sorted(nursery.child_tasks, key=lambda child: child.name):
                walk(child, depth + 1)

    root = trio.lowlevel.current_root_task()
    if root is not None:  # pragma: no branch - it is there while a task runs
        walk(root, 0)
    return lines[:500]


def _read(params: Mapping[str, Any], shape: type[Params]) -> Params:
    try:
        return msgspec.convert(dict(params), shape)
    except msgspec.ValidationError as error:
        raise _Wrong(f"params: {error}") from None


def _failed(action: Action, message: str, code: str) -> Result:
    return Result(id=action.id, status="FAILED", message=cut(log.redacted(message)), code=code)
