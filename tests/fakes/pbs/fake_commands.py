# SPDX-License-Identifier: BSD-3-Clause
"""The commands: their options, what they refuse, and what they print."""

from __future__ import annotations

import getopt
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import fake_server as server
from fake_server import Job

UNKNOWN, FINISHED, USAGE = 153, 35, 2
OPTIONS = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:Xz"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]{0,229}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def complain(text: str, status: int) -> int:
    sys.stderr.write(text + "\n")
    return status


def run_qsub(words: list[str]) -> int:
    try:
        options, rest = getopt.getopt(words, OPTIONS)
        script = Path(rest[0]) if rest else None
        lines = script.read_text(errors="surrogateescape").splitlines() if script else []
        written = [each for line in read_directives(lines) for each in getopt.getopt(shlex.split(line), OPTIONS)[0]]
    except getopt.GetoptError as problem:
        return complain(f"qsub: {problem}\nusage: qsub [-a date_time] ...", USAGE)
    except OSError:
        return complain("qsub: script file:: No such file or directory", 1)
    # those of the command line win
    job, problem = make_job([*written, *options], script)
    if job is None:
        return complain(problem, USAGE)
    if any(option == "-I" for option, _ in options):
        return run_terminal(job)
    if script is None:
        return complain("qsub: no script", 1)
    copy = server.folder() / f"script-{time.time_ns()}"
    copy.write_bytes(script.read_bytes())
    say(server.add({**job, "script": str(copy)}))
    return 0


def read_directives(lines: list[str]) -> list[str]:
    """Lines that begin with #PBS, up to the first that a shell would run."""
    found = []
    for line in lines:
        if line.startswith("#PBS"):
            found.append(line[4:].strip())
        elif line.strip() and not line.startswith(("#", ":")):
            break
    return found


def make_job(options: list[tuple[str, str]], script: Path | None) -> tuple[Job | None, str]:
    values = dict(options)
    resources = dict(
        piece.partition("=")[::2] for option, value in options if option == "-l" for piece in value.split(",")
    )
    name = values.get("-N", script.name if script else "STDIN")
    if "-N" in values and not NAME.fullmatch(name):
        return None, "qsub: illegal -N value"
    select = re.fullmatch(r"(\d+)((?::[\w.]+=[\w.-]+)*)", resources.get("select", "1"))
    if select is None:
        return None, "qsub: Illegal attribute or resource value Resource_List.select"
    chunk = dict(part.partition("=")[::2] for part in select[2].split(":") if part)
    indices, limit = [""], 0
    if "-J" in values:
        found = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?:%(\d+))?", values["-J"])
        if found is None or int(found[1]) >= int(found[2]):
            return None, "qsub: illegal -J value"
        indices = [str(each) for each in range(int(found[1]), int(found[2]) + 1, int(found[3] or 1))]
        limit = int(found[4] or 0)
    depends, problem = read_dependencies([value for option, value in options if option == "-W"])
    if problem:
        return None, problem
    gpus = int(chunk.get("ngpus", 0)) * int(select[1])
    never = f"Can Never Run: Insufficient amount of resource: ngpus (R: {gpus} A: {server.GPUS} T: {server.GPUS})"
    return {
        "name": name,
        "is_array": "-J" in values,
        "indices": values.get("-J", "").partition("%")[0],
        "limit": limit,
        "tasks": {index: {"state": "Q", **({"held": True} if "-h" in values else {})} for index in indices},
        "nodes": int(select[1]),
        "mpiprocs": int(chunk.get("mpiprocs", 1)),
        "select": resources.get("select", "1"),
        "walltime": read_walltime(resources.get("walltime", "")),
        "queue": values.get("-q", "workq"),
        "project": values.get("-P", "_pbs_project_default"),
        "account": values.get("-A", ""),
        "variables": dict(piece.partition("=")[::2] for piece in values.get("-v", "").split(",") if piece),
        "output": values.get("-o", ""),
        "shell": values.get("-S", "/bin/bash"),
        "directory": str(Path.cwd()),
        "depends": depends,
        "never": never if gpus > server.GPUS else "",
    }, ""


def read_dependencies(values: list[str]) -> tuple[list[tuple[str, int]], str]:
    found = []
    for value in values:
        name, _, text = value.partition("=")
        if name != "depend":
            return [], "qsub: illegal -W value"
        for piece in text.split(","):
            kind, *ids = piece.split(":")
            for id in ids:
                number = int(re.match(r"\d*", id)[0] or 0)  # type: ignore[index]
                if kind not in ("afterok", "afternotok", "afterany", "after") or not server.path_of(number).exists():
                    return [], "qsub: Unknown Job Id " + id
                found.append((kind, number))
    return found, ""


def read_walltime(text: str) -> int:
    seconds = 0
    for part in text.split(":") if text else []:
        seconds = seconds * 60 + int(part)
    return seconds


def run_terminal(job: Job) -> int:
    """A shell on the node, which reads what is typed here."""
    say("qsub: waiting for job 1000.pbs1 to start\nqsub: job 1000.pbs1 ready\n")
    sys.stdout.flush()
    code = os.spawnvpe(os.P_WAIT, "bash", ["bash"], {**os.environ, "PBS_ENVIRONMENT": "PBS_INTERACTIVE"})
    say("\nqsub: job 1000.pbs1 completed")
    return code


def find(id: str) -> tuple[Job, str | None] | None:
    """A job, and the index of a task where one was named."""
    found = re.fullmatch(r"(\d+)(?:\[(\d*)\])?(?:\..*)?", id)
    if found is None or not server.path_of(int(found[1])).exists():
        return None
    job = server.load(int(found[1]))
    index = found[2] or None
    return (job, index) if server.is_known(job) and (index is None or index in job["tasks"]) else None


def run_qstat(words: list[str]) -> int:
    if words == ["--version"]:
        say("pbs_version = 22.05.11")
        return 0
    try:
        options, ids = getopt.getopt(words, "fxtwu:aEpJ")
    except getopt.GetoptError as problem:
        return complain(f"qstat: {problem}\nusage: \nqstat [-f] [-J] [-p] [-t] [-x] [-E] [-F format | -w] ...", USAGE)
    values = dict(options)
    if "-x" in values and os.environ.get("FAKE_PBS_HISTORY") == "off":
        return complain("qstat: PBS is not configured to maintain job history", 0)
    status = 0
    chosen: list[tuple[Job, str | None]] = []
    for id in ids:
        found = find(id)
        if found is None:
            status = complain(f"qstat: Unknown Job Id {id}", UNKNOWN)
        elif server.is_over(found[0]) and "-x" not in values:
            text = f"qstat: {id} Job has finished, use -x or -H to obtain historical job information"
            status = complain(text, FINISHED)
        else:
            chosen.append(found)
    if not ids:
        numbers = sorted(int(path.stem[4:]) for path in server.folder().glob("job-*.json"))
        jobs = [server.load(number) for number in numbers]
        chosen = [(job, None) for job in jobs if server.is_known(job) and ("-x" in values or not server.is_over(job))]
    chosen = [(job, index) for job, index in chosen if values.get("-u", job["user"]) == job["user"]]
    is_full = "-f" in values and ("-u" not in values or "-w" in values)
    for job, index in chosen:
        show = show_full if is_full else show_line
        show(job, index, "-w" in values)
        for task in job["tasks"] if "-t" in values and job["is_array"] and index is None else ():
            show(job, task, "-w" in values)
    return status


def state_of(job: Job, index: str | None) -> tuple[str, dict[str, object]]:
    """The letter, and the task that attributes are taken from."""
    if index is not None or not job["is_array"]:
        task = job["tasks"][index or ""]
        letter = "H" if task.get("held") or (task["state"] == "Q" and job["depends"]) else task["state"]
        if letter == "F" and index is not None and not task.get("hosts"):
            # of one that never ran the real one shows what its array has
            task = {**state_of(job, None)[1], "comment": "Subjob finished"}
        return ("X" if letter == "F" and job["is_array"] and not server.is_over(job) else letter), task
    if server.is_over(job):
        worst = max(job["tasks"].values(), key=lambda task: abs(task.get("exit") or 0))
        return "F", {**worst, "hosts": ""}
    return ("B" if any(task["state"] != "Q" for task in job["tasks"].values()) else "Q"), {}


def show_line(job: Job, index: str | None, is_wide: bool) -> None:
    letter, _ = state_of(job, index)
    name = f"{server.name_of(job, index):<15} {job['user'][:8]:<8} {job['queue'][:8]:<8} {job['name'][:10]:<10}"
    say(f"{name}    --  {job['nodes']:>3}   1    --  01:00 {letter}   --")


def show_full(job: Job, index: str | None, is_wide: bool) -> None:
    letter, task = state_of(job, index)
    say(f"Job Id: {server.name_of(job, index)}")
    for name, value in list_attributes(job, index, letter, task):
        line = f"    {name} = {value}".replace("\n", "\\n")
        if is_wide or len(line) < 79:
            say(line)
            continue
        say(line[:78])
        for begin in range(78, len(line), 70):
            say("\t" + line[begin : begin + 70])
    say("")


def list_attributes(job: Job, index: str | None, letter: str, task: dict[str, object]) -> list[tuple[str, object]]:
    lasted = int(float(str(task.get("etime") or time.time())) - float(str(task.get("stime") or time.time())))
    clock = f"{lasted // 3600:02}:{lasted // 60 % 60:02}:{lasted % 60:02}"
    waits = "Not Running: Not enough free nodes available" if letter == "Q" else ""
    comment = task.get("comment") or job["never"] or waits
    waiting = [each for each, one in job["tasks"].items() if one["state"] == "Q"]
    limit = job["walltime"]
    known: list[tuple[str, object]] = [
        ("Job_Name", job["name"]),
        ("Job_Owner", f"{job['user']}@login1"),
        ("resources_used.cput", "00:00:00" if task.get("stime") else ""),
        ("resources_used.mem", "4096kb" if task.get("stime") else ""),
        ("resources_used.walltime", clock if task.get("stime") else ""),
        ("job_state", letter),
        ("queue", job["queue"]),
        ("server", server.SERVER),
        ("ctime", time.ctime(job["ctime"])),
        ("exec_host", task.get("hosts", "")),
        ("Join_Path", "oe"),
        ("mtime", time.ctime(float(str(task.get("etime") or task.get("stime") or job["ctime"])))),
        ("Output_Path", f"login1:{job['output']}"),
        ("Resource_List.select", job["select"]),
        ("Resource_List.walltime", f"{limit // 3600:02}:{limit // 60 % 60:02}:{limit % 60:02}" if limit else ""),
        ("stime", time.ctime(float(str(task["stime"]))) if task.get("stime") else ""),
        ("substate", task.get("substate", "")),
        ("Variable_List", f"PBS_O_HOME={os.environ['HOME']},PBS_O_LANG=C.UTF-8,PBS_O_WORKDIR={job['directory']}"),
        ("comment", comment),
        ("depend", ",".join(f"{kind}:{number}.{server.SERVER}" for kind, number in job["depends"])),
        ("run_count", 1 if task.get("hosts") else ""),
        ("Exit_status", task.get("exit", "")),
        ("project", job["project"]),
        ("Account_Name", job["account"]),
    ]
    if job["is_array"] and index is None:
        known += [
            ("array", "True"),
            ("array_indices_submitted", job["indices"]),
            ("array_indices_remaining", ",".join(waiting) or "-"),
        ]
    return [(name, value) for name, value in known if value not in ("", None)]


def run_qdel(words: list[str]) -> int:
    def end(job: Job, index: str) -> None:
        task = job["tasks"][index]
        if task["state"] == "R":
            server.change(job["number"], index, deleted=True)
            with suppress(ProcessLookupError):
                os.killpg(task["pid"], signal.SIGTERM)
        else:
            server.change(job["number"], index, state="F", substate=server.DELETED, etime=time.time())

    return for_each("qdel", words, end)


def run_qsig(words: list[str]) -> int:
    name = words[words.index("-s") + 1]
    number = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None) or int(name)

    def send(job: Job, index: str) -> None:
        if job["tasks"][index]["state"] == "R":
            os.killpg(job["tasks"][index]["pid"], number)

    return for_each("qsig", words[2:], send)


def for_each(program: str, ids: list[str], act: Callable[[Job, str], None]) -> int:
    status = 0
    for id in ids:
        found = find(id)
        if found is None:
            status = complain(f"{program}: Unknown Job Id {id}", UNKNOWN)
        elif server.is_over(found[0]):
            status = complain(f"{program}: Job has finished {id}", FINISHED)
        else:
            job, index = found
            for each in job["tasks"] if index is None else [index]:
                if job["tasks"][each]["state"] != "F":
                    act(job, each)
    return status
