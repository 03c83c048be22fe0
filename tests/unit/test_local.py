"""The pure parts of the local cloud: reading a template, comparing an export with its source."""

import pytest

from anarchon_ddb.local import demo, planes, reader
from anarchon_ddb.local.template import TemplateError


def row(key, **attributes):
    return {"tailnum": {"S": key}, **{name: {"S": value} for name, value in attributes.items()}}


SOURCE = [row("N1", model="A320"), row("N2", model="B737"), row("N3", model="ERJ")]


def test_an_export_equal_to_its_source_is_proved():
    proof = planes.compare(SOURCE, reversed(SOURCE))

    assert proof.holds
    assert (proof.source_rows, proof.exported_rows) == (3, 3)


@pytest.mark.parametrize(
    ("exported", "fault"),
    [
        (SOURCE[:-1], {"missing": ("N3",)}),
        ([*SOURCE, row("N4")], {"extra": ("N4",)}),
        ([*SOURCE, SOURCE[0]], {"extra": ("N1",)}),
        ([*SOURCE[:-1], row("N3", model="Other")], {"differing": ("N3",)}),
        ([*SOURCE[:-1], row("N3")], {"differing": ("N3",)}),
    ],
)
def test_each_fault_of_an_export_is_found_and_makes_the_demo_fail(exported, fault):
    proof = planes.compare(SOURCE, exported)

    assert not proof.holds
    for name in ("missing", "extra", "differing"):
        assert getattr(proof, name) == fault.get(name, ())
    assert demo.verdict(summary(equal=proof.holds)) == 1


def test_an_empty_source_proves_nothing():
    assert not planes.compare([], []).holds


def summary(**changed):
    return {"equal": True, "state": "succeeded", "source_rows": 3, "file_rows": 3, **changed}


@pytest.mark.parametrize(
    ("changed", "code"),
    [({}, 0), ({"state": "running"}, 1), ({"source_rows": 2}, 1), ({"equal": False}, 1)],
)
def test_the_demo_succeeds_only_if_all_is_well(changed, code):
    assert demo.verdict(summary(**changed)) == code


def test_a_demo_without_its_data_says_so(tmp_path, capsys):
    assert demo.main(["--data", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_unprocessed_items_of_a_batch_are_written_again():
    class Throttled:
        """Takes at most 10 items of a call, as DynamoDB may."""

        def __init__(self):
            self.written = []

        def create_table(self, **_):
            pass

        def batch_write_item(self, RequestItems):  # noqa: N803  boto3's name
            ((table, puts),) = RequestItems.items()
            self.written += [put["PutRequest"]["Item"] for put in puts[:10]]
            return {"UnprocessedItems": {table: puts[10:]} if puts[10:] else {}}

    items = [row(f"N{number}") for number in range(60)]
    throttled = Throttled()

    planes.load(throttled, items)

    assert throttled.written == items


def read(tmp_path, text):
    path = tmp_path / "template.yaml"
    path.write_text(text)
    return reader.read(path, name="mine")


FUNCTION = """
Resources:
  Topic: {{ Type: AWS::SNS::Topic }}
  Job:
    Type: AWS::Serverless::Function
    Properties:
      Handler: jobs.handler
      Environment:
        Variables:
          VALUE: {value}
"""


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ("!Ref Topic", "mine-Topic"),
        ("{ Ref: Topic }", "mine-Topic"),
        ("!GetAtt Topic.Arn", "arn:aws:sns:eu-west-1:123456789012:mine-Topic"),
        ("!GetAtt [Topic, Arn]", "arn:aws:sns:eu-west-1:123456789012:mine-Topic"),
        ('!Sub "${AWS::StackName}/${Topic}/${Topic.Arn}/${!Literal}"',
         "mine/mine-Topic/arn:aws:sns:eu-west-1:123456789012:mine-Topic/${Literal}"),
        ('{ "Fn::Sub": "${AWS::Region}" }', "eu-west-1"),
        ('!Sub ["${A}-x", { A: !Ref Topic }]', "mine-Topic-x"),
        ('!Join ["-", [a, !Ref AWS::StackName]]', "a-mine"),
        ("true", "true"),
        ("12", "12"),
    ],
)  # fmt: skip
def test_a_function_of_cloudformation_is_resolved(tmp_path, value, resolved):
    job = read(tmp_path, FUNCTION.format(value=value)).function("Job")

    assert job.environment == {"VALUE": resolved}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("!Ref Nothing", "Ref of 'Nothing'"),
        ("!GetAtt Topic.Colour", "GetAtt of 'Topic.Colour'"),
        ("!ImportValue other", "ImportValue can't be resolved"),
        ("!Select [7, [a]]", "Select has arguments that it can't have: [7, ['a']]"),
        ("!FindInMap [Names, a, b]", "FindInMap of Names: nothing at a.b"),
    ],
)
def test_a_variable_that_cannot_be_resolved_is_left_out_and_named(tmp_path, value, told):
    played = read(tmp_path, FUNCTION.format(value=value))

    assert played.function("Job").environment == {}
    left_out = [str(one) for one in played.unplayed if "VALUE" in one.what]
    assert len(left_out) == 1
    assert left_out[0].startswith(f"{tmp_path}/template.yaml:10: the variable VALUE of Job: {told}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "no mapping named Resources"),
        ("a: [", "not YAML"),
        ("Parameters: { Name: { Type: String } }\nResources: {}", "Name has no default"),
        (
            "Parameters:\n  Name: { Type: String }\nResources: {}",
            "template.yaml:2: parameter Name has no default: give it a value with --parameter Name",
        ),
    ],
)
def test_a_template_that_cannot_be_played_is_one_clear_error(tmp_path, text, told):
    with pytest.raises(TemplateError, match=told):
        read(tmp_path, text)


def test_globals_are_merged_into_a_function(tmp_path):
    job = read(
        tmp_path,
        """
Globals:
  Function:
    Timeout: 60
    MemorySize: 256
    CodeUri: src
    Environment: { Variables: { A: a, B: b } }
Resources:
  Job:
    Type: AWS::Serverless::Function
    Properties: { Handler: jobs.handler, Timeout: 5, Environment: { Variables: { B: own } } }
""",
    ).function("Job")

    assert (job.timeout_s, job.memory_mb) == (5, 256)
    assert job.environment == {"A": "a", "B": "own"}
    assert job.code == tmp_path.resolve() / "src"


def test_what_a_condition_leaves_out_is_not_played(tmp_path):
    played = read(
        tmp_path,
        """
Parameters:
  Key: { Type: String, Default: "" }
Conditions:
  HasKey: !Not [!Equals [!Ref Key, ""]]
  HasNone: !And [!Not [!Condition HasKey], { Condition: HasNoKey }]
  HasNoKey: !Equals [!Ref Key, ""]
Resources:
  Spare: { Type: AWS::S3::Bucket, Condition: HasKey }
  Used: { Type: AWS::S3::Bucket, Condition: HasNone }
  Job:
    Type: AWS::Serverless::Function
    Properties:
      Handler: jobs.handler
      Environment:
        Variables:
          GONE: !If [HasKey, !Ref Key, !Ref AWS::NoValue]
          KEPT: !If [HasKey, !Ref Key, none]
""",
    )

    assert played.buckets == ("mine-used",)
    assert played.function("Job").environment == {"KEPT": "none"}


NESTING = """
Resources:
  # Declared before the one whose output it takes.
  Worker:
    Type: AWS::Serverless::Application
    Properties: { Location: infra/worker.yaml, Parameters: { Queue: !GetAtt Storage.Outputs.Name } }
  Storage:
    Type: AWS::Serverless::Application
    Properties: { Location: infra/storage.yaml }
"""

STORAGE = """
Resources:
  Queue: { Type: AWS::SQS::Queue }
Outputs:
  Name: { Value: !GetAtt Queue.QueueName }
"""

WORKER = """
Parameters:
  Queue: { Type: String }
Resources:
  Job:
    Type: AWS::Serverless::Function
    Properties:
      Handler: jobs.handler
      CodeUri: ..
      Environment: { Variables: { QUEUE: !Ref Queue } }
"""


def test_nested_stacks_are_played_as_one(tmp_path):
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra/storage.yaml").write_text(STORAGE)
    (tmp_path / "infra/worker.yaml").write_text(WORKER)

    played = read(tmp_path, NESTING)

    assert played.queues == ("mine-Storage-Queue",)
    assert played.function("Job").environment == {"QUEUE": "mine-Storage-Queue"}
    assert played.function("Job").code == tmp_path.resolve()


def test_a_nested_stack_without_its_parameter_is_named(tmp_path):
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra/storage.yaml").write_text("Resources: {}")
    (tmp_path / "infra/worker.yaml").write_text(WORKER)

    with pytest.raises(TemplateError, match=r"line 6: GetAtt of 'Storage\.Outputs\.Name'"):
        read(tmp_path, NESTING)
