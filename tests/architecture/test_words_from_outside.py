# SPDX-License-Identifier: BSD-3-Clause
"""Words that others wrote reach programs behind `--` or `=` alone, and logins have one chooser. Needs mypy."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.system.outside import Outside, close_options
from tests.architecture.source_tree import Module, read_modules
from tests.requirements import REPOSITORY

PAGE = "docs/words-from-outside.md"
STARTERS = {
    "kedge.system.process": {
        *("run_program", "stream_program", "relay_program", "run_into_files", "start_piped", "page_text"),
    },
    "kedge.system.spawn": {"replace_process", "run_attached"},
    "kedge.system.lean_programs": {"run_into_files_here"},
    "kedge.system.detached_programs": {"start_detached", "HeldProgram", "Program"},
    "kedge.system.piped_worker": {"PipedWorker"},
    "kedge.system.child_group": {"ChildGroup"},
}
LOGIN_READERS = {  # who may ask where logins are, and why
    "kedge.image.registry.credentials": "the chooser; it tells keys of NGC apart",
    "kedge.image.registry.docker_config": "its files",
    "kedge.answers.doctor.network": "judges them, sends nothing",
    "kedge.system.host.private_places": "where they are, to keep recipes away; it reads none",
    "kedge.image.node.tag_lookups": "asks whether they changed",
    "kedge.image.logins": "stores and removes them",
}
LOGIN_NAMES = {"PAIRS", "NGC_VARIABLES", "list_auth_files", "read_auth_file", "store_login", "remove_login"}
LOGIN_VARIABLES = ("DOCKER_PASSWORD", "NGC_API_KEY", "NGC_CLI_API_KEY")
REVEALERS = {
    *("kedge.image.registry", "kedge.image.remotes", "kedge.answers.doctor.network"),
    "kedge.builds.copies.git_repositories",
}
WRONG = """
from kedge.system.outside import Outside
from kedge.system.process import run_program
word = Outside("--upload-pack=id")
run_program(["git", word])
run_program(["git", "fetch", *[word]])
run_program(["git"], outside=["--x"])
words: list[str] = [word]
environment: dict[str, str] = {"A": word}
run_program(["git", "fetch", word.behind("--depth")], outside=[word])
"""


def list_imported(module: Module) -> set[tuple[str, str]]:
    """Module and name of `from MODULE import NAME`, wherever that stands."""
    return {(node.module or "", name.name) for node in module.find(ast.ImportFrom) for name in node.names}


def test_outside_types_hold(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    words = (sys.executable, "-m", "mypy", "--no-error-summary", str(tmp_path / "wrong.py"))
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    lines = [int(number) for number in re.findall(r"wrong\.py:(\d+): error", done.stdout)]
    assert sorted(set(lines)) == [5, 6, 7, 8, 9], done.stdout + done.stderr


def test_outside_words_stand_behind_the_options() -> None:
    word = Outside("--upload-pack=id")
    assert close_options(["git", "fetch"], [word]) == ["git", "fetch", "--", "--upload-pack=id"]
    assert word.behind("--depth") == "--depth=--upload-pack=id"
    for put in (str, "{}".format, lambda value: f"{value}"):
        with pytest.raises(TypeError, match="outside"):
            put(word)
    assert Outside("v1.0").read_by(re.compile(r"[a-z0-9.-]+")) == "v1.0"
    for text in ("-v", "v 1", "v\n", ""):
        with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
            Outside(text).read_by(re.compile(r"[a-z0-9.-]+"))


def test_outside_page_has_all_that_starts_programs() -> None:
    page = (REPOSITORY / PAGE).read_text()
    for module in read_modules().values():
        if module.name.startswith("kedge.system."):
            continue
        if any(name in STARTERS.get(part, ()) for part, name in list_imported(module)):
            shown = str(module.path.relative_to(REPOSITORY / "src/kedge"))
            assert f"`{shown}`" in page, f"{module.shown} starts programs: say in {PAGE} who writes their words"


def test_outside_page_names_files_that_are_there() -> None:
    for name in re.findall(r"`([a-z_/]+(?:\.py|/))`", (REPOSITORY / PAGE).read_text()):
        assert (REPOSITORY / "src/kedge" / name).exists() or (REPOSITORY / name).exists(), name


def test_outside_logins_have_one_chooser() -> None:
    for module in read_modules().values():
        if module.name == "kedge.base.login_sources":
            continue
        uses = {name for _, name in list_imported(module)} & LOGIN_NAMES
        assert not uses or module.name in LOGIN_READERS, (
            f"{module.shown} reads logins: image/registry/credentials.py does"
        )
        texts = [module.text, *(each.value for each in module.find(ast.Constant) if isinstance(each.value, str))]
        may_read = any(name in text for text in texts for name in LOGIN_VARIABLES)  # else there is nothing to unparse
        for node in module.find(ast.Call, ast.Subscript):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reveal":
                is_known = any(f"{module.name}.".startswith(f"{known}.") for known in REVEALERS)
                assert is_known, f"{module.shown}:{node.lineno} reads a secret"
            if may_read and re.search(rf"(environ|getenv)[^\n]*({'|'.join(LOGIN_VARIABLES)})", ast.unparse(node)):
                pytest.fail(
                    f"{module.shown}:{node.lineno} reads a login from a variable: image/registry/credentials.py does"
                )
