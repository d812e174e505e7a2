# SPDX-License-Identifier: BSD-3-Clause
"""The command line around the verbs: help, versions, global options, lazy imports, output. Needs nothing."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kedge.base.release import VERSION
from kedge.cli.entry import CONTAINER_VERBS, main
from kedge.cli.main import make_parser
from kedge.cli.options import find_subcommands
from kedge.cli.verbs import VERBS
from tests.builders.warm_kedge import run_kedge as run_warm
from tests.functional.test_cli_errors import COMMAND, environment, run_kedge
from tests.requirements import require_root

HEAVY = ("urllib3", "rich", "zstandard", "cryptography", "zlib_ng", "lz4", "shtab", "difflib", "subprocess")
LIGHT = ("base", "cli", "errors")


def is_group(verb: str) -> bool:
    """Whether it needs a subcommand; `data` alone lists the tables."""
    return bool(find_subcommands(make_parser(verb))) and verb != "data"


def run_plain(*words: str) -> subprocess.CompletedProcess[str]:
    return run_warm([*words], environment=os.environ, folder=Path.cwd(), timeout=60)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["help"]])
def test_main_light_commands_import_nothing_heavy(words: list[str]) -> None:
    code = f"import sys; from kedge.cli.main import main; main({words!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert not {name for name in loaded if name.split(".")[0] in HEAVY}
    if words != ["help"]:  # a verb, with settings
        others = {name for name in loaded if name.startswith("kedge.") and name.split(".")[1] not in LIGHT}
        assert others <= {"kedge.system", "kedge.system.undivided"}  # what signals must not end halfway


def test_main_help_lists_every_verb() -> None:
    done = run_plain("--help")
    assert done.returncode == 0
    for name, verb in VERBS.items():
        assert f"  {name:<11} {verb.summary}\n" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 120


def test_main_help_of_a_verb_has_three_spellings() -> None:
    texts = {run_plain(*words).stdout for words in (["help", "config"], ["config", "--help"], ["--help", "config"])}
    assert len(texts) == 1
    assert "usage: kedge config" in texts.pop()


def test_main_help_all_is_help_where_help_shows_all() -> None:
    assert run_plain("cache", "clean", "--help-all").stdout == run_plain("cache", "clean", "--help").stdout != ""
    assert run_plain("cache", "--help-all").stdout == run_plain("cache", "--help").stdout != ""


def test_main_help_of_a_subcommand() -> None:
    assert "usage: kedge config set" in run_plain("help", "config", "set").stdout


def test_main_version_is_one_line() -> None:
    assert run_plain("--version").stdout == f"kedge version {VERSION}\n"


def test_main_version_verb_names_the_libraries() -> None:
    facts = json.loads(run_plain("version", "--json").stdout)
    assert facts["kedge"] == VERSION
    assert facts["urllib3"][0].isdecimal()


def run_here(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Status and output of a verb in this process: what is asked is its text."""
    status = main(words)
    return status, *capfd.readouterr()


def test_main_verb_without_its_subcommand_shows_its_help(capfd: pytest.CaptureFixture[str]) -> None:
    for verb in filter(is_group, VERBS):
        assert run_here(capfd, verb) == (2, "", run_here(capfd, verb, "--help")[1]), verb
        told = json.loads(run_here(capfd, verb, "--json")[1])
        assert told["message"].startswith(f"'kedge {verb}' needs a subcommand: ")


def test_main_without_a_verb_shows_where_you_are() -> None:
    done = run_plain()
    assert (done.returncode, done.stderr) == (0, "")
    assert "All verbs: kedge --help" in done.stdout
    here = json.loads(run_plain("--json").stdout)
    assert here["host"] == os.uname().nodename
    assert len(here["next"]) == 3


@pytest.mark.parametrize(
    ("site", "lists"), [("generic-slurm", "site init --dry-run"), ("zih-alpha", "site show zih-alpha")]
)
def test_main_without_a_verb_names_the_command_that_lists_the_clusters_gpus(
    site: str, lists: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEDGE_SITE", site)
    said = run_plain().stdout
    assert f"none on this host; list the cluster's: kedge {lists}" in said or "driver" in said
    assert max(len(line) for line in said.splitlines() if "Cache" not in line) <= 80


def test_main_unknown_option_proposes_the_nearest() -> None:
    done = run_plain("pull", "--forse", "alpine")
    assert done.returncode == 2
    assert done.stderr.endswith("hint: did you mean '--force'?\n")


def test_main_option_of_another_subcommand_is_not_proposed_for_itself() -> None:
    done = run_plain("site", "init", "--name", "x")
    assert done.returncode == 2
    assert "unrecognized arguments: --name" in done.stderr
    assert "did you mean" not in done.stderr
    assert "hint: --name is an option of 'kedge site " in done.stderr


def test_main_pull_with_the_output_last_says_that_it_comes_first() -> None:
    done = run_plain("pull", "docker://alpine", "my image.sif")
    assert done.returncode == 2
    assert done.stderr.endswith("hint: the output comes first: kedge pull 'my image.sif' docker://alpine\n")
    assert "pull one image at a time" in run_plain("pull", "docker://alpine", "docker://debian").stderr


def test_main_unknown_verb_proposes_the_nearest() -> None:
    done = run_plain("pul", "alpine")
    assert done.returncode == 2
    assert done.stderr == "kedge: kedge has no verb 'pul'\nhint: did you mean 'pull'?\n"


def test_verbs_of_apptainer_that_kedge_lacks_are_answered() -> None:
    done = run_plain("capability", "list")
    assert done.returncode == 2
    assert "containers have the rights of their caller" in done.stderr
    assert "kedge config show" in run_plain("buildcfg").stderr


def test_main_unknown_subcommand_proposes_the_nearest() -> None:
    done = run_plain("config", "shw")
    assert done.returncode == 2
    assert done.stderr.endswith("hint: did you mean 'show'?\n")


def test_main_options_are_not_abbreviated() -> None:
    assert run_plain("config", "show", "--js").returncode == 2


def test_main_every_verb_has_help(capfd: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        status, shown, said = run_here(capfd, verb, "--help")
        assert (status, said) == (0, ""), verb
        assert f"usage: kedge {verb}" in shown
        opening = shown.split("\n\n")
        assert opening[1] == f"{VERBS[verb].summary}."
        assert opening[2].startswith("examples:\n  "), verb
        assert 3 <= len(opening[2].splitlines()) - 1 <= 5, verb
        assert "--json" in (run_here(capfd, verb, "--help-all")[1] if verb in CONTAINER_VERBS else shown), verb


def test_main_results_and_notes_go_to_different_streams(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "talk")
    assert done.returncode == 0
    assert done.stdout == "result\nNAME    SIZE\nfirst   1\nsecond  22\n"
    note, warning, total = done.stderr.splitlines()
    assert (note, warning) == ("a note", "warning: a warning")
    assert total.startswith("layer 1: 2.0 MB in 0.")


def test_main_quiet_leaves_results_and_warnings(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "talk", "-q")
    assert done.stdout.startswith("result\n")
    assert done.stderr == "warning: a warning\n"


def test_main_silent_leaves_results(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "-s", "fail", "talk")
    assert done.stdout.startswith("result\n")
    assert done.stderr == ""


def test_main_verbose_counts_before_and_after_the_verb(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "-v", "fail", "talk", "-vv", "--json", "--dry-run")
    assert json.loads(done.stdout) == {"verbosity": 3, "dry_run": True}
    assert done.stderr == "a detail\nwarning: a warning\n"


def test_main_verbose_shows_details(tmp_path: Path) -> None:
    assert "a detail" in run_kedge(tmp_path, "fail", "talk", "-v").stderr
    assert "a detail" not in run_kedge(tmp_path, "fail", "talk").stderr


def test_main_letters_of_a_verb_win_over_global_ones(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "known", "-d")
    assert "Traceback" not in done.stderr
    assert "Traceback" in run_kedge(tmp_path, "fail", "known", "--debug").stderr


def test_main_dry_run_is_refused_where_it_has_no_meaning() -> None:
    done = run_plain("--dry-run", "version")
    assert done.returncode == 2
    assert done.stderr.startswith("kedge: 'kedge version' has no --dry-run\n")


def test_main_options_named_like_settings_override_them(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "settings", "--threads", "3", "--no-https")
    assert done.returncode == 7
    assert done.stdout == "3 flag: --threads True flag: --no-https\n"
    assert run_kedge(tmp_path, "fail", "settings").stdout == "None default False default\n"


def test_main_option_with_a_bad_value_names_the_option(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "settings", "--threads", "many")
    assert done.returncode == 50
    assert done.stderr.startswith("kedge: --threads: threads = 'many' is not valid: it must be a whole number")


def run_on_terminal(home: Path, *words: str, term: str = "xterm", prefix: Sequence[str] = ()) -> tuple[int, bytes]:
    """Run with a terminal as all three streams; the status, and everything that was written to it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*prefix, *COMMAND, *words],
        cwd=home,
        env={**environment(home), "TERM": term, "COLUMNS": "100"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO when the other side is closed
        while chunk := os.read(ours, 4096):
            shown += chunk
    os.close(ours)
    return process.wait(timeout=60), shown


def test_main_terminal_gets_bars_instead_of_lines(tmp_path: Path) -> None:
    status, shown = run_on_terminal(tmp_path, "fail", "talk")
    assert status == 0
    for text in (b"layer 1", b"a note", b"result", b"second"):
        assert text in shown
    assert b" in 0." not in shown  # the plain line of a log
    assert b"\x1b[?25h" in shown  # the cursor is shown again


def test_main_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    status, shown = run_on_terminal(tmp_path, "fail", "talk", term="dumb")
    assert status == 0
    assert b"layer 1: 2.0 MB in 0." in shown
    assert b"\x1b" not in shown


@pytest.mark.root
def test_main_terminal_without_a_thread_to_spare_still_works() -> None:
    require_root()
    nobody = ["setpriv", "--reuid", "1777", "--regid", "1777", "--clear-groups"]  # root has no limit on processes
    status, shown = run_on_terminal(Path("/"), "fail", "talk", prefix=[*nobody, "prlimit", "--nproc=1", "--"])
    assert status == 0, shown
    assert b"second" in shown
    assert shown.rfind(b"\x1b[?25h") >= shown.rfind(b"\x1b[?25l")  # the cursor is not left hidden


def test_main_error_is_coloured_on_a_terminal_only_when_wanted(tmp_path: Path) -> None:
    assert b"\x1b[1;31mkedge:" in run_on_terminal(tmp_path, "fail", "known")[1]
    assert b"\x1b[1;31mkedge:" not in run_on_terminal(tmp_path, "fail", "known", "--nocolor")[1]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_main_prints_every_name_in_every_locale(tmp_path: Path, encoding: str) -> None:
    done = subprocess.run(
        [*COMMAND, "fail", "odd-names"],
        cwd=tmp_path,
        env={**environment(tmp_path), "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"caf\\udce9 ")


def test_main_json_before_a_verb_that_has_its_own(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "--json", "--dry-run", "fail", "talk")
    assert json.loads(done.stdout)["dry_run"] is True
