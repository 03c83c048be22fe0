"""What a person sees while a template is played: a live table, or lines without a terminal."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anarchon_ddb.local.verdict import RESUMER, job_of
from anarchon_ddb.records import TERMINAL_STATES

if TYPE_CHECKING:
    from anarchon_ddb.local.history import Line
    from anarchon_ddb.local.play import Play
    from anarchon_ddb.local.referee import Seen
    from anarchon_ddb.local.stack import ScheduleSpec

_LINES = 8
_GAP = 2
_WIDE = 100
"""Below this many columns there is no bar beside the time."""
_GOOD, _BAD, _DIM = "green", "bold red", "dim"
_STYLES = {"succeeded": _GOOD, "failed": _BAD, "interrupted": "blue", "running": "cyan",
           "retrying": "yellow", "skipped": "yellow", "missed": "magenta"}  # fmt: skip


@dataclass(slots=True)
class View:
    """Follows a play on a console.

    Parameters
    ----------
    console : Console
        Where it is shown: on stderr, where stdout is for JSON.
    """

    play: Play
    console: Console
    _recent: deque[Text] = field(default_factory=lambda: deque(maxlen=_LINES))
    _last: dict[str, str] = field(default_factory=dict)
    _invocations: Counter[str] = field(default_factory=Counter)
    _live: Live | None = None
    _jobs: dict[str, str] = field(default_factory=dict)
    """By schedule, once a run of it was seen."""
    _day: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self.play.history.readers.append(self.read)
        if self.console.is_terminal:
            self._live = Live(
                console=self.console, get_renderable=self._picture, refresh_per_second=8,
                transient=True,
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.play.history.readers.remove(self.read)
        if self._live is not None:
            self._live.stop()

    def read(self, line: Line) -> None:
        """Take one line of the history."""
        with self._lock:
            if line["event"] == "delivered":
                self._last[line["schedule"]] = line["slot"]
            if line["event"] == "ended":
                self._invocations[line["function"]] += 1
            told = self._told(line)
            if told is not None:
                self._recent.append(told)
        if self._live is not None:
            return
        day = line["at"][:10]
        if self.play.plan.is_simulated:
            if day != self._day:
                self._day = day
                self.console.print(f"{day}  {self.play.tally.events['ended']:,} invocations so far")
        elif told is not None:
            self.console.print(told)

    def _told(self, line: Line) -> Text | None:
        """Return a line for people; None for what goes without saying."""
        spec = self.play.stack.functions[line["function"]]
        if spec.handler == RESUMER and line["event"] in {"delivered", "started", "ended"}:
            return None
        text, style = _words(line, spec.logical_id)
        if not text:
            return None
        told = Text.assemble((f"{line['at'][11:19]}  ", _DIM), (text, style))
        if self._live is not None:  # a line each
            told.no_wrap, told.overflow = True, "ellipsis"
        return told

    def _picture(self) -> Group:
        width, height = self.console.size
        with self._lock:
            table = _Fitted(width)
            specs = list(self.play.stack.schedules.values())
            room = max(1, height - len(self._recent) - 5)
            if len(specs) > room:  # those that fired last
                specs.sort(key=lambda spec: self._last.get(spec.name, ""), reverse=True)
            for spec in specs[:room]:
                table.rows.append(self._row(spec))
            more = len(specs) - room
            rest = Text(f"and {more} more schedules" if more > 0 else "", style=_DIM)
            return Group(self._clock(width), table.made(), rest, *self._recent)

    def _clock(self, width: int) -> Table:
        play, now = self.play, self.play.cloud.now
        row = Table.grid(padding=(0, 2))
        cells: list[Any] = [Text(f"{now:%a %Y-%m-%d %H:%M:%S} UTC", style="bold")]
        if play.plan.is_simulated and play.plan.end is not None and width >= _WIDE:
            whole = (play.plan.end - play.began).total_seconds()
            done = min(whole, (now - play.began).total_seconds())
            cells.append(ProgressBar(total=whole or 1, completed=done, width=width - 80))
        counts = play.tally.events
        told = [f"{counts['ended']:,} invocations"]
        told += [f"{claims:,} attempts"] if (claims := play.referee.counts["claims"]) else []
        told += [f"{kills:,} kills"] if (kills := play.tally.kills) else []
        cells.append(Text(", ".join(told), style=_DIM, no_wrap=True))
        row.add_row(*cells)
        return row

    def _row(self, spec: ScheduleSpec) -> list[Text]:
        now, seen = self.play.cloud.now, self._latest(spec)
        last = self._last.get(spec.name)
        coming = spec.slots(self.play.began).next(now) if spec.enabled else None
        state = seen.record.state if seen is not None else ""
        return [
            Text(spec.name),
            Text(_short(datetime.fromisoformat(last) if last else None, now)),
            Text(state, style=_STYLES.get(state, "")),
            Text(str(seen.record.attempt) if seen is not None else ""),
            _progress(seen),
            Text(_short(coming, now)),
            Text(f"{self._invocations[spec.function]:,}"),
        ]

    def _latest(self, spec: ScheduleSpec) -> Seen | None:
        """Return the run of a schedule's last slot, as it stands."""
        slot, runs = self._last.get(spec.name), self.play.referee.runs
        if spec.name not in self._jobs:
            job = job_of(spec, self.play.referee)
            if job is None:
                return None
            self._jobs[spec.name] = job
        return runs.get((self._jobs[spec.name], slot or ""))


class _Fitted:
    """A table that leaves out columns, the least telling first, until it fits."""

    _NAMES = ("SCHEDULE", "LAST SLOT", "STATE", "ATTEMPT", "PROGRESS", "NEXT SLOT", "CALLED")
    _FIRST_OUT = ("CALLED", "ATTEMPT", "NEXT SLOT", "PROGRESS", "LAST SLOT")

    def __init__(self, width: int) -> None:
        self._width = width
        self.rows: list[list[Text]] = []

    def made(self) -> Table:
        """Return it."""
        widths = {
            name: max([len(name), *(row[index].cell_len for row in self.rows)])
            for index, name in enumerate(self._NAMES)
            if any(row[index].plain for row in self.rows)
        }
        for name in self._FIRST_OUT:
            if sum(width + _GAP for width in widths.values()) - _GAP > self._width:
                widths.pop(name, None)
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
        for name in widths:
            table.add_column(name, no_wrap=True)
        shown = [index for index, name in enumerate(self._NAMES) if name in widths]
        for row in self.rows:
            table.add_row(*(row[index] for index in shown))
        return table


def _short(moment: datetime | None, now: datetime) -> str:
    """Return the time of an instant, with its day where that is another one."""
    if moment is None:
        return "-"
    return f"{moment:%H:%M:%S}" if moment.date() == now.date() else f"{moment:%m-%d %H:%M}"


def _progress(seen: Seen | None) -> Text:
    if seen is None or seen.record.done is None:
        return Text("")
    done, total = seen.record.done, seen.record.total
    if total and seen.record.state not in TERMINAL_STATES:
        full = round(8 * min(1, done / total))
        return Text("█" * full + "░" * (8 - full) + f" {done:,} of {total:,}", style="cyan")
    return Text(f"{done:,}")


def _words(line: Line, name: str) -> tuple[str, str]:
    """Return a line in words, and its colour."""
    event = line["event"]
    if event == "delivered":
        again = ", again" if line["delivery"] > 1 else ""
        late = f"{line['late_s']:,.0f} s after its slot"
        return f"{line['schedule']}: slot {line['slot']} delivered{again}, {late}", ""
    if event == "undelivered":
        where = f"; its event is in {line['queue'].rpartition(':')[2]}" if line["queue"] else ""
        return f"{line['schedule']}: slot {line['slot']} given up: {line['why']}{where}", "magenta"
    if event == "ended":
        return _end(line, name)
    if event == "given up":
        return f"{name}: Lambda gave the event up: {line['why']}", _BAD
    if event.startswith("killed"):
        call = f" ({line['operation']}, call {line['call']})" if "call" in line else ""
        return f"{name}: {event}{call}", "red"
    return "", ""


def _end(line: Line, name: str) -> tuple[str, str]:
    took = f"{line['duration_s']:.1f} s" + (", cold" if line["cold"] else "")
    if "outcome" in line:
        where = f"{line['job']} {line['slot']}" if "job" in line else name
        number = f"attempt {line['attempt']} " if line.get("attempt") else ""
        why = f" ({line['reason']})" if line.get("reason") else ""
        outcome = str(line["outcome"])
        return f"{where}: {number}{outcome}{why}, {took}", _STYLES.get(outcome, "")
    if line["end"] == "returned":
        return f"{name}: returned, {took}", ""
    how = "timed out" if line["end"] == "timed_out" else line["end"]
    return f"{name}: {how}: {line['error']}, {took}", _BAD
