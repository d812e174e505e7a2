# SPDX-License-Identifier: BSD-3-Clause
"""What the guides about jobs show works: kedge.toml is read, Python runs on the local queue, requests fit their sites.

Needs user namespaces, for containers.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kedge
from kedge.jobs.description import parse_description
from kedge.model.job_fields import BY_KEY
from tests.builders.documents import list_commands
from tests.builders.squashfs_images import write_image
from tests.requirements import REPOSITORY, require_user_namespaces

GUIDES = REPOSITORY / "docs/guides"
TUTORIALS = GUIDES / "from-tutorials.md"


def find_blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (GUIDES / page).read_text(), re.DOTALL)


def make_environment(place: Path, **more: str) -> dict[str, str]:
    """A user with a home of their own, whose jobs go to the local queue."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KEDGE_", "XDG_", "SLURM_"))}
    place.mkdir(exist_ok=True)
    own = {"HOME": str(place), "KEDGE_SITE": "local", "KEDGE_NODEDIR": str(place / "node")}
    return {**kept, **own, "PYTHONPATH": str(REPOSITORY / "src"), **more}


@pytest.mark.parametrize("page", ["jobs.md", "from-tutorials.md"])
def test_guide_descriptions_can_be_read(page: str) -> None:
    blocks = find_blocks(page, "toml")
    assert blocks
    for block in blocks:
        assert parse_description(block, Path("/project/kedge.toml")).names


@pytest.mark.parametrize(
    ("position", "shown"),
    [
        (0, ("done", "hello", "(failing) failed with exit code 3", "its script failed with exit code 3", "task 1")),
        (1, ("(0.1, 0.36787944117144233)", "[0.1, 0.2, 0.3]", "raised in the job: a rate of -1")),
    ],
)
def test_guide_python_runs(tmp_path: Path, position: int, shown: tuple[str, ...]) -> None:
    if os.geteuid() != 0:
        require_user_namespaces()
    script = tmp_path / "example.py"
    script.write_text(find_blocks("jobs-python.md", "python")[position])
    done = subprocess.run(
        [sys.executable, str(script)],
        env=make_environment(tmp_path / "home"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for text in shown:
        assert text in done.stdout


def test_guide_python_names_keys_that_exist() -> None:
    calls = [node for block in find_blocks("jobs-python.md", "python") for node in ast.walk(ast.parse(block))]
    ours = [node for node in calls if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("kedge.")]
    names = {word.arg for node in ours for word in node.keywords if word.arg}
    assert len(ours) >= 6
    assert names <= {*BY_KEY, "site", "python"}


def test_guide_python_names_what_a_handle_has() -> None:
    page = (GUIDES / "jobs-python.md").read_text()
    table = page[page.index("a `JobHandle` has") : page.index("Each of `state`")]
    named = {name for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)", row)}
    assert len(named - {"JobHandle"}) >= 9
    assert not [name for name in named - {"JobHandle"} if not hasattr(kedge.JobHandle, name)]


def list_tutorial_requests() -> list[tuple[str, list[str]]]:
    """Every `kedge submit` and `kedge alloc` of the page about tutorials, with the site of its section."""
    found = []
    for section in TUTORIALS.read_text().split("\n## ")[1:]:
        site = re.search(r"site `([\w-]+)`", section)
        if site is None:
            continue
        words = [words for words in list_commands_of(section) if words[0] in ("submit", "alloc")]
        found += [(site[1], each) for each in words]
    return found


def list_commands_of(section: str) -> list[list[str]]:
    """The commands of a part of a page."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".md") as file:
        file.write(section)
        file.flush()
        return list(list_commands(Path(file.name)))


REQUESTS = list_tutorial_requests() if TUTORIALS.exists() else []


def test_guide_tutorials_show_requests_for_each_site() -> None:
    assert {site for site, _ in REQUESTS} >= {"zih-taurus", "sdumont", "abci2", "nvidia", "tacc-frontera"}


@pytest.mark.parametrize(("site", "words"), REQUESTS, ids=[" ".join(words[:9]) for _, words in REQUESTS])
def test_guide_tutorial_requests_are_served(tmp_path: Path, site: str, words: list[str]) -> None:
    """A dry run at that site: the flags are understood, and the site would take the job."""
    description = find_blocks("from-tutorials.md", "toml")[0]
    (tmp_path / "kedge.toml").write_text(description)
    for name in re.findall(r"[\w.-]+\.sif", f"{description} {' '.join(words)}"):
        (tmp_path / name).write_bytes(write_image())
    places = {"SCRATCH": str(tmp_path), "MYDATA": str(tmp_path), "KEDGE_SITE": site}
    done = subprocess.run(
        [sys.executable, "-m", "kedge", words[0], "--dry-run", *words[1:]],
        env=make_environment(tmp_path / "home", **places),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
