# SPDX-License-Identifier: BSD-3-Clause
"""--fakeroot: root in namespaces of its own, with one user or with the subordinate ids that the host gives."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to, make_sandbox, run_after, warm_runner
from tests.builders.own_etc import Account, make_etc
from tests.requirements import REPOSITORY, require_program, require_root

runner = warm_runner

MAP = "cat /proc/self/uid_map"


def read_map(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_root_alone_is_mapped_to_the_root_above(runner: Runner, image: str) -> None:
    said = runner.read("exec", "--fakeroot", "--ignore-subuid", image, "sh", "-c", MAP)
    assert read_map(said) == [["0", "0", "1"]], "the container was built one namespace above"


def test_root_may_mount_for_itself_and_not_change_what_it_was_given(runner: Runner, image: str) -> None:
    script = (
        "mount -t tmpfs none /mnt && echo mounted; "
        "mount -o remount,rw,bind /data 2>/dev/null && echo changed; "
        "touch /data/mark 2>/dev/null && echo written; "
        "busybox umount /data 2>/dev/null && echo uncovered; true"
    )
    folder = runner.folder / "data"
    folder.mkdir(exist_ok=True)
    Path(image, "mnt").mkdir(exist_ok=True)
    give_to(runner, folder)
    words = ("exec", "--fakeroot", "-B", f"{folder}:/data:ro", image, "sh", "-c", script)
    assert runner.read(*words) == "mounted\n"
    assert not list(folder.iterdir())


@pytest.mark.root
@pytest.mark.parametrize("flags", [(), ("--containall",)], ids=" ".join)
def test_subordinate_ids_are_users_inside(runner: Runner, image: str, tmp_path: Path, flags: tuple[str, ...]) -> None:
    require_root()
    require_program("newuidmap")
    ids = dict.fromkeys(("subuid", "subgid"), "subject:300000:65536\n")
    setup = f"mount --bind {make_etc(tmp_path / 'etc', [Account('subject', runner.uid, runner.home)], **ids)} /etc"
    script = f"{MAP}; touch /tmp/x && busybox chown 5:6 /tmp/x && stat -c '%u %g' /tmp/x; rm /tmp/x"
    done = run_after(setup, runner, "exec", "--fakeroot", *flags, image, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert read_map(done.stdout) == [["0", "0", "1"], ["1", "1", "65536"], ["5", "6"]]


def test_an_instance_of_root_is_entered_as_root(runner: Runner, image: str) -> None:
    runner.read("instance", "start", "--fakeroot", "--ignore-subuid", "--containall", image, "rooted")
    try:
        said = runner.read("exec", "instance://rooted", "sh", "-c", f"id -u; {MAP}; readlink /proc/1/cwd; true")
        assert read_map(said)[:2] == [["0"], ["0", "0", "1"]]
        assert len(said.splitlines()) == 2, "process 1 is out of reach"
    finally:
        runner.run("instance", "stop", "rooted")


def make_outer_image(folder: Path) -> Path:
    """An image in which this machine's programs run: their directory is to be bound to /usr."""
    for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "var/tmp", "home", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (folder / name).symlink_to(f"usr/{name}")
    return folder


@pytest.fixture(scope="module")
def nested(runner: Runner) -> tuple[str, str]:
    """An image to start kedge in, and one for it to start."""
    sif = str(runner.home / "inner.sif")
    runner.read("convert", str(give_to(runner, make_sandbox(runner.folder / "nested"))), sif)
    return str(give_to(runner, make_outer_image(runner.folder / "outer"))), sif


@pytest.mark.root
@pytest.mark.parametrize("inner", [(), ("--fakeroot", "--contain"), ("--writable-tmpfs",)], ids=" ".join)
def test_root_inside_starts_containers_where_the_machines_root_has_done_so(
    runner: Runner, nested: tuple[str, str], inner: tuple[str, ...]
) -> None:
    require_root()
    if not Path("/bin").is_symlink():
        pytest.skip("programs of this machine are not all in /usr")
    outer, sif = nested
    place = runner.folder / "var-tmp"
    place.mkdir(exist_ok=True)
    place.chmod(0o1777)
    (place / "kedge-0").mkdir(mode=0o700, exist_ok=True)  # of the machine's root
    needed = {str(Path(path).resolve()) for path in (REPOSITORY, sys.prefix, sys.base_prefix, runner.folder)} - {"/usr"}
    binds = [word for path in sorted(needed) for word in ("-B", path)]
    command = shlex.join([*runner.program, "exec", *inner, sif, "sh", "-c", "echo ran as $(id -u)"])
    command = f"unset APPTAINER_BIND SINGULARITY_BIND; {command}"  # /usr is not for the inner one
    words = ("--fakeroot", "-B", "/usr", "-B", f"{place}:/var/tmp", *binds, outer, "sh", "-c", command)
    assert runner.read("exec", *words, env={"PYTHONPATH": str(REPOSITORY / "src")}) == "ran as 0\n"
