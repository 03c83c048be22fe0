"""What AWS does around a function, played on a real child: retries, ages, concurrency, time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from anarchon_ddb.local import reader, sandboxes
from anarchon_ddb.local.chaos import Chaos
from anarchon_ddb.local.cloud import LocalCloud, Simulated
from anarchon_ddb.local.delivery import Delivered, Undelivered
from anarchon_ddb.local.functions import Ended, GivenUp, Started

START = datetime(2026, 3, 1, tzinfo=UTC)

TEMPLATE = """
Globals:
  Function: { Timeout: 900, CodeUri: . }
Resources:
  Failures: { Type: AWS::SQS::Queue, Properties: { QueueName: failures } }
  DeadLetters: { Type: AWS::SQS::Queue, Properties: { QueueName: dead-letters } }
  Echo:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: echo
      Handler: jobs.echo
      Events:
        Rule: { Type: Schedule, Properties: { Schedule: rate(1 hour), Name: rule } }
        Constant:
          Type: Schedule
          Properties: { Schedule: rate(1 hour), Name: constant, Input: '{"fixed": true}' }
        Young:
          Type: ScheduleV2
          Properties:
            Name: young
            ScheduleExpression: rate(1 hour)
            Input: '{"slot": "<aws.scheduler.scheduled-time>"}'
            RetryPolicy: { MaximumEventAgeInSeconds: 60 }
            DeadLetterConfig: { Arn: !GetAtt DeadLetters.Arn }
        Patient:
          Type: ScheduleV2
          Properties:
            Name: patient
            ScheduleExpression: rate(1 hour)
            Input: '{"number": "<aws.scheduler.attempt-number>"}'
  Fails0:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: fails-0
      Handler: jobs.fails
      EventInvokeConfig: { MaximumRetryAttempts: 0 }
  Fails1:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: fails-1
      Handler: jobs.fails
      EventInvokeConfig: { MaximumRetryAttempts: 1 }
  Fails2:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: fails-2
      Handler: jobs.fails
      EventInvokeConfig:
        DestinationConfig: { OnFailure: { Destination: !GetAtt Failures.Arn } }
  Ages:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: ages
      Handler: jobs.fails
      EventInvokeConfig: { MaximumEventAgeInSeconds: 100 }
  Narrow:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: narrow
      Handler: jobs.sleeps
      ReservedConcurrentExecutions: 1
  Asks: { Type: AWS::Serverless::Function, Properties: { FunctionName: asks, Handler: jobs.asks } }
  Slow:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: slow, Handler: jobs.sleeps, Timeout: 20 }
  Recurses:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: recurses, Handler: jobs.recurses }
  MayRecurse:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: may-recurse, Handler: jobs.recurses, RecursiveLoop: Allow }
  Clock:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: clock, Handler: jobs.clock }
  Beats:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: beats, Handler: jobs.beats }
  Locks:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: locks, Handler: jobs.locks }
  Calls:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: calls, Handler: jobs.calls }
  Joins:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: joins, Handler: jobs.joins }
"""

JOBS = """
import json, threading, time
from datetime import datetime, timezone

import boto3
from botocore.exceptions import ClientError

def client():
    return boto3.client("lambda")

def echo(event, context):
    return event

def fails(event, context):
    raise ValueError("no such plane")

def sleeps(event, context):
    time.sleep(event["seconds"])
    return event

def asks(event, context):
    try:
        reply = client().invoke(FunctionName=event["whom"], Payload=json.dumps(event))
    except ClientError as error:
        return {"refused": error.response["Error"]["Code"],
                "status": error.response["ResponseMetadata"]["HTTPStatusCode"]}
    return {"told": json.load(reply["Payload"]), "error": reply.get("FunctionError")}

def recurses(event, context):
    if event["left"]:
        payload = json.dumps({"left": event["left"] - 1})
        client().invoke(FunctionName=context.function_name, InvocationType="Event", Payload=payload)

def clock(event, context):
    began, ticks = datetime.now(timezone.utc), time.monotonic()
    left = context.get_remaining_time_in_millis()
    time.sleep(30)
    was_set = threading.Event().wait(12)
    return {"began": began.isoformat(), "was_set": was_set,
            "wall_s": (datetime.now(timezone.utc) - began).total_seconds(),
            "monotonic_s": time.monotonic() - ticks,
            "budget_s": (left - context.get_remaining_time_in_millis()) / 1000}

def beats(event, context):
    ended, beaten = threading.Event(), []
    def beat():
        while not ended.wait(10):
            beaten.append(time.time())
    thread = threading.Thread(target=beat)
    thread.start()
    began = time.time()
    time.sleep(45)
    ended.set()
    thread.join()
    return [round(at - began) for at in beaten]

def locks(event, context):
    lock, told, began = threading.Lock(), [], time.time()
    def holds():
        with lock:
            time.sleep(30)
        told.append(["let go", round(time.time() - began)])
        time.sleep(20)
        told.append(["ended", round(time.time() - began)])
    thread = threading.Thread(target=holds)
    thread.start()
    with lock:
        told.append(["had", round(time.time() - began)])
        time.sleep(5)
    thread.join()
    told.append(["joined", round(time.time() - began)])
    return told

def calls(event, context):
    lock, began = threading.Lock(), time.time()
    def beat():
        time.sleep(0.01)  # in the middle of the other's call
        with lock:
            pass
    thread = threading.Thread(target=beat)
    client = boto3.client("sqs")
    thread.start()
    with lock:
        client.list_queues()
    thread.join()
    return round(time.time() - began, 3)

def joins(event, context):
    done, began = threading.Event(), time.time()
    def work():
        time.sleep(40)
        boto3.client("sqs").list_queues()
        done.set()
    thread = threading.Thread(target=work)
    thread.start()
    done.wait()
    waited_s = round(time.time() - began)
    thread.join()
    time.sleep(2)
    return [waited_s, round(time.time() - began)]
"""


@dataclass
class Played:
    """A cloud, and what it told, with the seconds since ``mark``."""

    cloud: LocalCloud
    told: list[tuple[datetime, Any]] = field(default_factory=list)
    mark: datetime = START

    def begin(self) -> None:
        self.told.clear()
        self.mark = self.cloud.now

    def send(self, function: str, event: Any) -> str:
        return self.cloud.functions[function].send(event)

    def let_pass(self, span: timedelta = timedelta(minutes=10)) -> None:
        self.cloud.play_until(self.cloud.now + span)

    def of(self, kind: type, function: str = "") -> list[Any]:
        return [one for _, one in self.told
                if isinstance(one, kind) and function in {"", one.function}]  # fmt: skip

    def seconds_of(self, kind: type, function: str) -> list[float]:
        return [
            (at - self.mark).total_seconds()
            for at, one in self.told
            if isinstance(one, kind) and one.function == function
        ]

    def answer(self, function: str, event: Any) -> Any:
        """Send an event, let time pass, and return what its invocation returned."""
        request = self.send(function, event)
        self.let_pass()
        (ended,) = [one for one in self.of(Ended, function) if one.request_id == request]
        assert ended.end == "returned", ended.payload
        return ended.payload

    def messages(self, queue: str) -> list[dict[str, Any]]:
        sqs = self.cloud.aws.client("sqs")
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        found = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        return list(found.get("Messages", []))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("project")
    (directory / "template.yaml").write_text(TEMPLATE)
    (directory / "jobs.py").write_text(JOBS)
    return directory


@pytest.fixture(scope="module")
def shared(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    stack = reader.read(project / "template.yaml")
    logs = tmp_path_factory.mktemp("logs")
    with LocalCloud(stack, logs, simulated=Simulated(START)) as cloud:
        played = Played(cloud)
        cloud.listeners.append(lambda event: played.told.append((cloud.now, event)))
        yield played


@pytest.fixture
def played(shared: Played) -> Played:
    shared.begin()
    return shared


# --- the asynchronous queue --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "starts_s"),
    [("fails-0", [0]), ("fails-1", [0, 60]), ("fails-2", [0, 60, 180])],
)
def test_a_failed_event_is_tried_again_after_one_minute_and_after_two(
    played: Played, function: str, starts_s: list[int]
) -> None:
    played.send(function, {"tail": "N10156"})
    played.let_pass()

    assert [round(at) for at in played.seconds_of(Started, function)] == pytest.approx(
        starts_s, abs=2
    )
    assert [one.attempt for one in played.of(Started)] == list(range(1, len(starts_s) + 1))
    assert len({one.request_id for one in played.of(Started)}) == 1
    assert [one.why for one in played.of(GivenUp)] == ["RetriesExhausted"]


def test_an_event_that_was_given_up_is_told_to_the_failure_queue(played: Played) -> None:
    played.messages("failures")  # of the tests before
    request = played.send("fails-2", {"tail": "N10156"})
    played.let_pass()

    bodies = [json.loads(message["Body"]) for message in played.messages("failures")]
    (mine,) = [body for body in bodies if body["requestContext"]["requestId"] == request]
    assert mine["requestPayload"] == {"tail": "N10156"}
    assert mine["requestContext"]["condition"] == "RetriesExhausted"


def test_an_event_that_would_be_too_old_is_not_tried_again(played: Played) -> None:
    played.send("ages", {})
    played.let_pass()

    assert len(played.of(Started)) == 2
    assert [one.why for one in played.of(GivenUp)] == ["EventAgeExceeded"]


def test_with_its_reserved_concurrency_used_up_the_queue_waits(played: Played) -> None:
    for _ in range(3):
        played.send("narrow", {"seconds": 30})
    played.let_pass()

    assert played.seconds_of(Started, "narrow") == pytest.approx([0, 30, 60], abs=2)


def test_with_its_reserved_concurrency_used_up_a_caller_is_refused(played: Played) -> None:
    played.send("narrow", {"seconds": 60})
    played.let_pass(timedelta(seconds=5))

    told = played.answer("asks", {"whom": "narrow", "seconds": 1})

    assert told == {"refused": "TooManyRequestsException", "status": 429}


# --- the Invoke API ----------------------------------------------------------------------------


def test_a_function_waits_for_another_on_the_simulated_clock(played: Played) -> None:
    told = played.answer("asks", {"whom": "slow", "seconds": 15})

    assert told == {"told": {"whom": "slow", "seconds": 15}, "error": None}
    (ended,) = played.of(Ended, "asks")
    assert 15 <= ended.duration_s < 20


def test_a_function_is_told_that_another_timed_out(played: Played) -> None:
    told = played.answer("asks", {"whom": "slow", "seconds": 100})

    assert told["error"] == "Unhandled"
    assert told["told"]["errorMessage"].endswith("Task timed out after 20.00 seconds")


def test_a_chain_is_cut_behind_16_invocations(played: Played) -> None:
    played.send("recurses", {"left": 40})
    played.let_pass()

    assert len(played.of(Ended, "recurses")) == 16
    (cut,) = played.of(GivenUp)
    assert "Recursive" in cut.why


def test_a_chain_is_not_cut_where_the_template_allows_it(played: Played) -> None:
    played.send("may-recurse", {"left": 40})
    played.let_pass()

    assert len(played.of(Ended, "may-recurse")) == 41
    assert played.of(GivenUp) == []


# --- time in a handler -------------------------------------------------------------------------


def test_a_handler_sees_and_sleeps_on_the_simulated_clock(played: Played) -> None:
    began_s = time.monotonic()
    told = played.answer("clock", {})

    assert datetime.fromisoformat(told["began"]) - played.mark < timedelta(seconds=5)
    assert told["wall_s"] == told["monotonic_s"] == told["budget_s"] == 42
    assert not told["was_set"]
    assert time.monotonic() - began_s < 10


def test_a_thread_beats_on_the_simulated_clock_while_the_handler_sleeps(played: Played) -> None:
    assert played.answer("beats", {}) == [10, 20, 30, 40]


def test_time_passes_for_who_waits_for_a_lock_whose_holder_sleeps(played: Played) -> None:
    began_s = time.monotonic()
    told = played.answer("locks", {})

    assert sorted(told, key=lambda one: one[1]) == told
    assert dict(told) == {"had": 30, "let go": 30, "ended": 50, "joined": 50}
    assert time.monotonic() - began_s < 10, "not ended for want of a sign of life"


def test_time_passes_for_who_waits_for_a_lock_whose_holder_calls_aws(played: Played) -> None:
    assert played.answer("calls", {}) == 0.02


def test_time_passes_for_who_waits_for_a_thread_that_sleeps(played: Played) -> None:
    assert played.answer("joins", {}) == [40, 42]


def test_the_deadline_is_on_the_simulated_clock(played: Played) -> None:
    played.send("slow", {"seconds": 10_000})
    played.let_pass(timedelta(seconds=30))

    (ended,) = played.of(Ended, "slow")
    assert (ended.end, ended.duration_s) == ("timed_out", 20)


# --- EventBridge -------------------------------------------------------------------------------


def delivered(played: Played, schedule: str) -> Any:
    request = played.cloud.deliver(schedule, START)
    played.let_pass()
    (ended,) = [one for one in played.of(Ended) if one.request_id == request]
    return ended.payload


def test_a_rule_sends_its_envelope(played: Played) -> None:
    event = delivered(played, "rule")

    assert (event["source"], event["detail-type"]) == ("aws.events", "Scheduled Event")
    assert (event["time"], event["detail"]) == ("2026-03-01T00:00:00Z", {})
    assert event["resources"] == ["arn:aws:events:eu-west-1:123456789012:rule/rule"]


def test_a_rule_sends_its_constant_input(played: Played) -> None:
    assert delivered(played, "constant") == {"fixed": True}


def chaotic(project: Path, logs: Path, chaos: Chaos, look: Callable[[Played], None]) -> None:
    """Let three hours of the schedules pass in a cloud with chaos, and look at it."""
    stack = reader.read(project / "template.yaml")
    with LocalCloud(stack, logs, simulated=Simulated(START), chaos=chaos) as cloud:
        played = Played(cloud)
        cloud.listeners.append(lambda event: played.told.append((cloud.now, event)))
        cloud.start_schedules()
        played.let_pass(timedelta(hours=3))
        look(played)


def test_a_delivery_later_than_its_event_age_goes_to_the_dead_letter_queue(
    project: Path, tmp_path: Path
) -> None:
    def look(played: Played) -> None:
        given_up = [one for one in played.of(Undelivered) if one.schedule == "young"]
        messages = played.messages("dead-letters")
        assert len(messages) == len(given_up) >= 2
        slots = {json.loads(message["Body"])["slot"] for message in messages}
        # A rate is due first a period after its creation.
        assert slots == {f"2026-03-01T0{hour + 1}:00:00Z" for hour in range(len(messages))}
        attributes = messages[0]["MessageAttributes"]
        assert attributes["EXHAUSTED_RETRY_CONDITION"]["StringValue"] == "MaximumEventAgeInSeconds"
        assert attributes["SCHEDULE_ARN"]["StringValue"].endswith(":schedule/default/young")
        assert not [one for one in played.of(Delivered) if one.schedule == "young"]

    chaotic(project, tmp_path, Chaos(late=1), look)


def test_chaos_delivers_a_slot_twice(project: Path, tmp_path: Path) -> None:
    def look(played: Played) -> None:
        found = [one for one in played.of(Delivered) if one.schedule == "patient"]
        first = [one for one in found if one.slot == START + timedelta(hours=1)]
        assert [one.delivery for one in first] == [1, 2]
        assert first[0].request_id != first[1].request_id
        requests = {one.request_id for one in first}
        payloads = [one.payload for one in played.of(Ended) if one.request_id in requests]
        assert payloads == [{"number": "1"}, {"number": "2"}]

    chaotic(project, tmp_path, Chaos(duplicate=1), look)


# --- on the machine's clock --------------------------------------------------------------------

LIVE = """
Resources:
  Job:
    Type: AWS::Serverless::Function
    Properties: { FunctionName: job, Handler: job.handler, Timeout: 20 }
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[[str], LocalCloud]]:
    """Return what plays a handler on the machine's clock."""
    clouds: list[LocalCloud] = []
    (tmp_path / "template.yaml").write_text(LIVE)

    def play(code: str) -> LocalCloud:
        (tmp_path / "job.py").write_text(code)
        cloud = LocalCloud(reader.read(tmp_path / "template.yaml"), tmp_path / "logs")
        clouds.append(cloud)
        return cloud.__enter__()

    yield play
    for cloud in clouds:
        cloud.__exit__(None, None, None)


def test_a_change_of_the_code_is_picked_up_by_the_next_invocation(
    live: Callable[[str], LocalCloud], tmp_path: Path
) -> None:
    cloud = live("def handler(event, context):\n    return 'before'\n")
    function = cloud.functions["job"]
    assert function.invoke({}).payload == "before"

    (tmp_path / "job.py").write_text("def handler(event, context):\n    return 'behind it'\n")

    ended = function.invoke({})
    assert (ended.payload, ended.cold) == ("behind it", True)
    assert not function.invoke({}).cold


def test_an_import_that_takes_too_long_is_ended(
    live: Callable[[str], LocalCloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sandboxes.INIT_TIMEOUT_S == 10
    monkeypatch.setattr(sandboxes, "INIT_TIMEOUT_S", 0.5)
    cloud = live("import time\n\ntime.sleep(60)\n\n\ndef handler(event, context):\n    pass\n")
    began_s = time.monotonic()

    ended = cloud.functions["job"].invoke({})

    assert ended.in_init
    assert ended.payload["errorType"] == "Sandbox.Timedout"
    assert time.monotonic() - began_s < 10
    assert cloud.functions["job"].pids() == []


def test_a_reserved_concurrency_of_one_refuses_the_second_caller(
    live: Callable[[str], LocalCloud], tmp_path: Path
) -> None:
    text = LIVE.replace("Timeout: 20", "Timeout: 20, ReservedConcurrentExecutions: 1")
    (tmp_path / "template.yaml").write_text(text)
    cloud = live("import time\n\n\ndef handler(event, context):\n    time.sleep(60)\n")
    client = cloud.aws.client("lambda")
    waiting = threading.Thread(target=lambda: cloud.functions["job"].send({}))
    waiting.start()
    waiting.join()
    until_s = time.monotonic() + 10
    while not cloud.functions["job"].pids():
        assert time.monotonic() < until_s
        time.sleep(0.01)

    with pytest.raises(client.exceptions.TooManyRequestsException):
        client.invoke(FunctionName="job", Payload=b"{}")
