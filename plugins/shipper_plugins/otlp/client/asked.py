"""What a receiver of OTLP says before events are sent: `ask` of the `otlp` output. It gets an export without logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shipper.plugin import Code, Held, Later, TooLarge
from shipper.plugin.asking import Asked, Finding, Tell, in_time, of_no_answer, reached
from shipper.sdk.http_answer import NoAnswer, address
from shipper_plugins.otlp.client.answers import BadData

_OF_LOGIN = (Code.UNAUTHORIZED, Code.FORBIDDEN)


async def ask(endpoint: str, export: Callable[[], Awaitable[int]], tell: Tell) -> None:
    """See `Output.ask`; `export` sends an export without logs, and raises what `Sender.send` may raise, or BadData."""
    where, is_tls = address(endpoint), endpoint.startswith("https://")
    try:
        await in_time(where, export)
    except NoAnswer as error:
        findings = of_no_answer(error, where, is_tls=is_tls)
    except BadData as error:
        findings = [*reached(where, is_tls=is_tls), Finding("destination", where, "unknown", str(error), Code.REJECTED)]
    except (Later, Held, TooLarge) as error:
        asked: Asked = "login" if error.code in _OF_LOGIN else "destination"
        findings = [*reached(where, is_tls=is_tls), Finding(asked, where, "bad", str(error), error.code)]
    else:
        good = [
            Finding("login", where, "good", "it takes an export without logs"),
            Finding("destination", where, "good", "a receiver of OTLP"),
        ]
        findings = [*reached(where, is_tls=is_tls), *good]
    for finding in findings:
        tell(finding)
