# SPDX-License-Identifier: BSD-3-Clause
"""Completion scripts, asked through the shells themselves where they are installed; bash always."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest

from kedge.cli.completion import SHELLS, list_gpu_words
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.tables.load import load_tables
from tests.builders.warm_kedge import run_kedge
from tests.requirements import require_program
from tests.wording import assert_says

ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
function_name=$(complete -p kedge | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function_name" kedge "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@functools.cache
def make_script(shell: str) -> str:
    done = run_kedge(["completion", shell], environment=os.environ, folder="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask_bash(folder: Path, *words: str) -> set[str]:
    script = folder / "kedge.bash"
    script.write_text(make_script("bash"))
    command = [require_program("bash"), "--norc", "-c", ASK_BASH, "ask", str(script), *words]
    done = subprocess.run(command, capture_output=True, check=True, text=True, cwd=folder)
    return set(done.stdout.split())


def test_completion_bash_completes_words_options_and_choices(tmp_path: Path) -> None:
    assert ask_bash(tmp_path, "kedge", "conf") == {"config"}
    assert {"config", "completion", "version"} <= ask_bash(tmp_path, "kedge", "")
    assert ask_bash(tmp_path, "kedge", "config", "") >= {"show", "path", "get", "set", "unset"}
    assert ask_bash(tmp_path, "kedge", "config", "set", "--dry") == {"--dry-run"}
    assert ask_bash(tmp_path, "kedge", "version", "--js") == {"--json"}
    assert ask_bash(tmp_path, "kedge", "completion", "") == set(SHELLS)


def test_completion_bash_completes_gpus_sites_and_images(tmp_path: Path) -> None:
    assert ask_bash(tmp_path, "kedge", "explain", "--gpu", "H20") == {"H20", "H200", "H200_NVL"}
    assert {"A100", "A100_40GB", "A100_80GB"} <= ask_bash(tmp_path, "kedge", "recommend", "--gpu", "A100")
    assert ask_bash(tmp_path, "kedge", "tags", "--gpu", "RTX_309") == {"RTX_3090", "RTX_3090_Ti"}
    assert "zih-alpha" in ask_bash(tmp_path, "kedge", "explain", "--on", "zih")
    assert "zih-alpha" in ask_bash(tmp_path, "kedge", "submit", "--site", "zih")
    assert ask_bash(tmp_path, "kedge", "recommend", "pyt") == {"pytorch"}
    assert "tensorflow" in ask_bash(tmp_path, "kedge", "tags", "tens")
    assert ask_bash(tmp_path, "kedge", "help", "troubl") == {"troubleshooting"}
    assert "cache" in ask_bash(tmp_path, "kedge", "help", "cach")
    assert ask_bash(tmp_path, "kedge", "exec", "--help-a") == {"--help-all"}


def test_completion_offers_gpus_that_are_understood() -> None:
    tables = load_tables()
    words = list_gpu_words()
    assert len(words) > 80
    assert all(find_gpu(word, tables).capability for word in words)
    assert not [word for word in words if " " in word]


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shell != "bash"])
def test_completion_other_shells_accept_the_script(tmp_path: Path, shell: str) -> None:
    script = make_script(shell)
    assert "config" in script
    require_program(shell)
    path = tmp_path / "script"
    path.write_text(script)
    read = {
        "zsh": f'autoload -U compinit; compinit -u -d {tmp_path}/dump; eval "$(cat {path})"',
        "tcsh": f"source {path}",
        "fish": f"source {path}",
    }[shell]
    command = [shell, *(["-f"] if shell != "fish" else []), "-c", read]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_completion_unknown_shell_is_a_usage_error() -> None:
    done = run_kedge(["completion", "zhs"], environment=os.environ, folder="/")
    assert done.returncode == 2
    assert_says(done.stderr, "cli/does-not-take-use-one", "kedge completion", "zhs")
