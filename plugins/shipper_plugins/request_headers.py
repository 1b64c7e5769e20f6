"""Additional headers of requests: those of a policy, and those whose values are secrets. No I/O.

    headers: {X-Tenant: shop}
    secret_headers: {X-Gateway-Key: {file: /etc/shipper/keys/gateway, as: token}}

A value of `headers` is part of the policy: status and `shipper validate` may show it. A secret comes beside the policy
like any credential; so it is sealed, hidden in logs, and released when no lane uses it any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from shipper.plugin import API_KEY, BEARER_TOKEN, TOKEN, BadOption, Credential, CredentialId, takes

HeaderName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*(?!\n)$",
        max_length=128,
        description="the name of a header, such as X-Tenant",
    ),
]
HeaderValue = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?(?!\n)$", max_length=2048, description="a printable text"
    ),
]
SecretHeader = Annotated[CredentialId, takes(TOKEN, BEARER_TOKEN, API_KEY)]

_SECRET = re.compile(r"(?:^|[-_.])(?:auth|cookie|credentials?|key|passw(?:or)?d|secret|token)(?:$|[-_.])", re.I)
_OURS = frozenset({"authorization", "connection", "expect", "host", "keep-alive", "te", "trailer", "upgrade"})
_OUR_PREFIXES = ("accept", "content-", "proxy-", "transfer-")


def check_headers(**options: Iterable[str]) -> None:
    """Raises BadOption for a name that is repeated, in any case of letters, or that the output sets itself.

    `options` are the names of headers by option.
    """
    seen = set[str]()
    for option, names in options.items():
        for name in names:
            known = name.lower()
            if known in ("authorization", "proxy-authorization"):
                raise BadOption("a secret is not written into a policy: name it by `credential`", option, name)
            if known in _OURS or known.startswith(_OUR_PREFIXES):
                raise BadOption("the output sets this header itself: leave it out", option, name)
            if known in seen:
                raise BadOption("this header is named twice", option, name)
            seen.add(known)


def suspicious(names: Iterable[str]) -> list[str]:
    """Returns the names of headers whose values are usually secrets."""
    return [name for name in names if _SECRET.search(name)]


def secret_values(headers: Mapping[str, CredentialId], credentials: Mapping[str, Credential]) -> dict[str, str]:
    """Returns headers with their secret values; raises ValueError for an unusable one, without quoting it."""
    return {name: plain(credentials[id], name) for name, id in headers.items()}


def plain(credential: Credential, name: str) -> str:
    """Returns the text of a secret as the value of the header `name`; raises ValueError, without quoting it."""
    if not credential.fits(API_KEY, BEARER_TOKEN, TOKEN):
        raise ValueError(
            f"the header {name} needs a credential of the shape {{token}}, {{bearer_token}} or {{api_key}}"
        )
    [text] = credential.fields.values()
    if not (text.isascii() and text.isprintable()) or text != text.strip():
        raise ValueError(f"the credential of the header {name} has characters that are not valid in a header")
    return text
