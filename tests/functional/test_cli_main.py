# SPDX-License-Identifier: BSD-3-Clause
"""The command line around the verbs: help, versions, global options, lazy imports, output. Needs nothing."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
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
from tests.builders.rows import each_row
from tests.builders.warm_kedge import run_kedge as run_warm
from tests.functional.test_cli_errors import COMMAND, environment, run_kedge
from tests.requirements import require_root
from tests.wording import assert_begins

HEAVY = ("urllib3", "rich", "zstandard", "cryptography", "zlib_ng", "lz4", "shtab", "difflib", "subprocess")
LIGHT = ("base", "cli", "errors")


def is_group(verb: str) -> bool:
    """Whether it needs a subcommand; `data` alone lists the tables."""
    return bool(find_subcommands(make_parser(verb))) and verb != "data"


def run_plain(*words: str) -> subprocess.CompletedProcess[str]:
    return run_warm([*words], environment=os.environ, folder=Path.cwd(), timeout=60)


@each_row("words", [["--help"], ["--version"], ["help"]])
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


def test_main_help_has_several_spellings(capfd: pytest.CaptureFixture[str]) -> None:
    for same, begin in (
        ("help config; config --help; --help config", "usage: kedge config"),
        ("help config set; config set --help", "usage: kedge config set"),
        ("cache clean --help-all; cache clean --help", "usage: kedge cache clean"),
        ("cache --help-all; cache --help", "usage: kedge cache"),
    ):
        [text] = {run_here(capfd, *words.split())[1] for words in same.split("; ")}
        assert begin in text


def test_main_version_is_one_line_and_the_verb_names_the_libraries() -> None:
    assert run_plain("--version").stdout == f"kedge version {VERSION}\n"
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
        assert_begins(told["message"], "cli/needs-subcommand", verb)


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


@each_row(
    "words, said",
    [
        ("pull --forse alpine", "hint: did you mean '--force'?\n"),
        ("site init --name x", "unrecognized arguments: --name\nhint: --name is an option of 'kedge site "),
        ("pull docker://alpine 'a b.sif'", "hint: the output comes first: kedge pull 'a b.sif' docker://alpine\n"),
        ("pull docker://alpine docker://debian", "pull one image at a time"),
        ("pul alpine", "kedge: kedge has no verb 'pul'\nhint: did you mean 'pull'?\n"),
        ("capability list", "containers have the rights of their caller"),
        ("buildcfg", "kedge config show"),
        ("config shw", "hint: did you mean 'show'?\n"),
        ("config show --js", "--js"),  # options are not abbreviated
        ("--dry-run version", "kedge: 'kedge version' has no --dry-run\n"),
    ],
)
def test_main_mistakes_are_answered(capfd: pytest.CaptureFixture[str], words: str, said: str) -> None:
    status, _, errors = run_here(capfd, *shlex.split(words))
    assert status == 2
    assert said in errors


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
    for words, said in (("fail talk -q", "warning: a warning\n"), ("-s fail talk", "")):
        quiet = run_kedge(tmp_path, *words.split())
        assert (quiet.stdout, quiet.stderr) == (done.stdout, said)
    assert "a detail" in run_kedge(tmp_path, "fail", "talk", "-v").stderr


def test_main_verbose_counts_before_and_after_the_verb(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "-v", "fail", "talk", "-vv", "--json", "--dry-run")
    assert json.loads(done.stdout) == {"verbosity": 3, "dry_run": True}
    assert done.stderr == "a detail\nwarning: a warning\n"


def test_main_letters_of_a_verb_win_over_global_ones(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "known", "-d")
    assert "Traceback" not in done.stderr
    assert "Traceback" in run_kedge(tmp_path, "fail", "known", "--debug").stderr


def test_main_options_named_like_settings_override_them(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "settings", "--threads", "3", "--no-https")
    assert done.returncode == 7
    assert done.stdout == "3 flag: --threads True flag: --no-https\n"
    assert run_kedge(tmp_path, "fail", "settings").stdout == "None default False default\n"


def test_main_option_with_a_bad_value_names_the_option(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "settings", "--threads", "many")
    assert done.returncode == 50
    assert_begins(done.stderr, "base/threads-threads-many-not-valid")


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
