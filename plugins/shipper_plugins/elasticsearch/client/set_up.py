"""Compares the templates of a backend with those that a policy needs, and writes them on request: `set_up` of the
`elasticsearch` output. `templates` has them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shipper.plugin import Code
from shipper.plugin.asking import Prepared, Question, State, TellPrepared
from shipper.sdk.http_answer import NoAnswer
from shipper_plugins.elasticsearch.client.asked import NEITHER, Node, Refused, is_node
from shipper_plugins.elasticsearch.client.templates import Template, stock, templates

if TYPE_CHECKING:
    from shipper.sdk.http import Client
    from shipper_plugins.elasticsearch.client.pinned_authority import Authority
    from shipper_plugins.elasticsearch.output import ElasticsearchOutput

_NEEDS = "the credential needs the privilege manage_index_templates; give another one by --secret"


async def set_up(
    output: ElasticsearchOutput,
    client: Client,
    question: Question,
    tell: TellPrepared,
    authority: Authority | None = None,
    *,
    write: bool,
) -> None:
    """See `Output.set_up`. Raises Later if no host answers, after it has told what there should be."""
    if not templates(question.targets):
        return
    node, error = await _reached(output, client, authority)
    there = [] if error is not None else await _there(node, stock(question.targets))
    for template in templates(question.targets, there):
        tell(await _prepared(node, template, write=write) if error is None else _told(template, "unknown", error))
    if error is not None:
        raise error


async def _reached(
    output: ElasticsearchOutput, client: Client, authority: Authority | None
) -> tuple[Node, NoAnswer | None]:
    """Returns the first host that answers as a node does; the last one, and why it does not, if none does."""
    error: NoAnswer | None = None
    for host in output.urls:
        node = Node(client, host, authority)
        try:
            if is_node(await node.request("GET", "/")):
                return node, None
            error = NoAnswer(f"{node.where}: {NEITHER}", "broken", Code.BAD_ANSWER)
        except NoAnswer as why:
            error = why
    return node, error


async def _there(node: Node, names: Sequence[str]) -> list[str]:
    """Returns the component templates that there are, of these; none where it may not be known."""
    found: list[str] = []
    with suppress(Refused, NoAnswer):
        for name in names:
            if await _found(node, Template("component template", name, {})) is not None:
                found.append(name)
    return found


async def _prepared(node: Node, template: Template, *, write: bool) -> Prepared:
    try:
        state = template.state(await _found(node, template))
        if state in ("same", "foreign") or not write:
            return _told(template, state)
        await node.ask("PUT", template.path, template.content)
    except (Refused, NoAnswer) as error:
        return _told(template, "unknown", error)
    return Prepared(template.kind, template.name, template.content, "same", has_written=True)


def _told(template: Template, state: State, error: Refused | NoAnswer | None = None) -> Prepared:
    text, code = ("", str(Code.OK)) if error is None else (str(error), error.code)
    if code == Code.FORBIDDEN:
        text = f"{text}; {_NEEDS}"
    if state == "foreign":
        text = "it is of somebody else, and stays as it is"
    return Prepared(template.kind, template.name, template.content, state, text=text, code=code)


async def _found(node: Node, template: Template) -> Any:
    """Returns what the backend has under the name of a template; None if it has nothing. Raises Refused, NoAnswer."""
    try:
        said, _ = await node.ask("GET", template.path)
        (one,) = said[template.kind.replace(" ", "_") + "s"]
        return one[template.kind.replace(" ", "_")]
    except Refused as error:
        if error.status == 404:
            return None
        raise
    except (KeyError, TypeError, ValueError):
        raise Refused("the answer is not that of Elasticsearch or OpenSearch", Code.BAD_ANSWER) from None
