"""What brokers say before events are sent: `ask` of the `kafka` output.

Metadata show the address, TLS, the login and the topics. Whether a topic may be written to shows in a request without
records: a broker checks the privilege, and then refuses the request, so nothing is appended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shipper.plugin import Answer, Asyncio, Code, Held, Later, NotBegun
from shipper.plugin.asking import Finding, Question, Tell, reached

if TYPE_CHECKING:
    from shipper_plugins.kafka.client import Client

_AT_ADDRESS = (Code.UNREACHABLE, Code.NAME_NOT_FOUND, Code.TIMED_OUT, Code.NO_DESCRIPTORS)


async def ask(client: Client, aio: Asyncio, brokers: str, question: Question, tell: Tell, *, is_tls: bool) -> None:
    """See `Output.ask`; `brokers` names the cluster."""
    try:
        _, refused = await aio.call(client.places, question.targets)
    except (Later, Held, NotBegun) as error:
        for finding in _without_metadata(error, brokers, is_tls=is_tls):
            tell(finding)
        return
    for finding in [*reached(brokers, is_tls=is_tls), Finding("login", brokers, "good")]:
        tell(finding)
    for topic in question.targets:
        tell(_refused(topic, refused[topic]) if topic in refused else await _of_topic(client, aio, topic))


def _refused(topic: str, answer: Answer) -> Finding:
    from shipper_plugins.kafka import answers as codes

    if answer.reason.endswith(codes.name(codes.UNKNOWN_TOPIC)):
        return Finding("privilege", topic, "bad", f"{answer.reason}: create the topic", Code.REFUSED)
    return Finding(
        "privilege", topic, "unknown" if answer.code == Code.UNAVAILABLE else "bad", answer.reason, answer.code
    )


def _without_metadata(error: Later | Held | NotBegun, brokers: str, *, is_tls: bool) -> list[Finding]:
    text, code = str(error), error.code
    if code == Code.TLS_FAILED:
        return [Finding("address", brokers, "good"), Finding("tls", brokers, "bad", text, code)]
    if code in _AT_ADDRESS or isinstance(error, NotBegun):
        return [Finding("address", brokers, "bad", text, code)]
    asked = Finding("login" if isinstance(error, Held) else "destination", brokers, "bad", text, code)
    return [*reached(brokers, is_tls=is_tls), asked]


async def _of_topic(client: Client, aio: Asyncio, topic: str) -> Finding:
    from shipper_plugins.kafka import answers as codes

    try:
        code = await aio.call(client.ask_to_write, topic)
    except (Later, Held, NotBegun) as error:
        return Finding("privilege", topic, "unknown", str(error), error.code)
    if code in (codes.NONE, *codes.OF_NOTHING):
        return Finding("privilege", topic, "good", "Write")
    answer = codes.answer(code, topic)
    is_forbidden = answer.code == Code.FORBIDDEN
    text = f"{answer.reason}: the user lacks Write" if is_forbidden else answer.reason
    return Finding("privilege", topic, "bad" if is_forbidden else "unknown", text, answer.code)
