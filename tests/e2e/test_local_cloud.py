"""The local cloud plays Lambda, Scheduler and a template as AWS does, and leaves nothing behind."""

import dataclasses
import json
import os
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.dynamodb.responses import DynamoHandler

from anarchon_ddb.local import reader, stack
from anarchon_ddb.local.cloud import LocalCloud, environment_of
from anarchon_ddb.local.functions import Ended
from anarchon_ddb.local.template import TemplateError
from anarchon_ddb.schema import table_description
from tests.processes import is_alive, wait_until

ROOT = Path(__file__).parents[2]
SLOT = datetime(2026, 11, 29, 2, tzinfo=UTC)

# A stack whose functions do not use the package: the cloud plays any SAM project.
PLAIN_TEMPLATE = """
Globals:
  Function: { Timeout: 20 }
Resources:
  Echo:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: echo
      Handler: jobs.echo
      Events:
        Hourly:
          Type: ScheduleV2
          Properties:
            ScheduleExpression: rate(1 hour)
            Name: hourly
            Input: '{"at":"<aws.scheduler.scheduled-time>","by":"<aws.scheduler.schedule-arn>"}'
        Plain:
          Type: ScheduleV2
          Properties: { ScheduleExpression: rate(1 hour), Name: plain }
  Slow:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: slow, Handler: jobs.slow, Timeout: 1 }
  Quits:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: quits, Handler: jobs.quits }
  Breaks:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: breaks, Handler: jobs.breaks }
  Missing:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: missing, Handler: no_such_module.handler }
  Unnamed:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: unnamed, Handler: jobs.no_such_function }
"""

PLAIN_JOBS = """
import os, subprocess, sys, time
print("imported")
calls = 0

def echo(event, context):
    global calls
    calls += 1
    print("echo of", event, flush=True)
    print("to stderr", file=sys.stderr)
    subprocess.run(["echo", "from another program"], check=True)
    return {"event": event, "pid": os.getpid(), "calls": calls,
            "remaining_ms": context.get_remaining_time_in_millis(),
            "arn": context.invoked_function_arn}

def slow(event, context):
    child = subprocess.Popen(["sleep", "60"])
    print("remaining", context.get_remaining_time_in_millis())
    print("grandchild", child.pid, flush=True)
    time.sleep(0.5)
    print("remaining", context.get_remaining_time_in_millis(), flush=True)
    time.sleep(60)

def quits(event, context):
    sys.exit(3)

def breaks(event, context):
    raise ValueError("no such plane")
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    directory = tmp_path_factory.mktemp("project")
    (directory / "template.yaml").write_text(PLAIN_TEMPLATE)
    (directory / "jobs.py").write_text(PLAIN_JOBS)
    return reader.read(directory / "template.yaml")


@pytest.fixture(scope="module")
def cloud(plain, tmp_path_factory):
    with LocalCloud(plain, tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest.fixture(scope="module")
def lambda_client(cloud):
    """A client as a function has it: its endpoint comes from the function's environment."""
    endpoint = cloud.functions["echo"].environment_of("")["AWS_ENDPOINT_URL"]
    return boto3.client(
        "lambda",
        endpoint_url=endpoint,
        region_name=stack.REGION,
        aws_access_key_id="echo",
        aws_secret_access_key="local",
        config=Config(proxies={}, retries={"total_max_attempts": 1}),
    )


# --- Lambda ------------------------------------------------------------------------------------


def test_a_sandbox_is_a_process_of_its_own_that_is_reused_while_warm(cloud):
    first = cloud.functions["echo"].invoke({"n": 1})
    second = cloud.functions["echo"].invoke({"n": 2})

    assert first.payload["pid"] == second.payload["pid"] != os.getpid()
    assert second.payload["calls"] == first.payload["calls"] + 1
    assert not second.cold
    assert second.payload["event"] == {"n": 2}
    assert 15_000 < second.payload["remaining_ms"] <= 20_000
    assert second.payload["arn"] == "arn:aws:lambda:eu-west-1:123456789012:function:echo"


def test_two_invocations_at_once_get_two_sandboxes(plain, tmp_path):
    with LocalCloud(plain, tmp_path) as cloud:
        slow = cloud.functions["slow"]
        slow.send({})
        slow.send({})

        wait_until(lambda: len(slow.pids()) == 2)


def test_each_invocation_logs_to_a_file_of_its_own(cloud):
    first = cloud.functions["echo"].invoke("first").log.read_text()
    second = cloud.functions["echo"].invoke("second").log.read_text()

    for text, other in (("first", "second"), ("second", "first")):
        log = first if text == "first" else second
        assert f"echo of {text}" in log
        assert f"echo of {other}" not in log
        assert "to stderr" in log
        assert "from another program" in log
        assert log.startswith("START RequestId: ") or "imported" in log
        assert "REPORT RequestId: " in log


def test_a_function_that_outlives_its_deadline_is_killed_with_all_it_started(cloud):
    started_s = time.monotonic()
    ended = cloud.functions["slow"].invoke({})
    log = ended.log.read_text()

    assert ended.end == "timed_out"
    assert ended.payload["errorType"] == "Sandbox.Timedout"
    assert ended.payload["errorMessage"].endswith("Task timed out after 1.00 seconds")
    assert 1 <= ended.duration_s < 3
    assert time.monotonic() - started_s < 5
    before, after = (int(line.split()[1]) for line in log.splitlines() if "remaining" in line)
    assert 450 <= before - after < 1000
    grandchild = next(int(line.split()[1]) for line in log.splitlines() if "grandchild" in line)
    wait_until(lambda: not is_alive(grandchild))
    assert cloud.functions["slow"].pids() == []


def test_a_process_that_ends_is_reported_and_replaced(cloud):
    ended = cloud.functions["quits"].invoke({})

    assert (ended.end, ended.payload["errorType"]) == ("exited", "Runtime.ExitError")
    assert "exit status 3" in ended.payload["errorMessage"]
    assert cloud.functions["quits"].invoke({}).cold


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("missing", "Runtime.ImportModuleError", "Unable to import module 'no_such_module'"),
        (
            "unnamed",
            "Runtime.HandlerNotFound",
            "Handler 'no_such_function' missing on module 'jobs'",
        ),
        ("breaks", "ValueError", "no such plane"),
    ],
)
def test_an_error_is_told_as_lambda_tells_it(cloud, name, kind, text):
    ended = cloud.functions[name].invoke({})

    assert (ended.end, ended.payload["errorType"]) == ("raised", kind)
    assert text in ended.payload["errorMessage"]
    assert "Traceback" in ended.log.read_text()


# --- the Invoke API ----------------------------------------------------------------------------


def test_invoke_waits_for_the_result(lambda_client):
    reply = lambda_client.invoke(FunctionName="echo", Payload=b'{"tail": "N10156"}')

    assert reply["StatusCode"] == 200
    assert "FunctionError" not in reply
    assert json.load(reply["Payload"])["event"] == {"tail": "N10156"}


def test_invoke_tells_the_error_of_a_function(lambda_client):
    reply = lambda_client.invoke(FunctionName="breaks", Payload=b"{}")

    assert (reply["StatusCode"], reply["FunctionError"]) == (200, "Unhandled")
    assert json.load(reply["Payload"])["errorMessage"] == "no such plane"


def test_invoke_of_an_event_answers_at_once_and_runs_later(cloud, lambda_client):
    ended = []
    cloud.listeners.append(ended.append)

    reply = lambda_client.invoke(
        FunctionName="arn:aws:lambda:eu-west-1:123456789012:function:echo",
        InvocationType="Event",
        Payload=b'{"later": true}',
    )

    assert reply["StatusCode"] == 202
    request_id = reply["ResponseMetadata"]["RequestId"]
    mine = wait_until(
        lambda: [e for e in ended if isinstance(e, Ended) and e.request_id == request_id]
    )
    assert mine[0].payload["event"] == {"later": True}


@pytest.mark.parametrize(
    ("function", "payload", "code"),
    [
        ("nobody", b"{}", "ResourceNotFoundException"),
        ("echo", b"{", "InvalidRequestContentException"),
    ],
)
def test_invoke_refuses_what_lambda_refuses(lambda_client, function, payload, code):
    with pytest.raises(ClientError) as refused:
        lambda_client.invoke(FunctionName=function, Payload=payload)

    assert refused.value.response["Error"]["Code"] == code


# --- Scheduler ---------------------------------------------------------------------------------


def delivered(cloud, schedule):
    ended = []
    cloud.listeners.append(ended.append)
    request_id = cloud.deliver(schedule, SLOT)
    mine = wait_until(
        lambda: [e for e in ended if isinstance(e, Ended) and e.request_id == request_id]
    )
    return mine[0].payload["event"]


def test_a_slot_is_delivered_with_the_placeholders_of_its_input_replaced(cloud):
    assert delivered(cloud, "hourly") == {
        "at": "2026-11-29T02:00:00Z",
        "by": "arn:aws:scheduler:eu-west-1:123456789012:schedule/default/hourly",
    }


def test_a_schedule_without_input_delivers_the_default_envelope(cloud):
    event = delivered(cloud, "plain")

    assert event["source"] == "aws.scheduler"
    assert event["time"] == "2026-11-29T02:00:00Z"
    assert event["resources"] == ["arn:aws:scheduler:eu-west-1:123456789012:schedule/default/plain"]


# --- the shipped template ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped():
    return reader.read(ROOT / "template.yaml", name="prod", parameters={"SourceTable": "aircraft"})


def test_a_functions_environment_is_that_of_the_template_and_nothing_of_this_machine(
    shipped, monkeypatch
):
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")

    environment = environment_of(
        shipped.function("ExportFunction"), endpoint="http://127.0.0.1:1", signer="prod-export@1"
    )

    assert {
        "ANARCHON_CONTINUATION": "self",
        "ANARCHON_SCHEDULE_GROUP": "prod",
        "ANARCHON_STACK": "prod",
        "ANARCHON_TABLE": shipped.tables[0].name,
        "AWS_ACCESS_KEY_ID": "prod-export@1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_LAMBDA_FUNCTION_NAME": "prod-export",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_REGION": "eu-west-1",
        "EXPORT_BUCKET": "prod-exportbucket",
        "POWERTOOLS_LOG_LEVEL": "INFO",
        "SOURCE_TABLE": "aircraft",
    }.items() <= environment.items()
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTPS_PROXY", "HOME"} & environment.keys()


def test_the_table_of_the_template_is_the_one_the_store_creates(shipped, tmp_path):
    (table,) = shipped.tables
    wanted = table_description(table.name)

    assert {"TableName": table.name, **table.arguments} == wanted
    with LocalCloud(shipped, tmp_path) as cloud:
        dynamodb = cloud.aws.client("dynamodb")
        created = dynamodb.describe_table(TableName=table.name)["Table"]
        ttl = dynamodb.describe_time_to_live(TableName=table.name)["TimeToLiveDescription"]
    assert created["KeySchema"] == wanted["KeySchema"]
    assert created["GlobalSecondaryIndexes"][0]["IndexName"] == "open-runs"
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}


# --- the embedded AWS --------------------------------------------------------------------------


def test_of_many_conditional_writes_at_once_one_wins(cloud):
    dynamodb = cloud.aws.client("dynamodb")
    dynamodb.create_table(
        TableName="races",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
    )
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change in the middle of everything
    try:
        answers = [race(dynamodb, f"turn-{turn}") for turn in range(30)]
    finally:
        sys.setswitchinterval(interval_s)

    assert answers == [["ConditionalCheckFailedException"] * 7 + ["won"]] * 30


def race(dynamodb, key):
    answers, barrier = [], threading.Barrier(8)

    def claim():
        barrier.wait()
        try:
            dynamodb.update_item(
                TableName="races",
                Key={"pk": {"S": key}},
                UpdateExpression="SET taken = :yes",
                ConditionExpression="attribute_not_exists(pk)",
                ExpressionAttributeValues={":yes": {"BOOL": True}},
            )
        except ClientError as error:
            answers.append(error.response["Error"]["Code"])
        else:
            answers.append("won")

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(answers)


def test_calls_are_counted_by_who_made_them(cloud):
    before = cloud.aws.calls["tester", "dynamodb", "ListTables"]

    cloud.aws.client("dynamodb", caller="tester").list_tables()

    assert cloud.aws.calls["tester", "dynamodb", "ListTables"] == before + 1


@pytest.mark.parametrize(
    "attribute",
    [{"S": "x"}, {"N": "1.5"}, {"B": b"\x00\xff"}, {"BOOL": False}, {"NULL": True},
     {"SS": ["a", "b"]}, {"L": [{"S": ""}, {"N": "1"}]}, {"M": {"S": {"S": "a map"}}}],
)  # fmt: skip
def test_an_item_comes_back_as_it_was_put(cloud, attribute):
    dynamodb = cloud.aws.client("dynamodb")
    if "values" not in dynamodb.list_tables()["TableNames"]:
        dynamodb.create_table(
            TableName="values",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        )
    item = {"pk": {"S": "it"}, "value": attribute}

    dynamodb.put_item(TableName="values", Item=item)

    assert dynamodb.get_item(TableName="values", Key={"pk": {"S": "it"}})["Item"] == item
    assert dynamodb.scan(TableName="values")["Items"] == [item]


# --- nothing is left behind --------------------------------------------------------------------


def test_a_closed_cloud_leaves_no_process_thread_or_change_behind(plain, tmp_path):
    threads = set(threading.enumerate())
    call_action = DynamoHandler.call_action
    with LocalCloud(plain, tmp_path) as cloud:
        cloud.functions["echo"].invoke({})
        slow = cloud.functions["slow"]
        slow.send({})
        (busy,) = wait_until(slow.pids)
        pids = [*cloud.functions["echo"].pids(), busy]
        assert all(map(is_alive, pids))
        assert DynamoHandler.call_action is not call_action

    assert not any(map(is_alive, pids))
    assert DynamoHandler.call_action is call_action
    wait_until(lambda: not {t for t in threading.enumerate() if t.is_alive()} - threads)


def test_a_cloud_that_cannot_start_leaves_nothing_behind(plain, tmp_path):
    threads = set(threading.enumerate())
    moved = dataclasses.replace(plain.function("Unnamed"), code=tmp_path / "nowhere")

    with pytest.raises(TemplateError, match="CodeUri of Unnamed is no directory"):
        LocalCloud(plain.with_function(moved), tmp_path).__enter__()

    wait_until(lambda: not {t for t in threading.enumerate() if t.is_alive()} - threads)
