"""A story as a message-sequence chart.

Each step is one small SVG, and the steps are stacked, so that text and log lines can stand next to
each arrow.

Why a slice for each step and not one picture: the reader's question is "what is this arrow?". The
answer, its row and its log lines, must stand next to it and may grow when it is opened. Horizontal
positions are percentages, so a slice fits a phone and a wide screen; the lanes go through the whole
height of a slice. Lines of brokers have the colour, the width and the dashes of their role. They
change in the middle of the step that saw the role change.

A transaction has a lane at the right: a bar from its begin to the answer to its commit or
roll-back, tied to the operations in it. A subscription has a lane, too: a bar while it exists. What
is sent to its topic fans out from the broker to it. Both bars are dashed while their state cannot
be known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from harness.report import palette
from harness.report.narrative.cluster_state import SILENT
from harness.report.narrative.story import Mark, Participant, Step, Story
from harness.report.palette import AMBER, FAINT, LINE, PAPER, RED, SUBSCRIPTION, TEXT, TRANSACTION, Stroke

HEAD: Final = 34
ROW: Final = 14
CROWDED: Final = 7
"""The number of lanes above which names are drawn small."""
HEIGHT: Final = 40
"""The pixels that a step needs; if its text is longer, the lanes are continued."""
MIDDLE: Final = 25
BACK: Final = 11
PAUSE_NS: Final = 400_000_000
"""The length above which a pause is drawn as a break (ns).

Time is not drawn to scale, and the break shows that.
"""

WITNESS: Final = RED
CONTEXT: Final = FAINT
UNKNOWN: Final = AMBER
FAULT: Final = RED
_DASHES: Final = "6 3"
_PAUSED: Final = "3 4"
_CLIENT: Final = Stroke(LINE, 2)
_NO_SUBSCRIPTION: Final = Stroke(LINE, 1)


@dataclass(frozen=True, slots=True)
class Slice:
    """A drawn step of a sequence chart.

    ``svg`` is the picture of the step. ``pause`` is the break that is drawn before it, in words,
    and ``pause_svg`` the lanes during the break; both are empty if there is none.
    """

    svg: str
    pause: str = ""
    pause_svg: str = ""


def slices(story: Story) -> list[Slice]:
    """Return one slice for each step, in order."""
    drawn = []
    before: Step | None = None
    for step in story.steps:
        passed = 0 if before is None else step.at - max(row["time"] for row in _own_rows(before))
        pause = f"{passed / 1e9:.1f} s later" if passed > PAUSE_NS else ""
        drawn.append(Slice(_step(story, step), pause, _lanes_only(story, step) if pause else ""))
        before = step
    return drawn


def head(story: Story) -> str:
    """Return the names of the lanes, to stand above the steps.

    The number of a client stands below its kind, so that many names find room.
    """
    parts = [_open(head_height(story), "Lanes: " + ", ".join(lane.name for lane in story.lanes))]
    names = [lane for lane in story.lanes if lane.kind == "subscription"]
    for lane in story.lanes:
        if lane.kind == "subscription":
            parts.append(_named(story, lane, 14 + ROW * names.index(lane)))
            continue
        words = lane.name.rsplit(" ", 1) if lane.kind != "broker" else [lane.name]
        low = head_height(story) - 6
        for line, word in zip((low - ROW, low)[-len(words) :], words, strict=True):
            small = ' font-size="9"' if len(story.lanes) > CROWDED and line < low else ""
            bold = ' font-weight="700"' if lane.kind == "broker" or line == low else ""
            parts.append(
                f'<text x="{_x(story, lane)}%" y="{line}" text-anchor="middle" '
                f'fill="{TEXT}"{bold}{small}>{escape(word)}</text>'
            )
    return "".join([*parts, "</svg>"])


def head_height(story: Story) -> int:
    """Return the pixels that the names need.

    Subscriptions have long names, each on a line of its own.
    """
    return HEAD + ROW * sum(lane.kind == "subscription" for lane in story.lanes)


def _named(story: Story, lane: Participant, y: int) -> str:
    x = _x(story, lane)
    return (
        f'<text x="{x}%" y="{y}" text-anchor="middle" fill="{SUBSCRIPTION}" font-weight="700" '
        f'stroke="{PAPER}" stroke-width="3" paint-order="stroke">{escape(lane.name)}</text>'
    )


def legend(story: Story) -> list[tuple[str, Stroke]]:
    """Return (role, look of its line) of every role that is drawn."""
    if not story.steps:
        return []
    first, last = story.steps[0].index, story.steps[-1].index
    roles = {
        str(row["role"])
        for broker in story.brokers
        for row in story.standing.roles.get(broker, ())
        if first <= row["index"] <= last
    }
    roles |= {story.standing.role_before(broker, first) or "" for broker in story.brokers}
    kinds = {lane.kind for lane in story.lanes}
    return [
        *(
            ("silent" if role == SILENT else role, stroke)
            for role, stroke in palette.ROLES.items()
            if role in roles
        ),
        *((words, stroke) for kind, words, stroke in _LIVES if kind in kinds),
    ]


_LIVES: Final = (
    ("subscription", "subscription exists (dashed: perhaps)", Stroke(SUBSCRIPTION, 7)),
    ("transaction", "transaction is open (dashed: its end was requested)", Stroke(TRANSACTION, 7)),
)


# ------------------------------------------------------------------------------------------ drawing


def _last(step: Step) -> int:
    """Return the index of the last row that belongs to the moment of a step."""
    return max(int(row["index"]) for row in (step.rows if step.rows[0]["process"] >= 0 else step.rows[:1]))


def _own_rows(step: Step) -> Sequence[dict[str, int]]:
    """Return the rows that say how long a step took.

    The effect of a fault is left out: it is seen much later than the next steps begin.
    """
    return [dict(row) for row in (step.rows if step.answered else step.rows[:1])]


def _x(story: Story, lane: Participant | str) -> float:
    names = [participant.name for participant in story.lanes]
    n = names.index(lane if isinstance(lane, str) else lane.name)
    return round(100 * (n + 0.5) / len(names), 2)


def _open(height: int, title: str) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="100%" '
        f'style="min-height:{height}px" role="img" '
        f'font-family="system-ui, sans-serif" font-size="11"><title>{escape(title)}</title>'
    )


def _step(story: Story, step: Step) -> str:
    moment_of = f"{story.standing.seconds(step.at)}: {step.words}"
    return "".join([
        _open(HEIGHT, moment_of),
        *_faults(story, step.index),
        *_lines(story, step),
        *_ties(story, step),
        *_event(story, step),
        *(shape for mark in step.marks for shape in _mark(mark, _x(story, mark.lane))),
        "</svg>",
    ])  # fmt: skip


def _lanes_only(story: Story, step: Step) -> str:
    """Return the lanes during a pause, in their state just before the step."""
    return "".join([
        _open(20, "Nothing of this story happens meanwhile"),
        *_faults(story, step.index - 1),
        *(
            _line(_x(story, lane), _look(story, lane, step.index)._replace(dashes=_PAUSED))
            for lane in story.lanes
        ),
        "</svg>",
    ])  # fmt: skip


def _faults(story: Story, index: int) -> Iterator[str]:
    in_force = [fault for fault in story.faults if fault.around(index)]
    if in_force:
        hint = "; ".join(
            f"{fault.words} in force{'' if fault.bit else ', no effect seen'}" for fault in in_force
        )
        yield (
            f'<g><title>{escape(hint)}</title><rect width="100%" height="100%" fill="{FAULT}" '
            'opacity="0.07"/>'
        )
        yield f'<rect width="4" height="100%" fill="{FAULT}" opacity="0.55"/></g>'


def _lines(story: Story, step: Step) -> Iterator[str]:
    for lane in story.lanes:
        x = _x(story, lane)
        before = _look(story, lane, step.index)
        after = _look(story, lane, (step.index if lane.kind == "broker" else _last(step)) + 1)
        if before == after:
            yield _line(x, before)
        else:
            yield _line(x, before, end=str(MIDDLE))
            yield _line(x, after, begin=str(MIDDLE))


def _line(x: float, stroke: Stroke, begin: str = "0", end: str = "100%") -> str:
    return f'<line x1="{x}%" x2="{x}%" y1="{begin}" y2="{end}" {stroke.attributes()}/>'


def _look(story: Story, lane: Participant, index: int) -> Stroke:
    """Return the look of a lane before the row of that index."""
    if lane.kind == "broker":
        role = story.standing.role_before(lane.name, index)
        return palette.ROLES.get(SILENT if role is None else role, palette.UNKNOWN_ROLE)
    if lane.kind == "transaction":
        state = next(
            transaction for transaction in story.transactions.values() if transaction.name == lane.name
        ).before(index)
        return Stroke(TRANSACTION, 7 if state else 0, _DASHES if state == "ending" else "")
    if lane.kind == "subscription":
        presence = story.subscriptions[lane.name].before(index)
        if not presence:
            return _NO_SUBSCRIPTION
        return Stroke(SUBSCRIPTION, 7, "" if presence == "there" else _DASHES)
    return _CLIENT


def _event(story: Story, step: Step) -> Iterator[str]:
    doubtful = step.outcome in {"info", "fail"} and step.rows[0]["process"] >= 0
    colour = WITNESS if step.witness else UNKNOWN if doubtful else CONTEXT
    weight = ' font-weight="700"' if step.witness else ""
    if step.source is None:
        yield _band(step, weight)
        return
    start = _x(story, step.source)
    if step.target is None:
        yield from _local(step, start, colour, weight)
        return
    end = _x(story, step.target)
    stroke = 2.2 if step.witness else 1.3
    lost = ' stroke-dasharray="5 3"' if step.outcome in {"info", "fail"} else ""
    yield _arrow(start, end, MIDDLE, colour, stroke, lost)
    if step.answered:
        yield _arrow(end, start, MIDDLE + BACK, colour, 1.0, ' stroke-dasharray="2 2"')
    yield _text((start + end) / 2, MIDDLE - 6, step.label, colour, weight)


def _ties(story: Story, step: Step) -> Iterator[str]:
    """Draw lines from a step to its transactions, and from a broker to subscriptions."""
    for mark in step.marks:
        end = _x(story, mark.lane)
        if mark.kind in {"copy", "perhaps"} and (step.target or step.source) is not None:
            start = _x(story, str(step.target or step.source))
            yield _arrow(
                start,
                end,
                MIDDLE,
                SUBSCRIPTION,
                1.3,
                f' stroke-dasharray="{_DASHES}"' * (mark.kind == "perhaps"),
            )
        elif mark.lane.startswith("transaction ") and step.source is not None:
            start = max(_x(story, name) for name in (step.source, step.target) if name is not None)
            yield (
                f'<line x1="{start}%" x2="{end}%" y1="{MIDDLE}" y2="{MIDDLE}" stroke="{TRANSACTION}" '
                'stroke-width="1" stroke-dasharray="1 3"/>'
            )


def _mark(mark: Mark, x: float) -> Iterator[str]:
    """Draw a mark on the lane of a transaction or subscription.

    A dot marks an operation that belongs to it. A bar marks the begin or the end of a transaction,
    with its outcome.
    """
    colour = TRANSACTION if mark.lane.startswith("transaction ") else SUBSCRIPTION
    if mark.kind in {"effect", "given"}:
        yield f'<circle cx="{x}%" cy="{MIDDLE}" r="4.5" fill="{PAPER}" stroke="{colour}" stroke-width="2"/>'
    elif mark.lane.startswith("transaction "):
        yield (
            f'<svg x="{x}%" y="{MIDDLE}" overflow="visible"><path d="M-8 0 h16" stroke="{colour}" '
            'stroke-width="3"/></svg>'
        )
        if mark.kind != "begin":
            right = x > 85
            yield (
                f'<svg x="{x}%" y="{MIDDLE + 14}" overflow="visible"><text x="{22 if right else 0}" '
                f'text-anchor="{"end" if right else "middle"}" fill="{colour}" font-weight="700" '
                f'stroke="{PAPER}" stroke-width="3" paint-order="stroke">{escape(mark.kind)}</text></svg>'
            )


def _arrow(start: float, end: float, y: int, colour: str, width: float, dashes: str) -> str:
    """Return an arrow: a line placed by percentages, with its head as a nested picture.

    Only a nested picture can be placed at a percentage.
    """
    way = -7 if end > start else 7
    return (
        f'<line x1="{start}%" x2="{end}%" y1="{y}" y2="{y}" stroke="{colour}" '
        f'stroke-width="{width}"{dashes}/>'
        f'<svg x="{end}%" y="{y}" overflow="visible"><path d="M0 0 l{way} -4 v8 z" fill="{colour}"/></svg>'
    )


def _text(x: float, y: int, text: str, colour: str, weight: str) -> str:
    return (
        f'<text x="{round(x, 2)}%" y="{y}" text-anchor="middle" fill="{colour}"{weight} '
        f'stroke="{PAPER}" stroke-width="3" paint-order="stroke">{escape(text)}</text>'
    )


def _local(step: Step, x: float, colour: str, weight: str) -> Iterator[str]:
    """Draw what a participant does by itself: a mark on its lane."""
    row = step.rows[0]
    if row["f"] == "role":
        fill = palette.ROLES.get(str(row.get("role")), palette.UNKNOWN_ROLE).colour
        ring = f' stroke="{WITNESS}" stroke-width="2"' if step.witness else f' stroke="{TEXT}"'
        yield f'<circle cx="{x}%" cy="{MIDDLE}" r="7" fill="{fill}"{ring}/>'
        colour = WITNESS if step.witness else TEXT
    elif row["f"] == "replication":
        yield (
            f'<svg x="{x}%" y="{MIDDLE}" overflow="visible"><path d="M-5 -5 h10 v10 h-10 z" '
            f'fill="{PAPER}" stroke="{colour}" stroke-width="2"/></svg>'
        )
    elif row["f"] == "disconnect" or (step.outcome in {"info", "fail"} and row["process"] >= 0):
        yield (
            f'<svg x="{x}%" y="{MIDDLE}" overflow="visible"><path d="M-5 -5 l10 10 m0 -10 l-10 10" '
            f'stroke="{colour}" stroke-width="2"/></svg>'
        )
    else:
        yield f'<circle cx="{x}%" cy="{MIDDLE}" r="5" fill="{colour}"/>'
    right = x > 65
    yield f'<svg x="{x}%" y="{MIDDLE + 4}" overflow="visible">'
    yield (
        f'<text x="{-13 if right else 13}" text-anchor="{"end" if right else "start"}" '
        f'fill="{colour}"{weight} '
        f'stroke="{PAPER}" stroke-width="3" paint-order="stroke">{escape(step.label)}</text></svg>'
    )


def _band(step: Step, weight: str) -> str:
    """Return a band across all lanes, for a step that concerns the whole cluster."""
    fault = step.rows[0]["process"] == -1
    colour = FAULT if fault else CONTEXT
    healed = fault and step.rows[0]["f"].startswith("heal:")
    fill = f'fill="{colour}"' if fault and not healed else f'fill="{PAPER}" stroke="{colour}"'
    ink = PAPER if fault and not healed else colour
    return (
        f'<rect x="0.5%" y="{MIDDLE - 11}" width="99%" height="20" rx="3" {fill}/>'
        f'<text x="50%" y="{MIDDLE + 3}" text-anchor="middle" '
        f'fill="{ink}"{weight}>{escape(step.label)}</text>'
    )
