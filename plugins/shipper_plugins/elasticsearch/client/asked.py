"""What Elasticsearch and OpenSearch say before events are sent: `ask` of the `elasticsearch` output.

    each host      one request: address, TLS, whether the credential is known
    one host       for each place: what the credential may do there

Elasticsearch tells every user its own privileges. OpenSearch tells nobody: there a document that is no JSON shows it,
since a node checks the privilege before it reads the document. Nothing is stored, but the index may be created, so it
is sent only where the question allows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from shipper.plugin import Code, Later
from shipper.plugin.asking import Finding, Question, Tell, in_time, of_no_answer, reached
from shipper.sdk.http_answer import NoAnswer, Response, address
from shipper_plugins.elasticsearch.client import bulk, keyed

if TYPE_CHECKING:
    from shipper.sdk.http import Client, Method
    from shipper_plugins.elasticsearch.client.pinned_authority import Authority
    from shipper_plugins.elasticsearch.output import ElasticsearchOutput

_PLAIN = {"Content-Type": "application/json", "Content-Encoding": "identity"}
_NAME = re.compile(r"[\w.@ -]{1,128}")
_CREATES = ("auto_configure", "create_index")
"""Either of them lets a bulk request create the place that it names."""
_BROKEN = b'{"shipper":\n'
NEITHER = "what answers is neither Elasticsearch nor OpenSearch: is this the address, and the port, of a node?"
_NO_PAGE = (400, 404, 405, 500)
"""How a node without security answers the question who asks."""
_UNTOLD = "OpenSearch does not tell what a user may do; --try asks by a document that it must refuse"


class _Version(msgspec.Struct):
    number: str
    distribution: str = "elasticsearch"


class _Root(msgspec.Struct):
    version: _Version


class _Reason(msgspec.Struct):
    type: str


class _Error(msgspec.Struct):
    """The answer to what was refused, of either."""

    error: _Reason
    status: int


class _Key(msgspec.Struct):
    name: str = ""


class _Who(msgspec.Struct):
    """The answer about a user, of either."""

    username: str = ""
    user_name: str = ""
    api_key: _Key | None = None


class _Privileges(msgspec.Struct):
    index: dict[str, dict[str, bool]] = {}


class Refused(Exception):
    """A request was refused, or had no answer that can be read; `status` is that of HTTP, or 0."""

    def __init__(self, reason: str, code: str, status: int = 0) -> None:
        super().__init__(reason)
        self.code, self.status = code, status


class Node:
    """One host, and requests for JSON to it."""

    def __init__(self, client: Client, host: str, authority: Authority | None) -> None:
        self.host, self.where = host, address(host)
        self._client, self._authority = client, authority

    async def ask(self, method: Method, path: str, body: Any = None) -> tuple[Any, Response]:
        """Returns the answer's JSON. Raises Refused, and NoAnswer if there is no answer."""
        response = await self.request(method, path, b"" if body is None else msgspec.json.encode(body))
        if response.status >= 300:
            error = bulk.refusal(response.status, response.headers, response.body, self.where)
            raise Refused(str(error), error.code, response.status)
        try:
            text = bulk.inflated(response.body, response.headers.get("Content-Encoding", ""))
            return msgspec.json.decode(text) if text else None, response
        except (Later, msgspec.MsgspecError, ValueError, RecursionError):
            raise Refused("the answer is not that of Elasticsearch or OpenSearch", Code.BAD_ANSWER) from None

    async def request(self, method: Method, path: str, body: bytes = b"") -> Response:
        """Sends a request with a body that is not compressed. Raises NoAnswer."""
        return await in_time(self.where, partial(self._send, method, path, [body] if body else []))

    async def _send(self, method: Method, path: str, pieces: Sequence[bytes]) -> Response:
        if self._authority is not None:
            await self._authority.find(self.host)
        return await self._client.request(method, self.host, path, pieces, headers=_PLAIN)


async def ask(
    output: ElasticsearchOutput, client: Client, question: Question, tell: Tell, authority: Authority | None = None
) -> None:
    """See `Output.ask`."""
    known: tuple[Node, bool] | None = None
    for host in output.urls:
        node = Node(client, host, authority)
        try:
            is_open = await _login(node, output, tell)
        except NoAnswer as error:
            for finding in of_no_answer(error, node.where, is_tls=host.startswith("https://")):
                tell(finding)
        else:
            known = known or (None if is_open is None else (node, is_open))
    if known is None:
        return
    node, is_elasticsearch = known
    try:
        for name in _pipelines(output):
            tell(await _pipeline(node, name))
        await (_privileges if is_elasticsearch else _by_trying)(node, output, question, tell)
    except NoAnswer as error:
        tell(Finding("destination", node.where, "bad", str(error), error.code))


# -- who is there ------------------------------------------------------------------------------------------------------


async def _login(node: Node, output: ElasticsearchOutput, tell: Tell) -> bool | None:
    """Tells what a host is and whether it knows the credential; returns whether it is Elasticsearch, None if there is
    no login, or no node."""
    answered = await node.request("GET", "/")
    for finding in reached(node.where, is_tls=node.host.startswith("https://")):
        tell(finding)
    is_elasticsearch = _is_elasticsearch(answered)
    path = "/_security/_authenticate" if is_elasticsearch else "/_plugins/_security/authinfo"
    try:
        said, _ = await node.ask("GET", path)
    except Refused as error:
        if error.status in (401, 403):
            tell(Finding("login", node.where, "bad", str(error), error.code))
            return None
        if answered.status == 401:
            refused = bulk.refusal(answered.status, answered.headers, answered.body, node.where)
            tell(Finding("login", node.where, "bad", str(refused), refused.code))
            return None
        if not is_node(answered) and (error.code == Code.BAD_ANSWER or error.status in _NO_PAGE):
            tell(Finding("destination", node.where, "bad", NEITHER, Code.BAD_ANSWER))
            return None
        if error.status not in _NO_PAGE:
            tell(Finding("login", node.where, "bad", str(error), error.code))
            return None
        is_used = output.credential is not None
        text = "no login is asked for" + (", so the credential is of no use" if is_used else "")
        tell(Finding("login", node.where, "unknown" if is_used else "good", text))
    else:
        if not is_node(answered) and not _is_user(said):
            tell(Finding("destination", node.where, "bad", NEITHER, Code.BAD_ANSWER))
            return None
        tell(Finding("login", node.where, "good", _who(said)))
    tell(_version(node, answered, is_elasticsearch=is_elasticsearch))
    return is_elasticsearch


def is_node(answered: Response) -> bool:
    """Whether the answer to `GET /` is that of Elasticsearch or OpenSearch, or refuses to say.

    A user may lack the privilege to see the version: then the form of the refusal tells.
    """
    if _is_elasticsearch(answered) or answered.status == 401:
        return True
    try:
        text = bulk.inflated(answered.body, answered.headers.get("Content-Encoding", ""))
        msgspec.json.decode(text, type=_Root if answered.status == 200 else _Error)
    except (Later, msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _is_elasticsearch(answered: Response) -> bool:
    return "elastic" in answered.headers.get("X-Elastic-Product", "").lower()


def _is_user(said: Any) -> bool:
    return isinstance(said, Mapping) and ("username" in said or "user_name" in said)


def _who(said: Any) -> str:
    try:
        who = msgspec.convert(said, _Who)
    except msgspec.ValidationError:
        return ""
    names = [f"user {who.username or who.user_name}"]
    if who.api_key is not None:
        names.insert(0, f"API key {who.api_key.name}")
    return " of ".join(name for name in names if _NAME.fullmatch(name))


def _version(node: Node, answered: Response, *, is_elasticsearch: bool) -> Finding:
    name = "Elasticsearch" if is_elasticsearch else "OpenSearch"
    try:
        if answered.status != 200:
            raise ValueError
        text = bulk.inflated(answered.body, answered.headers.get("Content-Encoding", ""))
        version = msgspec.json.decode(text, type=_Root).version
    except (Later, msgspec.MsgspecError, ValueError, RecursionError):
        return Finding("destination", node.where, "good" if is_elasticsearch else "unknown", f"{name}, of some version")
    number = version.number if re.fullmatch(r"[\w.-]{1,32}", version.number) else ""
    if not is_elasticsearch and version.distribution != "opensearch":
        other = "neither Elasticsearch 8 or 9 nor OpenSearch 2 or 3"
        return Finding("destination", node.where, "unknown", other, Code.BAD_ANSWER)
    is_known = number.split(".")[0] in (("8", "9") if is_elasticsearch else ("2", "3"))
    return Finding("destination", node.where, "good" if is_known else "unknown", f"{name} {number}")


def _pipelines(output: ElasticsearchOutput) -> list[str]:
    """Returns every pipeline that an event may pass, each once."""
    usual = [] if output.pipeline is None else [output.pipeline]
    return [*dict.fromkeys([*usual, *(one.pipeline for one in output.pipelines)])]


async def _pipeline(node: Node, name: str) -> Finding:
    """Returns whether there is a pipeline; most credentials may send through it, and may not look it up."""
    try:
        await node.ask("GET", f"/_ingest/pipeline/{quote(name, safe='')}")
    except Refused as error:
        if error.status == 404:
            return Finding("destination", node.where, "bad", f"there is no pipeline {name}", Code.REFUSED)
        if error.status == 403:
            text = f"pipeline {name}: the credential may not look it up (read_pipeline)"
            return Finding("destination", node.where, "unknown", text)
        return Finding("destination", node.where, "unknown", f"pipeline {name}: {error}", error.code)
    return Finding("destination", node.where, "good", f"pipeline {name}")


# -- what it may do ----------------------------------------------------------------------------------------------------


def _places(output: ElasticsearchOutput, question: Question) -> list[str]:
    """Returns where events go: the places of the question, and those of `indices`, whose conditions no event of the
    question may meet. Keyed state alone meets no condition."""
    cases = [one.index for one in output.indices] if question.targets or not question.has_state else []
    return [*dict.fromkeys([*question.targets, *cases])]


async def _privileges(node: Node, output: ElasticsearchOutput, question: Question, tell: Tell) -> None:
    """Tells what Elasticsearch says about the privileges of the credential."""
    wanted = {name: ["create_doc"] for name in _places(output, question)}
    if question.has_state:
        change = ["index", "read", *(["delete"] if output.deletions == "delete" else [])]
        wanted[output.state_index.replace(keyed.COLLECTION, "*")] = change
    if not wanted:
        return
    asked = [{"names": [name], "privileges": [*needs, *_CREATES]} for name, needs in wanted.items()]
    try:
        said, _ = await node.ask("POST", "/_security/user/_has_privileges", {"index": asked})
        has = msgspec.convert(said, _Privileges).index
    except (Refused, msgspec.ValidationError) as error:
        if isinstance(error, Refused) and error.status in (400, 404, 405, 500):  # there is no security
            return
        for name in wanted:
            tell(Finding("privilege", name, "unknown", "the destination does not tell the privileges"))
        return
    for name, needs in wanted.items():
        tell(await _of_place(node, name, needs, has.get(name, {})))


async def _of_place(node: Node, name: str, needs: Sequence[str], has: Mapping[str, bool]) -> Finding:
    missing = [need for need in needs if not has.get(need)]
    creates = any(has.get(need) for need in _CREATES)
    if missing:
        more = [*missing, *([] if creates or await _exists(node, name) else ["auto_configure"])]
        text = f"missing: {', '.join(more)}; give it to the role or the API key, for the index {name}"
        return Finding("privilege", name, "bad", text, Code.FORBIDDEN)
    if creates or await _exists(node, name):
        return Finding("privilege", name, "good", ", ".join(needs))
    text = "it may write, but not create: give it auto_configure, unless this index or data stream exists"
    return Finding("privilege", name, "unknown", text, Code.FORBIDDEN)


async def _exists(node: Node, name: str) -> bool:
    """Whether there certainly is an index or data stream of this name."""
    response = await node.request("HEAD", f"/{quote(name, safe='*')}")
    return response.status == 200 and "*" not in name


async def _by_trying(node: Node, output: ElasticsearchOutput, question: Question, tell: Tell) -> None:
    """Tells what OpenSearch answers to documents that it cannot read."""
    for name in _places(output, question):
        if not question.may_try:
            tell(Finding("privilege", name, "unknown", _UNTOLD))
        else:
            tell(await _tried(node, name))
    if question.has_state:
        name = output.state_index.replace(keyed.COLLECTION, "*")
        tell(Finding("privilege", name, "unknown", "not asked for keyed state"))


async def _tried(node: Node, name: str) -> Finding:
    action = msgspec.json.encode({"create": {"_index": name}})
    response = await node.request("POST", f"/_bulk?filter_path={bulk.FILTER}", action + b"\n" + _BROKEN)
    if response.status != 200:
        error = bulk.refusal(response.status, response.headers, response.body, node.where)
        return Finding("privilege", name, "bad", str(error), error.code)
    try:
        text = bulk.inflated(response.body, response.headers.get("Content-Encoding", ""))
        (item,) = bulk.items(text, 1)
    except (Later, ValueError):
        return Finding("privilege", name, "unknown", "the answer is not that of a bulk request", Code.BAD_ANSWER)
    if item.status == 400:  # it was read, and is no JSON
        return Finding("privilege", name, "good", "a document may be created")
    judged = bulk.judge(item.status, item.error)
    reason = "it took a document that is no JSON" if judged is None else judged.reason
    code = Code.BAD_ANSWER if judged is None else judged.code
    return Finding("privilege", name, "bad" if item.status in (401, 403) else "unknown", reason, code or Code.REFUSED)
