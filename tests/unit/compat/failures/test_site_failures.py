# SPDX-License-Identifier: BSD-3-Clause
"""A site's own messages come before kedge's; a file that is wrong is one warning, and kedge's own still explain."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.cli.main import main
from kedge.compat.failures.catalogue import find_site_problem
from kedge.compat.failures.find_clues import find_clues
from kedge.errors import FailureFound
from tests.builders.documents import read_tool_files
from tests.requirements import REPOSITORY
from tests.wording import assert_begins

[(PATH, EXAMPLE)] = read_tool_files(REPOSITORY / "docs/administrators.md", "failures").items()
FULL = "OSError: [Errno 28] No space left on device\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEDGE_SITE_CONFIG", str(tmp_path / "config.toml"))
    return tmp_path / Path(PATH).name


def test_site_failures_come_before_those_of_kedge(site: Path) -> None:
    site.write_text(EXAMPLE)
    [first, second] = find_clues(FULL + "write: project quota of p_ml on /work is used up\n")
    assert (first.name, first.cause) == ("project-quota", "the project p_ml has no space left on /work")
    assert second.line == FULL.strip()
    assert find_site_problem() == ""


def test_site_failure_replaces_the_one_of_the_same_name(site: Path) -> None:
    site.write_text(EXAMPLE.replace("storage.project-quota", "storage.full-disk"))
    assert find_clues(FULL) == ()


@pytest.mark.parametrize(("right", "wrong", "said"), [
    ("examples = [", "examples = [1,", "[storage.project-quota]: examples: it must be a list of texts"),
    ('source = "', 'origin = "', "[storage.project-quota]: unknown key 'origin'"),
    ('source = "our file servers"', "", "[storage.project-quota]: 'source' is missing"),
    ('source = "our file servers"', "source = 1", "[storage.project-quota]: source: it must be text in quotes"),
    ("source =", 'sure = "surely"\nsource =', "[storage.project-quota]: sure: it must be one of certain, likely"),
    ("source =", "least = true\nsource =", "[storage.project-quota]: least: it must be a whole number"),
    ("quota of", "quota of (", "[storage.project-quota]: pattern: missing ), unterminated subpattern"),
    ("quota of (", "quote of (", "[storage.project-quota]: the pattern does not match the example 'write: "),
    ('"quota"', '"Quota"', "marks: it must be a list of texts in small letters"),
    ('"quota"', '"quotas"', "[storage.project-quota]: no word of 'marks' is in 'write: "),
    ("[storage.project-quota]", "[project-quota]", "project-quota.pattern]: it must be a table of keys"),
    ("[storage.project-quota]", '[storage."a\\u001bb"]', "names must be printable"),
    ("[storage.project-quota]", "storage = 1\n[a.b]", "storage: failures stand in tables such as [storage.NAME]"),
    ("[storage", "\0", "is not TOML"),
])  # fmt: skip
def test_wrong_site_file_is_told_and_kedge_goes_on(
    site: Path, right: str, wrong: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write_text(EXAMPLE.replace(right, wrong))
    log = site.with_name("train.out")
    log.write_text(FULL)
    assert main(["diagnose", str(log), str(log)]) == FailureFound.exit_code
    shown = capsys.readouterr()
    assert_begins(shown.out, "diagnose/cause-disk-full")
    [warning] = [line for line in shown.err.splitlines() if line.startswith("warning: ")]
    assert f"{site}" in warning
    assert said in shown.err
