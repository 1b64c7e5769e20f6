"""A view as lines for a terminal of some width. Pure.

What the shipper says is text of others: it has no markup here, and cannot control the terminal. Rows stand in columns;
what does not fit beside them, above all a message, is below its row, wrapped. A command is one line (`no_wrap`) of any
length, so that it can be copied: the terminal wraps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from shipper.commands.top import fleets
from shipper.commands.top.rows import Row, indented, laid_out, right, table, text, title, wrapped
from shipper.process.log import printable
from shipper.sdk.units import size_in_words
from shipper.status.drains import Revision, Wait
from shipper.status.fleet import Fleet
from shipper.status.remedies import Remedy
from shipper.status.view import (
    MOST_LETTERS,
    Count,
    Credential,
    Edge,
    Input,
    Letters,
    Output,
    Principal,
    Queue,
    Tone,
    View,
)
from shipper.status.words import counted, rate, span

STYLES: dict[Tone, str] = {"good": "green", "busy": "cyan", "warn": "yellow", "bad": "bold red", "idle": "dim"}
LEAST_WIDTH = 20
_BAR = 20
_STEPS = ("received", "active", "drained")
_MOST_EDGES = 20


def lines(view: View, width: int, fleet: Fleet | None = None) -> list[Text]:
    """Returns all lines, none but commands wider than `width` columns, or LEAST_WIDTH."""
    width = max(width, LEAST_WIDTH)
    sections = [
        _troubles(view),
        _queue(view.queue, width),
        table("inputs", ("", "state", "events/s", "taken", "behind"), [_input(one) for one in view.inputs], width),
        table("outputs", _OF_OUTPUTS, [_output(one, width) for one in view.outputs], width),
        _more_units(view),
        table("revisions", (), [_revision(one) for one in view.revisions], width),
        _drains(view.waits, width),
        _letters(view.letters, width),
        table("credentials", (), [_credential(one) for one in view.credentials], width),
        table("relays to", (), [_principal(one) for one in view.principals], width),
        _edges(view, width),
        fleets.lines(fleet, width) if fleet is not None else [],
        table("other", (), [Row((text(name), text(words))) for name, words in view.facts], width),
    ]
    found = [*_headline(view), *(line for section in sections if section for line in (Text(), *section))]
    return [piece for line in found for piece in wrapped(line, width)]


def _headline(view: View) -> Iterator[Text]:
    line = Text.assemble(("shipper ", "bold"), text(view.state, f"reverse {STYLES[view.tone]}"))
    if view.message:
        line.append(" ").append(text(view.message, STYLES[view.tone]))
    yield line


def _troubles(view: View) -> list[Text]:
    said = [text(": ".join(dict.fromkeys(filter(None, pair))), STYLES["warn"]) for pair in view.troubles]
    return [title("troubles"), *(indented(one) for one in said)] if said else []


def _queue(queue: Queue | None, width: int) -> list[Text]:
    if queue is None:
        return []
    full = Text()
    if queue.share is not None:
        full = _bar(queue.share).append(f" {queue.share:.0%} of {size_in_words(queue.limit_bytes)}")
    waits = [f"{counted(queue.events, 'event')}, {size_in_words(queue.bytes)}"]
    if queue.events:
        waits.append(f"oldest {span(queue.oldest_seconds)}")
    if queue.change:
        waits.append(f"{'grows' if queue.change > 0 else 'shrinks'} by {rate(abs(queue.change))}")
    if queue.seconds_to_full is not None:
        waits.append(f"full in {span(queue.seconds_to_full)}")
    disk = text(f"{size_in_words(queue.disk_bytes)} on disk", "dim")
    return laid_out([Row((title("queue"), full, text(", ".join(waits)), disk))], width, hanging=True)


def _bar(share: float) -> Text:
    full = round(share * _BAR)
    style = STYLES["bad" if share >= 0.95 else "warn" if share >= 0.7 else "good"]
    return Text.assemble(("█" * full, style), ("░" * (_BAR - full), "dim"))


def _input(one: Input) -> Row:
    behind = [] if one.behind_bytes is None else [size_in_words(one.behind_bytes)]
    if one.seconds_behind:
        behind.append(f"({span(one.seconds_behind)})")
    cells = (
        _name(one.name, one.type),
        text(one.state, STYLES[one.tone]),
        right(_per_second(one.events)),
        right(_total(one.events)),
        text(" ".join(behind)),
    )
    return Row(cells, _notes(_message(one.message, one.tone), text(", ".join(_about(one)), "dim")))


def _about(one: Input) -> Iterator[str]:
    if one.files is not None:
        yield counted(one.files, "file")
    if one.connections is not None:
        yield counted(one.connections, "connection")
    for number, what in (
        (one.filtered, "filtered"),
        (one.failures, "that a processor could not handle"),
        (one.turned_away, "connections turned away"),
        (one.lost_datagrams, "datagrams lost"),
        (one.lost_files, "files gone before their end was read"),
    ):
        if number:
            yield f"{number:,} {what}"


_OF_OUTPUTS = ("", "state", "events/s", "delivered", "a request", "next try")


def _output(one: Output, width: int) -> Row:
    waits = one.next_attempt_seconds
    tried = "held" if one.held else "" if waits is None else f"in {span(waits)}"
    seconds = one.request_seconds
    cells = (
        _name(one.name, one.type),
        text(one.state, STYLES[one.tone]),
        right(_per_second(one.delivered)),
        right(_total(one.delivered)),
        right("" if seconds is None else f"{seconds * 1000:,.0f} ms" if seconds < 1 else span(seconds)),
        text(tried, STYLES["warn"]),
    )
    lasted = f", for {span(one.ill_seconds)}" if one.message and one.ill_seconds is not None else ""
    notes = [*_notes(_message(one.message + lasted, one.tone), text(one.ends), _answers(one)), *_commands(one.refusal)]
    return Row(cells, [*notes, *_failing(one)])


def _answers(one: Output) -> Text:
    """Returns answers by status, and what became of events otherwise."""
    line = Text()
    for count in one.responses:
        style = "green" if count.name.startswith("2") else "yellow"
        _comma(line).append(text(count.name, style)).append(f" {count.total:,}{_rising(count)}")
    for count in one.failures:
        _comma(line).append(text(count.name, "yellow")).append(f" {count.total:,}{_rising(count)}")
    for count in one.outcomes:
        if count.name != "delivered":
            what = {"dead_letter": "dead letters", "duplicate": "duplicates"}.get(count.name, count.name)
            _comma(line).append(f"{what} {count.total:,}{_rising(count)}")
    if one.retries is not None and one.retries.total:
        _comma(line).append(f"retries {one.retries.total:,}{_rising(one.retries)}")
    return line


def _failing(one: Output) -> Iterator[Text]:
    if one.batch is not None:
        yield text(f"batch {one.batch} fails again and again, for {span(one.batch_seconds)}", STYLES["warn"])
        yield from _commands(one.remedies)


def _more_units(view: View) -> list[Text]:
    return [indented(Text(f"{view.units_left_out:,} more inputs and outputs", "dim"))] if view.units_left_out else []


def _revision(one: Revision) -> Row:
    """Draws `● received ━━━ ● active ╍╍╍ ○ drained`."""
    at = _STEPS.index(one.step) if one.step in _STEPS else -1
    line = Text()
    for number, step in enumerate(_STEPS):
        if number:
            line.append(" ━━━━━ " if number <= at else " ╍╍╍╍╍ ", _step_style(number, at, one))
        line.append("● " if number <= at else "○ ").append(step, _step_style(number, at, one))
    words = [] if one.is_active or one.step != "sent" else ["sent to the shipper"]
    if one.is_active:
        words.append("runs")
    if one.waits_for:
        words.append(f"waits for {counted(one.waits_for, 'event')}")
    return Row((text(one.name, "bold"), line, text("; ".join(words), "bold" if one.is_active else "")))


def _step_style(number: int, at: int, one: Revision) -> str:
    if number <= at:
        return "green"
    is_next = number == at + 1 and (one.is_active or one.step in ("sent", "received"))
    return ("bold yellow" if one.is_held else "yellow") if is_next else "dim"


def _drains(waits: Sequence[Wait], width: int) -> list[Text]:
    rows = [_drain(wait) for wait in waits]
    return table("draining", ("", "output", "events", "oldest", "ends"), rows, width)


def _drain(wait: Wait) -> Row:
    left = wait.seconds_left
    ends = "held" if wait.held else f"in {span(left)}" if left is not None else "–"
    cells = (
        text(f"revision {wait.revision}"),
        text(wait.output),
        right(f"{wait.events:,}"),
        right(span(wait.oldest_seconds)),
        text(ends, STYLES["warn"] if wait.held else ""),
    )
    needs = text(f"needs {', '.join(wait.credentials)}" if wait.credentials else "", "dim")
    reason = text(wait.reason, STYLES["warn"] if wait.held else "")
    return Row(cells, [*_notes(reason, text(wait.ends), needs), *_commands(wait.remedies)])


def _letters(letters: Letters, width: int) -> list[Text]:
    if not letters.events:
        return []
    head = title("dead letters")
    head.append(f"  {counted(letters.events, 'event')}, {size_in_words(letters.bytes)}", "not bold")
    head.append(f", oldest {span(letters.oldest_seconds)}", "not bold")
    if letters.events > MOST_LETTERS:
        head.append("; reasons of the newest 1,000", "not bold")
    rows = [
        Row((text(one.output), right(f"{one.events:,}"), text(f"{span(one.newest_seconds)} ago"), text(one.reason)))
        for one in letters.reasons
    ]
    return [head, *laid_out(rows, width), *(indented(line) for line in _commands(letters.remedies))]


def _credential(one: Credential) -> Row:
    use = "may go" if one.may_go else one.use
    needed = f"by {', '.join(one.needed_by)}" if one.needed_by else ", ".join(one.units)
    return Row((text(one.id), text(one.name), text(use, STYLES[one.tone]), text(needed)))


def _principal(one: Principal) -> Row:
    parts = [counted(one.unconfirmed_events, "event")] if one.unconfirmed_events else []
    parts += [counted(one.unconfirmed_keys, "key")] if one.unconfirmed_keys else []
    waits = f"{' and '.join(parts) or 'nothing'} unconfirmed"
    if one.oldest_seconds:
        waits += f", oldest {span(one.oldest_seconds)}"
    cells = (text(one.output), text(one.host), _connected(one.connected_seconds, one.tone), text(waits))
    return Row(cells, _notes(_message(one.reason, one.tone)))


def _edges(view: View, width: int) -> list[Text]:
    rows = [_edge(one) for one in view.edges[:_MOST_EDGES]]
    found = table("edges", (), rows, width)
    if more := len(view.edges) - len(rows) + view.edges_left_out:
        found.append(indented(Text(f"{more:,} more edges", "dim")))
    return found


def _edge(one: Edge) -> Row:
    heard = "not heard of" if one.heard_seconds is None else f"heard {span(one.heard_seconds)} ago"
    parts = [counted(one.waiting_events, "event")] if one.waiting_events else []
    parts += [counted(one.versions_behind, "version")] if one.versions_behind else []
    waits = f"{' and '.join(parts)} wait there" if parts else ""
    return Row(
        (
            text(f"{one.input} ← {one.name}"),
            _connected(one.connected_seconds, one.tone),
            text(heard, "dim"),
            text(f"{counted(one.keys, 'key')}, {size_in_words(one.bytes)}" if one.keys else "", "dim"),
            text(waits),
        )
    )


def _connected(seconds: float | None, tone: Tone) -> Text:
    return text("not connected" if seconds is None else f"connected for {span(seconds)}", STYLES[tone])


# -- parts of lines ----------------------------------------------------------------------------------------------------


def _name(name: str, type: str) -> Text:
    return text(name, "bold").append(text(f" {type}", "not bold dim"))


def _message(message: str, tone: Tone) -> Text:
    return text(message, STYLES[tone] if tone in ("warn", "bad") else "")


def _notes(*notes: Text) -> list[Text]:
    return [note for note in notes if note]


def _commands(remedies: Iterable[Remedy]) -> Iterator[Text]:
    is_last = False
    for words, command, gives_up in remedies:
        if gives_up and not is_last:
            is_last = True
            yield text("if nothing else ends it:", STYLES["warn"])
        yield text(f"{words}:" if command else words, "dim")
        if command:
            yield Text(f"  {printable(command)}", no_wrap=True)


def _comma(line: Text) -> Text:
    return line.append(", ") if line else line


def _per_second(count: Count | None) -> str:
    return "" if count is None else rate(count.per_second).removesuffix("/s")


def _total(count: Count | None) -> str:
    return "" if count is None else f"{count.total:,}"


def _rising(count: Count) -> str:
    return f" (+{rate(count.per_second)})" if count.per_second else ""
