"""Rules on a job's settings, its handler, and the function that runs it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from anarchon_ddb import options as job_options
from anarchon_ddb.doctor.finding import Chapter, Hit, at
from anarchon_ddb.doctor.model import problem_of
from anarchon_ddb.doctor.scope import Reference
from anarchon_ddb.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anarchon_ddb.doctor.model import Function, Model

CHAPTER = Chapter()


@CHAPTER.rule(
    "setting",
    "error",
    title="A setting that the job refuses",
    why="The function raises InvalidJobError at its cold start: no slot runs.",
    fix="Write a setting and a value of docs/guide.md; durations as 90s, 50m, 1h or 30d.",
)
def _setting_refused(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        for name, node in function.environment.items():
            problem = problem_of(name, node.value) if node.is_known else None
            if problem:
                yield at(node, f"{function.logical_id}: {problem}")


@CHAPTER.rule(
    "recursion",
    "error",
    title="Lambda will cut the chain",
    why="A function that invokes itself is stopped after about 16 rounds, and may be throttled.",
    fix="Write RecursiveLoop: Allow, or leave ANARCHON_CONTINUATION at resumer.",
)
def _recursion(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        allowed = function.get("RecursiveLoop")
        if function.policy.continuation == "self" and (
            allowed is None or (allowed.is_known and allowed.value != "Allow")
        ):
            node = allowed or function.environment.get("ANARCHON_CONTINUATION", function.node)
            yield at(node, f"{function.logical_id} continues itself without RecursiveLoop: Allow")


@CHAPTER.rule(
    "recursion-unused",
    "warning",
    title="RecursiveLoop is allowed for nothing",
    why="It turns off Lambda's guard against endless loops, and the resumer does not need it.",
    fix="Remove RecursiveLoop, or write ANARCHON_CONTINUATION: self.",
)
def _recursion_unused(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        node = function.get("RecursiveLoop")
        setting = function.environment.get("ANARCHON_CONTINUATION")
        is_told = setting is None or setting.is_known
        if (
            node is not None
            and node.value == "Allow"
            and is_told
            and function.policy.continuation != "self"
        ):
            yield at(node, f"{function.logical_id} allows a loop that it does not make")


@CHAPTER.rule(
    "no-concurrency",
    "error",
    title="The function can't run at all",
    why="ReservedConcurrentExecutions: 0 throttles every invocation.",
    fix="Remove it; to stop a job for a while use `anarchon-ddb pause`.",
)
def _no_concurrency(model: Model) -> Iterator[Hit]:
    for function in (*model.jobs, *model.resumers):
        node = function.get("ReservedConcurrentExecutions")
        if node is not None and node.number == 0:
            yield at(node, f"{function.logical_id}: ReservedConcurrentExecutions is 0")


@CHAPTER.rule(
    "runtime",
    "error",
    title="The runtime can't load the package",
    why="anarchon_ddb needs Python 3.11 or newer: every invocation fails at import.",
    fix="Write Runtime: python3.13.",
)
def _runtime(model: Model) -> Iterator[Hit]:
    for function in (*model.jobs, *model.resumers):
        node = function.get("Runtime")
        found = re.fullmatch(r"python3\.(\d+)", node.text) if node and node.text else None
        if node is not None and node.text is not None and (found is None or int(found[1]) < 11):
            yield at(node, f"{function.logical_id}: Runtime {node.text}")


@CHAPTER.rule(
    "log-level",
    "warning",
    title="Lambda's log filter drops the metrics",
    why="Metrics are log lines (EMF) at INFO: above it graphs stay empty and alarms silent.",
    fix="Remove ApplicationLogLevel, and set POWERTOOLS_LOG_LEVEL instead.",
)
def _log_level(model: Model) -> Iterator[Hit]:
    for function in (*model.jobs, *model.resumers):
        node = function.get("LoggingConfig", "ApplicationLogLevel")
        if node is not None and node.text in {"WARN", "ERROR", "FATAL"}:
            yield at(node, f"{function.logical_id}: ApplicationLogLevel {node.text}")


@CHAPTER.rule(
    "handler-file",
    "error",
    title="The handler is not there",
    why="Every invocation fails at import, and every slot is lost until a deploy mends it.",
    fix="Write Handler as folder.file.function, from CodeUri on.",
)
def _handler_file(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        file, handler = function.file, function.get("Handler")
        if file is None or handler is None:
            continue
        if not file.exists:
            yield at(handler, f"{function.logical_id}: there is no file {file.path}")
        elif file.is_readable and not file.has_function:
            name = str(handler.value).rpartition(".")[2]
            yield at(handler, f"{function.logical_id}: {file.path.name} has no function {name}")


@CHAPTER.rule(
    "handler-job",
    "error",
    title="The handler is no job",
    why="Without @job nothing claims the slot: duplicates run twice, and a timeout begins anew.",
    fix='Write @job("NAME") above the handler.',
)
def _handler_job(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        file, handler = function.file, function.get("Handler")
        decorated = file is None or not file.has_function or file.declared is not None
        if not decorated and handler is not None and not _is_assigned(function):
            yield at(handler, f"{function.logical_id}: the handler has no @job")


def _is_assigned(function: Function) -> bool:
    """Whether the name comes by an import or an assignment, so that @job may be elsewhere."""
    file = function.file
    name = (function.handler or "").rpartition(".")[2]
    return file is None or f"def {name}(" not in file.path.read_text(encoding="utf-8")


@CHAPTER.rule(
    "decorator",
    "error",
    title="@job has an option that it refuses",
    why="The function raises InvalidJobError at its cold start: no slot runs.",
    fix="Write an option and a value of docs/guide.md; durations as 90s, 50m, 1h or 30d.",
)
def _decorator(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        declared = function.declared
        if declared is None:
            continue
        try:
            job_options.resolve(function.logical_id, declared.options, {})
        except InvalidJobError as error:
            yield Hit(declared.path, declared.line, f"{function.logical_id}: {error}")


@CHAPTER.rule(
    "own-reference",
    "error",
    title="A function's own name or ARN in its own environment",
    why="A circular dependency: CloudFormation refuses it; SAM's linter passes it.",
    fix="Use AWS_LAMBDA_FUNCTION_NAME, which Lambda sets, or a name with ${AWS::StackName}.",
)
def _own_reference(model: Model) -> Iterator[Hit]:
    for function in model.functions:
        for name, node in function.environment.items():
            value = node.value
            if (
                isinstance(value, Reference)
                and value.logical_id == function.logical_id
                and value.scope is function.scope
            ):
                yield at(node, f"{function.logical_id}: {name} refers to the function itself")
