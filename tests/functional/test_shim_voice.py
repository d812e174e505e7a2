# SPDX-License-Identifier: BSD-3-Clause
"""What a shim says: as Apptainer says it, because tools read it, and no more than they expect."""

from __future__ import annotations

import os
import pty
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.tree import ContentSink, Node, NodeKind
from tests.builders.busybox import read_busybox
from tests.builders.containers import Runner, each_role
from tests.builders.shims import with_shim
from tests.builders.squashfs_images import add_file, add_folder, add_special, write_image
from tests.wording import assert_begins, assert_says

FATAL, WARNING, INFO = "FATAL:   ", "WARNING: ", "INFO:    "


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    for each in each_role("user"):
        yield each
        each.run("instance", "stop", "--all", "--force")


@pytest.fixture(scope="module")
def shim(runner: Runner) -> Runner:
    return with_shim(runner)


@pytest.fixture
def fresh(runner: Runner) -> Iterator[Path]:
    """An image that no test has used: it has a device, which a user cannot make."""

    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY, 0o755, 0, 0, 1_600_000_000)
        binaries = add_folder(root, b"bin", 0o755)
        add_file(sink, binaries, b"sh", read_busybox(), mode=0o755)
        add_file(sink, root, b"unique", os.urandom(16))
        for name in (b"dev", b"etc", b"proc", b"sys", b"tmp", b"var"):
            add_folder(root, name, 0o755)
        add_special(root, b"null", NodeKind.CHARACTER_DEVICE, rdev=os.makedev(1, 3))
        return root

    path = runner.folder / "fresh.sqsh"
    path.write_bytes(write_image(fill))
    path.chmod(0o644)
    yield path
    path.unlink()


def test_shim_first_use_says_nothing_where_nobody_sits(runner: Runner, shim: Runner, fresh: Path) -> None:
    words = ("exec", "--root-from", "unpack", str(fresh), "/bin/sh", "-c", "echo out; echo own >&2")
    done = shim.run(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "own\n")
    fresh.touch()  # unpacked anew, or known: both are right
    assert_says(runner.run("unpack", "--pull", "always", str(fresh)).stderr, "image/devices-image-became-empty-files")


def test_shim_first_use_says_more_where_more_is_wanted(shim: Runner, fresh: Path) -> None:
    done = shim.run("-v", "exec", "--root-from", "unpack", str(fresh), "/bin/sh", "-c", ":")
    assert_says(done.stderr, "image/devices-image-became-empty-files-2", INFO)
    assert {line.partition(":")[0] for line in done.stderr.splitlines()} <= {"VERBOSE", "INFO", "WARNING"}


def test_shim_first_use_shows_progress_on_a_terminal(shim: Runner, fresh: Path) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        shim.argv("exec", "--root-from", "unpack", str(fresh), "/bin/sh", "-c", ":"),
        env=shim.variables(),
        cwd=shim.home,
        stdin=subprocess.DEVNULL,
        stderr=theirs,
        timeout=120,
        check=False,
    )
    os.close(theirs)
    assert done.returncode == 0
    assert b"devices in the image became empty files" in os.read(ours, 1 << 16)
    os.close(ours)


def test_shim_exec_in_an_instance_says_nothing(runner: Runner, shim: Runner, image: str) -> None:
    started = shim.run("instance", "start", image, "voice")
    assert started.returncode == 0, started.stderr
    assert started.stderr.startswith(f"{INFO}instance 'voice' is running")
    done = shim.run("exec", "instance://voice", "echo", "inside")
    assert (done.returncode, done.stdout, done.stderr) == (0, "inside\n", "")
    assert "--contain is ignored" not in shim.run("exec", "instance://voice", "true").stderr
    assert shim.run("exec", "--pid", "instance://voice", "true").stderr.startswith(f"{WARNING}--pid is ignored")
    assert shim.run("instance", "stop", "voice").stderr.startswith(f"{INFO}instance 'voice'")


def test_shim_says_nothing_where_there_is_no_gpu(runner: Runner, shim: Runner, image: str) -> None:
    if Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists():
        pytest.skip("this machine has a GPU")
    for flag in ("--nv", "--rocm"):
        done = shim.run("exec", flag, image, "true")
        assert (done.returncode, done.stderr) == (0, "")
        assert flag in shim.run("-v", "exec", flag, image, "true").stderr
        assert runner.run("exec", flag, image, "true").stderr.startswith(f"kedge: warning: {flag}: ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("exec", "/gone.sif", "true"), FATAL),
        (("exec", "--no-such", "i.sif", "true"), f"{FATAL}'kedge exec' has no option --no-such"),
        (("--no-such", "exec"), f"{FATAL}'apptainer' has no option --no-such"),
        (("inspect", "/gone.sif"), FATAL),
        (("instance", "stop", "nobody"), f"{FATAL}no instance 'nobody'"),
        (("pull", "x.sif", "docker://127.0.0.1:1/a/b"), FATAL),
        (("run", "docker://127.0.0.1:1/a/b"), FATAL),
        (("build", "x.sif", "/gone.def"), FATAL),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_shim_errors_begin_as_apptainers(shim: Runner, words: tuple[str, ...], line: str) -> None:
    done = shim.run(*words, env={"KEDGE_RETRIES": "0"})
    assert done.returncode != 0
    said = done.stderr.splitlines()
    begin = next(each for each in said if not each.startswith(("INFO:    ", "WARNING: ")))
    assert begin.startswith(line), done.stderr
    assert all(each.startswith((FATAL, WARNING, INFO, " " * len(FATAL))) for each in said), done.stderr
    assert not any(each.startswith("kedge:") for each in said)


def test_kedge_itself_keeps_its_own_voice(runner: Runner) -> None:
    assert runner.run("exec", "/gone.sif", "true").stderr.startswith("kedge: ")
    assert runner.run("inspect", "/gone.sif").stderr.startswith("kedge: ")


def test_shim_warnings_begin_as_apptainers(shim: Runner, image: str) -> None:
    done = shim.run("--config", "/x", "exec", "--no-mount", "nothing", image, "true")
    assert done.returncode == 0
    assert [line[: len(WARNING)] for line in done.stderr.splitlines()] == [WARNING, WARNING]


def test_shim_progress_of_a_pull_begins_as_apptainers(shim: Runner) -> None:
    done = shim.run("pull", "tools.sif", "host:sh")
    assert done.returncode == 0, done.stderr
    assert done.stderr
    assert {line[: len(INFO)] for line in done.stderr.splitlines()} == {INFO}


def say_kept(runner: Runner, image: str, **environ: str) -> str:
    """What is said about a variable that stays outside."""
    done = runner.run("exec", image, "true", env={"PERL5LIB": "/host/perl", **environ})
    assert done.returncode == 0
    return done.stderr


def test_kept_variables_are_said_once_in_a_job(runner: Runner, image: str) -> None:
    job = secrets.token_hex(8)
    assert "PERL5LIB" in say_kept(runner, image, SLURM_JOB_ID=job)
    assert say_kept(runner, image, SLURM_JOB_ID=job) == ""
    assert "PERL5LIB" in say_kept(runner, image, SLURM_JOB_ID=secrets.token_hex(8)), "another job has another log"
    assert "PERL5LIB" in say_kept(runner, image)
    assert "PERL5LIB" in say_kept(runner, image), "whoever types twice reads twice"


def test_kept_variables_are_said_by_one_rank(runner: Runner, image: str) -> None:
    launch = {"PMI_SIZE": "2", "PMIX_NAMESPACE": secrets.token_hex(8)}
    said = [say_kept(runner, image, PMI_RANK=str(rank), **launch) for rank in (1, 0)]
    assert said[0] == ""
    assert "PERL5LIB" in said[1]


@pytest.mark.parametrize(
    "environ",
    [
        {"VIRTUAL_ENV": "/home/me/venv", "VIRTUAL_ENV_PROMPT": "(venv) "},
        {"CONDA_PREFIX": "/opt/conda", "CONDA_DEFAULT_ENV": "base", "_CE_CONDA": "", "MAMBA_EXE": "/opt/mamba"},
    ],
    ids=["venv", "conda"],
)
def test_activated_environments_are_nothing_to_speak_of(runner: Runner, image: str, environ: dict[str, str]) -> None:
    done = runner.run("exec", image, "env", env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(line.startswith(tuple(environ)) for line in done.stdout.splitlines())
    assert next(iter(environ)) in runner.run("-v", "exec", image, "true", env=environ).stderr


def launch(rank: int = 0, size: int = 4) -> dict[str, str]:
    """The variables of a rank of a launch of its own."""
    counts = {"OMPI_COMM_WORLD_SIZE": str(size), "OMPI_COMM_WORLD_LOCAL_SIZE": str(size)}
    return {**counts, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_MCA_ess_base_jobid": secrets.token_hex(8)}


def test_ranks_without_their_launchers_variables_are_warned(runner: Runner, image: str) -> None:
    given = {f"APPTAINERENV_{name}": value for name, value in launch().items()}
    for flag in ("--cleanenv", "-C", "--compat"):
        done = runner.run("exec", flag, image, "true", env=launch())
        assert done.returncode == 0
        assert_says(done.stderr, "run/removes-variables-mpi-launcher", flag)
        assert_says(done.stderr, "run/programs-one-rank-each", 4)
    for env in ({}, {**launch(), **given}, launch(size=1)):
        assert runner.run("exec", "--cleanenv", image, "true", env=env).stderr == ""


def test_ranks_with_a_container_each_are_warned(runner: Runner, shim: Runner, image: str) -> None:
    done = shim.run("exec", "--sharens=false", image, "true", env=launch())
    assert done.returncode == 0
    assert_begins(done.stderr, "run/sharens-false-gives-every-rank", WARNING)
    assert runner.run("exec", "--sharens=false", image, "true").stderr == ""
    other = runner.run("exec", "--sharens=false", image, "true", env=launch(rank=3))
    assert other.stderr == "", "one speaks for all"


def test_shim_lets_in_what_apptainer_lets_in(runner: Runner, shim: Runner, image: str) -> None:
    """`PYTHONPATH=$PWD/src apptainer exec …`, `pip install --user`: scripts for Apptainer count on both."""
    environ = {"PYTHONPATH": "/elsewhere/src", "PERL5LIB": "/elsewhere/perl", "CONDA_PREFIX": "/opt/conda"}
    done = shim.run("exec", image, "env", env={**environ, "KEDGE_KEEP": ""})
    assert (done.returncode, done.stderr) == (0, "")
    inside = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert {name: inside.get(name) for name in environ} == environ
    assert "PYTHONNOUSERSITE" not in inside
    assert "PERL5LIB" not in runner.read("exec", image, "env", env={"PERL5LIB": "/elsewhere/perl"})
