# SPDX-License-Identifier: BSD-3-Clause
"""The tests' own rules: skips are counted and fail in CI, and no connection leaves this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.conftest import is_excused
from tests.flaky import MOST, read_list
from tests.requirements import REPOSITORY, SHARED_REASON, require_program


def run_pytest(folder: Path, body: str, *prefix: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one small test under this repository's conftest."""
    path = folder / "test_small.py"
    path.write_text(f"import pytest, socket\nfrom tests import requirements\n\n\ndef test_small():\n    {body}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", str(path)]
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environ |= {"PYTHONPATH": paths, **variables}
    words = [*prefix, *command]
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs real root")
@pytest.mark.parametrize(("name", "status"), [("left", 7), ("kedge-of-another-run", 0)])
def test_gating_what_is_left_on_the_machine_fails_in_ci(tmp_path: Path, name: str, status: int) -> None:
    """In a mount namespace, where /srv is empty."""
    prefix = (require_program("unshare"), "--mount", "sh", "-ec", 'mount -t tmpfs tmpfs /srv; exec "$@"', "sh")
    body = f'import pathlib; pathlib.Path("/srv/{name}").touch()'
    assert run_pytest(tmp_path, body, *prefix).returncode == 0
    done = run_pytest(tmp_path, body, *prefix, CI="true")
    assert done.returncode == status, done.stdout
    assert ("put there by others meanwhile: /srv/left" in done.stdout) == bool(status)


def test_gating_skips_are_summarised(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, 'pytest.skip("the moon is full")')
    assert done.returncode == 0, done.stdout
    assert "1 × the moon is full" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs real root")
def test_gating_skips_fail_in_ci(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, 'pytest.skip("the moon is full")', CI="true")
    assert done.returncode == 6, done.stdout
    assert "not allowed in CI" in done.stdout


def test_gating_nothing_is_for_ordinary_users_alone() -> None:
    """CI is root: what is skipped there by its number is never run. Such tests are `as_ordinary_user`."""
    pattern = re.compile(r'gete?uid\(\) == 0(?:, reason=|:\n\s+pytest\.skip\()f?"([^"]+)"')
    assert pattern.search('@pytest.mark.skipif(os.geteuid() == 0, reason="x")'), "the pattern finds no skips any more"
    found = [path.name for path in (REPOSITORY / "tests").rglob("*.py") if pattern.search(path.read_text("utf-8"))]
    assert found == [Path(__file__).name]


@pytest.mark.parametrize(
    "reason",
    [
        "user namespaces cannot be made here",
        "PyPI cannot be reached, so no tool of others can be installed",
        "the test covers the checkout, which lies in /srv",
        "the program mmdebstrap is not installed",
    ],
)
def test_gating_what_can_be_mended_is_not_excused(reason: str) -> None:
    assert not is_excused(reason)


def test_gating_skips_for_want_of_fixtures_are_excused(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, 'requirements.require_shared("x")', CI="true", KEDGE_SHARED=str(tmp_path / "absent"))
    assert done.returncode == 0, done.stdout
    assert SHARED_REASON in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs real root")
def test_gating_missing_program_fails_in_ci(tmp_path: Path) -> None:
    body = 'requirements.require_program("no-such-program")'
    assert run_pytest(tmp_path, body).returncode == 0
    done = run_pytest(tmp_path, body, CI="true")
    assert done.returncode == 1
    assert "in CI it must be there" in done.stdout


@pytest.mark.parametrize(("address", "status"), [("192.0.2.1", 1), ("127.0.0.1", 0)])
def test_gating_connections_stay_here(tmp_path: Path, address: str, status: int) -> None:
    body = f'pytest.raises(OSError, socket.create_connection, ("{address}", 1), 1)'
    done = run_pytest(tmp_path, body)
    assert done.returncode == status, done.stdout


ONCE = "assert Path('mark').exists() or Path('mark').touch()"  # fails the first time
FLAKY = '[[flaky]]\ntest = "test_small.py::test_small"\ncause = "the moon"\nsince = 2026-11-17\n'


@pytest.mark.parametrize(
    ("body", "listed", "status", "said"),
    [
        (ONCE, FLAKY, 0, "of 1 listed tests 1 failed beside others:\n  test_small.py::test_small"),
        (ONCE, FLAKY.replace("::test_small", "::test_sma"), 1, "of 1 listed tests 0 failed beside others"),
        ("assert False", FLAKY, 1, "of 1 listed tests 1 failed beside others:\n  test_small.py::test_small"),
    ],
    ids=["listed, fails once", "another is listed", "listed, fails twice"],
)
def test_gating_only_listed_failures_are_tried_once_more(
    tmp_path: Path, body: str, listed: str, status: int, said: str
) -> None:
    mark = str(tmp_path / "mark")
    lines = f"import pytest\nfrom pathlib import Path\n\n\ndef test_small():\n    {body.replace('mark', mark)}\n"
    (tmp_path / "test_small.py").write_text(lines)
    (tmp_path / "list.toml").write_text(listed)
    own = {"KEDGE_PYTEST_CACHE": str(tmp_path / "cache"), "KEDGE_FLAKY_LIST": str(tmp_path / "list.toml")}
    environ = {**os.environ, **own}
    environ.pop("CI", None)
    command = [str(REPOSITORY / "scripts/run-tests"), str(tmp_path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stdout
    assert f"flaky: {said}" in done.stdout
    assert ("flaky: all of these passed alone" in done.stdout) == (status == 0)


def test_gating_flaky_tests_have_a_cause_and_a_date_and_are_few() -> None:
    flaky = read_list()
    assert len(flaky) <= MOST
    assert len({each.test for each in flaky}) == len(flaky)
    for each in flaky:
        assert len(each.cause.split()) >= 5, f"{each.test}: say why it fails, and why that cannot be mended"
        assert date(2026, 1, 1) <= each.since <= date.today(), each.test
        path, *names = each.test.split("::")
        text = (REPOSITORY / path).read_text(encoding="utf-8")  # the file is there
        assert names, f"{each.test}: name the tests, not a whole file"
        assert re.search(rf"^def {re.escape(names[-1].partition('[')[0])}\(", text, re.MULTILINE), each.test
