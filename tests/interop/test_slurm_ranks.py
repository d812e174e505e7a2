# SPDX-License-Identifier: BSD-3-Clause
"""Real Slurm: a cluster of one node, whose tasks are containers of an ordinary user."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.posix.spawn import start_of
from tests.builders.containers import Runner, make_runner
from tests.requirements import open_way, require_program, require_root, require_user_namespaces

NOBODY = 65534  # a user that Slurm finds in the databases of every machine
CONFIG = """\
ClusterName=tiny
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
KillWait=5
NodeName=node NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=16 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=node Default=YES MaxTime=01:00:00 State=UP
"""
# Says where it is, and waits until all four of its step are there: a container that is left is not joined.
TASK = """
readlink /proc/self/ns/mnt
: > "$SLURM_JOB_ID.$SLURM_STEP_ID.$SLURM_PROCID"
until [ $(ls | grep -c "^$SLURM_JOB_ID.$SLURM_STEP_ID.") = 4 ]; do sleep 0.1; done
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def cluster() -> Iterator[Runner]:
    """A user's runner, with the cluster in its environment; the cluster's programs end with the module."""
    require_root()
    require_user_namespaces()
    programs = {name: require_program(name) for name in ("munged", "slurmctld", "slurmd", "sinfo", "srun", "scancel")}
    # not pytest's folder: each start of pytest closes those to all others
    with tempfile.TemporaryDirectory(prefix="kedge-slurm-", ignore_cleanup_errors=True) as folder:
        open_way(Path(folder))
        yield from _serve(Path(folder), programs)


def _serve(folder: Path, programs: dict[str, str]) -> Iterator[Runner]:
    for name in ("spool", "state"):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, ports=free_ports(2)))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid", "log-file": "munged.log"}
    munge = [f"--{option}={folder / name}" for option, name in {**files, "seed-file": "munge.seed"}.items()]
    for command in ([programs["munged"], *munge], [programs["slurmctld"], "-c"], [programs["slurmd"], "-N", "node"]):
        subprocess.run(command, env=environment, check=True, capture_output=True)
    try:
        _wait_for_node(programs["sinfo"], environment)
        runner = make_runner(folder, NOBODY)
        yield Runner(folder, NOBODY, {"SLURM_CONF": str(folder / "slurm.conf"), **runner.environment})
    finally:
        subprocess.run([programs["scancel"], "--user=nobody"], env=environment, check=False, capture_output=True)
        for name in ("slurmd", "slurmctld", "munged"):
            _end(int((folder / f"{name}.pid").read_text()))


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 10
    while start_of(pid) > 0 and time.monotonic() < end:
        time.sleep(0.05)


def _wait_for_node(sinfo: str, environment: dict[str, str]) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        done = subprocess.run([sinfo, "-h", "-o", "%t"], env=environment, capture_output=True, text=True, check=False)
        if done.stdout.strip() == "idle":
            return
        time.sleep(0.1)
    pytest.fail(f"the node does not become idle: {done.stdout}{done.stderr}")


@pytest.fixture(scope="module")
def image(cluster: Runner) -> str:
    path = cluster.home / "tools.sif"
    assert cluster.run("pull", str(path), f"host:{require_program('busybox')}").returncode == 0
    return str(path)


def as_user(runner: Runner, *words: str) -> list[str]:
    """A command line of the user's."""
    argv = runner.argv()
    return [*argv[: argv.index("--clear-groups") + 1], *words]


def start(runner: Runner, *words: str) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(as_user(runner, *words), env=runner.variables(), cwd=runner.home, text=True, **streams)  # type: ignore[call-overload, no-any-return]


def kedge(runner: Runner, *words: str) -> list[str]:
    """`kedge exec` as a task has it."""
    argv = runner.argv("exec", *words)
    return argv[argv.index("--clear-groups") + 1 :]


def list_servers(image: str) -> list[str]:
    """The programs that serve or use the image."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if image in words:
            found.append(words[0].rpartition("/")[2])
    return found


def wait_until_gone(image: str) -> None:
    end = time.monotonic() + 15
    while list_servers(image) and time.monotonic() < end:
        time.sleep(0.1)
    assert not list_servers(image), "nothing is left of the job"


@pytest.mark.parametrize(("words", "expected"), [([], 1), (["--sharens"], 1), (["--sharens=false"], 4)])
def test_slurm_tasks_of_a_step_share_a_container(cluster: Runner, image: str, words: list[str], expected: int) -> None:
    task = kedge(cluster, *words, image, require_program("busybox"), "sh", "-c", TASK)
    out, errors = start(cluster, require_program("srun"), "-n4", *task).communicate(timeout=60)
    assert len(out.split()) == 4, errors
    assert len(set(out.split())) == expected
    wait_until_gone(image)


def test_slurm_steps_at_once_have_containers_of_their_own(cluster: Runner, image: str) -> None:
    busybox, srun = require_program("busybox"), require_program("srun")
    task = " ".join(f"'{word}'" for word in kedge(cluster, image, busybox, "sh", "-c", '"$TASK"'))
    task = task.replace("""'"$TASK"'""", '"$TASK"')
    steps = f"{srun} --overlap -n4 {task} > one & {srun} --overlap -n4 {task} > two & wait"
    script = cluster.home / "job"
    script.write_text(f"#!/bin/sh\nTASK='{TASK}'\n{steps}\n")
    script.chmod(0o755)
    done = start(cluster, require_program("sbatch"), "--wait", "-n4", "--output=job.out", str(script))
    assert "Submitted" in done.communicate(timeout=60)[0]
    found = [(cluster.home / name).read_text().split() for name in ("one", "two")]
    assert [len(each) for each in found] == [4, 4], (cluster.home / "job.out").read_text()
    assert [len(set(each)) for each in found] == [1, 1]
    assert found[0][0] != found[1][0]


def test_slurm_job_that_is_cancelled_leaves_nothing(cluster: Runner, image: str) -> None:
    require_program("squashfuse")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse cannot be used here")
    task = kedge(cluster, "--root-from", "squashfuse", image, require_program("busybox"), "sleep", "600")
    step = start(cluster, require_program("srun"), "-n4", *task)
    end = time.monotonic() + 30
    while not any("squashfuse" in name for name in list_servers(image)) and time.monotonic() < end:
        time.sleep(0.1)
    subprocess.run([require_program("scancel"), "--user=nobody"], env={**os.environ, **cluster.environment}, check=True)
    step.communicate(timeout=30)
    assert step.returncode != 0
    wait_until_gone(image)
