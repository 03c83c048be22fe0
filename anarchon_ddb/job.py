"""``@job``: a function that works on a run becomes the Lambda handler of its job."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Unpack

from anarchon_ddb import logs, options, worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from anarchon_ddb.ending import Result
    from anarchon_ddb.options import JobOptions
    from anarchon_ddb.run import Run


class Job:
    """A Lambda handler: call it with an event and a context.

    Made by ``job``. Its options are resolved anew when the environment changed, and logged with
    where each came from.
    """

    def __init__(self, name: str, handler: Callable[[Run], object], given: JobOptions) -> None:
        functools.update_wrapper(self, handler)
        self.name = options.check_name(name)
        self._handler = handler
        self._given = dict(given)
        # What the decorator says is checked at once: a mistake in code is found by importing it.
        options.resolve(name, self._given, {})
        self._resolved: tuple[dict[str, str], worker.JobDefinition] | None = None

    def __call__(self, event: object, context: Any) -> Result:
        """Work on the slot that the event delivers.

        Raises
        ------
        InvalidEventError, InvalidJobError, StoreError
            The handler did not run, or its end could not be stored.
        Exception
            What the handler raised, after it was recorded.
        """
        return worker.invoke(self.definition(), event, context)

    def definition(self) -> worker.JobDefinition:
        """Return the job as the environment has it: a setting there wins over the decorator.

        Raises
        ------
        InvalidJobError
            For an unknown ``ANARCHON_*`` setting, or a value out of range.
        """
        prefix = options.PREFIX
        # By name first: a value is decoded when it is asked for, and there are dozens.
        environ = {name: os.environ[name] for name in os.environ if name.startswith(prefix)}
        if self._resolved is None or self._resolved[0] != environ:
            effective, sources = options.resolve(self.name, self._given, environ)
            definition = worker.JobDefinition(self.name, self._handler, effective)
            self._resolved = (environ, definition)
            logs.logger().info(
                "Options",
                extra={"job": self.name, "options": options.described(effective, sources)},
            )
        return self._resolved[1]


def job(name: str, **given: Unpack[JobOptions]) -> Callable[[Callable[[Run], object]], Job]:
    """Make a function the Lambda handler of a job.

    Parameters
    ----------
    name : str
        Letters, digits, ``.``, ``_`` and ``-``; at most 64.
    **given
        The policy. Durations as ``"90s"``, ``"50m"``, ``"1h"``, ``"30d"`` or ``timedelta``. Each
        may be set in the template as ``ANARCHON_<OPTION>``, which wins. The defaults:
        ``overlap="skip"``, ``timeout="24h"``, ``lease="60s"``, ``stop_margin="10s"``,
        ``checkpoint_interval="0s"`` (each ``save`` is stored), ``max_attempts=3``,
        ``retry_delay="30s"``, ``catch_up="latest"``, ``catch_up_window="24h"``,
        ``continuation="resumer"``, ``retention="30d"``, ``version=""``,
        ``on_version_change="restart"``.

    Raises
    ------
    InvalidJobError
        For an unusable name or option.

    Examples
    --------
    >>> @job("export", timeout="50m")
    ... def handler(run: Run) -> None:
    ...     for page in run.paginate(dynamodb, "scan", TableName="planes"):
    ...         export_batch(page["Items"])
    """
    options.check_name(name)

    def decorate(handler: Callable[[Run], object]) -> Job:
        made = Job(name, handler, given)
        if "AWS_LAMBDA_RUNTIME_API" in os.environ:
            worker.warm_up()
        return made

    return decorate
