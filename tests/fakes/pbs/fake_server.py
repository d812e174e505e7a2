# SPDX-License-Identifier: BSD-3-Clause
"""What a PBS server and its nodes do, in little: jobs in files, and one process per job that runs its tasks."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SERVER = "pbs1"
NODES = ("node001", "node002", "node003", "node004")
GPUS = 8  # of all nodes
WAITING, RUNNING, EXITING, FINISHED = "Q", "R", "E", "F"
DELETED, ENDED, FAILED = "91", "92", "93"

Job = dict[str, Any]


def folder() -> Path:
    return Path(os.environ["FAKE_PBS"])


@contextmanager
def locked() -> Iterator[None]:
    with (folder() / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def path_of(number: int) -> Path:
    return folder() / f"job-{number}.json"


def load(number: int) -> Job:
    job: Job = json.loads(path_of(number).read_text())
    return job


def save(job: Job) -> None:
    path = path_of(job["number"])
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(job))
    temporary.replace(path)


def change(number: int, index: str, **fields: object) -> None:
    """Change a task; an index of '' is the job that is no array."""
    with locked():
        job = load(number)
        job["tasks"][index].update(fields)
        save(job)


def add(job: Job) -> str:
    """Number a job, write it down, and start the process that will run it."""
    with locked():
        counter = folder() / "counter"
        job["number"] = int(counter.read_text()) + 1 if counter.exists() else 1001
        counter.write_text(str(job["number"]))
        job.update(user=find_user(), ctime=time.time())
        save(job)
    runner = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), str(job["number"])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(folder() / "runner.err").open("a"),
        start_new_session=True,
    )
    with locked():
        job = load(job["number"])
        job["runner"] = runner.pid
        save(job)
    return name_of(job)


def find_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # one that no database knows
        return str(os.getuid())


def name_of(job: Job, index: str | None = None) -> str:
    """`1001.pbs1`, `1001[].pbs1` or `1001[3].pbs1`."""
    middle = "" if not job["is_array"] else f"[{index or ''}]"
    return f"{job['number']}{middle}.{SERVER}"


def is_over(job: Job) -> bool:
    return all(task["state"] == FINISHED for task in job["tasks"].values())


def is_known(job: Job) -> bool:
    """A server without history forgets what is over."""
    return os.environ.get("FAKE_PBS_HISTORY") != "off" or not is_over(job)


def run(number: int) -> None:
    """All tasks of a job, so many at once, after the jobs it waits for."""
    wait_for_turn(number)
    job = load(number)
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    while not is_over(load(number)):
        job = load(number)
        for index, task in job["tasks"].items():
            room = not job["limit"] or len(running) < job["limit"]
            if task["state"] == WAITING and room and not job["never"] and not task.get("held"):
                running[index] = (start(job, index), time.monotonic())
        for index, (process, began) in list(running.items()):
            if process.poll() is not None:
                del running[index]
                finish(job, index, process.returncode)
            elif job["walltime"] and time.monotonic() - began > job["walltime"]:
                change(number, index, limit=True)
                os.killpg(process.pid, signal.SIGTERM)
        time.sleep(0.03)


def wait_for_turn(number: int) -> None:
    while True:
        job = load(number)
        judged = [judge(kind, other) for kind, other in job["depends"]]
        if is_over(job) or all(each is True for each in judged):
            return
        if any(each is False for each in judged):
            for index in job["tasks"]:
                change(number, index, state=FINISHED, substate=ENDED, etime=time.time())
            return
        time.sleep(0.03)


def judge(kind: str, number: int) -> bool | None:
    """Whether another job lets one begin; None: not yet, False: never."""
    job = load(number)
    if kind == "after":
        return True if any(task["state"] != WAITING for task in job["tasks"].values()) else None
    if not is_over(job):
        return None
    is_well = all(task.get("exit") == 0 for task in job["tasks"].values())
    return {"afterok": is_well, "afternotok": not is_well}.get(kind, True)


def start(job: Job, index: str) -> subprocess.Popen[bytes]:
    name = name_of(job, index)
    spool = folder() / f"{name}.spool"
    hosts = folder() / f"{name}.nodes"
    nodes = NODES[: job["nodes"]]
    hosts.write_text("".join(f"{node}\n" * job["mpiprocs"] for node in nodes))
    # of the submitter's variables only some come along, and by other names
    own = {f"PBS_O_{each}": os.environ[each] for each in ("HOME", "PATH", "SHELL", "LANG") if each in os.environ}
    environment = {
        **own,
        "HOME": os.environ["HOME"],
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "USER": job["user"],
        "SHELL": "/bin/bash",
        "TMPDIR": str(folder()),
        "PBS_JOBID": name,
        "PBS_JOBNAME": job["name"],
        "PBS_QUEUE": job["queue"],
        "PBS_NODEFILE": str(hosts),
        "PBS_O_WORKDIR": job["directory"],
        "PBS_ENVIRONMENT": "PBS_BATCH",
        **job["variables"],
    }
    if job["is_array"]:
        environment.update(PBS_ARRAY_ID=name_of(job), PBS_ARRAY_INDEX=index)
    Path(job["script"]).chmod(0o700)
    with spool.open("wb") as file:
        process = subprocess.Popen(
            [f"-{os.path.basename(job['shell'])}"],  # noqa: PTH119 - a login shell
            executable=job["shell"],
            cwd=os.environ["HOME"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(f"{job['script']}\n".encode())  # it reads where the script is, and dies of signals
    process.stdin.close()
    change(
        job["number"], index, state=RUNNING, pid=process.pid, stime=time.time(), hosts="+".join(f"{n}/0" for n in nodes)
    )
    return process


def finish(job: Job, index: str, status: int) -> None:
    task = load(job["number"])["tasks"][index]
    code = status if status >= 0 else 256 - status
    if task.get("limit"):
        code = -29
    substate = DELETED if task.get("deleted") else ENDED if code == 0 else FAILED
    spool = folder() / f"{name_of(job, index)}.spool"
    target = Path(job["output"])
    if job["output"].endswith("/"):
        target = target / f"{name_of(job, index)}.OU"
    if job["output"] and job["output"] != "/dev/null":
        target.write_bytes(spool.read_bytes())
    change(job["number"], index, state=FINISHED, exit=code, substate=substate, etime=time.time(), pid=None)


if __name__ == "__main__":
    run(int(sys.argv[1]))
