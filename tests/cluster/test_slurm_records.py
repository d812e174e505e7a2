# SPDX-License-Identifier: BSD-3-Clause
"""No record is lost under load, nor when kedge is killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.builders.containers import Runner
from tests.builders.job_records import fake_squeue, make_records
from tests.cluster.daemons import private_folder, wait_until
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.users import USERS, make_user

MANY = 16
AT_ONCE = 8  # processes; machines of tests are small
TRIES = 5
SEED = 20_261_115


@pytest.fixture
def me(slurm: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm) as user:
        yield user


def list_held(user: JobUser) -> set[str]:
    """The jobs of this test that Slurm knows: all of them have its directory."""
    lines = user.user.read_program("squeue", "-h", "--states=all", "-o", "%A|%Z").splitlines()
    return {line.partition("|")[0] for line in lines if line.endswith(f"|{user.folder}")}


def start_submission(user: JobUser) -> subprocess.Popen[str]:
    return user.start("submit", "--directive=--hold", "-", "true")


@pytest.mark.slow
def test_records_of_many_submissions_at_once_are_all_there(me: JobUser) -> None:
    def submit_one(_: int) -> str:
        process = start_submission(me)
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return out.strip()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        ids = list(pool.map(submit_one, range(MANY)))
    assert len(set(ids)) == MANY
    assert list_held(me) == set(ids)
    listed = me.tell("jobs", "--mine")
    assert {each["id"] for each in listed} == set(ids)
    assert len({each["key"] for each in listed}) == MANY
    for folder in me.records.iterdir():
        assert json.loads((folder / "job.json").read_text())["directory"] == str(me.folder)


def test_records_survive_kills_of_submit(me: JobUser) -> None:
    chance = random.Random(SEED)
    # a busy machine needs longer to come as far as to sbatch
    for longest in (0.4,) * TRIES + (2.0,) * 3:
        process = start_submission(me)
        time.sleep(chance.uniform(0, longest))
        process.kill()
        process.communicate()
    # what sbatch was told before the kill may come after it
    time.sleep(2)
    known = list_held(me)
    assert known, "some came as far as to Slurm"
    listed = me.tell("jobs", "--mine")
    assert {each["id"] for each in listed if each["state"] != "lost"} == known
    assert all(each["key"] for each in listed)
    assert all(me.status(id)["state"] == "held" for id in list(known)[:1])
    last = me.submit("--directive=--hold", "-J", "after", "-", "true")
    assert me.tell("status", "last")["id"] == me.tell("status", "after")["id"] == last
    me.read("cancel", "--all")
    wait_until("all are cancelled", lambda: not me.tell("jobs", "--mine", "--state", "held"))


def test_records_survive_kills_of_every_other_verb(me: JobUser) -> None:
    good = me.submit_shell("while [ ! -e go ]; do sleep 0.1; done; echo over")
    bad = me.submit_shell("exit 3")
    chance = random.Random(SEED)
    verbs = (("jobs",), ("status", bad), ("wait", good), ("logs", "-f", good), ("cancel", "999999"), ("jobs", "--all"))
    for words in verbs:
        process = me.start(*words)
        time.sleep(chance.uniform(0, 0.4))
        process.kill()
        process.communicate()
    (me.folder / "go").touch()
    me.wait(good)
    me.wait(bad)
    assert {each["id"]: each["state"] for each in me.tell("jobs", "--mine")} == {good: "done", bad: "failed"}
    assert me.read("logs", good) == "over\n"
    assert me.status(bad)["exit_code"] == 3


def test_records_that_are_damaged_hide_no_others(me: JobUser) -> None:
    good, cut, empty = (me.submit("-J", name, "-", "true") for name in ("good", "cut", "empty"))
    for id in (good, cut, empty):
        me.wait(id)
    folders = {json.loads((each / "job.json").read_text())["name"]: each for each in me.records.iterdir()}
    (folders["cut"] / "job.json").write_text('{"version": 1, "na')
    (folders["cut"] / "final.json").write_text("[{")
    (folders["empty"] / "job.json").unlink()
    me.write("state/kedge/jobs/records/stray", "nothing of ours\n")
    (me.records / "20260101-000000-000000-half").mkdir(mode=0o777)
    assert good in {each["id"] for each in me.tell("jobs", "--mine")}
    assert me.status("good")["state"] == "done"
    assert me.tell("status", "last")["id"] == good
    done = me.run("status", cut)
    assert done.returncode != 0
    assert "job.json" in done.stderr
    assert "Traceback" not in done.stderr + me.run("jobs", "--forget", "0").stderr


def test_records_of_two_submitters_and_a_reader_at_once(me: JobUser) -> None:
    """Who looks at jobs gives ids back to records that are just being made: nobody is in the other's way."""
    readers = [me.start("jobs", "--watch", "2") for _ in range(2)]
    with ThreadPoolExecutor(3) as pool:
        looks = [pool.submit(me.run, "status", "last") for _ in range(4)]
        ids = [me.submit("--directive=--hold", "-", "true") for _ in range(4)]
        assert all("Traceback" not in look.result().stderr for look in looks)
    for reader in readers:
        reader.send_signal(signal.SIGINT)
        _, errors = reader.communicate(timeout=30)
        assert "Traceback" not in errors
    assert {each["id"] for each in me.tell("jobs", "--mine")} == set(ids)


@pytest.mark.slow
def test_records_of_three_thousand_jobs_need_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # while they are made
    with private_folder("many") as folder:
        user = make_user(folder / "alice", USERS["alice"], {})
        make_records(user, 3_000)
        counter = folder / "count"
        squeue = fake_squeue(folder, 3_000, counter)
        runner = Runner(user.folder, user.uid, {"PATH": f"{squeue.parent}:/usr/bin:/bin"})
        told = json.loads(runner.read("jobs", "--json", "--site", "generic-slurm"))
        assert counter.read_text() == ".", "asked once"
        assert len(told) == 3_000
        assert all(each["key"] for each in told)
        assert not list(Path(user.home).glob("**/final.json"))
