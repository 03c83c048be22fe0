"""A job's policy: what is accepted, what wins, and what a mistake is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from anarchon_ddb import InvalidJobError, job
from anarchon_ddb.options import resolve


def test_the_defaults_are_those_of_the_documentation() -> None:
    options, sources = resolve("export", {}, {})
    assert (
        options.overlap,
        options.timeout,
        options.lease,
        options.stop_margin,
        options.max_attempts,
        options.retry_delay,
    ) == ("skip", 86_400_000, 60_000, 10_000, 3, 30_000)
    assert {"default"} == set(sources.values())


def test_the_environment_wins_over_the_decorator() -> None:
    given = {"timeout": "50m", "max_attempts": 5, "lease": timedelta(seconds=90)}
    options, sources = resolve("export", given, {"ANARCHON_TIMEOUT": "1h", "OTHER": "x"})
    assert (options.timeout, options.max_attempts, options.lease) == (3_600_000, 5, 90_000)
    assert (
        sources["timeout"],
        sources["lease"],
        sources["overlap"],
    ) == ("ANARCHON_TIMEOUT", "decorator", "default")


@pytest.mark.parametrize(
    ("given", "environ", "text"),
    [
        ({"timout": "1h"}, {}, "unknown option 'timout'; did you mean timeout?"),
        ({}, {"ANARCHON_TIMOUT": "1h"}, "did you mean ANARCHON_TIMEOUT?"),
        ({"timeout": "1 hour"}, {}, 'expected a duration such as "90s"'),
        ({"timeout": 60}, {}, "expected a duration"),
        ({}, {"ANARCHON_LEASE": ""}, "ANARCHON_LEASE is ''"),
        ({"overlap": "sometimes"}, {}, "expected one of skip, allow, queue"),
        ({"max_attempts": 0}, {}, "at least 1"),
        ({"max_attempts": True}, {}, "expected a whole number"),
        ({}, {"ANARCHON_MAX_ATTEMPTS": "3.5"}, "expected a whole number"),
        ({"lease": "0s"}, {}, "lease must be at least 1s"),
        ({"catch_up_window": "30d"}, {}, "must be shorter than retention"),
        ({"version": 3}, {}, "expected a text"),
    ],
)
def test_a_mistake_is_told(given: dict[str, Any], environ: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        resolve("export", given, environ)
    assert text in str(error.value)


def test_reserved_settings_are_no_options() -> None:
    resolve("a", {}, {"ANARCHON_TABLE": "t", "ANARCHON_STACK": "s", "ANARCHON_SCHEDULE_GROUP": "g"})


@pytest.mark.parametrize("name", ["", "a#b", "a:b", "a b", "-a", "x" * 65, "é", 7, len])
def test_a_name_that_could_run_together_is_refused(name: Any) -> None:
    with pytest.raises(InvalidJobError):
        job(name)


def test_the_decorator_without_a_name_says_how_to_write_it() -> None:
    with pytest.raises(InvalidJobError, match=r'write @job\("export"\)'):

        @job  # type: ignore[arg-type]
        def handler(run: object) -> None:
            pass


def test_a_bad_option_is_found_by_importing_the_module() -> None:
    with pytest.raises(InvalidJobError, match="overlap"):

        @job("export", overlap="never")  # type: ignore[arg-type]
        def handler(run: object) -> None:
            pass


def test_the_handler_keeps_its_name_and_docstring() -> None:
    @job("export")
    def handler(run: object) -> None:
        """Export."""

    assert (handler.__name__, handler.__doc__) == ("handler", "Export.")
