"""The picture of a test as SVG.

It shows faults as bands, operations and latencies as lines, and the brokers' roles as lanes. If a
test has transactions or subscriptions, they have panels and lanes of their own. So have the links
between live brokers, and the brokers at which queues were consumed.

Why drawn here and not in the browser: the report is one file that must still open in ten years, in
a mail client, with scripts forbidden. All panels share one time axis, so that an eye moving
straight down sees cause and effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from harness.report import palette
from harness.report.cluster_lanes import Consumption, LinkSpan
from harness.report.palette import CONSUMPTION, FAINT, LINE, PAPER, RED, SUBSCRIPTION, TEXT
from harness.report.timeline import Band, RoleSpan, Series, SubscriptionSpan, Timeline

WIDTH: Final = 1120
LEFT: Final = 84
RIGHT: Final = 16
PANEL: Final = 150
SMALL: Final = 70
"""The height of a panel about transactions."""
LANE: Final = 22
LINK_LINE: Final = 17
"""The distance of the line of a lane of links from the top of that lane; words are above it."""
THIN_LANE: Final = 14
"""The height of a lane of consumption."""
LEAST_BAR: Final = 3
"""The height of the bar of a broker with a small share of a queue's deliveries."""
GAP: Final = 30
BAND_ROW: Final = 16
SCALE: Final = (LANE - 5) / palette.WIDEST
"""The factor from the width of a lane in a sequence chart to its height here."""
NAME_MAX: Final = 11
"""The characters of a broker's or subscription's name that fit before its lane."""
SUBSCRIPTIONS_MAX: Final = 12
BEYOND: Final = 3
"""The ratio of the drain's rate to the highest rate before it above which the drain is cut off."""


class _Axis:
    """The time axis: it maps seconds of the history to pixels."""

    def __init__(self, timeline: Timeline) -> None:
        self.begin = timeline.begin_s
        self.span = max(timeline.end_s - timeline.begin_s, 0.001)

    def __call__(self, at_s: float) -> float:
        share = min(max(at_s - self.begin, 0.0), self.span) / self.span
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def draw(timeline: Timeline) -> str:
    """Return the picture as an ``<svg>`` element, without scripts or external parts."""
    x = _Axis(timeline)
    rows = _pack(timeline.bands)
    band_height = BAND_ROW * max(1, 1 + max(rows, default=0))
    top_rates = 20 + band_height + GAP
    top_latency = top_rates + PANEL + GAP
    top_open = top_latency + PANEL + GAP
    top_ended = top_open + (SMALL + GAP if timeline.opened else 0)
    top_lanes = top_ended + (SMALL + GAP if timeline.ended else 0)
    top_links = top_lanes + LANE * max(1, len(timeline.lanes)) + GAP
    top_consumption = top_links + (LANE * len(timeline.links) + GAP if timeline.links else 0)
    consumed = timeline.consumption.lanes
    consumed_lanes = len(consumed) + len({lane.queue for lane in consumed})
    top_subscriptions = top_consumption + (THIN_LANE * consumed_lanes + GAP if consumed else 0)
    drawn = list(timeline.subscriptions.items())[:SUBSCRIPTIONS_MAX]
    bottom = top_subscriptions - GAP + (GAP + LANE * len(drawn) if drawn else 0)
    height = bottom + 46
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'fill="{TEXT}" font-family="system-ui, sans-serif" font-size="12">'
        ),
        f"<title>{_title(timeline)}, with the faults in force</title>",
        *_bands(timeline.bands, rows, x, bottom),
        *_panel("operations a second", timeline.rates, timeline, x, top_rates),
        *_panel("latency of sends, ms", timeline.latencies_ms, timeline, x, top_latency, logarithmic=True),
        *_small("open transactions", timeline.opened, timeline, x, top_open),
        *_small("transactions a second", timeline.ended, timeline, x, top_ended),
        *_lanes(timeline.lanes, x, top_lanes),
        *_links(timeline.links, x, top_links),
        *_consumption(timeline.consumption, x, top_consumption),
        *_subscriptions(drawn, len(timeline.subscriptions) - len(drawn), x, top_subscriptions),
        *_phases(timeline.phases, x, bottom),
        *_ticks(timeline, x, bottom),
        *_role_legend(timeline.lanes, height - 12),
        "</svg>",
    ]
    return "\n".join(parts)


def _title(timeline: Timeline) -> str:
    words = "Throughput, latency and broker roles over time"
    words += ", links between brokers" if timeline.links else ""
    return words + (", brokers at which queues were consumed" if timeline.consumption.lanes else "")


def _pack(bands: Sequence[Band]) -> list[int]:
    """Return the row of each band, so that labels of overlapping faults stay readable."""
    free_from: list[float] = []
    rows = []
    for band in bands:
        row = next((row for row, free in enumerate(free_from) if free <= band.start_s), len(free_from))
        if row == len(free_from):
            free_from.append(0)
        free_from[row] = band.end_s
        rows.append(row)
    return rows


def _bands(bands: Sequence[Band], rows: Sequence[int], x: _Axis, bottom: int) -> Iterable[str]:
    yield f'<text x="{LEFT - 8}" y="32" text-anchor="end" fill="{FAINT}">faults</text>'
    for band, row in zip(bands, rows, strict=True):
        left, width = x(band.start_s), max(2.0, x(band.end_s) - x(band.start_s))
        colour, dashes = (RED, "") if band.bit else (FAINT, f' stroke="{TEXT}" stroke-dasharray="3 2"')
        y = 20 + row * BAND_ROW
        effect = "" if band.bit else " (no effect seen)" if band.found_target else " (found no target)"
        name = f"{band.label} {band.target}".strip() + effect
        hint = f"{name}, {band.start_s:.2f} s to {band.end_s:.2f} s. {band.observed}"
        yield f"<g><title>{escape(hint)}</title>"
        yield (
            f'<rect x="{left}" y="20" width="{width:.1f}" height="{bottom - 20}" fill="{colour}" '
            'opacity="0.08"/>'
        )
        yield (
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{BAND_ROW - 2}" rx="2" '
            f'fill="{colour}"{dashes}/>'
        )
        room = int(width / 6.2)
        fitting = name if len(name) <= room else name[: max(0, room - 1)] + "…" if room > 4 else ""
        yield f'<text x="{left + 4}" y="{y + 11}" font-size="10" fill="{PAPER}">{escape(fitting)}</text></g>'


def _small(title: str, series: Sequence[Series], timeline: Timeline, x: _Axis, top: int) -> Iterable[str]:
    """Draw a small panel if there is anything to show in it."""
    return _panel(title, series, timeline, x, top, height=SMALL) if series else ()


def _drain(series: Sequence[Series], timeline: Timeline) -> tuple[int, str]:
    """Return the bin at which a panel is cut off, and a note that says so.

    If nothing is cut off, that is the number of all bins, and the note is empty.
    """
    begin = next((at for name, at in timeline.phases if name == "drain"), math.inf)
    first = int((min(begin, timeline.end_s) - timeline.begin_s) / timeline.bin_s)
    before = max((value for line in series for value in line.values[:first]), default=0.0)
    most = max((value for line in series for value in line.values[first:]), default=0.0)
    if not 0 < BEYOND * before < most:
        return max((len(line.values) for line in series), default=0), ""
    return first, f"the drain, beyond this picture: up to {most:,.0f} a second"


def _panel(
    title: str,
    series: Sequence[Series],
    timeline: Timeline,
    x: _Axis,
    top: int,
    *,
    logarithmic: bool = False,
    height: int = PANEL,
) -> Iterable[str]:
    last, note = (-1, "") if logarithmic else _drain(series, timeline)
    values = [
        value
        for line in series
        for value in (line.values[:last] if note else line.values)
        if not math.isnan(value)
    ]
    highest = max(values, default=1.0) or 1.0
    lowest = max(0.1, min((value for value in values if value > 0), default=0.1)) if logarithmic else 0.0
    floor = 10 ** math.floor(math.log10(lowest)) if logarithmic else 0.0
    ceiling = (
        max(10 ** math.ceil(math.log10(max(highest, floor * 10))), floor * 10)
        if logarithmic
        else _round_up(highest)
    )

    def y(value: float) -> float:
        if logarithmic:
            share = (math.log10(max(value, floor)) - math.log10(floor)) / (
                math.log10(ceiling) - math.log10(floor)
            )
        else:
            share = min(value / ceiling, 1.0)
        return round(top + height * (1 - share), 1)

    marks = (
        [10**power for power in range(round(math.log10(floor)), round(math.log10(ceiling)) + 1)]
        if logarithmic
        else [0, ceiling / 2, ceiling]
        if height == PANEL
        else [0, ceiling]
    )
    for mark in marks:
        yield (
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark)}" y2="{y(mark)}" stroke="{LINE}" '
            'stroke-width="0.6"/>'
        )
        yield f'<text x="{LEFT - 8}" y="{y(mark) + 4}" text-anchor="end" fill="{FAINT}">{mark:g}</text>'
    yield f'<text x="{LEFT}" y="{top - 9}" font-weight="600">{escape(title)}</text>'
    legend = LEFT + 170
    for line in series:
        stroke = palette.CURVES.get(line.name, palette.UNKNOWN_CURVE)
        if any(value > 0 for value in line.values if not math.isnan(value)):
            yield (f'<path d="{_path(line.values, timeline, x, y)}" fill="none" {stroke.attributes()}/>')
        if len(series) == 1:  # the title says it
            break
        yield f'<path d="M{legend} {top - 13}h26" {stroke.attributes(1.5)}/>'
        yield f'<text x="{legend + 31}" y="{top - 9}">{escape(line.name)}</text>'
        legend += 50 + 7 * len(line.name)
    if note:
        yield (
            f'<text x="{WIDTH - RIGHT}" y="{top - 9}" text-anchor="end" font-size="10" '
            f'fill="{FAINT}">{escape(note)}</text>'
        )


def _path(values: Sequence[float], timeline: Timeline, x: _Axis, y: object) -> str:
    commands, drawing = [], False
    for number, value in enumerate(values):
        if math.isnan(value):
            drawing = False
            continue
        at = x(timeline.begin_s + (number + 0.5) * timeline.bin_s)
        commands.append(f"{'L' if drawing else 'M'}{at} {y(value)}")  # type: ignore[operator]
        drawing = True
    return " ".join(commands)


def _round_up(value: float) -> float:
    power = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= value))


def _lanes(lanes: dict[str, list[RoleSpan]], x: _Axis, top: int) -> Iterable[str]:
    yield f'<text x="{LEFT}" y="{top - 9}" font-weight="600">roles</text>'
    for number, (broker, spans) in enumerate(lanes.items()):
        y = top + number * LANE
        yield _lane_name(broker, y + 14)
        for span in spans:
            left, width = x(span.start_high_s), max(0.5, x(span.end_s) - x(span.start_high_s))
            stroke = palette.ROLES.get(span.role, palette.UNKNOWN_ROLE)
            hint = (
                f"{broker} {span.role} from between {span.start_low_s:.3f} s and "
                f"{span.start_high_s:.3f} s to {span.end_s:.3f} s"
            )
            yield (
                f'<path d="M{left} {y + LANE // 2}h{width:.1f}" {stroke.attributes(SCALE)}>'
                f"<title>{escape(hint)}</title></path>"
            )
            if width > 7 * len(span.role):
                yield _lane_label(left + 4, y, span.role, filled=span.role == "live")


def _lane_name(name: str, y: int) -> str:
    """Return the name before a lane, without its begin if it is too long."""
    short_name = name if len(name) <= NAME_MAX else f"…{name[1 - NAME_MAX :]}"
    return (
        f'<g><title>{escape(name)}</title><text x="{LEFT - 8}" y="{y}" text-anchor="end" '
        f'fill="{TEXT}">{escape(short_name)}</text></g>'
    )


def _links(lanes: dict[str, list[LinkSpan]], x: _Axis, top: int) -> Iterable[str]:
    """Draw with how many other live brokers each live broker was linked, as it said."""
    if not lanes:
        return
    yield f'<text x="{LEFT}" y="{top - 9}" font-weight="600">links with other live brokers</text>'
    states = {span.state for spans in lanes.values() for span in spans}
    legend = LEFT + 200
    for state, stroke in palette.LINKS.items():
        if state in states:
            yield f'<path d="M{legend} {top - 13}h26" {stroke.attributes()}/>'
            yield f'<text x="{legend + 31}" y="{top - 9}">{state}</text>'
            legend += 50 + 7 * len(state)
    for number, (broker, spans) in enumerate(lanes.items()):
        y = top + number * LANE
        yield _lane_name(broker, y + 14)
        for span in spans:
            left, width = x(span.start_s), max(0.5, x(span.end_s) - x(span.start_s))
            number_of_others = len(span.linked) + len(span.missing)
            amount = f"{len(span.linked)} of {number_of_others}" if number_of_others else "no other is live"
            without = f"without {', '.join(span.missing)}" if span.missing else ""
            dead = f"with {', '.join(span.dead)}, not seen live" if span.dead else ""
            named = f" ({', '.join(span.linked)})" if span.linked else ""
            hint = "; ".join(filter(None, (f"{broker} linked: {amount}{named}", without, dead)))
            hint += f"; from {span.start_s:.3f} s to {span.end_s:.3f} s"
            yield f"<g><title>{escape(hint)}</title>"
            yield (
                f'<path d="M{left} {y + LINK_LINE}h{width:.1f}" {palette.LINKS[span.state].attributes()}/>'
            )
            described = "; ".join(filter(None, (amount, without, dead)))
            fitting = (words for words in (described, without, amount) if words and width > 6 * len(words))
            yield f'<text x="{left}" y="{y + 12}" font-size="10">{escape(next(fitting, ""))}</text></g>'


def _consumption(consumption: Consumption, x: _Axis, top: int) -> Iterable[str]:
    """Draw when each broker delivered messages of a queue, with higher bars for larger shares."""
    if not consumption.lanes:
        return
    left_out = consumption.left_out
    more = f" (of the queues with the most, there were {left_out} more)" if left_out else ""
    yield f'<text x="{LEFT}" y="{top - 9}" font-weight="600">deliveries of queues by brokers{more}</text>'
    queue, y = None, top - THIN_LANE
    for lane in consumption.lanes:
        y += THIN_LANE
        if lane.queue != queue:
            queue = lane.queue
            yield f'<path d="M{LEFT} {y + 1}H{WIDTH - RIGHT}" stroke="{LINE}" stroke-width="0.6"/>'
            yield f'<text x="{LEFT}" y="{y + 11}" font-size="10">{escape(queue)}</text>'
            y += THIN_LANE
        yield _lane_name(lane.broker, y + 11)
        for span in lane.spans:
            left, width = x(span.start_s), max(0.5, x(span.end_s) - x(span.start_s))
            height = round(LEAST_BAR + span.share * (THIN_LANE - 3 - LEAST_BAR), 1)
            hint = (
                f"{span.deliveries:,} deliveries of {lane.queue} by {lane.broker}, {span.share:.0%} of all, "
                f"from {span.start_s:.3f} s to {span.end_s:.3f} s"
            )
            yield (
                f'<rect x="{left}" y="{y + (THIN_LANE - height) / 2:.1f}" width="{width:.1f}" '
                f'height="{height}" fill="{CONSUMPTION}"><title>{escape(hint)}</title></rect>'
            )


def _lane_label(x: float, y: int, words: str, *, filled: bool) -> str:
    """Return words that stand on a lane: in the paper's colour if the lane is filled."""
    look = f'fill="{PAPER}"' if filled else f'stroke="{PAPER}" stroke-width="3" paint-order="stroke"'
    return (
        f'<text x="{x}" y="{y + LANE // 2 + 4}" font-size="10" pointer-events="none" {look}>'
        f"{escape(words)}</text>"
    )


def _subscriptions(
    drawn: Sequence[tuple[str, Sequence[SubscriptionSpan]]], more: int, x: _Axis, top: int
) -> Iterable[str]:
    """Draw the times in which each subscription existed, paler where it only may have existed."""
    if not drawn:
        return
    omitted = f" (the first {len(drawn)}, there were {more} more)" if more else ""
    yield f'<text x="{LEFT}" y="{top - 9}" font-weight="600">subscriptions{omitted}</text>'
    for number, (name, spans) in enumerate(drawn):
        y = top + number * LANE
        called = name.rpartition(" of ")[0]
        label = called if len(called) <= NAME_MAX else f"{called[: NAME_MAX - 1]}…"
        yield (
            f'<g><title>{escape(name)}</title><text x="{LEFT - 8}" y="{y + 14}" text-anchor="end" '
            f'fill="{TEXT}">{escape(label)}</text></g>'
        )
        for span in spans:
            left, width = x(span.start_s), max(0.5, x(span.end_s) - x(span.start_s))
            presence = "there" if span.sure else "perhaps there"
            pale = "" if span.sure else ' opacity="0.35"'
            hint = f"{name} {presence} from {span.start_s:.3f} s to {span.end_s:.3f} s"
            yield (
                f'<rect x="{left}" y="{y + 2}" width="{width:.1f}" height="{LANE - 5}" '
                f'fill="{SUBSCRIPTION}"{pale}>'
                f"<title>{escape(hint)}</title></rect>"
            )
            words = name if span.sure else presence
            if width > 6 * len(words):
                yield _lane_label(left + 4, y, words, filled=span.sure)


def _phases(phases: Sequence[tuple[str, float]], x: _Axis, bottom: int) -> Iterable[str]:
    free = -math.inf
    for name, at_s in phases:
        at = x(at_s)
        beyond = at + 6 * len(name) > WIDTH  # the picture's edge would cut the name
        left = at - 2 - 6 * len(name) if beyond else at + 2
        yield (
            f'<line x1="{at}" x2="{at}" y1="14" y2="{bottom}" stroke="{FAINT}" stroke-width="0.7" '
            f'stroke-dasharray="2 3"><title>{escape(name)}, {at_s:.2f} s</title></line>'
        )
        if left > free:
            yield f'<text x="{left}" y="11" font-size="10" fill="{FAINT}">{escape(name)}</text>'
            free = left + 6 * len(name)


def _ticks(timeline: Timeline, x: _Axis, bottom: int) -> Iterable[str]:
    span = timeline.end_s - timeline.begin_s
    step = next((step for step in (0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800) if span / step <= 14), 3600)
    at = math.ceil(timeline.begin_s / step) * step
    while at <= timeline.end_s:
        yield f'<text x="{x(at)}" y="{bottom + 15}" text-anchor="middle" fill="{FAINT}">{at:g} s</text>'
        at += step


def _role_legend(lanes: dict[str, list[RoleSpan]], y: int) -> Iterable[str]:
    roles = {span.role for spans in lanes.values() for span in spans}
    at = LEFT
    for role, stroke in palette.ROLES.items():
        if role in roles:
            yield f'<path d="M{at} {y - 4}h26" {stroke.attributes()}/>'
            yield f'<text x="{at + 31}" y="{y}">{escape(role)}</text>'
            at += 50 + 7 * len(role)
