"""IAM as far as this stack needs it: what a call needs, and what a policy allows."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
import botocore.client
import moto.settings
import pytest
from moto.core.authorization import ActionAuthenticatorMixin
from moto.dynamodb.responses import DynamoHandler
from moto.iam.access_control import IAMRequestBase

from tests.moto_cloudformation import REGION

ACCOUNT = f"{REGION}:123456789012"
Statement = dict[str, Any]


def _table(call: dict[str, Any]) -> str:
    index = f"/index/{call['IndexName']}" if "IndexName" in call else ""
    return f"arn:aws:dynamodb:{ACCOUNT}:table/{call['TableName']}{index}"


# The one place that knows what a call needs: an action that a path begins to use is one more line.
# Operation -> (action, resource).
_EVERY_SCHEDULE = f"arn:aws:scheduler:{ACCOUNT}:schedule/*/*"
NEEDS: dict[tuple[str, str], tuple[str, Callable[[dict[str, Any]], str]]] = {
    ("dynamodb", "GetItem"): ("dynamodb:GetItem", _table),
    ("dynamodb", "UpdateItem"): ("dynamodb:UpdateItem", _table),
    ("dynamodb", "Query"): ("dynamodb:Query", _table),
    ("dynamodb", "Scan"): ("dynamodb:Scan", _table),
    ("lambda", "Invoke"): (
        "lambda:InvokeFunction",
        lambda call: f"arn:aws:lambda:{ACCOUNT}:function:{call['FunctionName'].split(':')[-1]}",
    ),
    ("lambda", "GetFunctionEventInvokeConfig"): (
        "lambda:GetFunctionEventInvokeConfig",
        lambda call: f"arn:aws:lambda:{ACCOUNT}:function:{call['FunctionName'].split(':')[-1]}",
    ),
    ("scheduler", "GetSchedule"): (
        "scheduler:GetSchedule",
        lambda call: f"arn:aws:scheduler:{ACCOUNT}:schedule/{call['GroupName']}/{call['Name']}",
    ),
    ("scheduler", "ListSchedules"): ("scheduler:ListSchedules", lambda _: _EVERY_SCHEDULE),
    ("events", "DescribeRule"): (
        "events:DescribeRule",
        lambda call: f"arn:aws:events:{ACCOUNT}:rule/{call['Name']}",
    ),
    ("s3", "PutObject"): (
        "s3:PutObject",
        lambda call: f"arn:aws:s3:::{call['Bucket']}/{call['Key']}",
    ),
}


@dataclass(frozen=True)
class Need:
    """What a call needs to be allowed."""

    action: str
    resource: str

    def is_allowed_by(self, statement: Statement) -> bool:
        return self.action in actions(statement) and any(
            fnmatch.fnmatchcase(self.resource, pattern)
            for pattern in _listed(statement["Resource"])
        )


def actions(statement: Statement) -> list[str]:
    return _listed(statement["Action"])


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Need]:
    """Record what each call of any client needs."""
    needs: list[Need] = []
    original = botocore.client.BaseClient._make_api_call

    def call(self: Any, operation: str, arguments: dict[str, Any]) -> Any:
        action, resource = NEEDS[self.meta.service_model.service_name, operation]
        needs.append(Need(action, resource(arguments)))
        return original(self, operation, arguments)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", call)
    return needs


def inline_statements(role_of: str) -> Iterator[Statement]:
    """Yield what a function's own role allows, beside the managed policies."""
    iam = boto3.client("iam")
    for role in iam.list_roles()["Roles"]:
        name = role["RoleName"]
        if f"-{role_of}Role-" in name:
            for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
                document = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
                given = ast.literal_eval(document)  # moto keeps the repr of a dict
                yield from given["Statement"]


def enforce(patch: pytest.MonkeyPatch) -> None:
    """Let moto check each call against the caller's policies, its resource with it, as IAM does."""
    check, call = IAMRequestBase.check_action_permitted, DynamoHandler.call_action

    def check_with_resource(request: Any, resource: str) -> None:
        if request._service == "dynamodb":
            resource = _table(json.loads(request._body))
        elif request._action == "lambda:Invoke":
            request._action = "lambda:InvokeFunction"
            name = unquote(request._path).split("/")[-2]
            resource = f"arn:aws:lambda:{ACCOUNT}:function:{name.split(':')[-1]}"
        elif request._action == "scheduler:GetSchedule":
            place = urlsplit(unquote(request._path))
            group, name = parse_qs(place.query)["groupName"][0], place.path.split("/")[-1]
            resource = f"arn:aws:scheduler:{ACCOUNT}:schedule/{group}/{name}"
        elif request._action == "events:DescribeRule":
            resource = f"arn:aws:events:{ACCOUNT}:rule/{json.loads(request._body)['Name']}"
        check(request, resource)

    def call_with_denial(handler: DynamoHandler) -> Any:
        status, headers, body = call(handler)
        if status != 403:
            return status, headers, body
        kind = "com.amazon.coral.service#AccessDeniedException"  # moto answers in XML
        text = re.findall(r"<Message>(.*?)</Message>", body)[0]
        return 400, headers, json.dumps({"__type": kind, "Message": text})

    patch.setattr(IAMRequestBase, "check_action_permitted", check_with_resource)
    # moto signs a path with a query differently; who calls is told by the key.
    patch.setattr(IAMRequestBase, "check_signature", lambda _: None)
    patch.setattr(DynamoHandler, "call_action", call_with_denial)
    patch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
    patch.setattr(ActionAuthenticatorMixin, "request_count", 0)
