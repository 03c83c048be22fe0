"""A user's project outside of the repository: the guide's code, on the wheel that is built.

The wheel is installed into a new environment; what it needs is lent by the one of the tests, so
that nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from anarchon_ddb.testing import drive
from tests.conftest import SLOT

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
# The plugin alone may be disabled by those who don't want it; nothing else is configured.
SETTINGS = "[pytest]\nfilterwarnings = ignore::DeprecationWarning\n"

STEPS = """
@pytest.mark.parametrize("step", [stops_when_asked, has_a_timeout, has_a_checkpoint, handler])
def test_each_step_of_the_guide_works(step):
    assert drive(step, SLOT).run.state == "succeeded"
    assert rows("mailing") == rows("customers")


def test_the_loop_as_it_began():
    a_loop({}, None)
    assert rows("mailing") == rows("customers")


def test_the_package_is_the_one_that_was_installed():
    import anarchon_ddb

    assert anarchon_ddb.__file__.startswith(PREFIX)


def test_the_clock_stands_until_it_is_moved(anarchon_clock, anarchon_table):
    before = anarchon_clock.now
    anarchon_clock.advance(seconds=5)
    assert (anarchon_clock.now - before).total_seconds() == 5
    assert anarchon_table.table == "anarchon"
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel in it; return its Python."""
    where = tmp_path_factory.mktemp("user")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(where), ".")
    (wheel,) = where.glob("*.whl")
    venv.create(where / "env", with_pip=False, symlinks=True)
    python = where / "env" / "bin" / "python"
    install = ("-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps", str(wheel))
    run(sys.executable, *install, PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    (site,) = (where / "env" / "lib").glob("python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run(*command: str, cwd: Path = ROOT, **environ: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_guide_as_a_project_of_a_user(environment: Path, tmp_path: Path) -> None:
    prefix = f"PREFIX = {str(environment.parents[1].resolve())!r}\n"
    (tmp_path / "test_mailing.py").write_text("\n\n".join(BLOCKS) + prefix + STEPS)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    told = run(str(environment), "-m", "pytest", "-q", "-p", "no:xdist", cwd=tmp_path)
    assert "10 passed" in told


def test_a_project_without_the_fixtures_loads_nothing_of_it(
    environment: Path, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_other():\n"
        "    assert 'anarchon_ddb_pytest' in sys.modules\n"
        "    for name in ('anarchon_ddb', 'moto', 'boto3', 'botocore', 'pynamodb'):\n"
        "        assert name not in sys.modules, name\n"
    )
    # Only this plugin: others of the lent environment may load what they like.
    off = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = (str(environment), "-m", "pytest", "-q", "-p", "anarchon_ddb_pytest")
    assert "1 passed" in run(*command, cwd=tmp_path, **off)


def test_without_moto_the_fixture_says_what_to_install(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "conftest.py").write_text("import sys\n\nsys.modules['moto'] = None\n")
    (tmp_path / "test_job.py").write_text("def test_job(anarchon_table):\n    pass\n")
    command = (str(environment), "-m", "pytest", "-q", "-p", "no:xdist")
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1
    assert "fixture anarchon_table: the table of anarchon_ddb.testing is moto's" in done.stdout
    assert "pip install 'moto[dynamodb]'" in done.stdout


# --- the guide's batch, under what BatchWriteItem may do ---------------------------------------


class Throttled:
    """A client that leaves 7 of 25 writes unprocessed twice, and is then throttled."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.answers = ["unprocessed", "unprocessed", "throttled"]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def batch_write_item(self, **request: dict[str, list[Any]]) -> Any:
        asked = request["RequestItems"]
        answer = self.answers.pop(0) if self.answers else ""
        if answer == "throttled":
            error: Any = {"Error": {"Code": "ProvisionedThroughputExceededException"}}
            raise ClientError(error, "BatchWriteItem")
        left = {table: writes[-7:] if answer else [] for table, writes in asked.items()}
        done = {table: writes[: len(writes) - len(left[table])] for table, writes in asked.items()}
        if any(done.values()):
            self._client.batch_write_item(RequestItems=done)
        return {"UnprocessedItems": {table: rest for table, rest in left.items() if rest}}


def test_C61_no_item_is_lost_when_dynamodb_leaves_some_unprocessed(
    anarchon_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {"__name__": "guide"}
    for block in BLOCKS:
        exec(block.replace("Limit=5", "Limit=25"), names)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    names["tables"].__wrapped__(anarchon_table)
    more = [{"email": {"S": f"{number}@example.com"}} for number in range(8, 25)]
    names["put_all"]("customers", more)
    client = Throttled(names["dynamodb"]())
    names["dynamodb"] = lambda: client
    driven = drive(names["handler"], SLOT)
    assert client.answers == []
    assert [attempt.ended for attempt in driven.attempts] == ["failed", "succeeded"]
    assert driven.attempts[1].from_cursor is None  # a leftover moved no checkpoint
    assert len(names["rows"]("mailing")) == 25
    assert names["rows"]("mailing") == names["rows"]("customers")
