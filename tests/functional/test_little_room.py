# SPDX-License-Identifier: BSD-3-Clause
"""Nodes with little room: images that cannot be unpacked are mounted, --disable-cache leaves nothing behind, and a
cache that cannot be written is gone around.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.container.mounts.squashfuse import can_use_fuse
from kedge.container.start.temporary_image import remove_temporary_image
from kedge.errors import ImageNotFound, NoSpace
from tests.builders.containers import Runner, give_to, list_left, make_sandbox, run_after, warm_runner
from tests.builders.images import add_shell_image, noise
from tests.builders.small_disks import small_disk
from tests.builders.waiting import wait_until
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program, require_root
from tests.wording import assert_says

runner = warm_runner

INSTEAD = "squashfuse mounts it instead"


@pytest.fixture(scope="module")
def sif(runner: Runner) -> str:
    folder = make_sandbox(runner.folder / "sandbox")
    (folder / "large").write_bytes(noise(6 << 20, "large"))
    runner.read("convert", str(give_to(runner, folder)), str(runner.home / "image.sif"))
    return str(runner.home / "image.sif")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as served:
        add_shell_image(served, "team/tool:1", {"mark": b"served", "large": noise(6 << 20, "large")})
        yield served


def need_squashfuse() -> None:
    require_program("squashfuse_ll")
    if can_use_fuse():
        pytest.skip(can_use_fuse())


def little_disk(runner: Runner, size: int = 4 << 20) -> contextlib.AbstractContextManager[Path]:
    return small_disk(runner.folder / "disk", size, runner.uid)


def fill_disk(place: Path) -> None:
    """Leave not one byte."""
    with contextlib.suppress(OSError), (place / "full").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def run_shell(reference: str) -> tuple[str, ...]:
    return (reference, "/bin/sh", "-c", "read x </mark; echo $x")


def test_file_that_has_no_room_is_mounted_and_that_is_said(runner: Runner, sif: str) -> None:
    need_squashfuse()
    with little_disk(runner) as disk:
        done = runner.run("exec", sif, "cat", "/etc/passwd", env={"KEDGE_NODEDIR": str(disk / "node")})
        left = [path for path in (disk / "node").rglob("*") if path.name == "root"]
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("root:x:0:0")
    assert "needs about" in done.stderr
    assert INSTEAD in done.stderr
    assert not left


def test_file_is_mounted_where_the_place_cannot_be_made(runner: Runner, sif: str) -> None:
    need_squashfuse()
    (runner.folder / "closed").mkdir(exist_ok=True)
    (runner.folder / "closed").chmod(0o555)
    done = runner.run("exec", sif, "echo", "ran", env={"KEDGE_NODEDIR": str(runner.folder / "closed/node")})
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "Permission denied" in done.stderr
    assert INSTEAD in done.stderr


def test_file_is_mounted_where_the_place_is_read_only(runner: Runner, sif: str) -> None:
    need_squashfuse()
    require_root()
    place = runner.folder / "frozen"
    place.mkdir(mode=0o700)
    os.chown(place, runner.uid, runner.uid)
    setup = f"mount --bind {place} {place}; mount -o remount,bind,ro {place}"
    done = run_after(setup, runner, "exec", sif, "echo", "ran", env={"KEDGE_NODEDIR": str(place)})
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert INSTEAD in done.stderr


def test_unpacking_that_was_asked_for_stays_an_error(runner: Runner, sif: str) -> None:
    with little_disk(runner) as disk:
        done = runner.run("exec", "--root-from", "unpack", sif, "true", env={"KEDGE_NODEDIR": str(disk / "node")})
    assert done.returncode == 255
    assert "needs about" in done.stderr


def test_image_of_a_registry_that_has_no_room_becomes_a_file_in_the_cache(
    runner: Runner, registry: FakeRegistry
) -> None:
    need_squashfuse()
    words = run_shell(f"docker://{registry.host}/team/tool:1")
    with little_disk(runner) as disk:
        env = {"KEDGE_NODEDIR": str(disk / "node")}
        first, second = runner.run("exec", *words, env=env), runner.run("exec", *words, env=env)
    assert (first.returncode, first.stdout) == (0, "served\n"), first.stderr
    assert INSTEAD in first.stderr
    assert second.stdout == "served\n"


def test_nothing_is_evicted_in_vain(runner: Runner, sif: str) -> None:
    small = str(runner.home / "small.sif")
    runner.read("convert", str(give_to(runner, make_sandbox(runner.folder / "small"))), small)
    with little_disk(runner, 8 << 20) as disk:
        env = {"KEDGE_NODEDIR": str(disk / "node"), "KEDGE_NODE_LIMIT": "1G"}
        assert runner.run("unpack", small, env=env).returncode == 0
        refused = runner.run("unpack", sif, env=env)
        kept = [path for path in (disk / "node/images").iterdir() if path.is_dir()]
    assert refused.returncode == NoSpace.exit_code
    assert len(kept) == 1


# -- nothing is left behind


def test_disable_cache_leaves_nothing_of_a_file(runner: Runner, sif: str) -> None:
    before = list_left(runner)
    fresh = str(runner.home / "fresh.sif")
    runner.read("convert", str(runner.folder / "sandbox"), fresh)
    done = runner.run("exec", "--disable-cache", fresh, "sh", "-c", "exit 7")
    assert done.returncode == 7, done.stderr
    assert list_left(runner) == before


@pytest.mark.parametrize("way", ["flag", "variable", "setting"])
def test_disable_cache_leaves_nothing_of_a_registrys_image(runner: Runner, registry: FakeRegistry, way: str) -> None:
    before = list_left(runner)
    env = {"APPTAINER_DISABLE_CACHE": "1"} if way == "variable" else {}
    if way == "setting":
        site = runner.folder / "site.toml"
        site.write_text("disable_cache = true\n")
        site.chmod(0o644)
        env = {"KEDGE_SITE_CONFIG": str(site)}
    flags = ("--disable-cache",) if way == "flag" else ()
    done = runner.run("exec", *flags, *run_shell(f"docker://{registry.host}/team/tool:1"), env=env)
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr
    assert list_left(runner) == before


def test_disable_cache_ends_as_the_program_ends_and_is_swept_after_a_kill(
    runner: Runner, registry: FakeRegistry
) -> None:
    before = list_left(runner)
    reference = f"docker://{registry.host}/team/tool:1"
    words = ("exec", "--disable-cache", "--pid", reference, "/bin/sh", "-c", "kill -TERM $$; read x")
    assert runner.run(*words, stdin="").returncode == -signal.SIGTERM
    assert list_left(runner) == before
    argv = runner.argv("exec", "--disable-cache", reference, "/bin/sh", "-c", "echo ready; read x")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, env=runner.variables(), cwd=runner.home, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    assert list_left(runner) != before

    def is_swept() -> bool:  # by the next one, when the program of the one before has ended
        runner.read("exec", "--disable-cache", *run_shell(reference))
        return list_left(runner) == before

    wait_until("what was left behind is swept", is_swept)


def test_disable_cache_leaves_nothing_of_an_instance(runner: Runner, registry: FakeRegistry) -> None:
    before = list_left(runner)
    reference = f"docker://{registry.host}/team/tool:1"
    runner.read("instance", "start", "--disable-cache", reference, "once")
    assert list_left(runner) != before
    assert runner.read("exec", "instance://once", "/bin/sh", "-c", "read x < /mark; echo $x") == "served\n"
    stopped = runner.run("instance", "stop", "once")
    assert stopped.returncode == 0, stopped.stderr
    assert list_left(runner) == before


def test_disable_cache_leaves_nothing_of_an_instance_that_cannot_start(runner: Runner, registry: FakeRegistry) -> None:
    before = list_left(runner)
    reference = f"docker://{registry.host}/team/tool:1"
    pid_file = str(runner.home / "missing" / "pid")
    failed = runner.run("instance", "start", "--disable-cache", "--pid-file", pid_file, reference, "once")
    assert failed.returncode != 0
    assert list_left(runner) == before


@pytest.mark.parametrize("name", ["kept", ".kedge-tmp-other", ".kedge-tmp-once-link"])
def test_disable_cache_removes_no_other_folder_that_a_record_names(tmp_path: Path, name: str) -> None:
    real = tmp_path / "real"
    (real / "root").mkdir(parents=True)
    (real / "lock").touch()
    folder = tmp_path / name
    folder.symlink_to(real) if name.endswith("link") else real.rename(folder)
    remove_temporary_image(str(folder / "root"))
    assert (folder / "root").is_dir()


def test_disable_cache_uses_what_is_unpacked_already(runner: Runner, sif: str) -> None:
    runner.read("unpack", sif)
    before = list_left(runner)
    said = runner.run("exec", "--verbose", "--disable-cache", sif, "true").stderr
    assert_says(said, "run/already-unpacked-node")
    assert list_left(runner) == before


# -- a cache that cannot be written


@pytest.fixture
def closed_cache(runner: Runner) -> dict[str, str]:
    above = runner.folder / "closed-cache"
    above.mkdir(exist_ok=True)
    above.chmod(0o555)
    return {"KEDGE_CACHEDIR": str(above / "missing/kedge")}


def test_cache_that_cannot_be_written_is_gone_around(
    runner: Runner, registry: FakeRegistry, closed_cache: dict[str, str]
) -> None:
    reference = f"docker://{registry.host}/team/tool:1"
    done = runner.run("exec", "--pull", "always", *run_shell(reference), env=closed_cache)
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr
    assert_says(done.stderr, "image/cache-not-used")
    assert "KEDGE_CACHEDIR" in done.stderr
    pulled = runner.run("pull", "--force", "tool.sif", reference, env=closed_cache)
    assert pulled.returncode == 0, pulled.stderr
    assert_says(pulled.stderr, "image/cache-not-used")
    assert (runner.home / "tool.sif").stat().st_size > 1 << 20


@pytest.mark.parametrize("has_room", [True, False])
def test_full_cache_is_gone_around(runner: Runner, registry: FakeRegistry, *, has_room: bool) -> None:
    with little_disk(runner) as disk:
        if not has_room:
            fill_disk(disk)
        env = {"KEDGE_CACHEDIR": str(disk / "cache")}
        words = run_shell(f"docker://{registry.host}/team/tool:1")
        done = runner.run("exec", "--pull", "always", *words, env=env)
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr
    assert_says(done.stderr, "image/cache-not-used")


def test_offline_a_cache_that_cannot_be_read_is_an_error(runner: Runner, closed_cache: dict[str, str]) -> None:
    done = runner.run("unpack", "--pull", "never", "docker://registry.example/team/tool:1", env=closed_cache)
    assert done.returncode == ImageNotFound.exit_code
    assert "the cache is not used" not in done.stderr
