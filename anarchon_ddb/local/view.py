"""What a person sees while a template is played: a live table, or lines without a terminal."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anarchon_ddb.clock import iso
from anarchon_ddb.local.verdict import RESUMER
from anarchon_ddb.records import TERMINAL_STATES

if TYPE_CHECKING:
    from datetime import datetime

    from anarchon_ddb.local.history import Line
    from anarchon_ddb.local.play import Play
    from anarchon_ddb.local.referee import Seen

_LINES = 8
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
        return Text.assemble((f"{line['at'][11:19]}  ", _DIM), (text, style))

    def _picture(self) -> Group:
        with self._lock:
            parts: list[Any] = [self._clock(), self._table(), Text("")]
            return Group(*parts, *self._recent)

    def _clock(self) -> Table:
        play, now = self.play, self.play.cloud.now
        row = Table.grid(padding=(0, 2))
        cells: list[Any] = [Text(f"{now:%a %Y-%m-%d %H:%M:%S} UTC", style="bold")]
        if play.plan.is_simulated and play.plan.end is not None:
            whole = (play.plan.end - play.began).total_seconds()
            done = min(whole, (now - play.began).total_seconds())
            cells.append(ProgressBar(total=whole or 1, completed=done, width=30))
        counts = play.tally.events
        cells.append(
            Text(
                f"{counts['ended']:,} invocations, {play.referee.counts['claims']:,} attempts, "
                f"{sum(count for name, count in counts.items() if 'killed' in name):,} kills",
                style=_DIM,
            )
        )
        row.add_row(*cells)
        return row

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in (
            "SCHEDULE",
            "LAST SLOT",
            "STATE",
            "ATTEMPT",
            "PROGRESS",
            "NEXT SLOT",
            "CALLED",
        ):
            table.add_column(name, no_wrap=True)
        now = self.play.cloud.now
        for spec in self.play.stack.schedules.values():
            seen = self._latest(spec.name, spec.arn)
            state = seen.record.state if seen is not None else "-"
            coming = spec.slots(self.play.began).next(now) if spec.enabled else None
            table.add_row(
                spec.name,
                self._last.get(spec.name, "-"),
                Text(state, style=_STYLES.get(state, "")),
                str(seen.record.attempt) if seen is not None else "-",
                _progress(seen),
                _short(coming),
                f"{self._invocations[spec.function]:,}",
            )
        return table

    def _latest(self, schedule: str, arn: str) -> Seen | None:
        """Return the run of a schedule's last slot, as it stands."""
        slot = self._last.get(schedule)
        runs = self.play.referee.runs
        return next(
            (seen for (_, at), seen in list(runs.items())
             if at == slot and seen.record.schedule == arn), None
        )  # fmt: skip


def _short(moment: datetime | None) -> str:
    return "-" if moment is None else iso(moment)


def _progress(seen: Seen | None) -> Text:
    if seen is None or seen.record.done is None:
        return Text("-")
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
        return f"{name}: {event} ({line['operation']}, call {line['call']})", "red"
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
