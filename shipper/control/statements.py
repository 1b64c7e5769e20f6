"""Turns statements about revisions into messages of the protocol."""

from __future__ import annotations

from shipper.process.log import redacted
from shipper.protocol.bounds import parts
from shipper.protocol.messages import Ack, Nack, NackError, Outbound, Released
from shipper.revisions import statements
from shipper.revisions.statements import Active, Received, Refused, Statement
from shipper.sdk.errors import Problem
from shipper.values import Receipt


def messages(statement: Statement) -> list[Outbound]:
    """Returns the messages of a statement in their order; ids that do not fit in one message take several."""
    match statement:
        case Received(at, sha256, change):
            return [Ack(epoch=at.epoch, revision=at.number, sha256=sha256, stage="received", change=change)]
        case Active(at, sha256, change):
            return [Ack(epoch=at.epoch, revision=at.number, sha256=sha256, stage="active", change=change)]
        case Receipt():
            return [Ack.drained(statement)]
        case statements.Released(ids):
            return [Released(credentials=some) for some in parts(ids)]
        case Refused():  # pragma: no branch - the last one of all
            return _refused(statement)


def _refused(refused: Refused) -> list[Outbound]:
    some, *others = list(parts(refused.released)) or [()]
    nack = Nack(
        epoch=refused.at.epoch,
        revision=refused.at.number,
        sha256=refused.sha256,
        reason=refused.reason,
        errors=tuple(_error(problem) for problem in refused.problems),
        released=some,
    )
    return [nack, *(Released(credentials=more) for more in others)]


def _error(problem: Problem) -> NackError:
    return NackError(problem.path, problem.line, problem.column, redacted(problem.message), problem.code)
