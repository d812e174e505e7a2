# SPDX-License-Identifier: BSD-3-Clause
"""The front end of exec, run, shell and test: help, mistakes, exit status, and what a start imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from kedge.cli.entry import CONTAINER_VERBS
from kedge.container.options import FLAGS, GROUPS
from tests.builders.rows import each_row
from tests.builders.warm_kedge import run_kedge as run_warm
from tests.requirements import REPOSITORY
from tests.wording import assert_reads, assert_says

FORBIDDEN = ("re", "argparse", "typing", "dataclasses", "pathlib", "enum", "json", "collections", "functools", "shlex")

# Runs the command with a runtime that says what it was asked for; `-SI`, because site loads modules of its own.
FAKE_RUNTIME = """
import sys
sys.path.insert(0, {source!r})
def run_container(options, say, services):
    {body}
    return 7
fake = type(sys)("kedge.container.start_container")
fake.run_container = run_container
sys.modules["kedge.container.start_container"] = fake
from kedge.cli.entry import main
status = main()
print(*sorted(sys.modules))
sys.exit(status)
"""


def run_kedge(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_warm([*words], environment={**os.environ, **environ}, folder=Path.cwd(), timeout=60)


def run_fake(*words: str, body: str = "pass", **environ: str) -> subprocess.CompletedProcess[str]:
    code = FAKE_RUNTIME.format(source=str(REPOSITORY / "src"), body=body)
    argv = [sys.executable, "-SI", "-c", code, *words]
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environ}
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, check=False)


@each_row(
    "words",
    [
        ["exec", "--nv", "-B", "/a:/b", "--env", "A=1", "image.sif", "python", "-c", "print()"],
        ["-q", "--nocolor", "run", "--pwd=/tmp", "docker://alpine"],
        ["shell", "-ec", "folder"],
        ["test", "image.sif"],
    ],
)
def test_container_starts_import_nothing_heavy(words: list[str]) -> None:
    done = run_fake(*words, APPTAINER_BIND="/x", APPTAINER_NV="1")
    assert done.returncode == 7, done.stderr
    loaded = done.stdout.split()
    assert "kedge.container.flags" in loaded
    assert not [name for name in loaded if name.split(".")[0] in FORBIDDEN]
    assert not [name for name in loaded if name.startswith("kedge.") and name.split(".")[1] in ("errors", "settings")]


def test_container_warnings_need_nothing_heavy() -> None:
    body = "say('warn', 'careful\\x1b[2J'); say('note', 'decided'); say('out', 'the plan')"
    done = run_fake("exec", "--no-pid", "\u2014-nv", "i", "x", body=body)
    assert done.stdout.startswith("the plan\n")
    assert not [name for name in done.stdout.split() if name.split(".")[0] in FORBIDDEN]
    assert done.stderr.splitlines()[-1] == "kedge: warning: careful\\x1b[2J"


def test_container_notes_are_said_with_verbose() -> None:
    done = run_fake("exec", "-v", "--no-pid", "i", "x", body="say('note', 'decided')")
    assert done.stderr.splitlines() == [
        "kedge: --no-pid has no effect: the PID namespace is separate only with --pid or --containall",
        "kedge: decided",
    ]


def test_container_options_before_the_verb_are_heard() -> None:
    body = "print(options.silent, options.verbose, options.dry_run, options.shell)"
    assert run_fake("-s", "-v", "--dry-run", "shell", "-s", "zsh", "i", body=body).stdout.startswith(
        "True 1 True zsh\n"
    )
    # a cluster goes the long way, and arrives too
    assert run_fake("-sv", "--dry-run", "shell", "-s", "zsh", "i", body=body).stdout.startswith("True 1 True zsh\n")


@each_row("verb", CONTAINER_VERBS)
def test_container_help_lists_every_flag(verb: str) -> None:
    done = run_kedge(verb, "--help-all")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: kedge {verb} [options] IMAGE")
    for flag in FLAGS:
        if verb in flag.verbs:
            for name in flag.names:
                assert f"--{name}" in done.stdout
    for title in set(GROUPS.values()) - {"messages"}:
        assert f"\n{title}:\n" in done.stdout
    assert done.stdout == run_kedge(verb, "-e", "--help-all", "image").stdout
    assert done.stdout == run_kedge("--shim", verb, "--help").stdout  # Apptainer's shows all of them


@each_row("command", [*CONTAINER_VERBS, "instance start", "instance run"])
def test_container_help_fits_on_one_screen(command: str) -> None:
    done = run_kedge(*command.split(), "--help")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"usage: kedge {command} [options] IMAGE")
    assert_reads(lines[-1], "cli/all-options-help-all-guide-help", command)
    assert done.stdout == run_kedge(*command.split(), "-e", "-h", "image").stdout


def test_container_help_into_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "kedge", "exec", "--help"]
    done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@each_row(
    "words, message, hint",
    [
        (["exec"], "'kedge exec' needs an image", "usage: kedge exec [options] IMAGE COMMAND [ARGUMENT ...]"),
        (["exec", "i"], "'kedge exec' needs a command to run", "usage: kedge exec [options] IMAGE COMMAND"),
        (["run", "--nvv", "i"], "'kedge run' has no option --nvv", "did you mean '--nv'?"),
        (
            ["shell", "--fusemount=x", "i"],
            "--fusemount is not supported: kedge starts no FUSE programs for users",
            "mount",
        ),
    ],
)
def test_container_mistakes_end_with_255(words: list[str], message: str, hint: str) -> None:
    done = run_kedge(*words)
    assert done.returncode == 255
    assert done.stdout == ""
    assert done.stderr.startswith(f"kedge: {message}\nhint: {hint}")
    assert done.stderr.count("\n") == 2


@each_row("words", [["--json", "exec", "i"], ["exec", "--json", "i"], ["exec", "--nvv", "--json", "i"]])
def test_container_mistakes_as_json_keep_their_class(words: list[str]) -> None:
    done = run_kedge(*words)
    assert done.returncode == 255
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert (document["error"], document["exit_code"]) == ("usage", 2)


def test_container_json_behind_the_image_is_the_programs() -> None:
    done = run_kedge("exec", "--nvv", "i", "program", "--json")
    assert done.stdout == ""
    assert done.stderr.startswith("kedge: ")


def test_container_domain_errors_bugs_and_signals_end_as_documented(tmp_path: Path) -> None:
    failing = "from kedge.errors import MountFailed; raise MountFailed('no way', hint='go round')"
    done = run_fake("run", "i", body=failing)
    assert (done.returncode, done.stderr) == (255, "kedge: no way\nhint: go round\n")
    bug = run_fake("run", "i", body="raise ValueError('x')", XDG_STATE_HOME=str(tmp_path))
    assert bug.returncode == 255
    assert_says(bug.stderr, "cli/bug-valueerror-x")
    assert [each.suffix for each in (tmp_path / "kedge").iterdir()] == [".md"], "the report of it"
    interrupted = run_fake("run", "i", body="raise KeyboardInterrupt")
    assert (interrupted.returncode, interrupted.stderr) == (130, "kedge: interrupted\n")
    gone = run_fake("run", "i", body="raise BrokenPipeError")
    assert (gone.returncode, gone.stderr) == (141, "")


def test_container_debug_shows_where_an_error_came_from() -> None:
    failing = "from kedge.errors import MountFailed; raise MountFailed('no way')"
    assert "Traceback" in run_fake("exec", "-d", "i", "x", body=failing).stderr


def test_container_installed_command_begins_with_the_lean_entry(tmp_path: Path) -> None:
    script = (REPOSITORY / "scripts/kedge").read_text()
    assert script.startswith("#!python\n")  # installers put their interpreter there
    copy = tmp_path / "kedge"
    copy.write_text(script)
    argv = [sys.executable, "-X", "importtime", str(copy), "exec"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 255
    before_error = done.stderr.partition("kedge.errors")[0]
    assert "kedge.cli.entry" in before_error
    assert "argparse" not in before_error
