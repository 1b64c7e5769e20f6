"""The sections of one shipper. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from shipper.sdk.codes import Code
from shipper.sdk.units import size_in_words
from shipper.status.drains import Revision, Wait
from shipper.status.page.markup import MOST, Child, Markup, badge, bar, folded, quiet, row, section, table, tag
from shipper.status.remedies import Remedy
from shipper.status.view import MOST_LETTERS, Count, Credential, Input, Output, View
from shipper.status.words import counted, rate, span

_USES = {
    "released": "may go",
    "waits": "released, waits for another one",
    "left": "not used here any more",
    "needed": "needed by a drain",
    "wanted": "missing: events wait for it",
}
_MOST_REVISIONS, _MOST_WAITS, _MOST_CREDENTIALS = 8, 8, 20
"""That are not behind a fold."""
_CODES = frozenset(map(str, Code))
_STEPS = ("received", "active", "drained")
_TONES_OF_STATUS = {"1": "good", "2": "good", "3": "warn", "4": "warn", "5": "bad"}
_OUTCOMES = {"duplicate": ("duplicate", "duplicates"), "dead_letter": ("dead letter", "dead letters")}


def head(view: View, name: str) -> Markup:
    """Returns the state of the whole."""
    facts = [tag("div", tag("dt", fact), tag("dd", words)) for fact, words in view.facts]
    return tag(
        "header",
        tag("h1", "shipper ", quiet(name), " ", badge(view.state, view.tone)),
        tag("p", view.message, class_="message") if view.message else None,
        tag("dl", facts, class_="facts") if facts else None,
        id="head",
    )


def troubles(view: View) -> Markup:
    """Returns what troubles the supervisor."""
    rows = [tag("li", tag("b", cause), f": {message}" if message else None) for cause, message in view.troubles]
    return section("troubles", "Troubles", tag("ul", rows, class_="warn box") if rows else None)


def tiles(view: View) -> Markup:
    """Returns the figures that are looked at first."""
    taken = [one.events for one in view.inputs if one.events is not None]
    sent = [one.delivered for one in view.outputs if one.delivered is not None]
    drains = sum(wait.events for wait in view.waits)
    found = [
        _tile("taken in", rate(_sum(taken)), f"{sum(one.total for one in taken):,} events") if taken else None,
        _delivered(sent),
        _queue(view),
        _tile("draining", f"{drains:,}", counted(len(view.waits), "drain")) if drains else None,
        _tile("dead letters", f"{view.letters.events:,}", size_in_words(view.letters.bytes)),
    ]
    return tag("section", found, id="tiles")


def _delivered(sent: Sequence[Count]) -> Markup | None:
    """Returns what outputs delivered; an event that goes to two of them is delivered twice, which is said."""
    if not sent:
        return None
    total = f"{sum(one.total for one in sent):,}"
    if len(sent) == 1:
        return _tile("delivered", rate(_sum(sent)), f"{total} events")
    return _tile("deliveries", rate(_sum(sent)), f"{total} to {len(sent)} outputs")


def _tile(title: str, figure: str, *more: Child) -> Markup:
    return tag("div", tag("span", title, class_="quiet"), tag("strong", figure), tag("span", more), class_="tile")


def _sum(counts: Sequence[Count]) -> float | None:
    known = [count.per_second for count in counts if count.per_second is not None]
    return sum(known) if known else None


def _queue(view: View) -> Markup | None:
    if (queue := view.queue) is None:
        return None
    limit = f" of {size_in_words(queue.limit_bytes)}" if queue.limit_bytes else ""
    waits = f"oldest {span(queue.oldest_seconds)}" if queue.events else "empty"
    share = queue.share
    tone = "good" if not share or share < 0.5 else "warn" if share < 0.9 else "bad"
    drawn = bar(share, tone, f"{share:.0%} of the queue's limit") if share is not None else None
    full = f", full in {span(queue.seconds_to_full)}" if queue.seconds_to_full is not None else ""
    words = f"{size_in_words(queue.bytes)}{limit}{full}"
    return _tile("queue", f"{queue.events:,}", words, drawn, f"{waits}; {size_in_words(queue.disk_bytes)} on disk")


def inputs(view: View) -> Markup:
    """Returns the inputs with their rates, and how far behind they are."""
    headings = ("input", "state", "events", "bytes", "total", "behind")
    rows = [found for one in view.inputs for found in _input(one)]
    return section("inputs", "Inputs", table(headings, rows) if rows else None)


def _input(one: Input) -> Iterator[Markup]:
    fast = one.bytes.per_second if one.bytes is not None else None
    yield row(
        [
            ("input", [one.name, " ", quiet(one.type)]),
            ("state", badge(one.state, one.tone)),
            ("events", rate(one.events.per_second) if one.events is not None else None),
            ("bytes", f"{size_in_words(int(fast))}/s" if fast is not None else None),
            ("total", f"{one.events.total:,}" if one.events is not None else None),
            ("behind", behind(one) or None),
        ],
        id=f"input-{one.name}",
    )
    yield from _said(one, 6)


def behind(one: Input) -> str:
    """Returns in words how far an input is behind, and what it lost."""
    parts = []
    if one.files is not None:
        unread = f"{size_in_words(one.behind_bytes)} not read of " if one.behind_bytes else "all read of "
        parts.append(f"{unread}{counted(one.files, 'file')}")
    if one.seconds_behind is not None and one.seconds_behind >= 1:
        parts.append(f"{span(one.seconds_behind)} at this rate")
    if one.connections is not None:
        parts.append(counted(one.connections, "connection"))
    if one.turned_away:
        parts.append(f"{one.turned_away:,} turned away")
    if one.lost_datagrams:
        parts.append(f"{counted(one.lost_datagrams, 'datagram')} lost")
    if one.lost_files:
        parts.append(f"{counted(one.lost_files, 'file')} gone before the end was read")
    if one.filtered:
        parts.append(f"{one.filtered:,} filtered out")
    if one.failures:
        parts.append(f"{one.failures:,} tagged processor_error")
    return ", ".join(parts)


def _said(one: Input | Output, columns: int, *more: Child) -> Iterator[Markup]:
    """Yields a row below another, over its whole width, with what is wrong and its code; none without content."""
    if one.message or any(more):
        words = tag("p", one.message, _passing(one), " ", code(one.code)) if one.message else None
        yield tag("tr", tag("td", words, more, colspan=str(columns)), class_="said")


def code(of: str) -> Markup | None:
    """Returns a code with a link to its meaning; one of a plugin has none."""
    return tag("a", of, href=f"codes#{of}", class_="quiet") if of in _CODES else quiet(of)


def _passing(one: Input | Output) -> str:
    """Returns how long an output has had its problem, and what ends it."""
    if isinstance(one, Input):
        return ""
    lasted = f", for {span(one.ill_seconds)}" if one.ill_seconds is not None else ""
    return f"{lasted}; {one.ends}" if one.ends else lasted


def outputs(view: View) -> Markup:
    """Returns the outputs with the answers of their destinations."""
    headings = ("output", "state", "delivered", "events", "answers", "request", "next attempt")
    rows = [found for one in view.outputs for found in _output(one)]
    more = quiet(f"{counted(view.units_left_out, 'more input or output', 'more inputs and outputs')}: see /status")
    return section("outputs", "Outputs", table(headings, rows) if rows else None, more if view.units_left_out else None)


def _output(one: Output) -> Iterator[Markup]:
    fast = one.delivered.per_second if one.delivered is not None else None
    seconds = one.request_seconds
    yield row(
        [
            ("output", [one.name, " ", quiet(one.type)]),
            ("state", badge(one.state, one.tone)),
            ("delivered", rate(fast) if one.delivered is not None else None),
            ("events", _outcomes(one) or None),
            (
                "answers",
                [_answer(count, _status_tone(count.name)) for count in one.responses]
                + [_answer(count, "bad") for count in one.failures],
            ),
            ("request", None if seconds is None else tag("span", f"{seconds * 1000:,.0f} ms", class_="short")),
            ("next attempt", _next(one) or None),
        ],
        id=f"output-{one.name}",
    )
    title = f"batch {one.batch} has failed for {span(one.batch_seconds)}; if nothing else ends it"
    refusal = commands("the destination refuses the credential", one.refusal) if one.refusal else None
    yield from _said(one, 7, refusal, commands(title, one.remedies, is_open=False) if one.remedies else None)


def _outcomes(one: Output) -> str:
    parts = [counted(count.total, *_OUTCOMES.get(count.name, (count.name, count.name))) for count in one.outcomes]
    if one.retries is not None and one.retries.total:
        parts.append(f"{one.retries.total:,} sent again")
    return ", ".join(parts)


def _answer(count: Count, tone: str) -> Markup:
    fast = [" ", quiet(rate(count.per_second))] if count.per_second else None
    return tag("span", tag("b", count.name), f" × {count.total:,}", fast, class_=f"chip {tone}")


def _status_tone(status: str) -> str:
    return _TONES_OF_STATUS.get(status[:1], "idle")


def _next(one: Output) -> str:
    waits = f"in {span(one.next_attempt_seconds)}" if one.next_attempt_seconds is not None else ""
    return ", ".join(filter(None, ("waits for a person" if one.held else "", waits)))


def revisions(view: View) -> Markup:
    """Returns each revision as a bar received → active → drained, with what it waits for."""
    first = next((one for one in view.revisions if one.waits_for), None)
    rows = [_revision(one, is_explained=one is first) for one in view.revisions]
    found = folded(rows, partial(tag, "ol", class_="revisions"), _MOST_REVISIONS, "revisions") if rows else None
    return section("revisions", "Revisions", found)


def _revision(one: Revision, *, is_explained: bool) -> Markup:
    """`is_explained`: with all that it waits for; what older ones wait for is among that of the newest."""
    steps = [_step(one, at, step) for at, step in enumerate(_STEPS)]
    waiting = "event of its own waits", "events of its own wait"
    own = quiet(counted(one.events, *waiting)) if one.own else None
    runs = badge("runs", "good") if one.is_active else None
    title = tag("div", tag("b", f"revision {one.name}"), " ", runs, " ", own, class_="name")
    waits = _waits(one) if is_explained else None
    return tag("li", title, tag("div", steps, class_="steps"), waits, id=f"revision-{one.name}")


def _waits(one: Revision) -> Markup:
    pending = [tag("li", wait_in_words(wait), *_ending(wait)) for wait in one.waits[:MOST]]
    if one.more_events:
        pending.append(tag("li", f"{counted(one.more_events, 'event')} of revisions that are not listed here"))
    return folded(pending, partial(tag, "ul", class_="waits"), _MOST_WAITS, "drains")


def _step(one: Revision, at: int, step: str) -> Markup:
    reached = _STEPS.index(one.step) if one.step in _STEPS else -1
    if at <= reached:
        done = "drained of older events" if step == "drained" and one.own else step
        return tag("span", done, class_="step good")
    if at == reached + 1 and one.waits_for:
        return tag(
            "span",
            f"{step}: waits for {counted(one.waits_for, 'event')}",
            class_=f"step {'warn' if one.is_held else 'busy'}",
        )
    return tag("span", step, class_="step idle")


def wait_in_words(wait: Wait) -> str:
    """Returns what a drain waits for."""
    needs = f"needs {', '.join(wait.credentials)}" if wait.credentials else ""
    left = f"{span(wait.seconds_left)} at this rate" if wait.seconds_left is not None else ""
    held = "waits for a person" if wait.held else ""
    of = f"{counted(wait.events, 'event')} of revision {wait.revision} on {wait.output}"
    return f"{of}: " + ", ".join(
        filter(None, (wait.reason, wait.ends, f"oldest {span(wait.oldest_seconds)}", needs, held, left))
    )


def _ending(wait: Wait) -> Iterator[Markup]:
    if wait.remedies:
        gives_up = wait.remedies[0].gives_up
        title = "one of these ends it" if len(wait.remedies) > 1 else "this ends it"
        yield commands("if nothing else ends it" if gives_up else title, wait.remedies, is_open=not gives_up)


def commands(title: str, found: Iterable[Remedy], *, is_open: bool = True) -> Markup:
    """Returns commands to copy, each with what it does."""
    rows = [tag("li", tag("span", one.words, class_="quiet"), _copied(one.command), class_="command") for one in found]
    return tag("details", tag("summary", title), tag("ul", rows), open=is_open)


def _copied(command: str) -> Markup | None:
    return tag("code", command, tabindex="0") if command else None


def credentials(view: View) -> Markup:
    """Returns the credentials, and which of them may go."""
    rows = [
        row(
            [
                ("credential", tag("code", one.id)),
                ("name", one.name or None),
                ("use", badge(_use(one), one.tone)),
                ("used by", ", ".join((*one.units, *one.needed_by)) or None),
            ]
        )
        for one in view.credentials
    ]
    headings = ("credential", "name", "use", "used by")
    found = folded(rows, partial(table, headings), _MOST_CREDENTIALS, "credentials") if rows else None
    return section("credentials", "Credentials", found)


def _use(one: Credential) -> str:
    return _USES.get(one.use, one.use)


def letters(view: View) -> Markup:
    """Returns the dead letters with their reasons and the orders for them."""
    found = view.letters
    if not found.events:
        return Markup("")
    rows = [
        row(
            [
                ("output", one.output),
                ("reason", one.reason),
                ("events", f"{one.events:,}"),
                ("newest", f"{span(one.newest_seconds)} ago"),
            ]
        )
        for one in found.reasons
    ]
    return section(
        "letters",
        "Dead letters",
        table(("output", "reason", "events", "newest"), rows) if rows else None,
        commands("orders", found.remedies) if found.remedies else None,
        note=f"{counted(found.events, 'event')}, {size_in_words(found.bytes)}, oldest {span(found.oldest_seconds)}"
        + ("; reasons of the newest 1,000" if found.events > MOST_LETTERS else ""),
    )
