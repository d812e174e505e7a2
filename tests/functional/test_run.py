# SPDX-License-Identifier: BSD-3-Clause
"""Containers for real: what a program sees, how it ends, what it may touch; as an ordinary user and as root."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.requirements import REPOSITORY
from tests.wording import assert_reads, assert_says


@pytest.fixture(scope="module", params=["user"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield from each_role(request.param, is_warm=True)


# Root mounts and starts without a user namespace: by another way to the same
BOTH = pytest.mark.parametrize("runner", ["user", "root"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def image(runner: Runner) -> str:
    return str(give_to(runner, make_sandbox(runner.folder / "image", environment="export FROM_IMAGE=yes")))


@BOTH
def test_exec_image_of_another_user(runner: Runner) -> None:
    image = str(make_sandbox(runner.folder / "others"))  # the tester's own: not the runner's, where that is a user
    bind = f"{runner.home}:/etc/deep/home"
    said = runner.read("exec", "-B", bind, image, "ls", "-d", "/etc/deep/home", "/etc/passwd")
    assert said.split() == ["/etc/deep/home", "/etc/passwd"]


@BOTH
def test_exec_runs_as_the_caller_where_it_stands_in_a_root_that_is_read_only(runner: Runner, image: str) -> None:
    work = runner.home / "work"
    work.mkdir(exist_ok=True)
    os.chown(work, runner.uid, runner.uid)
    script = "id -u; pwd; touch made-inside; grep NoNewPrivs /proc/self/status; touch /bin/new"
    done = runner.run("exec", image, "sh", "-c", script, cwd=work)
    assert (done.returncode, done.stdout) == (1, f"{runner.uid}\n{work}\nNoNewPrivs:\t1\n")
    assert_reads(done.stderr, "build/touch-bin-new-read-only-file")
    assert not Path(image, "bin/new").exists()
    assert (work / "made-inside").stat().st_uid == runner.uid
    assert not list((runner.folder / "node/session").iterdir()), "nothing is left behind"


def test_exec_environment_and_names_of_its_own(runner: Runner, image: str) -> None:
    flags = ("--env", "GIVEN=1", "--hostname", "boat", "--net", "--network", "none")
    script = "env; cat /etc/hostname; hostname; ls /proc/self/net/dev_snmp6"
    lines = runner.read("exec", *flags, image, "sh", "-c", script, env={"HOST_VARIABLE": "a b"}).splitlines()
    assert {"FROM_IMAGE=yes", "GIVEN=1", "HOST_VARIABLE=a b", f"APPTAINER_CONTAINER={image}"} <= set(lines)
    assert lines[lines.index("boat") :] in (["boat", "boat"], ["boat", "boat", "lo"])


@pytest.mark.parametrize("status", [3, 127])
def test_exec_status_is_the_programs(runner: Runner, image: str, status: int) -> None:
    assert runner.run("exec", image, "sh", "-c", f"exit {status}").returncode == status


@BOTH
def test_exec_signal_that_kills_it_kills_us(runner: Runner, image: str) -> None:
    for flags in ((), ("--pid",)):
        done = runner.run("exec", *flags, image, "sh", "-c", "kill -TERM $$")
        assert done.returncode == -signal.SIGTERM, flags


@pytest.mark.parametrize("flags", [(), ("--containall",)])
def test_exec_signals_reach_the_program(runner: Runner, image: str, flags: tuple[str, ...]) -> None:
    script = "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    with runner.start("exec", *flags, image, "sh", "-c", script, pipes="stdout") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.read() == "caught\n"
        assert process.wait(20) == 5


def test_exec_missing_program_is_255(runner: Runner, image: str) -> None:
    done = runner.run("exec", image, "no-such-program")
    assert done.returncode == 255
    assert_says(done.stderr, "run/executable-file-not-found-path", "no-such-program")
    assert "Traceback" not in done.stderr


def test_exec_of_what_the_entry_point_sets_up_says_to_use_run(runner: Runner, image: str) -> None:
    """As in TACC's images with Intel MPI: only the entry point knows where mpicc is."""
    files = {
        "entry.sh": '#!/bin/sh\nPATH=/opt/mpi:$PATH\nexec "$@"\n',
        "mpicc": '#!/bin/sh\necho compiled "$@"\n',
        "Dockerfile": f'FROM {image}\nCOPY entry.sh /\nCOPY mpicc /opt/mpi/\nENTRYPOINT ["/entry.sh"]\n',
    }
    for name, text in files.items():
        (runner.home / name).write_text(text)
        (runner.home / name).chmod(0o755)
    runner.read("build", "mpi.sif", "Dockerfile")
    done = runner.run("exec", "mpi.sif", "mpicc", "hello.c")
    assert done.returncode == 255
    assert_says(done.stderr, "run/if-images-entry-point-sets")
    assert runner.read("run", "mpi.sif", "mpicc", "hello.c") == "compiled hello.c\n"


def test_run_runs_the_script(runner: Runner, image: str) -> None:
    assert runner.read("run", image, "one", "two words") == "runs one two words\n"


def test_shell_reads_standard_input(runner: Runner, image: str) -> None:
    done = runner.run("shell", image, stdin="echo from $0; exit 4\n")
    assert done.returncode == 4
    assert done.stdout.startswith("from ")


@BOTH
def test_exec_binds(runner: Runner, image: str) -> None:
    data = runner.folder / "data"
    data.mkdir(exist_ok=True)
    (data / "file").write_text("content\n")
    os.chown(data, runner.uid, runner.uid)
    assert runner.read("exec", "-B", f"{data}:/mnt/deep/data", image, "cat", "/mnt/deep/data/file") == "content\n"
    done = runner.run("exec", "-B", f"{data}:/data:ro", image, "touch", "/data/new")
    assert done.returncode == 1
    assert "Read-only" in done.stderr
    runner.read("exec", "-B", f"{data}:/data", image, "touch", "/data/new")
    assert (data / "new").exists()


def test_exec_contain_sees_nothing_of_home_and_tmp(runner: Runner, image: str, tmp_path: Path) -> None:
    (runner.home / "secret").write_text("x")
    said = runner.read("exec", "--contain", image, "sh", "-c", "ls -A $HOME /tmp /dev; pwd", cwd=tmp_path)
    assert "secret" not in said
    assert str(tmp_path) not in said
    assert "urandom" in said
    assert "vda" not in said


def test_exec_pid_namespace_has_few_processes(runner: Runner, image: str) -> None:
    number, count = runner.read("exec", "--pid", image, "sh", "-c", "echo $$; ps | wc -l").split()
    assert int(number) <= 3
    assert int(count) <= 5


def test_exec_writable_tmpfs_keeps_nothing(runner: Runner, image: str) -> None:
    script = "echo new > /etc/new && cat /etc/new"
    assert runner.read("exec", "--writable-tmpfs", image, "sh", "-c", script) == "new\n"
    assert not Path(image, "etc/new").exists()


@BOTH
def test_exec_overlay_folder_keeps_changes(runner: Runner, image: str) -> None:
    overlay = runner.folder / "overlay"
    overlay.mkdir(exist_ok=True)
    os.chown(overlay, runner.uid, runner.uid)
    runner.read("exec", "--overlay", str(overlay), image, "sh", "-c", "echo kept > /etc/kept")
    assert runner.read("exec", "--overlay", f"{overlay}:ro", image, "cat", "/etc/kept") == "kept\n"
    made = sorted(str(path.relative_to(overlay)) for path in (overlay / "upper").rglob("*"))
    assert made == ["upper/etc", "upper/etc/kept"]  # no mount point of ours stays there
    assert not Path(image, "etc/kept").exists()


def test_exec_fakeroot_is_root_inside(runner: Runner, image: str) -> None:
    said = runner.read("exec", "--fakeroot", image, "sh", "-c", "id -u; echo $HOME")
    assert said == "0\n/root\n"


@BOTH
def test_exec_fakeroot_lets_package_managers_do_their_work(runner: Runner, image: str) -> None:
    script = "touch /x && chown 5:5 /x && mknod /null c 1 3 && mkfifo /pipe && stat -c %F /pipe"
    words = ("exec", "--fakeroot", "--ignore-subuid", "--writable-tmpfs", image, "sh", "-c", script)
    assert runner.read(*words) == "fifo\n"
    done = runner.run("exec", "--writable-tmpfs", image, "sh", "-c", "touch /x && chown 5:5 /x")
    assert done.returncode == (0 if runner.uid == 0 else 1)


@BOTH
@pytest.mark.parametrize("flags", [("--writable-tmpfs",), ("--overlay", "{folder}/layer"), ("--writable",)])
def test_exec_fakeroot_that_writes_may_add_users(runner: Runner, image: str, flags: tuple[str, ...]) -> None:
    """Packages add users when they are installed, and useradd replaces the file: a mount there would be in its way."""
    (runner.folder / "layer").mkdir(exist_ok=True)
    os.chown(runner.folder / "layer", runner.uid, runner.uid)
    box = image if "--writable" not in flags else str(give_to(runner, make_sandbox(runner.folder / "changed")))
    script = "(cat /etc/passwd; echo new:x:7:7::/:) >/etc/p+ && busybox mv /etc/p+ /etc/passwd && busybox id -u new"
    words = ("exec", "--fakeroot", *(flag.format(folder=runner.folder) for flag in flags), box, "sh", "-c", script)
    assert runner.read(*words) == "7\n"
    if runner.uid == 0:
        assert runner.read(*(word for word in words if word != "--fakeroot")) == "7\n"


def test_exec_writable_does_not_change_what_the_node_shares(runner: Runner) -> None:
    for reference in ("host:/bin/sh,/bin/touch,/bin/ls", f"docker-archive:{runner.home}/missing.tar"):
        done = runner.run("exec", "--writable", reference, "touch", "/marked")
        assert done.returncode == 255
        assert f"--writable cannot change {reference}" in done.stderr
        assert f"kedge pull --sandbox DIRECTORY {reference}" in done.stderr


def test_exec_dry_run_changes_and_starts_nothing(runner: Runner, image: str) -> None:
    said = runner.read("exec", "--dry-run", image, "sh", "-c", "touch $HOME/started")
    assert "make container:/ read-only" in said
    assert not (runner.home / "started").exists()
    plan = json.loads(runner.read("exec", "--dry-run", "--json", image, "true"))
    assert plan["program"][-1] == "true"
    assert {"kind", "fields", "text"} == set(plan["operations"][0])


def test_exec_dry_run_does_not_show_secrets(runner: Runner, image: str) -> None:
    """Neither those of the command line nor those of the user's own environment: such output is sent to others."""
    words = ("--env", "API_KEY=tell-nobody", "--env", "COLOUR=blue", image, "tool", "--password", "tell-nobody")
    for form in ((), ("--json",)):
        done = runner.run("exec", "--dry-run", *form, *words, env={"HF_TOKEN": "tell-nobody"})
        assert "tell-nobody" not in done.stdout
        assert "blue" in done.stdout
        assert done.stdout.count("***") == 3


def test_exec_cannot_change_unpacked_images(runner: Runner, image: str) -> None:
    node = runner.home / "node"  # in a directory that every container has
    node.mkdir(exist_ok=True, mode=0o700)
    os.chown(node, runner.uid, runner.uid)
    script = f"ls {node} && touch {node}/new"
    done = runner.run("exec", image, "sh", "-c", script, env={"KEDGE_NODEDIR": str(node)})
    assert done.returncode == 1
    assert done.stdout == "session\n"
    assert "Read-only" in done.stderr


def test_exec_without_overlay_has_all_mount_points(runner: Runner, image: str) -> None:
    data = runner.folder / "below"
    data.mkdir(exist_ok=True)
    (data / "file").write_text("x\n")
    words = ("exec", "--underlay", "-B", f"{data}:/new/place", image, "sh", "-c")
    said = runner.read(*words, "cat /new/place/file; ls /bin/busybox; pwd; touch /x 2>&1 || true")
    assert said.startswith("x\n/bin/busybox\n")
    assert "Read-only" in said


def test_exec_broken_pipe_ends_the_program(runner: Runner, image: str) -> None:
    words = ("exec", image, "sh", "-c", "while :; do echo line; done")
    with runner.start(*words, pipes="stdout stderr") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) in (-signal.SIGPIPE, 1)


def test_exec_drops_capabilities(runner: Runner, image: str) -> None:
    words = ("exec", "--fakeroot", "--drop-caps", "CAP_CHOWN,kill", image, "grep", "CapBnd", "/proc/self/status")
    dropped = int(runner.read(*words).split()[1], 16)
    assert dropped & 0b100001 == 0
    assert dropped & 0b000010
    done = runner.run("exec", "--drop-caps", "CAP_NONSENSE", image, "true")
    assert done.returncode == 255
    assert "unknown capability 'CAP_NONSENSE'" in done.stderr


def test_exec_lets_in_code_of_the_project_and_not_that_of_the_host(runner: Runner) -> None:
    box = make_sandbox(runner.folder / "python")
    (box / "usr/lib/python3.11").mkdir(parents=True)  # so that packages in ~/.local/lib/python3.11 matter
    project, packages = runner.home / "work/project", "lib/python3.11/site-packages"
    for name in (f"{project}/src", f"{project}/.venv/{packages}", "host/lib", "other", f".local/{packages}"):
        (runner.home / name).mkdir(parents=True)
    (project / "pyproject.toml").touch()
    give_to(runner, runner.home)
    own = (project / "src", project / ".venv" / packages, runner.home / "host/lib", REPOSITORY / "src")
    env = {"PYTHONPATH": ":".join(map(str, own)), "KEDGE_KEEP": ""}
    words = ("exec", str(give_to(runner, box)), "sh", "-c", 'echo "[$PYTHONPATH] [$PYTHONNOUSERSITE]"')
    done = runner.run(*words, env=env, cwd=project)
    assert done.stdout == f"[{project}/src] [1]\n"
    assert f"PYTHONPATH ({project}/.venv" in done.stderr
    assert f"{runner.home}/host/lib" in done.stderr
    assert runner.run(*words, env=env, cwd=runner.home / "other").stdout == "[] [1]\n"
