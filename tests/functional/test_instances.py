# SPDX-License-Identifier: BSD-3-Clause
"""Instances for real: they stay, can be entered and stopped, and leave nothing behind; as a user, and as root.

As root is what differs for root: its number inside, what may be killed, and who mounts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kedge.container.mounts.squashfuse import can_use_fuse, find_squashfuse
from kedge.container.processes.instance_records import Instance, InstanceDirectory, check_name
from kedge.errors import InstanceProblem, UsageError
from kedge.system.spawn import start_of
from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.builders.waiting import wait_until
from tests.wording import assert_says

STARTSCRIPT = 'echo started "$@"; trap "echo asked; exit 0" INT; while :; do sleep 0.05; done'


ROLES = pytest.mark.parametrize("runner", ["user", "root"], indirect=True)


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    for each in each_role(getattr(request, "param", "user"), is_warm=True):
        yield each
        each.run("instance", "stop", "--all", "--force")


@pytest.fixture(scope="module")
def image(runner: Runner) -> Path:
    return give_to(runner, with_script(make_sandbox(runner.folder / "image"), STARTSCRIPT))


def with_script(sandbox: Path, text: str) -> Path:
    script = sandbox / ".singularity.d/startscript"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return sandbox


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.fixture
def name(runner: Runner, request: pytest.FixtureRequest) -> Iterator[str]:
    yield "test"
    runner.run("instance", "stop", "--all", "--force")


def describe(runner: Runner, name: str) -> dict[str, object]:
    found = json.loads(runner.read("instance", "list", "--json", name))["instances"]
    assert len(found) == 1
    assert isinstance(found[0], dict)
    return found[0]


def process_of(runner: Runner, name: str) -> int:
    return int(str(describe(runner, name)["pid"]))


def is_gone(pid: int) -> bool:
    return start_of(pid) in (0, -1)


@ROLES
def test_instance_starts_is_entered_and_stops(runner: Runner, image: Path, name: str) -> None:
    started = runner.run("instance", "start", str(image), name, "one", "two words")
    assert started.returncode == 0, started.stderr
    assert f"instance '{name}' is running" in started.stderr
    wait_until("its script has begun", lambda: runner.read("instance", "logs", name) == "started one two words\n")
    listed = runner.read("instance", "list").splitlines()
    pid = process_of(runner, name)
    assert listed[0].split() == ["INSTANCE", "NAME", "PID", "IP", "IMAGE"]
    assert listed[1].split() == [name, str(pid), str(image)]
    seen = runner.read(
        "exec", f"instance://{name}", "sh", "-c", "readlink /proc/self/ns/pid; id -u; cat /proc/1/comm; pwd"
    )
    space, user, first, folder = seen.splitlines()
    assert space != str(Path("/proc/self/ns/pid").readlink()), "numbers of the instance's own"
    assert (user, first) == (str(runner.uid), "kedge-init")
    assert folder == str(runner.home)
    stopped = runner.run("instance", "stop", name)
    assert stopped.returncode == 0, stopped.stderr
    assert "has ended" in stopped.stderr
    assert is_gone(pid)
    assert runner.read("instance", "logs", name).endswith("asked\n"), "it was asked before it was killed"
    assert json.loads(runner.read("instance", "list", "--json")) == {"instances": []}


def test_instance_entering_programs_end_with_their_own_status(runner: Runner, image: Path, name: str) -> None:
    runner.read("instance", "start", str(image), name)
    assert runner.run("exec", f"instance://{name}", "sh", "-c", "exit 7").returncode == 7
    assert runner.run("exec", f"instance://{name}", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    assert runner.read("run", f"instance://{name}", "x") == "runs x\n"
    assert runner.run("shell", f"instance://{name}", stdin="exit 5\n").returncode == 5
    missing = runner.run("exec", f"instance://{name}", "no-such-program")
    assert missing.returncode == 255
    assert_says(missing.stderr, "run/executable-file-not-found", "no-such-program")
    warned = runner.run("exec", "-B", "/tmp:/mnt", f"instance://{name}", "true")
    assert "-B is ignored" in warned.stderr


def test_instance_programs_share_its_namespaces(runner: Runner, image: Path, name: str) -> None:
    runner.read("instance", "start", "--hostname", "harbour", "--writable-tmpfs", str(image), name)
    runner.read("exec", f"instance://{name}", "touch", "/made-by-one")
    assert runner.read("exec", f"instance://{name}", "ls", "/made-by-one") == "/made-by-one\n"
    assert runner.read("exec", f"instance://{name}", "hostname") == "harbour\n"


def test_instance_has_no_terminal_and_leaves_its_starter(runner: Runner, image: Path, name: str) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    command = runner.argv("instance", "start", str(image), name)
    done = subprocess.run(
        command,
        env=runner.variables(),
        cwd=runner.home,
        capture_output=True,
        check=True,
        pass_fds=[writing],
        timeout=60,
    )
    assert done.stdout == b"", "and standard output is closed, or this would not have ended"
    os.close(writing)
    assert os.read(reading, 1) == b"", "nobody in the instance holds the caller's files"
    os.close(reading)
    pid = process_of(runner, name)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert int(fields[3]) != os.getsid(0)
    assert fields[4] == "0", "no controlling terminal"
    assert str(Path(f"/proc/{pid}/fd/0").readlink()) == "/dev/null"


def test_instance_name_is_taken_once(runner: Runner, image: Path, name: str) -> None:
    commands = [runner.argv("instance", "start", str(image), name) for _ in range(4)]
    started = [
        subprocess.Popen(each, env=runner.variables(), cwd=runner.home, stderr=subprocess.PIPE, text=True)
        for each in commands
    ]
    errors = [process.communicate(timeout=60)[1] for process in started]
    statuses = sorted(process.returncode for process in started)
    assert statuses == [0, 63, 63, 63], errors
    assert sum(f"instance '{name}' already exists" in text for text in errors) == 3


def test_instance_that_was_killed_is_forgotten(runner: Runner, image: Path, name: str) -> None:
    runner.read("instance", "start", str(image), name)
    pid = process_of(runner, name)
    os.kill(pid, signal.SIGKILL)
    wait_until("it is gone", lambda: is_gone(pid))
    assert json.loads(runner.read("instance", "list", "--json"))["instances"] == []
    gone = runner.run("exec", f"instance://{name}", "true")
    assert gone.returncode == 255
    assert f"no instance '{name}'" in gone.stderr
    runner.read("instance", "start", str(image), name)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(["-B", "/no/such/folder:/x"], "cannot bind /no/such/folder"), (["-B", "/etc/hosts:/bin"], "/bin")],
)
def test_instance_that_cannot_start_says_why(
    runner: Runner, image: Path, name: str, flags: list[str], expected: str
) -> None:
    failed = runner.run("instance", "start", *flags, str(image), name)
    assert failed.returncode not in (0, 1), failed.stderr
    assert expected in failed.stderr
    assert "Traceback" not in failed.stderr
    assert json.loads(runner.read("instance", "list", "--json"))["instances"] == []
    runner.read("instance", "start", str(image), name)


def test_instance_whose_script_cannot_run_says_why(runner: Runner, name: str) -> None:
    sandbox = make_sandbox(runner.folder / f"broken-{runner.uid}")
    with_script(sandbox, "")
    (sandbox / ".singularity.d/startscript").write_text("#!/no/such/shell\n")
    failed = runner.run("instance", "start", str(give_to(runner, sandbox)), name)
    assert failed.returncode == 62, failed.stderr
    assert_says(failed.stderr, "run/interpreter-dynamic-loader-missing")
    assert json.loads(runner.read("instance", "list", "--json"))["instances"] == []


def test_instance_whose_script_fails_at_once_is_said(runner: Runner, name: str) -> None:
    sandbox = with_script(make_sandbox(runner.folder / f"failing-{runner.uid}"), "echo no database here >&2; exit 1")
    started = runner.run("instance", "start", str(give_to(runner, sandbox)), name)
    assert started.returncode == 0
    assert "has already ended" in started.stderr
    assert "no database here" in started.stderr


def test_instance_stays_when_its_script_has_ended(runner: Runner, name: str) -> None:
    sandbox = make_sandbox(runner.folder / f"plain-{runner.uid}")  # no start script at all
    runner.read("instance", "start", str(give_to(runner, sandbox)), name)
    assert runner.read("exec", f"instance://{name}", "echo", "here") == "here\n"
    assert "has ended" in runner.run("instance", "stop", name).stderr, "not killed when the time was up"


def test_instance_that_does_not_listen_is_killed(runner: Runner, name: str) -> None:
    script = 'trap "" INT TERM; echo ready; while :; do sleep 0.05; done'
    sandbox = with_script(make_sandbox(runner.folder / f"deaf-{runner.uid}"), script)
    runner.read("instance", "start", str(give_to(runner, sandbox)), name)
    wait_until("its script is ready", lambda: runner.read("instance", "logs", name) == "ready\n")
    pid = process_of(runner, name)
    stopped = runner.run("instance", "stop", "-s", "TERM", "-t", "0.5", name)
    assert stopped.returncode == 0
    assert_says(stopped.stderr, "run/did-not-end-within-s-killed", "0.5")
    assert is_gone(pid)


def test_instance_background_programs_that_ignore_the_interrupt_are_ended(runner: Runner, name: str) -> None:
    """As a server that is started in an instance by `sh -c 'server &'`: shells let it ignore SIGINT."""
    box = give_to(runner, with_script(make_sandbox(runner.folder / "background"), "true"))
    runner.read("instance", "start", str(box), name)
    runner.read("exec", f"instance://{name}", "sh", "-c", "sleep 100 >/dev/null 2>&1 & echo")
    assert "has ended" in runner.run("instance", "stop", name).stderr, "not killed when the time was up"


def test_instance_daemon_is_asked_before_it_is_killed(runner: Runner, name: str) -> None:
    daemon = 'trap "echo saved > /mnt/saved; exit 0" TERM; echo ready $$; while :; do sleep 0.05; done'
    script = f"setsid sh -c '{daemon}' &"
    sandbox = make_sandbox(runner.folder / f"daemon-{runner.uid}")
    (sandbox / "bin/setsid").symlink_to("busybox")
    place = give_to(runner, make_folder(runner.folder / "place"))
    give_to(runner, with_script(sandbox, script))
    runner.read("instance", "start", "-B", f"{place}:/mnt", str(sandbox), name)
    wait_until("its script is ready", lambda: "ready" in runner.read("instance", "logs", name))
    runner.read("instance", "stop", "-s", "TERM", name)
    assert (place / "saved").read_text() == "saved\n"


def test_instance_stop_takes_patterns(runner: Runner, image: Path, name: str) -> None:
    for each in ("web-1", "web-2", "data"):
        runner.read("instance", "start", str(image), each)
    runner.read("instance", "stop", "web-*")
    assert [each["instance"] for each in json.loads(runner.read("instance", "list", "-j"))["instances"]] == ["data"]
    runner.read("instance", "stop", "--all")
    nothing = runner.run("instance", "stop", "data")
    assert nothing.returncode == 63
    assert "no instance 'data'" in nothing.stderr


def test_instance_run_runs_the_run_script_and_writes_its_number(runner: Runner, image: Path, name: str) -> None:
    said = runner.read("instance", "run", "--json", "--pid-file", "pid", str(image), name, "a", "b")
    pid = (runner.home / "pid").read_text().strip()
    assert json.loads(said)["pid"] == int(pid)
    assert is_gone(int(pid)) is False
    wait_until("its script has run", lambda: runner.read("instance", "logs", "-o", name) == "runs a b\n")


@pytest.mark.parametrize(
    ("number", "moments"),
    [
        *((signal.SIGINT, (200,)), (signal.SIGTERM, (140,)), (signal.SIGKILL, (80, 200))),
        pytest.param(signal.SIGKILL, tuple(range(20, 300, 40)), marks=pytest.mark.long),
    ],
)
def test_instance_interrupted_start_leaves_no_process_without_record(
    runner: Runner, image: Path, name: str, number: int, moments: tuple[int, ...]
) -> None:
    for milliseconds in moments:
        own = f"{name}-{milliseconds}-{number}"
        command = runner.argv("instance", "start", str(image), own)
        with subprocess.Popen(
            command, env=runner.variables(), cwd=runner.home, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            time.sleep(milliseconds / 1000)
            os.killpg(process.pid, number)
            process.communicate(timeout=30)
        listed = json.loads(runner.read("instance", "list", "--json", own))["instances"]
        assert listed or process.returncode
        if not listed:
            end = time.monotonic() + 10
            while left := find_processes(own):
                assert time.monotonic() < end, [Path(f"/proc/{each}/stat").read_text() for each in left]
                time.sleep(0.05)


def test_instance_file_server_ends_with_it(runner: Runner, image: Path, name: str) -> None:
    if can_use_fuse() or not find_squashfuse()[0]:
        pytest.skip("needs /dev/fuse and squashfuse")
    packed = str(runner.home / "image.sif")
    runner.read("convert", str(image), packed)
    runner.read("instance", "start", "--root-from", "squashfuse", packed, name)
    assert runner.read("exec", f"instance://{name}", "echo", "here") == "here\n"
    assert len(find_processes(packed)) == 1, "the server; the first process keeps no command line"
    runner.read("instance", "stop", name)
    wait_until("nothing of it runs", lambda: not find_processes(packed))


def find_processes(word: str) -> list[str]:
    """The processes that have a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_instance_folder_knows_who_lives(tmp_path: Path) -> None:
    folder = InstanceDirectory({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")})
    own = os.getpid()
    living = Instance("a", own, start_of(own), state="running")
    folder.claim(living)
    assert folder.find("a") == living
    with pytest.raises(InstanceProblem, match="already"):
        folder.claim(living)
    dead = [
        replace(living, start=living.start + 1),
        replace(living, machine="another boot"),
        replace(living, pid=1 << 30),
    ]
    for each in dead:
        folder.write(each)
        assert folder.list() == []
        assert not (folder.path / "a.json").exists()
        folder.write(each)
        folder.claim(living)
    folder.remove(replace(living, start=1))
    assert folder.find("a") == living, "the file of another instance stays"
    folder.remove(living)
    assert folder.list() == []


def test_instance_folder_survives_damage(tmp_path: Path) -> None:
    folder = InstanceDirectory({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})
    folder.path.mkdir(parents=True)
    for text in ("", "{", "[]", "{}", '{"name": "a", "pid": "x", "start": 1}', '{"pid": 1e99}', "[" * 9999):
        (folder.path / "a.json").write_text(text)
        assert folder.list() == [], text[:40]
        with pytest.raises(InstanceProblem, match="no instance 'a'"):
            folder.find("a")


def test_instance_names_that_are_none() -> None:
    for text in ("", ".", "..", "a/b", "../a", "-a", "a b", "ä", "a\n", "a" * 200, "*"):
        with pytest.raises(UsageError):
            pytest.fail(f"{text!r} is taken as {check_name(text)}")


def test_stats_count_the_processes_of_an_instance(runner: Runner, image: Path, name: str) -> None:
    runner.read("instance", "start", str(image), name)
    busy = "while :; do :; done & exec sleep 600"
    inside = subprocess.Popen(
        runner.argv("exec", f"instance://{name}", "sh", "-c", busy), env=runner.variables(), cwd=runner.folder
    )
    try:
        deadline = time.monotonic() + 60
        told: dict[str, float] = {}
        while told.get("cpu_percent", 0) < 5 and time.monotonic() < deadline:  # a busy machine gives little
            told = json.loads(runner.read("instance", "stats", "--json", name))
        assert told["cpu_percent"] >= 5
        assert told["processes"] >= 4  # the first one, the start script, what it runs, and the loop
        assert 0 < told["memory"] < told["memory_limit"]
        table = runner.read("instance", "stats", "--no-stream", name).splitlines()
        assert table[0].split("  ")[0] == "INSTANCE NAME"
        assert table[1].split()[0] == name
        assert len(table) == 2
    finally:
        inside.kill()
        inside.wait()
    done = runner.run("instance", "stats", "no-such")
    assert done.returncode != 0
    assert "no instance 'no-such'" in done.stderr


def test_stats_stream_ends_with_the_instance(runner: Runner, image: Path, name: str) -> None:
    runner.read("instance", "start", str(image), name)
    command = runner.argv("instance", "stats", name)
    with subprocess.Popen(command, env=runner.variables(), cwd=runner.folder, stdout=subprocess.PIPE) as stream:
        assert stream.stdout is not None
        assert stream.stdout.readline().startswith(b"INSTANCE NAME")
        assert stream.stdout.readline().startswith(name.encode())
        runner.read("instance", "stop", "--force", name)
        stream.stdout.read()
    assert stream.returncode == 0
