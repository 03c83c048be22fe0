"""A play for people: what is played, and at the end what became of each schedule and promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from anarchon_ddb.local.reader import UNREAD
from anarchon_ddb.local.verdict import counted, import_failures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from anarchon_ddb.local.play import Play
    from anarchon_ddb.local.stack import Unplayed

_MARKS = {True: ("holds", "green"), False: ("BROKEN", "bold red"), None: ("not judged", "dim")}


def introduce(console: Console, play: Play) -> None:
    """Print what is played, what is left out, and where things are."""
    stack, plan = play.stack, play.plan
    counts = {
        "function": len(stack.functions), "schedule": len(stack.schedules),
        "table": len(stack.tables), "bucket": len(stack.buckets), "queue": len(stack.queues),
    }  # fmt: skip
    has = ", ".join(
        f"{count} {name}" + ("s" if count > 1 else "") for name, count in counts.items() if count
    )
    console.print(Text(f"{stack.path}: {has}", style="bold"))
    console.print(f"AWS at {play.cloud.aws.endpoint}; logs in {plan.directory}")
    for one in stack.unplayed:
        if one.why != UNREAD:
            console.print(Text(f"Not played: {one}", style="yellow"), soft_wrap=True)
    _show_unread(console, [one for one in stack.unplayed if one.why == UNREAD])
    for failure in import_failures(play.faults):
        console.print(Text(failure, style="bold red"), soft_wrap=True)
    if plan.chaos:
        console.print(f"Chaos with seed {plan.chaos.seed}: --seed repeats it.")
    if not plan.is_simulated and plan.end is None:
        console.print("Ctrl-C ends it.")


def _show_unread(console: Console, unread: list[Unplayed]) -> None:
    by_file: dict[str, list[str]] = {}
    for one in unread:
        by_file.setdefault(str(one.place.path), []).append(f"{one.name} ({one.place.line})")
    if by_file:
        told = "; ".join(f"{path}: {', '.join(names)}" for path, names in by_file.items())
        console.print(Text(f"Left out, since {UNREAD}: {told}", style="dim"))


def show(console: Console, summary: Mapping[str, Any]) -> None:
    """Print a summary as ``Play.summary`` gives it."""
    _show_figures(console, summary)
    _show_schedules(console, summary["schedules"])
    if any(ledger["job"] is not None for ledger in summary["schedules"]):
        _show_promises(console, summary["promises"])
    for name, queue in summary["queues"].items():
        if count := queue["messages"]:
            noun = "message" if count == 1 else "messages"
            told = f"{count:,} {noun} in the queue {name}: {queue['file']}"
            console.print(told, soft_wrap=True)
    console.print()
    under_way = sum(len(one["waiting"]) + len(one["open"]) for one in summary["schedules"])
    for failure in summary["failures"]:
        console.print(Text(failure, style="bold red"), soft_wrap=True)
    if not summary["failures"]:
        told = (f"{under_way:,} of {summary['slots']:,} slots were still under way; the others are "
                "accounted for." if under_way else "Every slot that was due is accounted for."
                if summary["slots"] else "No slot was due.")  # fmt: skip
        console.print(Text(told, style="bold green"))
    console.print(
        Text(
            f"History {summary['history']['digest']}: {summary['history']['path']}, beside the log "
            "of each invocation",
            style="dim",
        ),
        soft_wrap=True,
    )


def _show_figures(console: Console, summary: Mapping[str, Any]) -> None:
    clock = "simulated" if summary["simulated"] else "the machine's clock"
    console.print()
    console.print(Text(f"{summary['from']} to {summary['to']}, {clock}", style="bold"))
    if summary["chaos"]:
        chaos = ",".join(f"{name}={chance:g}" for name, chance in summary["chaos"].items())
        console.print(f"chaos {chaos}, seed {summary['seed']}")
    parts = [
        counted(summary["slots"], "slot"),
        f"{counted(summary['invocations'], 'invocation')} ({summary['cold_starts']:,} cold)",
        counted(summary["attempts"], "attempt"),
    ]
    parts += [
        f"{summary[name]:,} {word}"
        for name, word in (
            ("kills", "kills"),
            ("timed_out", "timed out"),
            ("throttled", "calls throttled"),
            ("replies_lost", "replies lost"),
            ("duplicates", "slots delivered twice"),
            ("late", "delivered late"),
            ("undelivered", "never delivered"),
            ("given_up", "events given up by Lambda"),
        )
        if summary[name]
    ]
    console.print(", ".join(parts))
    memory = summary["memory_mb"]
    console.print(
        f"{summary['seconds']:,.1f} s, {summary['slots_per_s']:,.1f} slots a second; "
        f"memory {memory['cloud']:,} MB, largest sandbox {memory['sandbox']:,} MB"
    )


def _show_schedules(console: Console, ledgers: list[Mapping[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("SCHEDULE", "FUNCTION", "DUE", "WORKED", "TWICE OR MORE", "OTHER", "NEVER"):
        table.add_column(name, justify="right" if name in {"DUE", "WORKED", "NEVER"} else "left")
    for ledger in ledgers:
        other = [f"{count} {state}" for state, count in ledger["other"].items()]
        other += [f"{len(ledger['open'])} open"] if ledger["open"] else []
        other += [f"{len(ledger['waiting'])} under way"] if ledger["waiting"] else []
        never = len(ledger["absent"])
        is_job = ledger["job"] is not None
        table.add_row(
            ledger["schedule"],
            ledger["function"],
            f"{ledger['due']:,}",
            f"{ledger['worked']:,}",
            "-" if is_job else f"{ledger['repeated']:,}",
            ", ".join(other) or "-",
            Text(f"{never:,}", style="red" if never else ""),
        )
    console.print()
    console.print(table)


def _show_promises(console: Console, promises: list[Mapping[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("PROMISE", "", "EVIDENCE"):
        table.add_column(name, overflow="fold")
    for promise in promises:
        mark, style = _MARKS[promise["holds"]]
        evidence = Text(promise["evidence"])
        for broken in promise["broken"]:
            evidence.append(f"\n{broken}", style="red")
        table.add_row(f"{promise['number']} {promise['text']}", Text(mark, style=style), evidence)
    console.print()
    console.print(table)
