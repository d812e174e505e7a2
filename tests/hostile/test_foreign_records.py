# SPDX-License-Identifier: BSD-3-Clause
"""Another user plants records, entries of the local queue, calls and results: nothing of them runs or is believed.

Needs root, to be two users.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kedge.compat.data import learned_path
from kedge.compat.tables.load import SHIPPED
from kedge.errors import FileProblem
from kedge.jobs.local.queue_files import LocalQueue, LocalRequest
from kedge.jobs.records import Draft, Records
from kedge.tools.functions.pack import read_answer, write_call
from tests.builders.containers import USER, Runner, make_runner
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row
from tests.programs import read_program
from tests.requirements import require_root
from tests.wording import assert_says

ATTACKER = 1508
GROUP = 1600  # both are in it
SECRET = "the-secret-of-the-victim"
VERBS = (
    *(("jobs",), ("jobs", "--all"), ("status", "1"), ("status", "last"), ("logs", "1"), ("wait", "1"), ("cancel", "1")),
    ("submit", "--time", "5m", "-", "true"),
)


@pytest.fixture
def victim() -> Iterator[Runner]:
    require_root()
    with tempfile.TemporaryDirectory(prefix="kedge-victim-", ignore_cleanup_errors=True) as folder:
        runner = make_runner(Path(folder), USER, is_warm=True)
        secret = runner.home / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        os.chown(secret, USER, USER)
        yield runner


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory where everybody may make something, as /tmp is."""
    with tempfile.TemporaryDirectory(prefix="kedge-shared-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@pytest.fixture
def canary(shared: Path) -> Path:
    """What a program of the attacker's would make."""
    return shared / "canary"


def hand_to(place: Path, uid: int, gid: int | None = None) -> Path:
    for path in (place, *place.rglob("*")):
        os.chown(path, uid, uid if gid is None else gid, follow_symlinks=False)
    return place


def plant_record(root: Path, victim: Runner, canary: Path) -> Path:
    """Records with a forged script, id and output, as kedge writes them."""
    records = Records(root)
    secret = str(victim.home / "secret")
    draft = Draft("forged", "local", "local", {"name": "forged"}, "/", secret, secret, ["touch", str(canary)])
    key, folder = records.place()
    record = records.name_id(records.create(key, draft, f"#!/bin/sh\ntouch {canary}\n"), "1")
    (folder / "began").write_text(f"1 node 1\n{secret}\n{secret}\n")
    (folder / "ended").write_text("0 2\n")
    return record.folder


def plant_job(root: Path, canary: Path) -> Path:
    """An entry of the local queue that is ready to begin."""
    queue = LocalQueue(root)
    request = LocalRequest(
        name="forged", directory="/", output="/dev/null", umask=0o22, user="x", submitted=time.time()
    )
    with queue.draft(request) as draft:
        (draft / "script").write_text(f"#!/bin/sh\ntouch {canary}\n")
        (draft / "environment").write_bytes(b"PATH=/usr/bin:/bin\0")
        return queue.active / str(queue.submit(draft))


def expect_refusal(victim: Runner, canary: Path, reason: str, is_every: bool, **environ: str) -> None:
    """Of one verb that reads and one that writes, or of all: each asks the same of the directory."""
    verbs = VERBS if is_every else (VERBS[0], VERBS[-1])
    for verb in verbs:
        done = victim.run(verb[0], "--site", "local", *verb[1:], env=environ)
        assert done.returncode == FileProblem.exit_code, (verb, done.stdout, done.stderr)
        assert reason in done.stderr, verb
        assert SECRET not in done.stdout + done.stderr
    assert not canary.exists()


# ---- records


def test_job_directory_of_another_user(victim: Runner, shared: Path, canary: Path) -> None:
    plant_record(shared / "jobs", victim, canary)
    for path in (shared / "jobs").rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o777)
    (shared / "jobs").chmod(0o777)
    hand_to(shared / "jobs", ATTACKER)
    expect_refusal(victim, canary, f"it belongs to user {ATTACKER}", True, KEDGE_JOBDIR=str(shared / "jobs"))


@EVERY
@each_row("mode", [0o777, 0o2770, 0o1777])
def test_job_directory_that_others_may_write(
    victim: Runner, shared: Path, canary: Path, mode: int, is_every: bool
) -> None:
    if not (shared / "jobs").exists():
        plant_record(shared / "jobs", victim, canary)
    hand_to(shared / "jobs", USER, GROUP).chmod(mode)
    reason = "others may write to it"
    expect_refusal(victim, canary, reason, is_every, KEDGE_JOBDIR=str(shared / "jobs"))
    done = victim.run("jobs", "--site", "local", env={"KEDGE_JOBDIR": str(shared / "jobs")})
    assert f"chmod go-w {shared / 'jobs'}" in done.stderr.replace("\n", " ")


@EVERY
def test_job_directory_that_the_attacker_can_replace(
    victim: Runner, shared: Path, canary: Path, is_every: bool
) -> None:
    place = shared / "open" / "jobs"
    place.mkdir(parents=True)
    hand_to(place, USER)
    place.parent.chmod(0o777)
    reason = f"everybody may write to {place.parent}"
    expect_refusal(victim, canary, reason, is_every, KEDGE_JOBDIR=str(place))
    expect_refusal(victim, canary, reason, is_every, KEDGE_JOBDIR=str(place.parent / "not-there-yet"))


@EVERY
def test_job_directory_behind_a_symlink_of_the_attacker(
    victim: Runner, shared: Path, canary: Path, is_every: bool
) -> None:
    """It leads to what the victim unpacked from somewhere: their own files, with content of the attacker's."""
    plant_record(victim.home / "unpacked", victim, canary)
    hand_to(victim.home / "unpacked", USER)
    link = shared / "jobs"
    link.symlink_to(victim.home / "unpacked")
    os.chown(link, ATTACKER, ATTACKER, follow_symlinks=False)
    expect_refusal(victim, canary, f"is a symlink of user {ATTACKER}", is_every, KEDGE_JOBDIR=str(link))


NAMES = {"records": "foreign", "ids": "link", "new": "open", "ended": "foreign"}


@EVERY
@each_row("name", NAMES)
def test_directory_inside_the_records_is_not_kedges(
    victim: Runner, shared: Path, canary: Path, name: str, is_every: bool
) -> None:
    """Each directory once, and each kind of stranger's; `make test-all` tries all."""
    for kind in {NAMES[name]} if not is_every else set(NAMES.values()):
        refuse_directory(victim, shared, canary, name, kind)


def refuse_directory(victim: Runner, shared: Path, canary: Path, name: str, kind: str) -> None:
    root = victim.home / ".local/state/kedge/jobs"
    shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(shared / name, ignore_errors=True)
    plant_record(root, victim, canary)
    hand_to(victim.home / ".local", USER)
    if kind == "foreign":
        hand_to(root / name, ATTACKER)
    elif kind == "open":
        (root / name).chmod(0o777)
    else:
        (root / name).rename(shared / name)
        hand_to(shared / name, ATTACKER)
        (root / name).symlink_to(shared / name)
    reason = {"foreign": f"belongs to user {ATTACKER}", "link": "it is a symlink", "open": "others may write to it"}
    done = victim.run("status", "--site", "local", "1")
    assert done.returncode == FileProblem.exit_code
    assert reason[kind] in done.stderr
    assert not canary.exists()


@pytest.mark.parametrize("what", ["record", "file", "link"])
def test_record_that_somebody_planted_while_it_was_possible(
    victim: Runner, shared: Path, canary: Path, what: str
) -> None:
    root = victim.home / ".local/state/kedge/jobs"
    record = plant_record(root, victim, canary)
    hand_to(victim.home / ".local", USER)
    if what == "record":
        hand_to(record, ATTACKER)
        record.chmod(0o755)
    elif what == "file":
        os.chown(record / "job.json", ATTACKER, ATTACKER)
    else:
        (record / "job.json").rename(shared / "job.json")
        (record / "job.json").symlink_to(shared / "job.json")
    for verb in ("status", "logs"):
        done = victim.run(verb, "--site", "local", "1")
        assert done.returncode == FileProblem.exit_code, done.stdout
        assert "forged" not in done.stdout
        assert SECRET not in done.stdout + done.stderr
    done = victim.run("jobs", "--site", "local", "--all")
    assert done.returncode == 0, done.stderr
    assert "forged" not in done.stdout
    assert not canary.exists()


# ---- the local queue


def run_queue(victim: Runner, root: Path) -> list[subprocess.CompletedProcess[str]]:
    words = (("list", "--all"), ("show", "1"), ("cancel", "1"))
    return [victim.run("local-queue", *each, env={"KEDGE_LOCAL_QUEUE": str(root)}) for each in words]


@pytest.mark.parametrize("owner", [ATTACKER, USER], ids=["other", "own"])
def test_queue_that_is_another_users_or_open_to_them(victim: Runner, shared: Path, canary: Path, owner: int) -> None:
    plant_job(shared / "queue", canary)
    for path in (shared / "queue", *(shared / "queue").rglob("*")):
        path.chmod(0o777)
    hand_to(shared / "queue", owner)
    for done in run_queue(victim, shared / "queue"):
        assert done.returncode == FileProblem.exit_code, done.stdout
        assert "kedge does not use" in done.stderr
    submitted = victim.run("submit", "--site", "local", "--time", "5m", "-", "true",
                           env={"KEDGE_LOCAL_QUEUE": str(shared / "queue")})  # fmt: skip
    assert submitted.returncode == FileProblem.exit_code
    time.sleep(1)  # a runner that was started by mistake would need as long
    assert not canary.exists()


def test_entries_of_the_queue_that_somebody_planted(victim: Runner, shared: Path) -> None:
    """Three entries at once, each with a canary of its own."""
    root = victim.home / "queue"
    kinds = ("folder", "job.json", "script")
    jobs = {what: plant_job(root, shared / f"canary-of-{what}") for what in kinds}
    hand_to(root, USER)
    for what, job in jobs.items():
        planted = hand_to(job, ATTACKER) if what == "folder" else job / what
        os.chown(planted, ATTACKER, ATTACKER)
        job.chmod(0o755 if what == "folder" else 0o700)
    victim.run("local-queue", "list", env={"KEDGE_LOCAL_QUEUE": str(root)})
    time.sleep(2)
    assert not list(shared.glob("canary-of-*"))


# ---- calls and results


class Touch:
    """Runs a program where it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.system, (f"touch {self.canary}",)


def spoil(path: Path, canary: Path) -> None:
    path.write_bytes(pickle.dumps(Touch(canary)))


@each_row("name", ["runner.py", "sums", "call", "arguments"])
def test_call_that_was_changed_is_not_run(tmp_path: Path, name: str) -> None:
    canary, folder = tmp_path / "canary", tmp_path / f"call-{name}"
    call = write_call(folder, divmod, [[((4, 3), {})]])
    if name == "runner.py":
        (folder / name).write_text(f"open({str(canary)!r}, 'w')")
    else:
        spoil(folder / name, canary)
    done = subprocess.run([sys.executable, *call.words], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode != 0
    assert_says(done.stderr, "submit/not-submitted", name)
    assert not canary.exists()
    assert not (folder / "result").exists()


def test_call_does_not_import_from_the_current_directory(tmp_path: Path) -> None:
    call = write_call(tmp_path / "call", divmod, [[((4, 3), {})]])
    for name in ("hashlib", "hmac", "pickle", "traceback", "os"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    subprocess.run([sys.executable, *call.words], check=True, cwd=tmp_path)
    assert not (tmp_path / "canary").exists()


@each_row("kind", ["bare", "sealed by another key", "of another task", "cut", "empty", "link"])
def test_result_that_the_call_did_not_write_is_not_unpickled(tmp_path: Path, kind: str) -> None:
    canary, folder = tmp_path / "canary", tmp_path / f"call {kind}"
    call = write_call(folder, divmod, [[((4, 3), {})], [((5, 3), {})]])
    subprocess.run([sys.executable, *call.words], check=True, env={"KEDGE_ARRAY_INDEX": "0"})
    good = (folder / "result.0").read_bytes()
    told = read_answer(folder / "result.0", call.key)
    assert told is not None
    assert told.values == ((1, 1),)
    wanted = folder / "result.1"
    if kind == "bare":
        spoil(wanted, canary)
    elif kind == "sealed by another key":
        wanted.write_bytes(os.urandom(32) + pickle.dumps(Touch(canary)))
    elif kind == "of another task":
        wanted.write_bytes(good)
    elif kind == "link":
        wanted.symlink_to("result.0")
    else:
        wanted.write_bytes(good[:-1] if kind == "cut" else b"")
    answer = read_answer(wanted, call.key)
    assert answer is not None
    assert "kedge does not read the result" in str(answer.problem)
    assert not canary.exists()


PROGRAM = read_program("future_among_foreign_records")


@pytest.mark.parametrize("owner", [ATTACKER, USER], ids=["other", "own"])
def test_result_that_is_planted_while_the_executor_waits(victim: Runner, canary: Path, owner: int) -> None:
    program = victim.home / "program.py"
    program.write_text(PROGRAM)
    program.chmod(0o644)
    words = [*victim.argv()[:-2], str(program)]  # python, and not its -m kedge
    assert "-m" not in words
    with subprocess.Popen(
        words, env=victim.variables(), cwd=victim.home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        calls = victim.home / ".local/state/kedge/jobs/calls"
        end = time.monotonic() + 30
        while not list(calls.glob("*/sums")):
            assert running.poll() is None, running.stdout and running.stdout.read()
            assert time.monotonic() < end
            time.sleep(0.1)
        (folder,) = calls.iterdir()
        forged = folder / ".forged"
        spoil(forged, canary)
        forged.chmod(0o644)
        os.chown(forged, owner, owner)
        forged.rename(folder / "result")
        said, _ = running.communicate(timeout=60)
    assert said.startswith("JobFailed kedge does not read the result"), said
    assert not canary.exists()


def test_calls_that_others_may_write_are_refused(victim: Runner, canary: Path) -> None:
    """As a version before left them, below a job directory that others may enter."""
    root = victim.home / "jobs"
    (root / "calls").mkdir(parents=True)
    hand_to(root, USER)
    (root / "calls").chmod(0o777)
    program = victim.home / "program.py"
    program.write_text(PROGRAM)
    program.chmod(0o644)
    words = [*victim.argv()[:-2], str(program)]
    environ = victim.variables({"KEDGE_JOBDIR": str(root)})
    done = subprocess.run(words, env=environ, cwd=victim.home, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert_says(done.stderr, "image/others-write")


# ---- what else is believed


def test_learned_rows_and_settings_of_another_user(victim: Runner) -> None:
    learned = learned_path({"HOME": str(victim.home)})
    learned.parent.mkdir(parents=True)
    shutil.copy(SHIPPED / learned.name, learned)
    hand_to(victim.home / ".local", USER)
    os.chown(learned, ATTACKER, ATTACKER)
    assert_says(victim.run("data").stderr, "image/belongs-user", ATTACKER)
    settings = victim.home / ".config/kedge/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"job_directory = {json.dumps(str(victim.home / 'elsewhere'))}\n")
    hand_to(victim.home / ".config", USER)
    os.chown(settings, ATTACKER, ATTACKER)
    done = victim.run("jobs", "--site", "local")
    assert done.returncode == FileProblem.exit_code
    assert_says(done.stderr, "image/belongs-user", ATTACKER)


def test_what_is_the_victims_own_works(victim: Runner, shared: Path) -> None:
    """The other side: a directory of a group's, with one of the user's own in it, as on clusters."""
    project = shared / "project"
    project.mkdir()
    os.chown(project, ATTACKER, GROUP)
    project.chmod(0o2775)
    own = project / "victim"
    own.mkdir(mode=0o755)
    os.chown(own, USER, GROUP)
    environ = {"KEDGE_JOBDIR": str(own / "jobs")}
    words = ("--site", "local", "--time", "5m", "--output", str(victim.home / "out"), "-", "echo", "hello")
    victim.read("submit", *words, env=environ)
    victim.read("wait", "--site", "local", "last", env=environ)
    assert "hello" in victim.read("logs", "--site", "local", "last", env=environ)
    assert (own / "jobs").stat().st_mode & 0o777 == 0o700
