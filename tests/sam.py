"""The templates as CloudFormation gets them: translated by SAM's own translator, one by one."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

ROOT = Path(__file__).parents[1]
PARENT = "template.yaml"
NESTED = ("infra/table.yaml", "infra/resumer.yaml", "infra/dashboard.yaml", "infra/alarms.yaml")
TEMPLATES = (PARENT, *NESTED)
CODE_URI = "s3://code/artifact.zip"
TEMPLATE_URL = "https://s3.eu-west-1.amazonaws.com/templates/{name}"


class _NoManagedPolicies:
    """Policies are given by ARN or inline, so none is looked up by name."""

    def load(self) -> dict[str, str]:
        return {}


@cache
def _parsed(path: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = yaml_parse(path.read_text())
    return parsed


def source(name: str) -> dict[str, Any]:
    """Return a template as it is written, ``!Ref`` as ``{"Ref": …}``."""
    return copy.deepcopy(_parsed(ROOT / name))


def packaged(template: dict[str, Any]) -> dict[str, Any]:
    """Return a template as ``sam package`` leaves it: code and nested templates are in S3."""
    shared = template.get("Globals", {}).get("Function", {})
    if "CodeUri" in shared:
        shared["CodeUri"] = CODE_URI
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::Serverless::Function" and "CodeUri" in properties:
            properties["CodeUri"] = CODE_URI
        if resource["Type"] == "AWS::Serverless::Application":
            name = properties["Location"].replace("/", "-")
            properties["Location"] = TEMPLATE_URL.format(name=name)
    return template


def translate(template: dict[str, Any], parameters: Mapping[str, str] | None = None) -> Any:
    """Return what CloudFormation executes, as JSON would carry it.

    The parameters become its defaults, so that a linter knows them, too.
    """
    given = copy.deepcopy(packaged(template))
    for name, value in (parameters or {}).items():
        given["Parameters"][name]["Default"] = value
    done = transform(given, {}, _NoManagedPolicies())  # type: ignore[arg-type]
    return json.loads(json.dumps(done))


def of_type(template: Mapping[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield logical ids and properties of the resources of a type."""
    for logical_id, resource in template["Resources"].items():
        if resource["Type"] == kind:
            yield logical_id, resource.get("Properties", {})


def cli(*arguments: str | Path, **environment: str) -> None:
    """Call the SAM CLI of this project at its root."""
    command = ROOT / ".venv-sam/bin/sam"
    assert command.exists(), "make .venv-sam/.ready makes it, and make test does so"
    own = {"SAM_CLI_TELEMETRY": "0", "AWS_DEFAULT_REGION": "eu-west-1", **environment}
    done = subprocess.run(
        [command, *arguments],
        env={**os.environ, **own},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
