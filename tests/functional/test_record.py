# SPDX-License-Identifier: BSD-3-Clause
"""`kedge exec --record`: the record itself, and that a recorded program behaves as one that is not."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.builders.containers import Runner
from tests.wording import assert_says


def read(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    assert isinstance(document, dict)
    return document


def test_record_says_what_ran_how_it_ended_and_what_it_used(runner: Runner, image: str) -> None:
    place = runner.home / "run.json"
    done = runner.run(
        "exec", "--record-to", str(place), "--env", "MY_TOKEN=hunter2", image, "sh", "-c", "echo out; exit 3",
        env={"OMP_NUM_THREADS": "2", "HF_TOKEN": "geheim", "UNRELATED": "x"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "out\n"), done.stderr
    record = read(place)
    assert record["kedge_record"] == 1
    assert (record["state"], record["exit"]) == ("ended", {"status": 3, "signal": None})
    assert (record["verb"], record["command"]) == ("exec", ["sh", "-c", "echo out; exit 3"])
    assert record["options"] == ["--env", "MY_TOKEN=***"]
    assert record["image"]["path"] == image
    assert record["environment"]["OMP_NUM_THREADS"] == "2"
    assert record["environment"]["HF_TOKEN"] == "***"
    assert "UNRELATED" not in record["environment"]
    assert record["usage"]["samples"] >= 2
    assert record["usage"]["memory_peak"] > 0
    assert record["host"]["name"] == os.uname().nodename
    assert not {"geheim", "hunter2"} & set(place.read_text().replace('"', " ").split())
    assert place.stat().st_mode & 0o777 == 0o600


def test_record_without_a_file_name_goes_to_this_directory(runner: Runner, image: str) -> None:
    began = time.monotonic()
    done = runner.run("exec", "--record", image, "true")
    assert time.monotonic() - began < 15, "nobody waits for a watcher"
    (place,) = runner.home.glob("kedge-run-*.json")
    assert done.stderr == f"kedge: record: {place}\n"
    assert read(place)["exit"]["status"] == 0
    place.unlink()


def test_record_of_a_program_that_a_signal_ended(runner: Runner, image: str) -> None:
    place = runner.home / "killed.json"
    done = runner.run("exec", "--record-to", str(place), image, "sh", "-c", "kill -USR1 $$")
    assert done.returncode == -signal.SIGUSR1
    assert read(place)["exit"] == {"status": 128 + signal.SIGUSR1, "signal": int(signal.SIGUSR1)}


def test_record_passes_signals_on_and_is_there_while_the_program_runs(runner: Runner, image: str) -> None:
    place = runner.home / "term.json"
    script = "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    words = ("exec", "--record-to", str(place), image, "sh", "-c", script)
    with runner.start(*words, pipes="stdout") as process:
        assert process.stdout.readline() == "ready\n"
        assert (read(place)["state"], read(place)["exit"]["status"]) == ("running", None)
        assert read(place)["image"] == {"name": image, "path": image}  # whatever is found out later, or never
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "asked\n"
        assert process.wait(20) == 9
    assert read(place)["exit"]["status"] == 9


@pytest.mark.parametrize(("job", "count"), [({"KEDGE_LOCAL_JOB_ID": "1"}, 1), ({}, 2)])
def test_record_does_not_repeat_what_a_scheduler_sends_to_all(runner, image, job, count):
    script = "trap 'echo term' TERM; echo ready; i=0; while [ $i -lt 30 ]; do sleep 0.05; i=$((i+1)); done"
    words = runner.argv("exec", "--record-to", str(runner.home / "all.json"), image, "sh", "-c", script)
    with subprocess.Popen(  # the shell in between is as the script of a job, and this process as its scheduler
        ["sh", "-c", 'trap : TERM; "$@"; exit 0', "sh", *words],
        env=runner.variables(job), cwd=runner.home, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.stdout.read().count("term") in (1, count)  # two that come at once are one


def test_record_of_what_kedge_could_not_start(runner: Runner, image: str) -> None:
    place = runner.home / "missing.json"
    done = runner.run("exec", "--record-to", str(place), image, "no-such-program")
    assert done.returncode == 255
    assert "no-such-program" in done.stderr
    assert read(place)["exit"]["status"] == 255


def test_record_does_not_replace_what_is_no_record(runner: Runner, image: str) -> None:
    other, text, link, pipe = (runner.home / name for name in ("other", "text", "link", "pipe"))
    other.write_text("mine")
    text.write_text("results")
    link.symlink_to(other)
    os.mkfifo(pipe)
    for place in (text, link, pipe, runner.home / "missing/run.json"):
        words = ("exec", "--record-to", str(place), image, "echo", "ran")
        done = runner.run(*words)
        assert (done.returncode, done.stdout) == (255, ""), done.stderr
        assert "Traceback" not in done.stderr
        in_job = runner.run(*words, env={"KEDGE_JOB_ID": "1"})
        assert (in_job.returncode, in_job.stdout) == (0, "ran\n")
        assert_says(in_job.stderr, "submit/program-runs-all-same")
    assert (other.read_text(), text.read_text()) == ("mine", "results")


def test_record_keeps_the_exit_status_on_a_full_disk(runner: Runner, image: str) -> None:
    # a limit on the size of files is as good as a full disk, and needs no mount
    words = runner.argv("exec", "--record-to", str(runner.home / "full.json"), image, "sh", "-c", "exit 5")
    done = runner.call(["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *words], env={"KEDGE_JOB_ID": "1"})
    assert done.returncode == 5, done.stderr
    assert "cannot write the record" in done.stderr
    assert not (runner.home / "full.json").exists()


def test_record_is_written_by_the_first_rank_alone(runner: Runner, image: str) -> None:
    place = runner.home / "ranks.json"
    for rank in (1, 0):
        world = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
        runner.run("exec", "--record-to", str(place), image, "true", env=world)
        assert place.exists() == (rank == 0)


def test_record_of_a_program_on_a_terminal(runner: Runner, image: str) -> None:
    place = runner.home / "terminal.json"
    script = "test -t 0 && echo ready; exec sleep 60"
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(runner.home)
        words = runner.argv("exec", "--record-to", str(place), image, "sh", "-c", script)
        os.execvpe(words[0], words, runner.variables())
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, b"\x03")  # Ctrl-C
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.WTERMSIG(status) == signal.SIGINT
    assert read(place)["exit"] == {"status": 130, "signal": 2}


def test_record_of_a_launch_is_one_for_all_ranks(runner: Runner, image: str) -> None:
    place = runner.home / "launch.json"
    words = ("launch", "--record-to", str(place), "--tasks", "2", "--launcher", "local", "--ranks")
    done = runner.run(*words, "--env", "A=1", image, "sh", "-c", "echo $RANK; exit $((RANK * 3))")
    assert done.returncode == 3, done.stderr
    record = read(place)
    assert (record["verb"], record["exit"]["status"]) == ("launch", 3)
    assert record["options"] == ["--tasks", "2", "--launcher", "local", "--ranks", "--env", "A=1"]
    assert (record["launch"]["launcher"], record["launch"]["ranks"]) == ("local", 2)
    assert record["image"]["path"] == image
    again = runner.run("rerun", str(place))
    assert again.returncode == 3, again.stderr
    assert sorted(again.stdout.split()) in (["0", "1"], ["0"], ["1"])  # a rank that fails ends the others
