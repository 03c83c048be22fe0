"""How cron libraries do on the project's schedule vectors: the figures of decision 0004.

Run it in an environment of its own; what is not installed is left out::

    python -m venv /tmp/compare
    /tmp/compare/bin/pip install cronsim croniter aws-croniter pyawscron \
        aws-cron-expression-validator tzdata
    PYTHONTZPATH= /tmp/compare/bin/python -m tests.bench.schedule_libraries [--verbose]

croniter and cronsim read other dialects. They get a translation (weekdays by name, ``?`` as ``*``,
``6L`` as they spell it), so that what counts against them is what they cannot do or do wrong.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from zoneinfo import ZoneInfo

TABLE = json.loads(
    (Path(__file__).parents[1] / "data" / "schedule_vectors.json").read_text("utf-8")
)
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
SECONDS_FOR_ONE = 5


class CannotExpress(Exception):  # noqa: N818 - an outcome, not a fault
    """The library has no way to say this."""


def fields_of(vector: dict) -> list[str]:
    if not (vector["expression"].startswith("cron(") and vector["expression"].endswith(")")):
        raise CannotExpress
    fields = vector["expression"][5:-1].split()
    return [*fields, "*"] if len(fields) == 5 and vector["kind"] == "scheduler" else fields


def by_name(item: str) -> str:
    """Spell AWS's numbers of weekdays as names, which mean the same everywhere."""
    for number, name in enumerate(DAYS, 1):
        item = item.replace(str(number), name, 1) if "#" not in item else item
    if "#" in item:
        day, _, nth = item.partition("#")
        return f"{DAYS[int(day) - 1] if day.isdigit() else day}#{nth}"
    return item


def weekday_number(text: str) -> str:
    return str(DAYS.index(text[:3])) if text[:3] in DAYS else str(int(text[:-1]) - 1)


def start_of(vector: dict) -> datetime:
    return datetime.fromisoformat(vector["after"]).astimezone(ZoneInfo(vector["timezone"]))


def utc_only(vector: dict) -> datetime:
    if vector["timezone"] != "UTC":
        raise CannotExpress
    return datetime.fromisoformat(vector["after"]).astimezone(UTC)


def with_croniter(vector: dict, count: int) -> list[datetime | None]:
    croniter = import_module("croniter").croniter
    minute, hour, dom, month, dow, year = fields_of(vector)
    dow = ",".join(map(by_name, dow.split(",")))
    if dow.endswith("L"):
        dow = "SAT" if dow == "L" else f"L{DAYS.index(dow[:3])}"
    if "W" in dom:
        raise CannotExpress
    text = f"{minute} {hour} {dom} {month} {dow}".replace("?", "*").lower()
    text = text.replace(" l ", " L ")
    rest = [] if year == "*" else ["0", year]
    walk = croniter(" ".join([text, *rest]), start_of(vector), ret_type=datetime)
    return [walk.get_next() for _ in range(count)]


def with_cronsim(vector: dict, count: int) -> list[datetime | None]:
    cronsim = import_module("cronsim").CronSim
    minute, hour, dom, month, dow, year = fields_of(vector)
    if year != "*" or ("W" in dom and dom != "LW"):
        raise CannotExpress
    items = [
        f"{weekday_number(item)}L" if item.endswith("L") and item != "L" else by_name(item)
        for item in dow.split(",")
    ]
    dow = ",".join("SAT" if item == "L" else item for item in items)
    text = f"{minute} {hour} {dom} {month} {dow}".replace("?", "*")
    walk = cronsim(text, start_of(vector))
    return [next(walk, None) for _ in range(count)]


def with_aws_croniter(vector: dict, count: int) -> list[datetime | None]:
    aws = import_module("aws_croniter").AwsCroniter
    return aws(" ".join(fields_of(vector))).get_next(utc_only(vector), count)


def with_pyawscron(vector: dict, count: int) -> list[datetime | None]:
    aws = import_module("pyawscron.awscron").AWSCron
    after = utc_only(vector)
    cron = aws(" ".join(fields_of(vector)))
    found: list[datetime | None] = []
    for _ in range(count):
        after = cron.occurrence(after).next() if after else None
        found.append(after)
    return found


def with_validator(vector: dict, count: int) -> list[datetime | None]:
    validator = import_module("aws_cron_expression_validator.validator").AWSCronExpressionValidator
    validator.validate(" ".join(fields_of(vector)))
    raise NotImplementedError


def with_this(vector: dict, count: int) -> list[datetime | None]:
    parse = import_module("anarchon_ddb.schedule").parse
    start = datetime.fromisoformat(vector["start"]) if "start" in vector else None
    schedule = parse(vector["expression"], vector["timezone"], vector["kind"], start=start)
    slot, found = datetime.fromisoformat(vector.get("after", "2026-01-01T00:00:00Z")), []
    for _ in range(count):
        slot = schedule.next(slot) if slot else None
        found.append(slot)
    return found


LIBRARIES = {
    "anarchon_ddb.schedule": with_this,
    "croniter": with_croniter,
    "cronsim": with_cronsim,
    "aws_croniter": with_aws_croniter,
    "pyawscron": with_pyawscron,
    "aws_cron_expression_validator": with_validator,
}


def outcome(ask, vector: dict, count: int) -> tuple[str, object]:
    signal.alarm(SECONDS_FOR_ONE)
    try:
        return "found", ask(vector, count)
    except CannotExpress:
        return "cannot express", None
    except NotImplementedError:
        return "accepted", None
    except TimeoutError:
        return "never ends", None
    except Exception as error:
        return "refused", repr(error)[:90]
    finally:
        signal.alarm(0)


def judge_slots(ask, vector: dict) -> tuple[str, object]:
    what, found = outcome(ask, vector, len(vector["next"]))
    if what != "found":
        return what, found
    expected = [text and datetime.fromisoformat(text) for text in vector["next"]]
    return ("right", None) if found == expected else ("wrong", [str(slot) for slot in found])


def judge_error(ask, vector: dict) -> tuple[str, object]:
    what, found = outcome(ask, {**vector, "after": "2026-01-01T00:00:00Z"}, 1)
    named = {"found": "accepted", "refused": "right"}
    return named.get(what, what), found


def main() -> None:
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    for library, ask in LIBRARIES.items():
        try:
            import_module(library)
        except ImportError:
            sys.stdout.write(f"{library}: not installed\n")
            continue
        for part, judge in (("slots", judge_slots), ("errors", judge_error)):
            verdicts = [(vector, *judge(ask, vector)) for vector in TABLE[part]]
            counted = Counter(verdict for _, verdict, _ in verdicts)
            sys.stdout.write(f"{library:30} {part:7} {dict(counted.most_common())}\n")
            if "--verbose" in sys.argv:
                for vector, verdict, found in verdicts:
                    if verdict not in ("right", "cannot express"):
                        line = f"{vector['expression']} {vector['timezone']}: {vector['why']}"
                        sys.stdout.write(f"    {verdict}: {line} {found or ''}\n")


if __name__ == "__main__":
    main()
