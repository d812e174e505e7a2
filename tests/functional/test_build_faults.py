# SPDX-License-Identifier: BSD-3-Clause
"""Builds that fail, are killed, meet another build or a full disk: clear messages, nothing half-made, a sound cache."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.builds import SHELL, Workshop
from tests.builders.containers import each_role
from tests.builders.small_disks import small_memory
from tests.builders.waiting import wait_until

SECRET = "kedge-test-secret-9f2d61"


@pytest.fixture
def shop() -> Iterator[Workshop]:
    for runner in each_role("user"):
        yield Workshop.open(runner)


def test_failing_step_names_its_line_and_leaves_nothing(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN echo before; \\\n  echo to-stderr >&2; exit 7\nRUN echo never\n")
    done = shop.start("out.sif", "Dockerfile")
    assert done.returncode == 91
    assert "Dockerfile:4" in done.stderr
    assert "status 7" in done.stderr
    assert "to-stderr" in done.stderr
    assert not (shop.context / "out.sif").exists()
    assert shop.list_builds() == []
    log = next((shop.runner.home / ".local/state/kedge/builds").glob("*.log"))
    assert "before" in log.read_text()
    assert str(log) in done.stderr


def test_failing_stage_ends_the_others(shop: Workshop) -> None:
    shop.write(
        "Dockerfile",
        f"{SHELL}FROM base AS slow\nRUN sleep 60\nFROM base AS bad\nRUN sleep 1; exit 3\n"
        "FROM scratch\nCOPY --from=slow /bin /a\nCOPY --from=bad /bin /b\n",
    )
    began = time.monotonic()
    done = shop.start("out.sif", "Dockerfile")
    assert done.returncode == 91
    assert "status 3" in done.stderr
    assert time.monotonic() - began < 40
    assert shop.list_builds() == []


def start_sleeping(shop: Workshop) -> subprocess.Popen[bytes]:
    shop.write("Dockerfile", f"{SHELL}RUN echo made > /made; sleep 61\n")
    words = shop.runner.argv("build", "out.sif", "Dockerfile")
    child = subprocess.Popen(
        words, cwd=shop.context, env=shop.runner.variables(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until("the step runs", lambda: is_sleeping(shop))
    return child


def is_sleeping(shop: Workshop) -> bool:
    return any(find_sleepers(shop.runner.uid))


def find_sleepers(uid: int) -> Iterator[Path]:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if place.stat().st_uid == uid and b"sleep\x0061" in (place / "cmdline").read_bytes():
                yield place
        except OSError:
            continue


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ended_build_leaves_no_process_and_the_next_one_cleans_up(shop: Workshop, number: signal.Signals) -> None:
    child = start_sleeping(shop)
    child.send_signal(number)
    assert child.wait(30) != 0
    wait_until("the step has ended", lambda: not is_sleeping(shop), timeout=20)
    if number is not signal.SIGKILL:
        assert shop.list_builds() == []
    assert not (shop.context / "out.sif").exists()
    shop.write("Dockerfile", f"{SHELL}RUN ls /made 2>/dev/null; echo done\n")
    assert shop.states("out.sif", "Dockerfile")[:2] == ["cached", "cached"]
    assert shop.list_builds() == []


def test_two_builds_at_once_do_a_step_once(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN sleep 2; cat /proc/sys/kernel/random/uuid > /uuid\n")
    children = [
        subprocess.Popen(
            shop.runner.argv("build", f"{name}.sif", "Dockerfile"),
            cwd=shop.context, env=shop.runner.variables(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for name in ("a", "b")
    ]  # fmt: skip
    for child in children:
        output, _ = child.communicate(timeout=100)
        assert child.returncode == 0, output
    assert shop.exec("a.sif", "cat", "/uuid") == shop.exec("b.sif", "cat", "/uuid")


def test_full_disk_is_named_and_nothing_is_left(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN dd if=/dev/urandom of=/big bs=1M count=300\n")
    node = shop.runner.folder / "small"
    with small_memory(node, 200 << 20, shop.runner.uid):
        done = shop.start("out.sif", "Dockerfile", env={"KEDGE_NODEDIR": str(node / "node")})
        assert done.returncode == 91
        assert "No space left" in done.stderr
        assert list((node / "node/builds").iterdir()) == []
    with small_memory(node, 20 << 20, shop.runner.uid):
        done = shop.start("out.sif", "Dockerfile", env={"KEDGE_NODEDIR": str(node / "node")})
        assert str(node) in done.stderr
        assert "KEDGE_NODEDIR" in done.stderr
    assert not (shop.context / "out.sif").exists()
    assert "done" in shop.states("out.sif", "Dockerfile")


def test_secrets_are_nowhere(shop: Workshop) -> None:
    shop.write("token", f"{SECRET}\n")
    shop.write(
        "Dockerfile",
        f"{SHELL}RUN --mount=type=secret,id=token,required=true test -s /run/secrets/token && "
        "cat /run/secrets/token && wc -c < /run/secrets/token > /size\n"
        'RUN --mount=type=secret,id=other,env=OTHER test -n "$OTHER" && echo "$OTHER"\n',
    )
    words = ("--secret", "id=token,src=token", "--secret", "id=other,env=MY_OTHER")
    done = shop.start(*words, "--progress", "plain", "out.sif", "Dockerfile", env={"MY_OTHER": SECRET[::-1]})
    assert done.returncode == 0, done.stderr
    shop.build("--format", "sandbox", *words, "out", "Dockerfile", env={"MY_OTHER": SECRET[::-1]})
    (shop.context / "token").unlink()
    assert shop.exec("out.sif", "cat", "/size").strip() == str(len(SECRET) + 1)
    assert not (shop.context / "out/run/secrets/token").exists()
    for secret in (SECRET, SECRET[::-1]):
        assert secret not in done.stdout + done.stderr
        assert not find_text(secret.encode(), shop.runner.folder)


def find_text(text: bytes, folder: Path) -> list[Path]:
    """The files below a directory that contain the text, compressed layers inflated."""
    from kedge.formats.compression import inflate

    found = []
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        data = path.read_bytes()
        if data[:4] == b"\x28\xb5\x2f\xfd":
            data += b"".join(inflate(iter([data]), where=str(path)))
        if text in data:
            found.append(path)
    return found


def test_missing_secret_is_named(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN --mount=type=secret,id=token,required=true true\n")
    done = shop.start("out.sif", "Dockerfile")
    assert done.returncode == 2
    assert "--secret id=token,src=FILE" in done.stderr


def test_existing_output_is_refused_before_anything_runs(shop: Workshop) -> None:
    shop.write("out.sif", "something")
    shop.write("Dockerfile", f"{SHELL}RUN false\n")
    done = shop.start("out.sif", "Dockerfile")
    assert done.returncode not in (0, 91)
    assert (shop.context / "out.sif").read_text() == "something"


def test_cache_that_cannot_be_written_is_done_without(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN echo 1 > /one\n")
    done = shop.start("out.sif", "Dockerfile", env={"KEDGE_CACHEDIR": "/proc/no-cache"})
    assert done.returncode == 0, done.stderr
    assert "the cache is not used" in done.stderr
    assert shop.exec("out.sif", "cat", "/one") == "1\n"
    done = shop.start("-t", "name", "-f", "Dockerfile", ".", env={"KEDGE_CACHEDIR": "/proc/no-cache"})
    assert done.returncode != 0
    assert "KEDGE_CACHEDIR" in done.stderr
