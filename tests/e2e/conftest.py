"""The artifact that `sam build` makes, built once for all workers, and Lambda's image around it."""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests import runtime_api, sam

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
HERE = {"LAMBDA_PYTHON": VERSION, "LAMBDA_PLATFORM": f"manylinux2014_{platform.machine()}"}
OLDEST_SDK = "1.34.0"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `sam build` makes for this machine's Python, once for all workers."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if os.environ.get("PYTEST_XDIST_WORKER") else shared
    directory = shared / "sam-build"
    with (shared / "sam-build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "template.yaml").exists():
            sam.cli("build", "--build-dir", directory, **HERE)
    return directory


@pytest.fixture(
    params=[
        pytest.param("", id="sdk"),
        pytest.param(
            OLDEST_SDK,
            id="oldest-sdk",
            marks=[
                pytest.mark.nightly,
                pytest.mark.skipif("NIGHTLY" not in os.environ, reason="run by make nightly"),
            ],
        ),
    ]
)
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What Lambda's image has beside an artifact: the runtime client, and an SDK."""
    if not request.param:
        return runtime_api.runtime_directory(tmp_path)
    wanted = [f"{name}=={request.param}" for name in ("boto3", "botocore")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", tmp_path / "sdk"]
    subprocess.run([*pip, *wanted], check=True)
    return runtime_api.runtime_directory(tmp_path, tmp_path / "sdk")
