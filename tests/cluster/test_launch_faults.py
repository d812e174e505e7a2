# SPDX-License-Identifier: BSD-3-Clause
"""Bad days of `kedge launch` on a real Slurm with two hosts: each ends within seconds, says who failed, and leaves
nothing on any host, no process, mount or file.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import LaunchFailed
from tests.cluster.daemons import wait_until
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.leftovers import kill_host, leaving_no_trace
from tests.cluster.slurm_cluster import SlurmCluster, SlurmOptions
from tests.cluster.test_launch_slurm import LONG, list_sleepers
from tests.cluster.virtual_hosts import VirtualHosts
from tests.requirements import require_program, require_root
from tests.wording import assert_says

SIZE = ("-N", "2", "-n", "4", "--ntasks-per-node=2", "--mem-per-cpu=200")
SOON = 45  # seconds, on a machine that does other things, too
HANG = """\
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int MPI_Get_library_version(char *text, int *length) { strcpy(text, "MPICH Version: 4.0.2"); return *length = 20, 0; }
int MPI_Init(int *count, char ***words) { if (atoi(getenv("SLURM_PROCID")) == 3) for (;;) pause(); return 0; }
int MPI_Comm_rank(int world, int *rank) { return *rank = atoi(getenv("SLURM_PROCID")), 0; }
int MPI_Comm_size(int world, int *size) { return *size = 4, 0; }
int MPI_Allreduce() { for (;;) pause(); }
int MPI_Reduce() { return 0; }
int MPI_Barrier() { for (;;) pause(); }
int MPI_Allgather() { return 0; }
int MPI_Finalize(void) { return 0; }
"""
SLEEP = f"exec sleep {LONG}"


@pytest.fixture(scope="module")
def hosts(slurm_hosts: SlurmCluster) -> VirtualHosts:
    require_program("salloc")
    assert slurm_hosts.hosts is not None
    return slurm_hosts.hosts


@pytest.fixture
def me(slurm_hosts: SlurmCluster, hosts: VirtualHosts) -> Iterator[JobUser]:
    with leaving_nothing(slurm_hosts) as user:
        user.take_tools()
        with leaving_no_trace(hosts, user.user.uid):
            yield user


def allocate(me: JobUser, *words: str) -> list[str]:
    """A command line that runs kedge on the login node, with four tasks on two nodes at its disposal."""
    return me.user.words("salloc", "--quiet", *SIZE, *me.user.program, *words)


def launch(me: JobUser, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    began = time.monotonic()
    done = subprocess.run(
        allocate(me, "launch", "--ranks", *options, "tools.sif", "sh", "-c", program),
        env=me.user.variables(), cwd=me.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert time.monotonic() - began < SOON, done.stderr
    assert "Traceback" not in done.stderr
    return done


def start(me: JobUser, terminal: int) -> subprocess.Popen[bytes]:
    """A launch on a terminal whose four ranks sleep; its process id is in the file `pid`."""
    words = [*me.user.program, "launch", "--ranks", "tools.sif", "sh", "-c", f"echo here; {SLEEP}"]
    argv = me.user.words("salloc", "--quiet", *SIZE, "sh", "-c", 'echo $$ >pid; exec "$@"', "sh", *words)
    child = subprocess.Popen(
        [require_program("setsid"), "--ctty", "--wait", *argv],
        env=me.user.variables(), cwd=me.folder, stdin=terminal, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    wait_until("all ranks run", lambda: len(list_sleepers()) == 4, every=0.2)
    return child


def test_a_rank_that_is_killed_for_memory(me: JobUser) -> None:
    """As the kernel does it: SIGKILL, without a last word."""
    done = launch(me, f'[ $RANK = 2 ] && {{ echo "epoch 3"; sleep 1; kill -9 $$; }}; {SLEEP}')
    assert done.returncode == 137, done.stderr
    assert_says(done.stderr, "launch/rank-killed-sigkill")
    assert done.stderr.index("rank 2 on gpu02") < done.stderr.index("srun: error")
    assert "memory" in done.stderr


def test_a_rank_that_hangs_before_the_check(me: JobUser) -> None:
    """In the image is a stand-in for MPICH, in which rank 3 never comes out of MPI_Init."""
    me.read("pull", "--format", "sandbox", "mpich", "host:sh")
    library = me.folder / "mpich/usr/lib/libmpich.so.12"
    library.parent.mkdir(exist_ok=True, parents=True)
    words = ("-shared", "-fPIC", "-Wl,-soname,libmpich.so.12", "-o", str(library), str(me.write("hang.c", HANG)))
    subprocess.run([require_program("cc"), *words], check=True, timeout=60)
    began = time.monotonic()
    done = subprocess.run(
        allocate(me, "launch", "--check-timeout", "6", "./mpich", "sh", "-c", "echo ran"),
        env=me.user.variables(), cwd=me.folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert time.monotonic() - began < SOON
    assert done.returncode == LaunchFailed.exit_code, done.stderr
    assert_says(done.stderr, "launch/world-check-did-not-end", 6)
    assert_says(done.stderr, "launch/s-rank-did-not-answer")
    assert "ran" not in done.stdout


def test_a_job_that_is_cancelled_in_the_middle(me: JobUser, slurm_hosts: SlurmCluster) -> None:
    id = me.submit("--ranks", "-N", "2", "--tasks-per-node", "2", "-t", "5m", "tools.sif", "sh", "-c", SLEEP)
    wait_until("all ranks run", lambda: len(list_sleepers()) == 4, every=0.2)
    began = time.monotonic()
    me.read("cancel", id)
    wait_until("no rank is left", lambda: not list_sleepers(), every=0.2)
    assert slurm_hosts.wait_for_state(id)["JobState"] == "CANCELLED"
    assert time.monotonic() - began < SOON
    assert "Traceback" not in me.run("logs", id).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_launch_on_a_terminal_that_gets_a_signal(me: JobUser, number: signal.Signals) -> None:
    """What is typed, what comes when the terminal goes, what none can catch; SIGTERM is test_launch_slurm's."""
    ours, theirs = pty.openpty()
    child = start(me, theirs)
    os.close(theirs)
    began = time.monotonic()
    if number == signal.SIGINT:
        os.write(ours, b"\x03")
    else:
        os.kill(int((me.folder / "pid").read_text()), number)
    status = child.wait(SOON)
    os.close(ours)
    assert status in (128 + number, number, 1) or number == signal.SIGKILL, status  # salloc has a mind of its own
    wait_until("no rank is left", lambda: not list_sleepers(), every=0.2)
    assert time.monotonic() - began < SOON


def test_standard_streams_that_are_closed(me: JobUser) -> None:
    words = allocate(me, "launch", "--ranks", "tools.sif", "sh", "-c", "echo $RANK >done-$RANK")
    script = f"exec <&- >&- 2>&-; exec {' '.join(words[:-1])} '{words[-1]}'"
    done = subprocess.run(["sh", "-c", script], env=me.user.variables(), cwd=me.folder, timeout=SOON, check=False)
    assert done.returncode == 0
    assert len(list(me.folder.glob("done-*"))) == 4


def test_an_output_that_nobody_reads_any_more(me: JobUser) -> None:
    """`kedge launch … | head -1`"""
    reading, writing = os.pipe()
    words = allocate(me, "launch", "--ranks", "tools.sif", "sh", "-c", "while echo x; do sleep 0.2; done")
    with subprocess.Popen(
        words, env=me.user.variables(), cwd=me.folder, stdout=writing, stderr=subprocess.PIPE, text=True
    ) as child:
        os.close(writing)
        assert os.read(reading, 2) == b"x\n"
        os.close(reading)
        _, errors = child.communicate(timeout=SOON)
    assert child.returncode in (141, 128 + signal.SIGPIPE), errors
    assert "Traceback" not in errors


def test_a_log_on_a_full_disk(me: JobUser) -> None:
    with Path("/dev/full").open("wb") as full:
        child = subprocess.run(
            allocate(me, "launch", "--ranks", "tools.sif", "sh", "-c", f"echo here; {SLEEP}"),
            env=me.user.variables(), cwd=me.folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=SOON,
            check=False,
        )  # fmt: skip
    assert child.returncode not in (0, 120)
    assert_says(child.stderr, "launch/cannot-write-standard-output-file")


def test_a_node_that_dies() -> None:
    """With all that runs there, slurmd and slurmstepd, too. The job's script is on the other one."""
    require_root()
    with SlurmCluster(SlurmOptions(virtual_hosts=True)) as cluster, leaving_nothing(cluster) as me:
        assert cluster.hosts is not None
        me.take_tools()
        with leaving_no_trace(cluster.hosts, me.user.uid):
            words = ("-N", "2", "--tasks-per-node", "2", "-t", "5m", "tools.sif", "sh", "-c")
            id = me.submit("--ranks", *words, f"echo last words of $RANK; {SLEEP}")
            wait_until("all ranks run", lambda: len(list_sleepers()) == 4, every=0.2)
            time.sleep(2)  # the launch has looked at its connections
            began = time.monotonic()
            kill_host(cluster.hosts, "gpu02")
            wait_until("no rank is left", lambda: not list_sleepers(), timeout=SOON)
            assert time.monotonic() - began < SOON
            gone = "rank 2 on gpu02 is gone with its node: "
            wait_until("the launch says who is gone", lambda: gone in me.run("logs", id).stdout)
            cluster.read("scancel", id)
