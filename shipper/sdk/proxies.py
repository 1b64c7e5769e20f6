"""PUBLIC: which proxy an output goes through: the one of its options, or of the environment. No I/O.

    proxy: ProxyUrl | None = None
    proxy_credential: Annotated[CredentialId, takes(BASIC)] | None = None

    def __post_init__(self) -> None:
        check_options(self.proxy, self.proxy_credential)

    choose = chosen(self.proxy, credential_of_the_proxy, [self.url], name=context.name)
    open_client(…, proxy=choose)                    # over HTTP
    open_stream(endpoint, …, proxy=choose(self.url))    # any other protocol, in a tunnel

| variable | meaning |
|---|---|
| `HTTPS_PROXY`, `https_proxy` | the proxy of hosts with https://, such as http://proxy:3128 |
| `HTTP_PROXY`, `http_proxy` | the proxy of hosts with http:// |
| `NO_PROXY`, `no_proxy` | hosts without a proxy, separated by commas; `*`: all |

Such a host is a name, with all names below it (`.name`: only those below), an address or a network. A port may follow.
The first variable of a line that is not empty counts. Hosts of loopback never have a proxy. For an https:// host a
proxy makes a tunnel (CONNECT), so it sees the host's name and nothing of a request. For an http:// host it sees all of
the request, with its credential, as everybody else on the way does.

A proxy is asked by http:// only. With https:// aiohttp would check it by the TLS settings of the host, and show it the
client certificate that is meant for the host.
"""

from __future__ import annotations

import base64
import ipaddress
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

import msgspec

from shipper.sdk.credentials import Credential
from shipper.sdk.endpoints import Endpoint
from shipper.sdk.errors import BadOption
from shipper.sdk.hosts import is_loopback
from shipper.sdk.http_answer import USER_AGENT, address

_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "https": ("HTTPS_PROXY", "https_proxy"),
    "http": ("HTTP_PROXY", "http_proxy"),
}
_WITHOUT: Final = ("NO_PROXY", "no_proxy")
_PORTS: Final[Mapping[str, int]] = {"https": 443, "http": 80}
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r?\n")
_log = logging.getLogger(__name__)

ProxyUrl = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[\x21-\x7e]+(?!\n)$", max_length=2048, description="a URL such as http://proxy:3128, or none"
    ),
]
"""The type of the option `proxy`."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and what it is shown of us."""

    url: str
    """`http://name:port`, without a user."""
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """Its `name:port`."""
        return address(self.url)

    @property
    def endpoint(self) -> Endpoint:
        """Where it is."""
        url = urlsplit(self.url)
        return Endpoint("tcp", url.hostname or "", url.port or 80)

    def opening(self, host: str) -> bytes:
        """Returns the request for a tunnel to the `name:port` of a host."""
        lines = [f"CONNECT {host} HTTP/1.1", f"Host: {host}", f"User-Agent: {USER_AGENT}"]
        lines += [f"Proxy-Authorization: {self.authorization}"] if self.user else []
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()

    @property
    def authorization(self) -> str:
        """The value of a `Proxy-Authorization` header."""
        return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """Returns the proxy of a URL, which may have a user; raises ValueError, which quotes nothing."""
        try:
            url = urlsplit(text if "://" in text else f"http://{text}")
        except ValueError:  # which may quote a password
            raise ValueError("a proxy is the URL of a host, such as http://proxy:3128") from None
        try:
            port = url.port
        except ValueError:
            port = 0
        if url.scheme != "http":
            raise ValueError(
                "a proxy is asked by http://, not by https:// or socks: write http://proxy:3128; "
                "what goes to a host with https:// is encrypted all the same"
            )
        if not url.hostname or port == 0 or url.path not in ("", "/") or url.query or url.fragment:
            raise ValueError("a proxy is the URL of a host, such as http://proxy:3128")
        if not url.hostname.isascii() or not url.hostname.isprintable() or " " in url.hostname:
            raise ValueError("a proxy is the URL of a host, such as http://proxy:3128")
        name = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        return cls(f"http://{name}:{port or 80}", unquote(url.username or ""), unquote(url.password or ""))


Choice = Callable[[str], Proxy | None]
"""Returns the proxy of a host's URL, or None."""


def status_of(head: bytes) -> int | None:
    """Returns the status of the head of a proxy's answer; None if it is not HTTP."""
    found = _STATUS.match(head)
    return None if found is None else int(found[1])


def no_proxy(host: str) -> Proxy | None:
    """The choice of those that ask every host directly."""
    return None


def always(proxy: Proxy) -> Choice:
    """Returns the choice of this proxy for all hosts but those of loopback."""
    return lambda host: None if is_loopback(urlsplit(host).hostname or "") else proxy


def check_options(proxy: str | None, credential: str | None) -> None:
    """Checks the options `proxy` and `proxy_credential` of an output; raises BadOption."""
    if credential is not None and proxy in (None, "none"):
        raise BadOption("proxy_credential needs a proxy", "proxy_credential")
    if proxy is None or proxy == "none":
        return
    try:
        parsed = Proxy.parse(proxy)
    except ValueError as error:
        raise BadOption(str(error), "proxy") from None
    if parsed.user:
        raise BadOption("a proxy's URL holds no credentials; name one by `proxy_credential`", "proxy")


def chosen(proxy: str | None, credential: Credential | None, hosts: Iterable[str], *, name: str) -> Choice:
    """Returns the choice of the checked options of the output `name`, else that of the environment, which is logged.

    `hosts` are the URLs of the output. Raises ValueError for a wrong variable, without quoting it.
    """
    if proxy == "none":
        return no_proxy
    if proxy is not None:
        secret = {} if credential is None else credential.fields
        return always(Proxy(Proxy.parse(proxy).url, secret.get("username", ""), secret.get("password", "")))
    found = of_environment(hosts, os.environ)
    for host, one in found.items():
        _log.info("output %s: %s is asked by the environment's proxy %s", name, address(host), one.address)
    return found.get


def of_environment(hosts: Iterable[str], environment: Mapping[str, str]) -> dict[str, Proxy]:
    """Returns the proxies of those URLs that have one; raises ValueError, which names the variable and quotes
    nothing."""
    without = _first(_WITHOUT, environment)[1]
    found = {}
    for host in hosts:
        url = urlsplit(host)
        name, text = _first(_VARIABLES[url.scheme], environment)
        if not text or is_loopback(url.hostname or "") or _is_without(url.hostname or "", _port(host), without):
            continue
        try:
            found[host] = Proxy.parse(text)
        except ValueError as error:
            raise ValueError(f"the variable {name}: {error}; `proxy: none` ignores it") from None
    return found


def _first(names: Iterable[str], environment: Mapping[str, str]) -> tuple[str, str]:
    for name in names:
        if text := environment.get(name, "").strip():
            return name, text
    return "", ""


def _port(host: str) -> int:
    url = urlsplit(host)
    return url.port or _PORTS[url.scheme]


def _is_without(name: str, port: int, without: str) -> bool:
    return any(_matches(entry.strip().lower(), name.lower().rstrip("."), port) for entry in without.split(","))


def _matches(entry: str, name: str, port: int) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    network = _network(entry)
    if network is None and (parts := entry.rpartition(":"))[1] and parts[2].isdigit():
        if parts[2] != str(port):
            return False
        entry = parts[0].strip("[]")
        network = _network(entry)
    if network is not None:
        try:
            return ipaddress.ip_address(name) in network
        except ValueError:
            return False
    domain = entry.removeprefix("*")
    return name.endswith(domain) if domain.startswith(".") else name == domain or name.endswith(f".{domain}")


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return None
