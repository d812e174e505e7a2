# SPDX-License-Identifier: BSD-3-Clause
"""Builds that fail, are killed, meet another build or a full disk: clear messages, nothing half-made, a sound cache."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.builders.sleepers import find_sleepers, make_seconds
from tests.builders.small_disks import small_memory
from tests.builders.waiting import wait_until
from tests.wording import assert_says

shop = warm_shop


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


def start_sleeping(shop: Workshop) -> tuple[subprocess.Popen[str], str]:
    """A build whose step sleeps, and for how long."""
    seconds = make_seconds()
    shop.write("Dockerfile", f"{SHELL}RUN echo made > /made; sleep {seconds}\n")
    child = shop.begin("out.sif", "Dockerfile")
    wait_until("the step runs", lambda: bool(find_sleepers(seconds)))
    return child, seconds


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ended_build_leaves_no_process_and_the_next_one_cleans_up(shop: Workshop, number: signal.Signals) -> None:
    child, seconds = start_sleeping(shop)
    child.send_signal(number)
    child.communicate(timeout=30)
    assert child.returncode != 0
    wait_until("the step has ended", lambda: not find_sleepers(seconds), timeout=20)
    assert not (shop.context / "out.sif").exists()
    if number is not signal.SIGKILL:
        assert shop.list_builds() == []
        return
    shop.write("Dockerfile", f"{SHELL}RUN ls /made 2>/dev/null; echo done\n")
    assert shop.states("out.sif", "Dockerfile")[:2] == ["cached", "cached"]
    assert shop.list_builds() == []


def test_full_disk_is_named_and_nothing_is_left(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN dd if=/dev/zero of=/big bs=1M count=90\n")
    node = shop.runner.folder / "small"
    with small_memory(node, 80 << 20, shop.runner.uid):
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
    assert_says(done.stderr, "image/cache-not-used")
    assert shop.read("out.sif", "/one") == "1\n"
    done = shop.start("-t", "name", "-f", "Dockerfile", ".", env={"KEDGE_CACHEDIR": "/proc/no-cache"})
    assert done.returncode != 0
    assert "KEDGE_CACHEDIR" in done.stderr


# -- places without room, or that cannot be written


def test_full_cache_is_named_and_the_next_build_works(shop: Workshop) -> None:
    """It has no room for the first layer, for that of the step, for the image."""
    shop.write("Dockerfile", f"{SHELL}RUN dd if=/dev/urandom of=/big bs=1M count=4\n")
    small = shop.runner.folder / "small"
    for size in (1, 3, 7):
        with small_memory(small, size << 20, shop.runner.uid):
            done = shop.start("out.sif", "Dockerfile", env={"KEDGE_CACHEDIR": str(small / "cache")})
            assert done.returncode == 32, (size, done.stderr)
            assert f"cannot write {small}" in done.stderr, size
            assert "KEDGE_CACHEDIR" in done.stderr, size
            assert list((small / "cache/tmp").iterdir()) == [], size
            verify_cache(shop, {"KEDGE_CACHEDIR": str(small / "cache")})
        assert not (shop.context / "out.sif").exists(), size
        assert shop.list_builds() == [], size
    shop.build("out.sif", "Dockerfile")


def verify_cache(shop: Workshop, env: dict[str, str] | None = None) -> None:
    assert "Removed 0 damaged items" in shop.runner.read("cache", "verify", env=env)


def test_full_output_disk_is_named_and_left_empty(shop: Workshop) -> None:
    """By the writer of each format, none of which writes as another does."""
    shop.write("Dockerfile", f"{SHELL}RUN dd if=/dev/urandom of=/big bs=1M count=5\n")
    small = shop.runner.folder / "small"
    with small_memory(small, 3 << 20, shop.runner.uid):
        for form in ("sif", "sandbox", "oci", "oci-archive", "docker-archive"):
            done = shop.start("--format", form, str(small / "out"), "Dockerfile")
            assert done.returncode == 32, (form, done.stderr)
            assert f"cannot write {small}/out" in done.stderr, form
            assert list(small.iterdir()) == [], form


def test_log_without_room_is_a_warning_unless_it_was_asked_for(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN dd if=/dev/zero bs=1M count=1\n")
    small = shop.runner.folder / "small"
    with small_memory(small, 1 << 16, shop.runner.uid):
        done = shop.start("out.sif", "Dockerfile", env={"XDG_STATE_HOME": str(small)})
        assert done.returncode == 0, done.stderr
        assert_says(done.stderr, "build/log-build-not-complete")
        done = shop.start("--no-cache", "--log", str(small / "log"), "other.sif", "Dockerfile")
        assert done.returncode == 32
        assert f"cannot write {small}/log" in done.stderr
    assert not (shop.context / "other.sif").exists()


def test_build_needs_no_home(shop: Workshop) -> None:
    for home in ("", "/nonexistent", "/proc"):  # no name, nothing there, nothing to be made there
        shop.write("Dockerfile", f"{SHELL}RUN echo 1 {home}\n")
        done = shop.start("--format", "oci", "-F", "out", "Dockerfile", env={"HOME": home})
        assert done.returncode == 0, (home, done.stderr)
        assert "the log of this build is not complete" in done.stderr, home


@pytest.mark.parametrize("umask", ["077", "000"])
def test_umask_of_the_caller_is_not_the_image(shop: Workshop, umask: str) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN echo 1 > /f && mkdir /d\nWORKDIR /w/w\nCOPY busybox /c/c\n")
    words = ["sh", "-c", f'umask {umask}; exec "$@"', "sh", *shop.runner.argv("build", "out.sif", "Dockerfile")]
    subprocess.run(words, cwd=shop.context, env=shop.runner.variables(), check=True, capture_output=True)
    nodes, _ = shop.look("out.sif")
    modes = [nodes[path].mode for path in ("/f", "/d", "/w", "/w/w", "/c", "/c/c", "/bin")]
    assert modes == [0o644, *[0o755] * 6]


def test_current_directory_that_is_gone_is_named(shop: Workshop) -> None:
    recipe = shop.write("Dockerfile", SHELL)
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    words = shop.runner.argv("build", str(shop.context / "out.sif"), str(recipe))
    as_user = words[: words.index(shop.runner.program[0])]
    inner = words[len(as_user) :]
    done = subprocess.run(
        [*as_user, "sh", "-c", script, "sh", *inner],
        cwd=shop.context, env=shop.runner.variables(), check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 30, done.stderr
    assert_says(done.stderr, "build/current-directory-build-context-does")


# -- others at the same time


def test_cleaning_the_cache_does_not_disturb_a_build(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN sleep 1; echo a > /a\nCOPY busybox /b\nRUN sleep 1; cat /a > /c\n")
    child = shop.begin("out.sif", "Dockerfile")
    while child.poll() is None:
        shop.runner.read("cache", "clean")
        time.sleep(0.2)
    output, _ = child.communicate()
    assert child.returncode == 0, output
    assert shop.read("out.sif", "/c") == "a\n"
    verify_cache(shop)


MANY = pytest.mark.long  # the same by other signals, which test_ended_build_leaves_no_process sends in a step


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=MANY), pytest.param(signal.SIGINT, marks=MANY)]
)
def test_build_ended_at_any_moment_leaves_no_half_image(shop: Workshop, number: signal.Signals) -> None:
    shop.write(
        "Dockerfile", f"{SHELL}RUN dd if=/dev/urandom of=/big bs=1M count=8\nFROM base\nCOPY --from=base /big /b\n"
    )
    for tenths in (3, 7, 10, 14):
        child = shop.begin("--no-cache", "out.sif", "Dockerfile")
        time.sleep(tenths / 10)
        child.send_signal(number)
        child.communicate(timeout=60)
        if (shop.context / "out.sif").exists():  # it was faster
            assert shop.look("out.sif")[0]["/b"].size == 8 << 20
            (shop.context / "out.sif").unlink()
    shop.build("out.sif", "Dockerfile")
    names = sorted(path.name for path in shop.context.iterdir())
    assert names == ["Dockerfile", "busybox", "out.sif"]
    assert shop.list_builds() == []
    assert list((shop.runner.folder / "cache/tmp").iterdir()) == []
    verify_cache(shop)


# -- the network
