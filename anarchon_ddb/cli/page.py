"""The timeline as one HTML page: no script, no request, and no text that could be one.

A strip of all runs shows where something went wrong; then, by day or month, one row a run, its
attempts as bars on one axis. Light and dark follow the reader's system. Colours never stand alone:
the state is written beside each row, and each outcome has its own pattern.
"""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from anarchon_ddb.cli.clean import clean
from anarchon_ddb.clock import from_ms
from anarchon_ddb.timeline import axis_of
from anarchon_ddb.wording import clock_time, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anarchon_ddb.timeline import Axis, Bar, Segment, Timeline

_ORDER = ("succeeded", "failed", "running", "interrupted", "retrying", "pending", "skipped",
          "missed", "cancelled", "damaged")  # fmt: skip


# Not even what somebody smuggled in could load anything, or run.
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
    '<link rel="icon" href="data:,">'
)


def render(timeline: Timeline) -> str:
    """Return the page.

    Parameters
    ----------
    timeline : Timeline
        With any number of runs; it stays readable with a thousand.
    """
    title = f"{_safe(timeline.job)}: {len(timeline.bars):,} runs"
    told = f"{len(timeline.bars):,} runs, {_stamp(timeline.since_ms)} to {_stamp(timeline.now_ms)}"
    present = [state for state in _ORDER if state in timeline.counts]
    parts = groupby(timeline.bars, key=lambda bar: bar.slot[: _part_of(timeline.bars)])
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            _POLICY,
            f"<title>{title}</title><style>{_CSS}{_filters(present)}</style></head><body>",
            f"<header><h1>{_safe(timeline.job)}</h1><p>{told} UTC</p>",
            _switches(timeline, present),
            _strip(timeline.bars),
            f"{_KEY}</header><main>",
            *(_part(name, list(bars)) for name, bars in parts),
            "" if timeline.bars else '<p class="none">No run in this span of time.</p>',
            "</main></body></html>\n",
        ]
    )


def _safe(value: str) -> str:
    return escape(clean(value), quote=True)


def _stamp(at_ms: int) -> str:
    return f"{from_ms(at_ms):%Y-%m-%d %H:%M}"


def _filters(states: Sequence[str]) -> str:
    return "".join(
        f"body:has(#show-{state}:not(:checked)) .{state}.run,"
        f"body:has(#show-{state}:not(:checked)) .{state}.cell{{display:none}}"
        for state in states
    )


def _switches(timeline: Timeline, states: Sequence[str]) -> str:
    boxes = (
        f'<label class="{state}"><input type="checkbox" id="show-{state}" checked>'
        f'<i class="dot"></i>{state} <b data-state="{state}">{timeline.counts[state]:,}</b></label>'
        for state in states
    )
    return f'<div class="switches">{"".join(boxes)}</div>'


def _strip(bars: Sequence[Bar]) -> str:
    cells = (
        f'<a class="cell {bar.state}" href="#s{_anchor(bar)}" '
        f'title="{_safe(bar.slot)} {_safe(bar.told)}"></a>'
        for bar in bars
    )
    return f'<nav class="strip" aria-label="All runs, oldest first">{"".join(cells)}</nav>'


def _anchor(bar: Bar) -> str:
    return "".join(char for char in bar.slot if char.isalnum())


_KEY = (
    '<p class="key"><span><i class="bar succeeded"></i>attempt that succeeded</span>'
    '<span><i class="bar interrupted"></i>stopped early, as planned</span>'
    '<span><i class="bar running"></i>running</span>'
    '<span><i class="bar failed"></i>failed or lost</span>'
    '<span><i class="bar waited"></i>not run: waited, skipped, released</span>'
    '<span><i class="due"></i>due</span></p>'
)


def _part_of(bars: Sequence[Bar]) -> int:
    """Return how much of a slot names its section: its day, or its month where days have few."""
    days = len({bar.slot[:10] for bar in bars})
    return 10 if len(bars) >= 3 * days else 7


def _part(name: str, bars: Sequence[Bar]) -> str:
    axis = axis_of(bars)
    is_day = len(name) == len("2026-11-29")
    return "".join(
        [
            f'<section><h2>{_safe(name)} <small>{len(bars):,}</small></h2><div class="rows">',
            _axis(axis),
            *(_row(bar, axis, is_day=is_day) for bar in bars),
            "</div></section>",
        ]
    )


def _axis(axis: Axis) -> str:
    marks = []
    for quarter in range(5):
        after_ms = axis.length_ms * quarter // 4
        if axis.start_ms is None:
            text = f"{span(after_ms)} after" if quarter else "due"
        else:
            text = clock_time(axis.start_ms + after_ms, from_ms(axis.start_ms))
        edge = {0: ' class="first"', 4: ' class="last"'}.get(quarter, "")
        marks.append(f'<span{edge} style="left:{25 * quarter}%">{text}</span>')
    return (
        f'<div class="axis"><b>slot (UTC)</b><b>state</b><div>{"".join(marks)}</div>'
        '<b class="right">took</b><b class="right">done</b></div>'
    )


def _row(bar: Bar, axis: Axis, *, is_day: bool) -> str:
    attempts = "".join(_attempt(segment, bar, axis) for segment in bar.segments)
    took = span(bar.end_ms - bar.segments[0].start_ms) if bar.segments else ""
    slot = bar.slot[11:19] if is_day else f"{bar.slot[5:10]} {bar.slot[11:16]}"
    error = f'<em title="{_safe(bar.error)}">{_safe(bar.error)}</em>' if bar.error else ""
    return (
        f'<div class="run {bar.state}" id="s{_anchor(bar)}">'
        f'<time title="{_safe(bar.slot)}">{_safe(slot)}</time>'
        f'<span class="state"><i class="dot"></i>{_safe(bar.told)}{error}</span>'
        f'<div class="track"><i class="due" style="left:{_percent(axis, bar, bar.slot_ms)}"></i>'
        f'{attempts}</div><span class="right">{took}</span>'
        f'<span class="right">{_safe(bar.progress)}</span></div>'
    )


def _percent(axis: Axis, bar: Bar, at_ms: int) -> str:
    return f"{100 * axis.share(bar, at_ms):.2f}%"


def _attempt(segment: Segment, bar: Bar, axis: Axis) -> str:
    width = 100 * (axis.share(bar, segment.end_ms) - axis.share(bar, segment.start_ms))
    beside = from_ms(bar.slot_ms)
    reached = f"\nreached {segment.place}" if segment.place else ""
    tip = (
        f"Attempt {segment.number} of {bar.slot}: {segment.outcome}\n"
        f"{clock_time(segment.start_ms, beside)} to {clock_time(segment.end_ms, beside)} UTC, "
        f"{span(segment.end_ms - segment.start_ms)}{reached}"
    )
    lines = "&#10;".join(_safe(line) for line in tip.split("\n"))
    return (
        f'<i class="bar {segment.outcome}" tabindex="0" title="{lines}" aria-label="{lines}" '
        f'style="left:{_percent(axis, bar, segment.start_ms)};width:max(3px,{width:.2f}%)"></i>'
    )


_CSS = """
:root{color-scheme:light dark;--bg:#fff;--ink:#1c2127;--soft:#66707c;--line:#e3e7ec;--row:#f5f7f9;
--succeeded:#2c8a4b;--failed:#cf2f2f;--running:#0b7ea4;--interrupted:#3566d6;--retrying:#b06f00;
--pending:#7a6bd0;--skipped:#b59a00;--missed:#b8418f;--cancelled:#8a6d5c;--damaged:#000}
@media(prefers-color-scheme:dark){:root{--bg:#14181d;--ink:#e4e8ec;--soft:#98a3af;--line:#2b323a;
--row:#1b2027;--succeeded:#46b46b;--failed:#ff6b63;--running:#43b9e0;--interrupted:#7aa2ff;
--retrying:#e6a23c;--pending:#a99cf5;--skipped:#d9c04a;--missed:#e57fc0;--cancelled:#bfa08d;
--damaged:#fff}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:14px/1.45 system-ui,sans-serif}
header,main{max-width:1280px;margin:0 auto;padding:0 20px}
h1{margin:20px 0 0;font-size:24px}h1+p{margin:0 0 12px;color:var(--soft)}
h2{margin:22px 0 4px;font-size:15px}h2 small{color:var(--soft);font-weight:400}
.switches{display:flex;flex-wrap:wrap;gap:6px 16px;margin:8px 0 12px}
.switches label{display:flex;align-items:center;gap:6px;cursor:pointer}
.switches input{margin:0;accent-color:var(--c)}
.strip{display:flex;flex-wrap:wrap;gap:2px;padding:8px 0}
.cell{width:10px;height:14px;border-radius:2px;background:var(--c)}
.cell:hover,.cell:focus{outline:2px solid var(--ink)}
.succeeded{--c:var(--succeeded)}.failed,.lost,.expired{--c:var(--failed)}
.running{--c:var(--running)}.interrupted{--c:var(--interrupted)}.retrying{--c:var(--retrying)}
.pending{--c:var(--pending)}.skipped{--c:var(--skipped)}.missed{--c:var(--missed)}
.cancelled{--c:var(--cancelled)}.damaged{--c:var(--damaged)}.waited,.released{--c:var(--soft)}
.dot{display:inline-block;flex:none;width:9px;height:9px;margin-right:6px;border-radius:50%;
background:var(--c)}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;margin:4px 0 0;color:var(--soft);font-size:12px}
.key span{display:flex;align-items:center;gap:6px}
.key .bar,.key .due{position:static;display:inline-block}.key .bar{width:22px}
.rows{border-top:1px solid var(--line)}
section{content-visibility:auto;contain-intrinsic-size:auto 500px}
.axis,.run{display:grid;grid-template-columns:94px 220px minmax(200px,1fr) 90px 130px;gap:10px;
align-items:center;padding:0 4px}
.axis{position:sticky;top:0;z-index:2;height:24px;background:var(--bg);color:var(--soft);
font-size:11px;border-bottom:1px solid var(--line)}
.axis b{font-weight:400}.axis div{position:relative;height:16px}
.axis div span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.axis .first{transform:none}.axis .last{transform:translateX(-100%)}
.run{min-height:22px}.run:nth-child(odd){background:var(--row)}
.run:target{outline:2px solid var(--c)}
.run time{white-space:nowrap}.run time,.right{font-variant-numeric:tabular-nums}
.right{text-align:right;white-space:nowrap}
.state{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.state em{margin-left:6px;color:var(--soft);font-style:normal;font-size:12px}
.track{position:relative;height:14px}
.bar{position:absolute;top:0;height:14px;border-radius:3px;background:var(--c)}
.bar:hover,.bar:focus{outline:2px solid var(--ink);z-index:1}
.bar.interrupted{background:repeating-linear-gradient(90deg,var(--c) 0 5px,transparent 5px 7px),
color-mix(in srgb,var(--c) 45%,transparent)}
.bar.running{background:repeating-linear-gradient(45deg,var(--c) 0 4px,
color-mix(in srgb,var(--c) 55%,var(--bg)) 4px 8px)}
.bar.failed,.bar.lost,.bar.expired{background:repeating-linear-gradient(135deg,var(--c) 0 3px,
color-mix(in srgb,var(--c) 40%,var(--bg)) 3px 6px)}
.bar.waited,.bar.released,.bar.skipped,.bar.cancelled{background:none;border:1px solid var(--c)}
.due{position:absolute;top:-1px;width:2px;height:16px;background:var(--soft)}
.none{margin:40px 0;color:var(--soft)}
@media(max-width:760px){.axis,.run{grid-template-columns:66px 110px minmax(80px,1fr) 66px}
.axis>:last-child,.run>:last-child{display:none}}
@media print{.axis{position:static}section{content-visibility:visible}}
"""
