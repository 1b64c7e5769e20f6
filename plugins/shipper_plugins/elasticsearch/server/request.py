"""A bulk request, read while it arrives: batches to store, and one answer for each item. No I/O.

    request = BulkRequest(stream=DataStream())
    request.feed(block)              # for every block of bytes, split anywhere
    batches = request.finish()       # store them, and only then answer:
    body = request.answers.body(took=3)

The body is never in memory as a whole: lines are checked on arrival and moved into batches of about 1 MiB. A whole
request is refused (`RequestRefused`; nothing may be stored) in the cases of Elasticsearch: a malformed action line, a
missing line feed at the end; any other error is the answer of one item. So is a document that would take too much
memory (`line`): it is answered 400, since some clients repeat a 413 for ever. Loading is bounded to a step of 256 KiB,
with the one long line that ends in it.

The destination of a document: `_index` (of the action, otherwise of the URL) of the form type-dataset-namespace becomes
`data_stream.*` in `Batch.shared`, any other name `Batch.route`; without a name it is the input's own stream. A document
with a `data_stream` of its own (nested or dotted) keeps it if no index is named; missing or invalid parts are the
input's. If the index is a data stream, the document's type, dataset and namespace are replaced by those of the name.
Either way the answer names the document's destination. A named index is kept in `Batch.route`, as the client's choice;
if it is no data stream, a document keeps its own one.

Otherwise a document's bytes stay unchanged. `document` checks documents, `action` action lines.

Speed: clients send pairs of similar lines, so these are checked by columns, `_RUN` pairs at a time: 1.7 µs for a
document of 310 bytes, of which loading takes 0.75, and 0.3 more with an `_id` each. Line by line, as all others are
read, one of 255 bytes takes 3.5, and 23 with white space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shipper.plugin import Batch, DataStream, Fields, Size
from shipper_plugins import data_streams
from shipper_plugins.elasticsearch.server.action import (
    NOT_TAKEN,
    Action,
    Group,
    Target,
    ids_at_once,
    parsed,
    refusal_of,
)
from shipper_plugins.elasticsearch.server.answer import ItemAnswers, Refusal, Reply, RequestRefused
from shipper_plugins.elasticsearch.server.document import addressed, checked, chosen, own_streams
from shipper_plugins.elasticsearch.server.line import MOST_UNFOLDED, Line

MOST_ITEMS = 500_000
MOST_PLACES = 1000
ITEM_BYTES = 100
"""The memory of an item's objects, in addition to its bytes and its answer."""

STEP_BYTES = 1 << 18
"""The bytes of a body that are loaded at once, except for longer lines."""

_LONGEST_ACTION = 1 << 16
_BATCH_BYTES = 1 << 20
_CACHED_ACTIONS = 1000
_RUN = 256
"""Pairs of lines that are checked together: fewer cost more calls, the objects of more exceed the CPU's cache."""
_MOST_DISTINCT = 16
"""More distinct action lines probably differ in their `_id`s."""
_TOO_HEAVY = Refusal("document_parsing_exception", f"the document would take more than {Size(MOST_UNFOLDED)} of memory")


class BulkRequest:
    """One request; `index` is that of the URL."""

    def __init__(self, *, stream: DataStream, index: str | None = None, filter_path: str = "") -> None:
        self.answers = ItemAnswers(filter_path)
        self._taken = 0
        self._index = index
        self._targets: dict[str | None, Target] = {None: Target.of_stream(stream)}
        self._own_streams: set[str] = set()
        """The data streams that documents name themselves."""
        self._actions: dict[bytes, Action] = {}
        self._action: tuple[Action, str | None] | None = None
        """The action of the next document."""
        self._rest = Line()
        self._line = self._items = 0
        self._batches: list[Batch] = []

    @property
    def held(self) -> int:
        """The estimated memory of this request in bytes, including the loaded form of its incomplete line."""
        return self._taken + self._items * ITEM_BYTES + self.answers.size + self._rest.weight

    @property
    def is_long(self) -> bool:
        """Whether the incomplete line is long: to read its end may take some tenths of a second."""
        return self._rest.size > STEP_BYTES or self._rest.is_too_heavy

    def feed(self, block: bytes) -> None:
        """Reads a block; raises RequestRefused, after which the request must not be used."""
        for at in range(0, len(block), STEP_BYTES):
            self._step(block[at : at + STEP_BYTES])

    def _step(self, block: bytes) -> None:
        if self.is_long:
            end, newline, block = block.partition(b"\n")
            self._rest.add(end)
            if newline:
                self._end_long_line()
        lines, newline, rest = block.rpartition(b"\n")
        if newline:
            text = self._rest.end() + lines
            self._taken += len(text) + 1
            if b"\r" in text:
                text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
            self._read(text.split(b"\n"))
        self._rest.add(rest)

    def _end_long_line(self) -> None:
        if self._rest.is_too_heavy:
            self._rest.end()
            self._skip()
        else:
            line = self._rest.end()
            self._taken += len(line) + 1
            self._one_by_one([line.removesuffix(b"\r")])

    def finish(self) -> list[Batch]:
        """Returns the batches to store in one transaction; raises RequestRefused if the body is incomplete."""
        if self._rest.size or self._rest.is_too_heavy:
            raise _malformed("The bulk request must be terminated by a newline [\\n]")
        if self._action is not None:
            raise _malformed(f"the action of line [{self._line}] has no document")
        if not self._items:
            raise RequestRefused(400, "parse_exception", "request body is required")
        for target in self._targets.values():
            for group in target.groups.values():
                self._flush(group)
        return self._batches

    def _read(self, lines: list[bytes]) -> None:
        at = 0
        while at < len(lines):
            pairs = min((len(lines) - at) // 2, _RUN) if self._action is None else 0
            run = lines[at : at + (2 * pairs or 1)]
            if not pairs or not self._at_once(run[::2], run[1::2]):
                self._one_by_one(run)
            at += len(run)

    # -- by columns ------------------------------------------------------------------------------------------------

    def _at_once(self, heads: list[bytes], documents: list[bytes]) -> bool:
        """Takes pairs of action lines and documents; returns False, and takes none, if one is not ordinary."""
        try:
            actions, ids = self._known(heads)
        except (ValueError, RequestRefused):
            return False
        if any(action.refusal for action in set(actions)) or self._items + len(heads) > MOST_ITEMS:
            return False
        streams = own_streams(documents)
        if streams is None:
            return False
        if any(streams) and not all(
            own is None or a.target.agrees(own) for a, own in zip(actions, streams, strict=True)
        ):
            return False
        self._line += 2 * len(heads)
        self._items += len(heads)
        self._keep_all(actions, ids, documents, [own is not None for own in streams])
        return True

    def _keep_all(
        self, actions: list[Action], ids: Sequence[str | None], documents: list[bytes], own_stream: list[bool]
    ) -> None:
        if len(set(zip(actions, own_stream, strict=True))) == 1:
            self._put_all(actions[0].target.group(own_stream[0]), documents, ids)
            self.answers.all_created(actions[0].created, ids)
        else:
            for one in zip(actions, ids, documents, own_stream, strict=True):
                self._keep(*one)

    def _known(self, heads: list[bytes]) -> tuple[list[Action], Sequence[str | None]]:
        """Returns the action and the `_id` of each line; raises ValueError or RequestRefused for an invalid line."""
        distinct = dict.fromkeys(heads)
        if len(distinct) > _MOST_DISTINCT and (ids := ids_at_once(heads)):
            return [self._action_of(heads[0])[0]] * len(heads), ids
        known = {head: self._action_of(head) for head in distinct}
        return [known[head][0] for head in heads], [known[head][1] for head in heads]

    def _put_all(self, group: Group, documents: list[bytes], ids: Sequence[str | None]) -> None:
        size = sum(map(len, documents))
        if group.size + size > _BATCH_BYTES:
            for document, id in zip(documents, ids, strict=True):
                self._put(group, document, id)
        else:
            group.documents += documents
            group.ids += ids
            group.size += size

    # -- line by line ----------------------------------------------------------------------------------------------

    def _one_by_one(self, lines: list[bytes]) -> None:
        action = self._action
        for line in lines:
            self._line += 1
            if action is not None:
                self._take(*action, line)
                action = None
            elif line and not line.isspace():
                action = self._begin(line)
        self._action = action

    def _skip(self) -> None:
        """Refuses the item of a discarded line."""
        self._line += 1
        if self._action is None:
            raise self._overlong()
        (action, id), self._action = self._action, None
        self.answers.refused(action.op, action.target.name, action.refusal or _TOO_HEAVY, id)

    def _overlong(self) -> RequestRefused:
        return _malformed(f"the action of line [{self._line}] is longer than {Size(_LONGEST_ACTION)}")

    def _begin(self, line: bytes) -> tuple[Action, str | None] | None:
        """Returns the action and the `_id` of a line, or None if no document follows."""
        self._items += 1
        if self._items > MOST_ITEMS:
            raise _too_large(f"a request has at most {MOST_ITEMS} items")
        if len(line) > _LONGEST_ACTION:
            raise self._overlong()
        try:
            action, id = self._action_of(line)
        except ValueError:
            expected = "expected one of [create, delete, index, update] with an object"
            raise _malformed(f"Malformed action/metadata line [{self._line}], {expected}") from None
        if action.op != "delete":
            return action, id
        self.answers.refused(action.op, action.target.name, NOT_TAKEN, id)
        return None

    def _action_of(self, line: bytes) -> tuple[Action, str | None]:
        """Returns the action and the `_id` of a line; raises ValueError for an invalid one."""
        if known := self._actions.get(line):
            return known, None
        if len(line) > _LONGEST_ACTION:
            raise ValueError("too long for an action")
        op, meta = parsed(line)
        target = self._target(self._index if meta.index is None else meta.index)
        id = meta.id_text()
        action = Action(op, target, refusal_of(op, meta, target, id), self.answers.reply(op, target.name))
        if id is None and len(self._actions) < _CACHED_ACTIONS:
            self._actions[line] = action
        return action, id

    def _target(self, name: str | None) -> Target:
        if name is not None and name not in self._targets:
            if len(self._targets) > MOST_PLACES:
                raise _too_large(f"a request names at most {MOST_PLACES} indices")
            self._targets[name] = Target.of_name(name)
        return self._targets[name]

    def _take(self, action: Action, id: str | None, line: bytes) -> None:
        refusal = action.refusal
        if refusal is None:
            try:
                document, own = checked(line)
            except ValueError as error:
                refusal = Refusal("document_parsing_exception", str(error))
            else:
                if own is not None and not action.target.agrees(own):
                    action, document = self._settled(action, document, own)
                self._keep(action, id, document, own is not None)
                return
        self.answers.refused(action.op, action.target.name, refusal, id)

    def _settled(self, action: Action, document: bytes, own: Fields) -> tuple[Action, bytes]:
        """Returns the action and the document of one whose own data stream is not that of the target."""
        stream = action.target.stream
        assert stream is not None
        if not action.target.named:
            stream = chosen(own, stream)
            action = replace(action, created=self._created(action.op, data_streams.name(stream)))
        return action, document if own == {"data_stream": stream} else addressed(document, own, stream)

    def _created(self, op: str, name: str) -> Reply:
        self._own_streams.add(name)
        if len(self._own_streams) > MOST_PLACES:
            raise _too_large(f"the documents of a request name at most {MOST_PLACES} data streams")
        return self.answers.reply(op, name)

    # -- into batches ----------------------------------------------------------------------------------------------

    def _keep(self, action: Action, id: str | None, document: bytes, own_stream: bool) -> None:
        self._put(action.target.group(own_stream), document, id)
        self.answers.created(action.created, id)

    def _put(self, group: Group, document: bytes, id: str | None) -> None:
        if group.size + len(document) > _BATCH_BYTES and group.size:
            self._flush(group)
        group.documents.append(document)
        group.ids.append(id)
        group.size += len(document)

    def _flush(self, group: Group) -> None:
        if group.documents:
            batch = Batch.documents(group.documents, shared=group.shared, ids=group.ids, route=group.route)
            self._batches.append(batch)
            group.documents, group.ids, group.size = [], [], 0


def _malformed(reason: str) -> RequestRefused:
    return RequestRefused(400, "illegal_argument_exception", reason)


def _too_large(reason: str) -> RequestRefused:
    return RequestRefused(413, "content_too_long_exception", reason)
