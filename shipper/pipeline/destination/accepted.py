"""Whether a destination accepts the credentials of an output that has nothing to send."""

from __future__ import annotations

from collections.abc import Iterable

from shipper.pipeline import libraries
from shipper.plugin import Output, OutputContext
from shipper.process import log
from shipper.process.groups import failures_apart
from shipper.sdk.asking import Finding, Question
from shipper.sdk.errors import ShipperError, raised_at

_log = log.get(__name__)


async def is_accepted(output: Output, context: OutputContext) -> bool:
    """Asks the destination, and returns whether it accepts the login; False if that does not show.

    A cancel leaves no connection open.
    """
    findings: list[Finding] = []

    def failed(error: Exception) -> None:
        if not isinstance(error, ShipperError):
            _log.error("an output cannot ask its destination", output=context.name, error=raised_at(error))

    with failures_apart(failed):
        await libraries.load(f"output {context.name}", output)
        await output.ask(context, Question(), findings.append)
    return shows_acceptance(findings)


def shows_acceptance(findings: Iterable[Finding]) -> bool:
    """Returns whether the login is good, or is not asked for by a destination that is there.

    A host that cannot be reached says nothing about the credential.
    """
    said = {(finding.asked, finding.verdict) for finding in findings}
    if any((asked, "bad") in said for asked in ("login", "privilege")):
        return False
    return ("login", "good") in said or {("login", "unknown"), ("destination", "good")} <= said
