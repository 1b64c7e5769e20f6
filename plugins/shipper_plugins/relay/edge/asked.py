"""What a principal says before anything is relayed: `ask` of the `relay` output.

A handshake would begin a session, and end that of a running shipper with the same name. So it is asked for a session of
a protocol that no principal speaks: it checks the credential first, and then refuses.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from shipper.plugin import Code
from shipper.plugin.asking import Finding, Tell, in_time, of_no_answer, reached
from shipper.sdk.http_answer import NoAnswer, Response, address
from shipper_plugins.relay.edge.refusals import code_of
from shipper_plugins.relay.frames import Hello

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shipper.sdk.http import Client

NO_PROTOCOL = 0
_PATH, _JSON = "/v1/relay/session", {"Content-Type": "application/json"}
_HELLO = Hello(NO_PROTOCOL, "0" * 32, 0)


async def ask(hosts: Sequence[str], client: Client, tell: Tell) -> None:
    """See `Output.ask`."""
    body = msgspec.json.encode(_HELLO)
    for host in hosts:
        where, is_tls = address(host), host.startswith("https://")
        try:
            said = await in_time(where, partial(client.post, host, _PATH, [body], headers=_JSON))
        except NoAnswer as error:
            findings = of_no_answer(error, where, is_tls=is_tls)
        else:
            findings = [*reached(where, is_tls=is_tls), *_read(said, where)]
        for finding in findings:
            tell(finding)


def _read(said: Response, where: str) -> list[Finding]:
    code = code_of(said)
    if said.status == 400 and code == "protocol":
        text = "the credential is that of an edge; the edge's name shows in a session only"
        return [Finding("login", where, "good", text), Finding("destination", where, "good", "a principal")]
    if said.status in (401, 403):
        text = f"{said.status} {code}: no edge of this principal has the credential".replace(" :", ":")
        return [Finding("login", where, "bad", text, Code.UNAUTHORIZED)]
    if said.status == 429:
        return [Finding("destination", where, "unknown", "the principal is busy", Code.OVERLOADED)]
    return [Finding("destination", where, "bad", f"it answers {said.status}, as no principal does", Code.BAD_ANSWER)]
