"""The meaning of an answer to an export, over gRPC and over HTTP. No I/O.

| gRPC | HTTP | outcome |
|---|---|---|
| UNAVAILABLE, CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, DATA_LOSS | 429, 502, 503, 504, 408, 425 | later |
| RESOURCE_EXHAUSTED with a RetryInfo | | later |
| RESOURCE_EXHAUSTED for a message that is too large | 413 | in halves; one event alone is rejected |
| INVALID_ARGUMENT | 400 | in halves, to find the invalid events: nothing of such a request was accepted |
| INTERNAL | 500 | all events of the request are rejected, since the specification forbids to send them again |
| all others | all others | held: the cause is a setting, a permission or a quota, not the events |

Over HTTP, 400 and 500 have this meaning only with a Status in the body, which a proxy does not write: without one, 400
is held, and 500 is later. Each 2xx is a success, with a partial success in its body or not (`rejected_over_http`): Loki
answers 204, others 200 and nothing, or JSON to a request in protobuf.

A partial success has the number of rejected records, but does not name them, and must not be repeated: all events of
that request are rejected, accepted ones too, as dead letters with that reason. So none is lost without a trace;
requeuing them may deliver some twice. One that rejects more than were sent is no answer to the request.

A server's message may quote an event, so only known harmless texts are repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

from shipper.plugin import Answer, Code, Held, Later, Outcome, TooLarge
from shipper.sdk.http_answer import Response
from shipper_plugins.elasticsearch.client.bulk import retry_after
from shipper_plugins.otlp import status
from shipper_plugins.otlp.model import Unfit
from shipper_plugins.otlp.status import Grpc

_LATER = frozenset(
    {Grpc.CANCELLED, Grpc.DEADLINE_EXCEEDED, Grpc.ABORTED, Grpc.OUT_OF_RANGE, Grpc.UNAVAILABLE, Grpc.DATA_LOSS}
)
_TOO_LARGE = re.compile(r"larger than max|exceeds maximum|too large", re.IGNORECASE)
_KNOWN = re.compile(
    r"(?:grpc|rpc error)?:? ?received message (?:after decompression )?larger than max(?: \(\d{1,12} vs\. \d{1,12}\))?"
    r"|data refused due to high memory usage"
    r"|sending queue is full"
    r"|the body is larger than [0-9]{1,12}[KMGi]{0,2}B"
    r"|too many (?:clients are served now|bytes of requests are under way)"
    r"|there is no room for more events now"
    r"|unable to authenticate with the provided credentials"
    r"|missing or empty authorization (?:header|metadata)(?:: [a-z]{1,32})?"
    r"|(?:Unauthenticated|PermissionDenied|Unauthorized)"
)
_OF_HTTP = {401: Grpc.UNAUTHENTICATED, 403: Grpc.PERMISSION_DENIED, 404: Grpc.UNIMPLEMENTED}


class BadData(Exception):
    """The request was refused for its events; `is_whole`: none of them may be sent again."""

    def __init__(self, reason: str, *, is_whole: bool = False) -> None:
        super().__init__(reason)
        self.is_whole = is_whole


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer over gRPC."""

    code: int
    message: str = ""
    details: bytes = b""
    """A `google.rpc.Status`."""
    body: bytes = b""


def reply_without_status(http_status: int) -> Reply | None:
    """Returns the meaning of an answer without `grpc-status`, as a proxy gives it; None for an invalid answer."""
    if http_status == 200:
        return None
    otherwise = Grpc.UNAVAILABLE if http_status in (408, 425, 429) or http_status >= 500 else Grpc.UNKNOWN
    return Reply(_OF_HTTP.get(http_status, otherwise))


def check_grpc(reply: Reply, host: str) -> None:
    """Raises Later, Held, TooLarge or BadData unless the export was accepted, perhaps except for some records."""
    if reply.code == Grpc.OK:
        return
    name = Grpc(reply.code).name if reply.code in Grpc._value2member_map_ else "an unknown code"
    reason = _with_known(f"{reply.code} {name} from {host}", reply.message)
    wait = status.retry_delay(reply.details)
    if reply.code == Grpc.RESOURCE_EXHAUSTED:
        if _TOO_LARGE.search(reply.message):
            raise TooLarge(reason)
        if wait is not None:
            raise Later(reason, wait, code=Code.OVERLOADED)
    if reply.code in _LATER:
        raise Later(reason, wait, code=Code.UNAVAILABLE)
    if reply.code in (Grpc.INVALID_ARGUMENT, Grpc.INTERNAL):
        raise BadData(reason, is_whole=reply.code == Grpc.INTERNAL)
    codes = {Grpc.UNAUTHENTICATED: Code.UNAUTHORIZED, Grpc.PERMISSION_DENIED: Code.FORBIDDEN}
    raise Held(reason, code=codes.get(Grpc(reply.code), Code.REFUSED) if name.isupper() else Code.REFUSED)


def check_http(response: Response, host: str) -> None:
    """Raises as `check_grpc` does, for an answer over HTTP."""
    found = response.status
    if 200 <= found < 300:
        return
    kind = response.headers.get("Content-Type", "")
    phrase = HTTPStatus(found).phrase if found in HTTPStatus._value2member_map_ else ""
    reason = " ".join(filter(None, (str(found), phrase, "from", host)))
    reason = _with_known(reason, status.message_of(response.body, kind))
    if found == 413:
        raise TooLarge(reason)
    if found in (400, 500) and status.is_status(response.body, kind):
        raise BadData(reason, is_whole=found == 500)
    if found in (408, 425, 429) or found >= 500 or found < 200:
        wait = retry_after(response.headers, datetime.now(UTC))
        raise Later(reason, wait, code=Code.OVERLOADED if found == 429 else Code.UNAVAILABLE)
    codes: Mapping[int, Code] = {401: Code.UNAUTHORIZED, 403: Code.FORBIDDEN}
    raise Held(reason, code=codes.get(found, Code.REFUSED))


def rejected_over_http(response: Response) -> int:
    """Returns the number of rejected records in an answer of 2xx; raises Unfit for one that no receiver of OTLP gives.

    A body is read as what it is, whatever was asked for. No body, and a text that is neither JSON nor protobuf (`ok`),
    say nothing of rejected records, and are a success, as the exporters of OpenTelemetry take them. A page of HTML is
    what a proxy writes in the receiver's place, and no answer.
    """
    from shipper_plugins.otlp import jsons, protobuf

    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    text = response.body.lstrip()
    if not text:
        return 0
    if kind in ("text/html", "application/xhtml+xml") or text.startswith(b"<"):
        raise Unfit("the answer is a page, as of a proxy")
    if kind == jsons.CONTENT_TYPE or text.startswith(b"{"):  # protobuf cannot begin so: it would be a group
        return jsons.rejected(text)
    if kind in ("", protobuf.CONTENT_TYPE, "application/protobuf"):
        return protobuf.rejected(response.body)
    return 0


def partial(rejected: int, count: int, host: str) -> Answer:
    """Returns the answer for each event of a request with rejected ones; raises Later for more than it had."""
    if rejected > count:
        raise Later(f"{host}: more events are rejected than were sent", code=Code.BAD_ANSWER)
    if rejected == count:
        return Answer(Outcome.REJECTED, f"rejected by {host}")
    reason = f"{rejected} of the {count} events of a request were rejected by {host}, which does not name them"
    return Answer(Outcome.REJECTED, reason)


def _with_known(reason: str, message: str) -> str:
    known = _KNOWN.match(message)
    return f"{reason}: {known[0]}" if known and known[0] else reason
