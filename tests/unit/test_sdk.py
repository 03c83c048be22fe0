"""C57: the SDK that comes with Lambda's runtime may be older than what the package needs."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import botocore
import pytest

from anarchon_ddb import StoreError, sdk
from anarchon_ddb.store import Store
from tests import sam


@pytest.mark.parametrize("version", ["1.34.0", "1.34", "1.40.4", "2.0.0.dev1"])
def test_a_new_enough_sdk_is_taken(version: str) -> None:
    sdk.check(version)


def test_C57_an_old_sdk_is_refused_by_name_before_any_call(
    monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    monkeypatch.setattr(botocore, "__version__", "1.33.9")
    with pytest.raises(StoreError, match=r"botocore 1\.33\.9 is too old: at least 1\.34") as caught:
        Store("anarchon")
    assert "PythonRuntime" in str(caught.value)
    assert not caught.value.retryable
    assert calls == []


@pytest.mark.parametrize("handler", ["handlers.export", "anarchon_ddb.resumer"])
def test_C57_in_lambda_it_is_found_during_init(handler: str) -> None:
    code = f"import botocore; botocore.__version__ = '1.20.0'; import {handler}"
    lambda_ = {"AWS_LAMBDA_RUNTIME_API": "localhost:1", "AWS_DEFAULT_REGION": "eu-west-1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=lambda_ | {"ANARCHON_TABLE": "t", "HOME": "/nonexistent"},
        cwd=sam.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "StoreError: botocore 1.20.0 is too old" in done.stderr


def test_the_least_version_is_the_one_that_the_package_declares() -> None:
    project = tomllib.loads((sam.ROOT / "pyproject.toml").read_text())["project"]
    assert f"boto3>={'.'.join(map(str, sdk.MINIMUM))}" in project["dependencies"]
