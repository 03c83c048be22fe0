"""From a wheel to a built stack, as a user does: `init`, SAM's validate and build, `check`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from anarchon_ddb.cli.main import main
from tests import sam

EXISTING = """\
AWSTemplateFormatVersion: "2010-09-09"
Transform: AWS::Serverless-2016-10-31
Resources:
  Orders:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: src
      Handler: orders.handler
      Runtime: {runtime}
      Events:
        Nightly:
          Type: Schedule
          Properties: {{ Schedule: "cron(0 2 * * ? *)" }}
"""
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as pip finds it: not published, so from a folder."""
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, sam.ROOT],
        check=True,
        capture_output=True,
    )
    return folder


def existing(folder: Path) -> None:
    (folder / "src").mkdir(parents=True)
    (folder / "src/orders.py").write_text("def handler(event, context):\n    return None\n")
    (folder / "src/requirements.txt").write_text("")
    (folder / "template.yaml").write_text(EXISTING.format(runtime=f"python{VERSION}"))


@pytest.mark.parametrize("is_new", [True, False], ids=["empty folder", "existing project"])
def test_a_project_builds_and_is_sound_after_init(
    tmp_path: Path, wheels: Path, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shop"
    if not is_new:
        existing(folder)
    job = ["--job", "report", "--schedule", "cron(30 6 ? * MON-FRI *)"]
    assert main(["init", str(folder), *job, "--timezone", "Europe/Berlin", "--apply", "--yes"]) == 0
    for name in ("template.yaml", "infra/resumer.yaml"):
        run_sam(folder, wheels, "validate", "--lint", "--template", name)
    run_sam(folder, wheels, "build")
    monkeypatch.chdir(folder)
    assert main(["check", "--strict"]) == 0
    built = folder / ".aws-sam/build"
    assert (built / "ReportFunction/handlers/report.py").is_file()
    assert (built / "ReportFunction/anarchon_ddb/worker.py").is_file()
    assert not (built / "ReportFunction/anarchon_ddb/doctor").exists()
    assert not (built / "ReportFunction/botocore").exists(), "Lambda's runtime has it"
    resumer = next(built.glob("Resumer/ResumerFunction"))
    assert (resumer / "anarchon_ddb/resumer.py").is_file()
    assert (built / "Orders/orders.py").is_file() is not is_new


@pytest.fixture
def installed(wheels: Path, tmp_path: Path) -> Callable[..., str]:
    """Run a command of the wheel in an empty directory, outside of the repository."""
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(tmp_path / "installed")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "anarchon_ddb.cli", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_wheel_alone_has_the_commands(installed: Callable[..., str], tmp_path: Path) -> None:
    installed("init", "made")
    made = (tmp_path / "made/infra/table.yaml").read_bytes()
    assert made == (sam.ROOT / "infra/table.yaml").read_bytes()


def test_a_project_is_played_by_the_wheel_alone(
    installed: Callable[..., str], tmp_path: Path
) -> None:
    installed("init", "made", "--job", "report", "--schedule", "cron(30 6 * * ? *)")
    played = installed(
        "local", "--template", "made/template.yaml", "--json",
        "--from", "2026-11-02T06:25:00Z", "--to", "2026-11-02T06:35:00Z",
    )  # fmt: skip
    summary = json.loads(played)
    ledgers = {ledger["schedule"]: ledger for ledger in summary["schedules"]}
    assert (ledgers["report"]["due"], ledgers["report"]["worked"]) == (1, 1)
    assert summary["failures"] == []
    assert Path(tmp_path, summary["history"]["path"]).is_file()


def run_sam(folder: Path, wheels: Path, *arguments: str) -> None:
    command = sam.ROOT / ".venv-sam/bin/sam"
    assert command.exists(), "make .venv-sam/.ready makes it, and make test does so"
    environment = {
        **os.environ,
        "SAM_CLI_TELEMETRY": "0",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "PIP_FIND_LINKS": str(wheels),
        "PYTHON": sys.executable,
        "LAMBDA_PYTHON": VERSION,
        "LAMBDA_PLATFORM": f"manylinux2014_{platform.machine()}",
        # SAM looks for the runtime's own Python to build a function that has no rule of its own.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [command, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
