# SPDX-License-Identifier: BSD-3-Clause
"""The files around the code: no paths of one machine, dependencies justified, documents that agree with the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

from kedge import errors
from kedge.base.release import VERSION
from kedge.cli.verbs import VERBS
from tests.builders.made_pages import make_pages
from tests.requirements import REPOSITORY, require_program

# Written in pieces, so that this file does not contain what it looks for.
MACHINE_PATHS = ("/wo" + "rk/", "/var/tmp/" + "setup", "/home/" + "runner")
TEXT_LIMIT = 2 << 20


def tracked_files() -> list[Path]:
    """The files of the repository, or of the directory where there is no repository (an unpacked release)."""
    git = shutil.which("git")
    if git and (REPOSITORY / ".git").exists():
        command = [git, "-c", f"safe.directory={REPOSITORY}", "-C", str(REPOSITORY), "ls-files", "-z"]
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
        return [REPOSITORY / name for name in listed if name and (REPOSITORY / name).is_file()]
    hidden = {".venv", ".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis"}
    return [path for path in REPOSITORY.rglob("*") if path.is_file() and not hidden & set(path.parts)]


def test_repository_names_no_machine() -> None:
    wrong = []
    for path in tracked_files():
        if path.stat().st_size > TEXT_LIMIT:
            continue
        text = path.read_bytes().decode(errors="replace")
        wrong += [f"{path.relative_to(REPOSITORY)} contains {found}" for found in MACHINE_PATHS if found in text]
    assert not wrong, "\n" + "\n".join(wrong)


def test_repository_python_files_carry_the_licence() -> None:
    wrong = [
        str(path.relative_to(REPOSITORY))
        for path in tracked_files()
        if path.suffix == ".py" and "# SPDX-License-Identifier: BSD-3-Clause" not in path.read_text()[:200]
    ]
    assert not wrong, f"no SPDX line: {wrong}"


def read_project() -> dict[str, object]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_repository_dependencies_are_justified() -> None:
    project = read_project()
    declared = {re.split(r"[<>=~! \[]", text)[0] for text in project["dependencies"]}  # type: ignore[attr-defined]
    document = (REPOSITORY / "docs/dependencies.md").read_text()
    justified = set(re.findall(r"^\| `([\w-]+)` \|", document, re.MULTILINE))
    assert declared == justified, "pyproject.toml and docs/dependencies.md differ"


def test_repository_version_is_one() -> None:
    assert read_project()["version"] == VERSION


def test_repository_changelog_knows_the_version() -> None:
    assert re.search(
        rf"^## \[?({re.escape(VERSION)}|Unreleased)", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE
    )


def test_repository_has_no_page_that_is_made() -> None:
    made = {REPOSITORY / "docs" / path.relative_to(make_pages()) for path in make_pages().rglob("*")}
    assert not made & set(tracked_files())


def test_repository_every_verb_has_a_page_and_a_man_page() -> None:
    assert {path.name for path in (make_pages() / "man").iterdir()} == {
        "kedge.1",
        *(f"kedge-{verb}.1" for verb in VERBS),
    }
    assert {path.stem for path in (make_pages() / "reference/cli").iterdir()} == set(VERBS)


def test_repository_man_pages_are_good_roff() -> None:
    groff = require_program("groff")
    for path in sorted((make_pages() / "man").iterdir()):
        command = [groff, "-man", "-ww", "-Tascii", "-z", str(path)]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        assert (done.returncode, done.stderr) == (0, ""), path.name


def test_repository_exit_codes_are_unique() -> None:
    codes = [kind.exit_code for kind in errors.all_errors()]
    names = [kind.reference for kind in errors.all_errors()]
    assert len(set(codes)) == len(codes)
    assert len(set(names)) == len(names)
    assert not {0, 3, 130, 137, 143} & set(codes), "reserved: success, a bug, signals"


def test_repository_links_lead_somewhere() -> None:
    """Also of the pages that are made, and to them from pages of the site."""
    docs = REPOSITORY / "docs"
    made = {docs / path.relative_to(make_pages()): path for path in make_pages().rglob("*.md")}
    pages = {path: path for path in tracked_files() if path.suffix == ".md"} | made
    wrong = []
    for page, path in pages.items():
        targets = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", path.read_text())
        offered = made if page.is_relative_to(docs) else {}
        places = {target: Path(os.path.normpath(page.parent / target)) for target in targets}
        missing = [target for target, place in places.items() if place not in offered and not place.exists()]
        wrong += [f"{page.relative_to(REPOSITORY)} links to {target}, which does not exist" for target in missing]
    assert not wrong, "\n" + "\n".join(wrong)


def test_repository_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (REPOSITORY / "docs/adr").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
