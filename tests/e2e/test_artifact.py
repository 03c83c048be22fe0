"""`sam build`: what is in the artifact, and that it runs alone, under AWS's own runtime client."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests import sam

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
HERE = {"LAMBDA_PYTHON": VERSION, "LAMBDA_PLATFORM": f"manylinux2014_{platform.machine()}"}
LIMIT_BYTES = 13_000_000
OWN = {"anarchon_ddb", "handlers"}
DEPENDENCIES = {"aws_lambda_powertools", "pynamodb", "typing_extensions", "tzdata"}
PLANES = [f"{number:02}" for number in range(40)]


def content(artifact: Path) -> set[str]:
    return {str(found.relative_to(artifact)) for found in artifact.rglob("*") if found.is_file()}


def test_the_artifact_holds_package_handlers_dependencies_and_nothing_else(built: Path) -> None:
    export, resumer = built / "ExportFunction", built / "Resumer/ResumerFunction"
    assert content(export) == content(resumer)
    names = {path.name for path in export.iterdir()} - {"__pycache__"}
    assert {name for name in names if not name.endswith(".dist-info")} == {
        *OWN, "typing_extensions.py", *(DEPENDENCIES - {"typing_extensions"})
    }  # fmt: skip
    assert {name.partition("-")[0] for name in names if name.endswith(".dist-info")} == DEPENDENCIES
    developers = {"cli", "local", "testing"}
    assert not developers & {path.name for path in (export / "anarchon_ddb").iterdir()}
    assert not [name for name in content(export) if name.endswith(".so")], "not for every platform"
    size = sum(path.stat().st_size for path in export.rglob("*") if path.is_file())
    assert size <= LIMIT_BYTES


def test_every_module_has_bytecode_that_python_trusts(built: Path) -> None:
    artifact = built / "ExportFunction"
    for source in artifact.rglob("*.py"):
        tag = sys.implementation.cache_tag
        compiled = source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"
        flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
        assert flags == 0b01, f"{source}: not an unchecked hash"


def test_the_default_artifact_is_the_same_for_arm64_and_another_python(
    built: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["make", "build-AnyFunction", f"ARTIFACTS_DIR={tmp_path}"],
        env={k: v for k, v in os.environ.items() if not k.startswith("LAMBDA_")},
        cwd=sam.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    def sources(artifact: Path) -> set[str]:
        return {name for name in content(artifact) if not name.endswith(".pyc")}

    assert sources(tmp_path) == sources(built / "ExportFunction")
    compiled = [name for name in content(tmp_path) if name.endswith(".pyc")]
    assert all(".cpython-313." in name for name in compiled)
    assert bool(compiled) is not ("no bytecode" in done.stderr)


def test_sam_package_uploads_one_artifact_for_all_functions(built: Path, tmp_path: Path) -> None:
    """And resolves the nested templates, as `sam deploy` does before CloudFormation sees them."""
    packaged = tmp_path / "packaged.yaml"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        environment = {
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
            "AWS_SECRET_ACCESS_KEY": "local",
        }
        s3 = boto3.client(
            "s3",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        s3.create_bucket(Bucket="code")
        sam.cli("package", "--template-file", built / "template.yaml", "--s3-bucket", "code",
                "--output-template-file", packaged, **environment)  # fmt: skip
        listed = s3.list_objects_v2(Bucket="code")["Contents"]
    finally:
        server.stop()
    found = {each["Key"]: each["Size"] for each in listed}
    nested = {key for key in found if key.endswith(".template")}
    (artifact,) = found.keys() - nested
    assert len(nested) == len(sam.NESTED)
    assert found[artifact] < LIMIT_BYTES / 3
    text = packaged.read_text()
    assert f"CodeUri: s3://code/{artifact}" in text
    assert all(key in text for key in nested)


def test_the_locked_dependencies_are_those_that_are_tested() -> None:
    def pins(lock: str) -> dict[str, str]:
        lines = (sam.ROOT / lock).read_text().splitlines()
        found = (
            line.split()[0].split("==") for line in lines if "==" in line and line[0].isalpha()
        )
        return dict(found)

    tested = pins("requirements.lock")
    assert pins("requirements-lambda.lock").items() <= tested.items()


@pytest.mark.parametrize(
    ("artifact", "handler"),
    [
        ("ExportFunction", "handlers.export"),
        ("Resumer/ResumerFunction", "anarchon_ddb.resumer"),
    ],
)
def test_a_built_function_is_imported_from_its_artifact_alone(
    built: Path, runtime: Path, artifact: str, handler: str
) -> None:
    code = f"import json, sys, {handler}; print(json.dumps([m.__file__ for m in "
    code += "list(sys.modules.values()) if getattr(m, '__file__', None)]))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": f"{built / artifact}:{runtime}"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    standard = str(Path(os.__file__).resolve().parent)
    for file in json.loads(done.stdout):
        known = (str(built / artifact), str(runtime))
        assert file.startswith(known) or str(Path(file).resolve()).startswith(standard), file
