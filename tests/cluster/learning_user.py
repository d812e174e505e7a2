# SPDX-License-Identifier: BSD-3-Clause
"""An ordinary user who trains models on two nodes, in an image with torch; programs lie beside the image."""

from __future__ import annotations

import os
import re
import shlex
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.builders.learning_images import make_learning_image
from tests.cluster.daemons import wait_until
from tests.cluster.job_user import JobUser
from tests.requirements import REPOSITORY

NODES = ("-N", "2", "-t", "5m", "--mem", "1500M")
_PATIENCE = 4  # minutes: a busy machine takes long to import torch in four processes
PROGRAMS = REPOSITORY / "tests/programs"


@dataclass(frozen=True, slots=True)
class LearningUser:
    """Launches run in jobs of two nodes."""

    me: JobUser
    image: Path

    def launch_words(self, *words: str) -> str:
        """A `kedge launch` as a job's script has it; IMAGE stands for the image."""
        return shlex.join([*self.me.user.program, "launch", *(w.replace("IMAGE", str(self.image)) for w in words)])

    def launch(self, *words: str, tasks: int = 1) -> list[str]:
        """The lines of a launch that has to end well, sorted, of those who say which rank they are."""
        shown = self.finish(self.submit(*words, tasks=tasks))
        return sorted(each for each in shown.splitlines() if each.startswith("rank "))

    def submit(self, *words: str, tasks: int = 1) -> str:
        """The id of a job with a launch."""
        return self.submit_line(self.launch_words(*words), tasks=tasks)

    def submit_line(self, line: str, *, tasks: int = 1) -> str:
        """The id of a job that runs a line of shell on its first node."""
        return self.me.submit(*NODES, "--tasks-per-node", str(tasks), "-", "sh", "-c", line)

    def finish(self, job: str, *, fails: bool = False) -> str:
        """What a job printed, which took its time."""
        for _ in range(_PATIENCE):
            done = self.me.run("wait", job, "--timeout", "60s")
            if "after the timeout" not in done.stderr:
                break
        logs = self.me.run("logs", job)
        assert (done.returncode != 0) is fails, f"{done.stderr}\n{logs.stdout}{logs.stderr}"
        return logs.stdout


def require_ranks(shown: list[str], count: int, *, steps: int) -> None:
    """The ranks are all there, `count` on each of two nodes, and all took so many steps."""
    assert len(shown) == 2 * count, shown
    hosts = [line.split()[5].rstrip(",") for line in shown]
    assert len(set(hosts[:count])) == len(set(hosts[count:])) == 1, shown
    assert hosts[0] != hosts[-1], shown
    for rank, line in enumerate(shown):
        node, local = divmod(rank, count)
        wanted = f"rank {rank} of {2 * count} on {hosts[rank]}, node {node}, local {local}: {steps} steps"
        assert line == wanted


def require_last_lines(shown: str, rank: str) -> None:
    """What a rank that was ended wrote last is shown, once: not again if nobody wrote after it.

    Newer PyTorch warns beside it of what it does itself.
    """
    own, torch = rf"{rank} pid \d+ step \d+\n", r"\[W\d+ .*\n"
    assert re.search(rf"Its last lines:\n(?:  {torch})*(?:  {own})+|{own}warning: {rank} on", shown), shown


def make_learning_user(me: JobUser) -> LearningUser:
    """The user with image and programs."""
    user = LearningUser(me, make_learning_image(me.user))
    for path in PROGRAMS.glob("train_*.py"):
        me.write(path.name, path.read_text())
    return user


def end_a_rank(me: LearningUser, *words: str, tasks: int = 1) -> tuple[str, float]:
    """Kill the last rank, on the second node, in the middle of its training.

    What the job printed, and after how many seconds. A node has as many ranks as tasks. Nothing of the training is left
    on any node.
    """
    job = me.submit(*words, "--items", "100000", "--seconds", "0.5", tasks=tasks)
    wait_until("all ranks train", lambda: len(_find_trainers(me, job)) == 2 * tasks, every=0.5, timeout=60 * _PATIENCE)
    assert len(list_trainers(me)) >= 2 * tasks, "they are found by name and directory"
    os.kill(_find_trainers(me, job)[2 * tasks - 1], signal.SIGKILL)
    began = time.monotonic()
    shown = me.finish(job, fails=True)
    taken = time.monotonic() - began
    wait_until("no rank is left", lambda: not list_trainers(me))
    return shown, taken


def _find_trainers(me: LearningUser, job: str) -> dict[int, int]:
    """The process of each rank that has taken a step, as it said."""
    shown = me.me.run("logs", job).stdout
    return {int(rank): int(pid) for rank, pid in re.findall(r"rank (\d) pid (\d+) step", shown)}


def list_steps(shown: list[str]) -> list[int]:
    """The steps of each rank."""
    return [int(re.findall("([0-9]+) steps", line)[0]) for line in shown]


def list_trainers(me: LearningUser) -> list[str]:
    """The processes of this user's trainings, on all nodes."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words, folder = (place / "cmdline").read_bytes(), (place / "cwd").readlink()
        except OSError:
            continue
        if b"train_with_" in words and folder == me.me.folder:
            found.append(place.name)
    return found
