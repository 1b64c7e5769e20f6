"""What a step of the scenario does: one function for each kind, by its name."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

import trio

from tests.simulation.backend import BACKENDS, NOWHERE
from tests.simulation.offers import Feed, Target, offer
from tests.simulation.scenario import Step
from tests.simulation.streams import STREAMS
from tests.simulation.supervisor import Supervisor
from tests.simulation.things import NAME, SHELVES

LISTED_SECONDS = 5.0
"""For an answer to an order, if one comes."""

Do = Callable[[Supervisor, Random], Awaitable[None]]

_KINDS: dict[str, Do] = {}


def _kind(do: Do) -> Do:
    """The step of this name."""
    _KINDS[do.__name__] = do
    return do


async def follow(supervisor: Supervisor, steps: Iterable[Step]) -> None:
    """Do what the scenario says, when it says."""
    for step in steps:
        await trio.sleep_until(step.at)
        if step.patience:
            with trio.move_on_after(step.patience):
                await supervisor.stage.until(supervisor.is_answered)
        supervisor.stage.note("step", kind=step.kind)
        supervisor.stage.faults[f"step {step.kind}"] += 1
        await _KINDS[step.kind](supervisor, step.random())


# -- revisions ---------------------------------------------------------------------------------------------------------


@_kind
async def rotate(supervisor: Supervisor, random: Random) -> None:
    """Another credential for an output, often with events on their way."""
    if random.random() < 0.6:
        await write(supervisor, random)
    name = _some_output(supervisor, random)
    supervisor.offer(supervisor.shape.with_output(name, supervisor.target(_to(supervisor, name, random))))


@_kind
async def rotate_all(supervisor: Supervisor, random: Random) -> None:
    """Another credential for every output, perhaps one for all."""
    await write(supervisor, random)
    shape, shared = supervisor.shape, supervisor.new_credential() if random.random() < 0.3 else None
    for name, target in supervisor.shape.outputs.items():
        shape = shape.with_output(name, replace(target, credential=shared or supervisor.new_credential()))
    supervisor.offer(shape)


def _some_output(supervisor: Supervisor, random: Random) -> str:
    return random.choice(list(supervisor.shape.outputs) or ["main"])


def _to(supervisor: Supervisor, name: str, random: Random) -> str:
    target = supervisor.shape.outputs.get(name)
    return random.choice(("east", "west")) if target is None else target.to


@_kind
async def retarget(supervisor: Supervisor, random: Random) -> None:
    """Another destination, with the same credential."""
    name = _some_output(supervisor, random)
    if name in supervisor.shape.outputs:
        to = "west" if supervisor.shape.outputs[name].to == "east" else "east"
        supervisor.offer(supervisor.shape.with_output(name, replace(supervisor.shape.outputs[name], to=to)))


@_kind
async def typo(supervisor: Supervisor, random: Random) -> None:
    """A name that is nobody's, with the same credential, perhaps after another; soon it is corrected, perhaps."""
    if random.random() < 0.3:
        supervisor.shape = replace(supervisor.shape, never_reached=random.choice(("hold", "forward")))
    name = _some_output(supervisor, random)
    if (target := supervisor.shape.outputs.get(name)) is None:
        return
    if random.random() < 0.3:
        target = replace(target, credential=supervisor.new_credential())
    supervisor.offer(supervisor.shape.with_output(name, replace(target, to=NOWHERE)))
    await write(supervisor, random)
    if random.random() < 0.8:
        await trio.sleep(random.uniform(0.0, 2.0))
        await write(supervisor, random)
        if (now := supervisor.shape.outputs.get(name)) is not None:
            credential = supervisor.new_credential() if random.random() < 0.2 else now.credential
            supervisor.offer(supervisor.shape.with_output(name, Target(target.to, credential)))


@_kind
async def back(supervisor: Supervisor, random: Random) -> None:
    """What an output was in an earlier revision, if its credential was not released meanwhile."""
    name = _some_output(supervisor, random)
    before = [offer.shape.outputs[name] for offer in supervisor.sent if name in offer.shape.outputs]
    before = [target for target in before if target.credential not in supervisor.revoked]
    if before:
        supervisor.offer(supervisor.shape.with_output(name, random.choice(before)))


@_kind
async def outputs(supervisor: Supervisor, random: Random) -> None:
    """One more output, or one less; it may share a credential."""
    name = random.choice(("main", "side", "third"))
    if name in supervisor.shape.outputs:
        supervisor.offer(supervisor.shape.with_output(name, None))
        return
    target = supervisor.target(random.choice(("east", "west")))
    if supervisor.shape.outputs and random.random() < 0.3:
        target = replace(target, credential=supervisor.shape.outputs[_some_output(supervisor, random)].credential)
    supervisor.offer(supervisor.shape.with_output(name, target))


@_kind
async def tune(supervisor: Supervisor, random: Random) -> None:
    """A change that matters to no queued event."""
    supervisor.offer(replace(supervisor.shape, workers=random.randint(1, 4)))


@_kind
async def same(supervisor: Supervisor, random: Random) -> None:
    """The same text under a new number."""
    supervisor.offer(supervisor.shape, same=bool(supervisor.sent))


@_kind
async def replace_input(supervisor: Supervisor, random: Random) -> None:
    """An input that is opened anew, or goes, or comes back."""
    name = random.choice(("pull", "push"))
    inputs = dict(supervisor.shape.inputs)
    if name in inputs and random.random() < 0.4:
        del inputs[name]
    else:
        feed = inputs.get(name, Feed())
        inputs[name] = replace(feed, spot=feed.spot + 1, pad=random.choice((0, 0, 1500)))
    supervisor.offer(replace(supervisor.shape, inputs=inputs))


@_kind
async def route(supervisor: Supervisor, random: Random) -> None:
    """An input that feeds some of the outputs, or none."""
    name = random.choice(list(supervisor.shape.inputs) or ["pull"])
    outputs = tuple(output for output in supervisor.shape.outputs if random.random() < 0.5)
    feed = replace(supervisor.shape.inputs.get(name, Feed()), outputs=outputs)
    supervisor.offer(replace(supervisor.shape, inputs={**supervisor.shape.inputs, name: feed}))


@_kind
async def flood(supervisor: Supervisor, random: Random) -> None:
    """Many revisions in a row."""
    for _ in range(random.randint(2, 6)):
        await rotate(supervisor, random)
        if random.random() < 0.5:
            await trio.sleep(random.uniform(0.0, 0.05))


@_kind
async def disorder(supervisor: Supervisor, random: Random) -> None:
    """A newer revision overtakes an older one."""
    name = _some_output(supervisor, random)
    older = supervisor.next(supervisor.shape.with_output(name, supervisor.target("east")))
    newer = supervisor.next(supervisor.shape.with_output(name, supervisor.target("west")))
    supervisor.send(newer)
    supervisor.send(older)


@_kind
async def again(supervisor: Supervisor, random: Random) -> None:
    """The newest policy once more."""
    usable = [offer for offer in supervisor.sent if offer.at not in supervisor.nacked and supervisor.is_whole(offer)]
    for again in usable[-1:]:
        supervisor.send(again)


@_kind
async def stale(supervisor: Supervisor, random: Random) -> None:
    """An old policy that is not the active one."""
    old = [offer for offer in supervisor.sent if supervisor.active is not None and offer.at < supervisor.active]
    if old:
        supervisor.send(replace(random.choice(old), flaw="stale"))


@_kind
async def conflict(supervisor: Supervisor, random: Random) -> None:
    """The active number with another text."""
    active = next((offer for offer in supervisor.sent if offer.at == supervisor.active), None)
    if active is not None:
        supervisor.send(replace(active, flaw="conflict", text=active.text + " ", sha256=None))


@_kind
async def invalid(supervisor: Supervisor, random: Random) -> None:
    text = random.choice(("version: 1\nsurprise: 1\n", "version: 1\ninputs: {a: {type: nothing}}\n", ": [", ""))
    supervisor.send_flawed("invalid", text=text, sha256=None)


@_kind
async def digest(supervisor: Supervisor, random: Random) -> None:
    supervisor.send_flawed("invalid", sha256="0" * 64)


@_kind
async def missing(supervisor: Supervisor, random: Random) -> None:
    """A credential that did not come with the policy."""
    shape = supervisor.shape.with_output("main", Target("east", f"unknown{supervisor.number}"))
    supervisor.send(
        replace(
            offer((supervisor.epoch, supervisor.number + 1), shape, supervisor.stamp, []), flaw="credential_missing"
        )
    )


@_kind
async def clash(supervisor: Supervisor, random: Random) -> None:
    """A known id with another secret."""
    active = next((offer for offer in supervisor.sent if offer.at == supervisor.active), None)
    ids = sorted(active.shape.credentials) if active is not None else []
    if ids:
        supervisor.send_flawed("credential_conflict", credentials={ids[0]: {"api_key": f"{ids[0]}:another"}})


@_kind
async def epoch(supervisor: Supervisor, random: Random) -> None:
    """A new lineage begins; its numbers go on here, so that each is of one text only."""
    supervisor.epoch += 1
    await rotate(supervisor, random)


@_kind
async def deadline(supervisor: Supervisor, random: Random) -> None:
    """How long a drain may take, and what happens then; often with a drain that begins at once."""
    after = random.choice((None, (0.5, "hold"), (0.5, "hold"), (0.5, "drop"), (3.0, "dead_letter")))
    supervisor.offer(replace(supervisor.shape, deadline=after))
    if random.random() < 0.7:
        await rotate(supervisor, random)


@_kind
async def rekey(supervisor: Supervisor, random: Random) -> None:
    """The next process gets another state key, and the one before it to open what there is."""
    supervisor.keys.insert(0, f"k{len(supervisor.keys) + 1}-{random.getrandbits(16)}")
    await crash(supervisor, random)


@_kind
async def garbage(supervisor: Supervisor, random: Random) -> None:
    lines = (b"{\n", b"\xff\xfe\n", b"\n", b'{"type":"dance"}\n', b'{"type":"policy"}\n', b"[" * 2000 + b"\n")
    supervisor.node.send(random.choice(lines))


# -- the process and its surroundings ----------------------------------------------------------------------------------


@_kind
async def write(supervisor: Supervisor, random: Random) -> None:
    stream = STREAMS[random.choice(("pull", "push"))]
    stream.write(random.choice((1, 3, 10, 30)))
    supervisor.stage.note("written", stream=stream.name, upto=stream.written)


@_kind
async def change(supervisor: Supervisor, random: Random) -> None:
    """Keys get other documents, or are deleted."""
    for _ in range(random.choice((1, 3, 10))):
        SHELVES[NAME].change(random, hot=random.random() < 0.3)


@_kind
async def hot(supervisor: Supervisor, random: Random) -> None:
    """One key changes all the time, for a while."""
    supervisor.stage.nursery.start_soon(_go_on_changing, random, random.choice((0.001, 0.01, 0.02, 0.2)))


async def _go_on_changing(random: Random, pause: float) -> None:
    things = SHELVES[NAME]
    things.writers += 1
    for _ in range(random.randint(5, 30)):
        things.change(random, hot=random.random() < 0.8)
        await trio.sleep(random.uniform(0.0, pause))
    things.writers -= 1


@_kind
async def overwrite(supervisor: Supervisor, random: Random) -> None:
    """Somebody else writes newer versions of keys, in the middle of changes; perhaps the process dies of it."""
    await change(supervisor, random)
    await trio.sleep(random.uniform(0.0, 0.05))
    output, ahead = _some_output(supervisor, random), random.choice((1 << 31, 1 << 45))
    for key in SHELVES[NAME].keys:
        if random.random() < 0.7:
            BACKENDS[_to(supervisor, output, random)].fences.overwrite(output, key, ahead)
    if random.random() < 0.4:
        await crash(supervisor, random)
    else:
        await change(supervisor, random)


@_kind
async def move(supervisor: Supervisor, random: Random) -> None:
    """An output goes elsewhere, or to where it was, in the middle of changes."""
    await change(supervisor, random)
    await trio.sleep(random.uniform(0.0, 0.2))
    await random.choice((rotate, retarget, back, outputs))(supervisor, random)
    await trio.sleep(random.uniform(0.0, 0.2))
    await change(supervisor, random)


@_kind
async def take_away(supervisor: Supervisor, random: Random) -> None:
    """The input of keyed state goes, or is opened anew, or comes back."""
    inputs = dict(supervisor.shape.inputs)
    if NAME in inputs and random.random() < 0.5:
        del inputs[NAME]
    else:
        feed = inputs.get(NAME, Feed())
        inputs[NAME] = replace(feed, spot=feed.spot + 1)
    supervisor.offer(replace(supervisor.shape, inputs=inputs))


@_kind
async def crash(supervisor: Supervisor, random: Random) -> None:
    supervisor.stage.crash_in = random.randint(0, 40)


@_kind
async def eof(supervisor: Supervisor, random: Random) -> None:
    supervisor.stage.note("told_to_stop", how="eof")
    supervisor.node.close()


@_kind
async def signal(supervisor: Supervisor, random: Random) -> None:
    """Perhaps a second one, which may meet the next process."""
    _signal(supervisor)
    if random.random() < 0.3:
        await trio.sleep(random.uniform(0.0, 1.0))
        _signal(supervisor)


def _signal(supervisor: Supervisor) -> None:
    supervisor.stage.note("told_to_stop", how="signal")
    supervisor.node.signal()


@_kind
async def stop(supervisor: Supervisor, random: Random) -> None:
    supervisor.stage.note("told_to_stop", how="stop")
    supervisor.say({"type": "stop", "within_seconds": random.choice((0.0, 0.1, 5.0))})


@_kind
async def wall(supervisor: Supervisor, random: Random) -> None:
    """The wall clock jumps; nothing depends on it."""
    supervisor.stage.wall_offset += random.choice((-3e8, -3600.0, 3600.0, 3e8))


@_kind
async def revoke(supervisor: Supervisor, random: Random) -> None:
    """Somebody destroyed a credential too early; it comes back when the world heals."""
    id = supervisor.shape.outputs[_some_output(supervisor, random)].credential if supervisor.shape.outputs else "c1"
    for backend in BACKENDS.values():
        backend.valid.discard(id)


@_kind
async def deaf(supervisor: Supervisor, random: Random) -> None:
    supervisor.node.set_deaf(True)
    supervisor.stage.nursery.start_soon(_later, random.uniform(0.1, 10.0), lambda: supervisor.node.set_deaf(False))


@_kind
async def down(supervisor: Supervisor, random: Random) -> None:
    backend = BACKENDS[random.choice(("east", "west"))]
    backend.down = True
    supervisor.stage.nursery.start_soon(_later, random.uniform(0.1, 10.0), lambda: setattr(backend, "down", False))


@_kind
async def disk_full(supervisor: Supervisor, random: Random) -> None:
    disk = supervisor.disk
    disk.is_full = True
    supervisor.stage.nursery.start_soon(_later, random.uniform(0.1, 8.0), lambda: setattr(disk, "is_full", False))


async def _later(seconds: float, do: Any) -> None:
    await trio.sleep(seconds)
    do()


@_kind
async def lease(supervisor: Supervisor, random: Random) -> None:
    """A lease, often a short one, sometimes past; perhaps the machine sleeps, and it lapses unseen."""
    supervisor.lease(supervisor.stage.boottime + random.choice((-1.0, 0.1, 0.5, 0.5, 2.0, 2.0, 5.0)))
    if random.random() < 0.2:
        await trio.sleep(random.uniform(0.0, 0.5))
        supervisor.stage.slept += 3600.0


@_kind
async def withdraw(supervisor: Supervisor, random: Random) -> None:
    """A secret that somebody uses is taken back; it is supplied again when it is wanted."""
    await write(supervisor, random)
    if supervisor.shape.outputs:
        supervisor.withdraw(supervisor.shape.outputs[_some_output(supervisor, random)].credential)


# -- orders ------------------------------------------------------------------------------------------------------------


@_kind
async def end_drain(supervisor: Supervisor, random: Random) -> None:
    """Give up what the oldest drain still waits for."""
    if supervisor.draining:
        oldest = supervisor.draining[0]
        params = {"epoch": oldest["epoch"], "revision": oldest["revision"]}
        supervisor.act(random.choice(("drop", "dead_letter")), params)


@_kind
async def end_batch(supervisor: Supervisor, random: Random) -> None:
    """Give up a batch that waits first on its lane, as the answer to an order for none of them lists it."""
    name = random.choice(("drop", "dead_letter"))
    asked = supervisor.act(name, {"output": "none", "batch": 0})
    with trio.move_on_after(LISTED_SECONDS):
        answer = await supervisor.stage.noted(
            lambda note: note.kind == "said" and _answers(note.facts["message"], asked)
        )
        if listed := re.findall(r"batch (\d+) of output (\w+)", answer.facts["message"]["message"].partition(";")[2]):
            batch, output = random.choice(listed)
            supervisor.act(name, {"output": output, "batch": int(batch)})


def _answers(message: dict[str, Any], id: str) -> bool:
    return message["type"] == "result" and message["id"] == id


@_kind
async def forward(supervisor: Supervisor, random: Random) -> None:
    """Have something that drains go to where its output goes now."""
    if supervisor.draining:
        drain = random.choice(supervisor.draining)
        params = {"epoch": drain["epoch"], "revision": drain["revision"]}
        supervisor.act("forward", {**params, "output": random.choice(sorted(drain["outputs"]))})


@_kind
async def forward_late(supervisor: Supervisor, random: Random) -> None:
    """What drains for long goes to where its output goes now."""
    supervisor.offer(replace(supervisor.shape, deadline=(random.choice((0.5, 3.0)), "forward")))
    if random.random() < 0.7:
        await rotate(supervisor, random)


@_kind
async def rebind(supervisor: Supervisor, random: Random) -> None:
    """Bind what drains with an old credential to the one in use."""
    old = sorted({target.credential for offer in supervisor.sent for target in offer.shape.outputs.values()})
    new = sorted(supervisor.shape.credentials)
    if old and new:
        supervisor.act("rebind", {"from": random.choice(old), "to": random.choice(new)})
