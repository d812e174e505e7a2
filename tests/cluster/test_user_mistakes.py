# SPDX-License-Identifier: BSD-3-Clause
"""What users get wrong, and what goes wrong for them, on a real Slurm: one clear error, a remedy, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.builders.rows import each_row
from tests.cluster.daemons import wait_until
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.wording import assert_says


@pytest.fixture
def me(slurm: SlurmCluster) -> JobUser:
    return make_job_user(slurm)


def list_records(me: JobUser) -> list[str]:
    return sorted(path.name for path in me.records.iterdir()) if me.records.exists() else []


@each_row(
    "words, sentence, hint",
    [
        (("-p", "nosuch"), "invalid partition", "'sinfo -s' lists the partitions"),
        (("--gpus", "9"), "node configuration is not available", "'kedge site init'"),
        (("--mem", "900G"), "Memory specification", "'sinfo -o"),
        (("--reservation", "nosuch"), "reservation is invalid", "'scontrol show reservation'"),
        (("--gpus", "h100:1"), "node configuration", "GPUs of each partition"),
    ],
)
def test_mistake_that_slurm_refuses_comes_with_a_remedy(
    me: JobUser, words: tuple[str, ...], sentence: str, hint: str
) -> None:
    done = me.run("submit", *words, "-", "true")
    assert done.returncode == 72
    assert sentence.lower() in done.stderr.lower()
    assert hint in done.stderr.partition("hint: ")[2]
    assert "script.sh" not in done.stderr, "it is gone"
    assert me.tell("jobs", "--mine") == list_records(me) == []


def test_mistake_in_the_path_leaves_no_record(me: JobUser) -> None:
    argv = me.user.argv("submit", "--site", "generic-slurm", "-", "true")
    environment = {**me.user.variables(), "PATH": "/nonexistent"}
    done = subprocess.run(argv, env=environment, cwd=me.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 74
    assert "'sbatch' was not found" in done.stderr
    assert "hint: " in done.stderr
    assert list_records(me) == []


def test_mistake_in_slurm_conf_is_told_at_once(me: JobUser) -> None:
    wrong = me.with_environment(SLURM_CONF="/nonexistent/slurm.conf")
    begin = time.monotonic()
    for words in (("submit", "-", "true"), ("jobs",), ("alloc", "-", "true")):
        done = wrong.run(*words)
        assert done.returncode == 74
        assert "unset SLURM_CONF" in done.stderr
    assert time.monotonic() - begin < 20, "Slurm's programs try for a minute each"
    assert list_records(me) == []


def test_full_disk_leaves_no_record(me: JobUser) -> None:
    full = me.folder / "full"
    full.mkdir()
    there = me.user.prefix  # the cluster has mounts of its own
    mount = ["mount", "-t", "tmpfs", "-o", f"size=64k,mode=700,uid={me.user.uid}", "tmpfs", str(full)]
    subprocess.run([*there, *mount], check=True)
    try:
        subprocess.run([*there, "sh", "-c", f"cat /dev/zero >{full}/fill"], stderr=subprocess.DEVNULL, check=False)
        done = me.run("submit", "--job-dir", str(full / "jobs"), "-", "true")
        assert done.returncode == 32
        assert "--job-dir" in done.stderr.partition("hint: ")[2]
        assert me.user.read_program("ls", "-A", f"{full}/jobs/records") == ""
    finally:
        subprocess.run([*there, "umount", "--lazy", str(full)], check=True)


def test_newest_job_is_last_in_every_time_zone(me: JobUser) -> None:
    first = me.with_environment(TZ="Asia/Tokyo").submit("-", "true")
    second = me.with_environment(TZ="America/Bahia").submit("-", "true")
    me.wait(second)
    assert me.tell("status", "last")["id"] == second != first


@each_row("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_alloc_that_is_ended_leaves_no_allocation(me: JobUser, slurm: SlurmCluster, number: int) -> None:
    name = f"waits{number:d}"
    process = me.start("alloc", "-J", name, "--begin", "now+1hour", "-t", "5m", "-", "true")

    def find() -> list[str]:
        return slurm.read("squeue", "-h", "--name", name, "-o", "%i").split()

    wait_until("it waits", find)
    os.kill(process.pid, number)
    process.communicate(timeout=30)
    wait_until("it is gone", lambda: not find(), timeout=20)


def test_module_that_is_missing_ends_the_job(me: JobUser) -> None:
    id = me.submit("--module", "nosuch/1.0", "-", "echo", "ran")
    assert me.run("wait", id).returncode == 76
    assert "ran" not in me.read("logs", id).split()
    assert me.status(id)["state"] == "failed"


def test_output_goes_to_folders_that_are_there(me: JobUser) -> None:
    done = me.run("submit", "-o", "runs/{id}/out", "-", "true")
    assert done.returncode == 70
    assert "logs/{name}-{id}.out" in done.stderr
    assert me.run("submit", "-o", "nosuch/{id}", "-", "true").returncode == 30
    assert list_records(me) == []
    Path(me.folder, "job").mkdir()
    os.chown(me.folder / "job", me.user.uid, me.user.uid)
    assert me.run_job("-J", "job", "-o", "{name}/{id}", "-", "echo", "there") == "there\n"


def test_logs_name_what_is_not_there(me: JobUser) -> None:
    array = me.submit("-J", "tasks", "--array", "1-2", "--begin", "now+1hour", "-", "true")
    assert f"tasks-{array}_INDEX.out" in me.run("logs", array).stderr
    assert "has no task 9" in me.run("logs", f"{array}_9").stderr
    me.read("cancel", array)
    other = me.submit("--site", "nvidia", "-", "true")
    done = me.run("logs", "--site", "generic-slurm", other)  # who names a site means it
    assert done.returncode == 73
    assert_says(done.stderr, "submit/logs-site-nvidia")
    me.read("wait", other)
    assert me.read("logs", other) == ""


def test_table_of_jobs_stays_readable(me: JobUser) -> None:
    long = "long" * 75
    id = me.submit("-J", long, "-", "true")
    me.wait(id)
    assert max(map(len, me.read("jobs", "--mine").splitlines())) < 120
    assert [each["name"] for each in me.tell("jobs", "--mine")] == [long]


def test_waiting_outlives_a_restart_of_the_controller(me: JobUser, slurm: SlurmCluster) -> None:
    id = me.submit_shell("echo began; while [ ! -e go ]; do sleep 0.1; done; echo over")
    me.await_state(id, "running")
    config = slurm.folder / "hasty.conf"
    config.write_text((slurm.folder / "slurm.conf").read_text() + "MessageTimeout=2\n")
    config.chmod(0o644)
    hasty = me.with_environment(SLURM_CONF=str(config))
    waits, follows = hasty.start("wait", id), hasty.start("logs", "-f", id)
    time.sleep(2)
    slurm.stop_control()
    try:
        time.sleep(3)  # longer than they wait for an answer
        assert hasty.run("cancel", id).returncode == 72
        assert (waits.poll(), follows.poll()) == (None, None)
    finally:
        slurm.start_control()
    (me.folder / "go").touch()
    waits.communicate(timeout=60)
    assert waits.returncode == 0
    assert follows.communicate(timeout=60)[0] == "began\nover\n"
    assert me.status(id)["state"] == "done"
    assert not list(me.records.glob("*/cancelled")), "it was not cancelled"
