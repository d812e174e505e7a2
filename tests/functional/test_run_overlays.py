# SPDX-License-Identifier: BSD-3-Clause
"""`kedge exec` with overlays, scratch directories and writable images, as root and as an ordinary user."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.builders.servers import wait_until_unused
from tests.requirements import require_program
from tests.wording import assert_says


@pytest.fixture(scope="module", params=["user"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """A user, for whom every file system of an overlay is served by a program; root is named where it mounts itself."""
    yield from each_role(request.param, is_warm=True)


@pytest.fixture
def overlay(runner: Runner) -> Path:
    """An ext3 image that `kedge overlay create` made."""
    for name in ("mkfs.ext3", "fuse2fs", "fuse-overlayfs"):
        require_program(name)
    path = runner.home / "overlay.img"
    path.unlink(missing_ok=True)
    runner.read("overlay", "create", "--sparse", "--create-dir", "/opt/made", str(path))
    return path


@pytest.fixture
def packed(runner: Runner, image: str) -> Path:
    """An ext3 image of the whole root."""
    require_program("fuse2fs")
    path = runner.home / "root.img"
    path.unlink(missing_ok=True)
    subprocess.run([require_program("mkfs.ext3"), "-q", "-d", image, str(path), "64M"], check=True)
    return give_to(runner, path.parent) / path.name


def check_clean(overlay: Path) -> None:
    wait_until_unused(overlay)
    check = subprocess.run([require_program("e2fsck"), "-fn", str(overlay)], capture_output=True, check=False)
    assert check.returncode == 0, check.stdout


def write(runner: Runner, image: str, *flags: str, command: str = "echo kept > /kept; rm /etc/gone") -> None:
    (Path(image) / "etc/gone").write_text("")
    give_to(runner, Path(image) / "etc")
    done = runner.run("exec", *flags, image, "sh", "-c", command)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("runner", "flags"),
    [("user", ()), ("user", ("--containall",)), ("user", ("--pid", "--no-init")), ("root", ())],
    indirect=["runner"],
    scope="module",
)
def test_exec_ext3_overlay_keeps_changes_and_is_clean(runner, image, overlay, flags):
    large = "echo kept > /kept; rm /etc/gone; dd if=/dev/zero of=/large bs=1000 count=200"
    write(runner, image, "--overlay", str(overlay), *flags, command=large)
    check_clean(overlay)
    look = "cat /kept; ls -a /etc | grep gone; ls /opt; wc -c </large; touch /new"
    done = runner.run("exec", "--overlay", f"{overlay}:ro", image, "sh", "-c", look)
    assert done.stdout == "kept\nmade\n200000\n", done.stderr
    assert "Read-only file system" in done.stderr


def test_exec_binds_out_of_one_ext3_image_twice_and_its_server_is_outside(runner, image, overlay):
    binds = ("-B", f"{overlay}:/data:image-src=/upper", "-B", f"{overlay}:/whole:image-src=/,ro")
    script = "echo kept > /data/kept; cat /whole/upper/kept; touch /whole/no; ps"
    done = runner.run("exec", "--containall", *binds, image, "sh", "-c", script)
    assert done.stdout.startswith("kept\n"), done.stderr
    assert "/whole/no: Read-only file system" in done.stderr
    assert "fuse2fs" not in done.stdout
    check_clean(overlay)
    assert runner.read("exec", *binds[2:], image, "cat", "/whole/upper/kept") == "kept\n"


@pytest.mark.parametrize(
    ("runner", "flags"), [("user", ()), ("user", ("--containall",)), ("root", ())], indirect=["runner"], scope="module"
)
def test_exec_ext3_image_is_changed_with_writable_only(runner: Runner, packed: Path, flags: tuple[str, ...]) -> None:
    assert "Read-only file system" in runner.run("exec", *flags, str(packed), "touch", "/etc/new").stderr
    change = ("--writable", *flags, str(packed), "sh", "-c", "echo 7 > /etc/new; cat /etc/new")
    assert runner.read("exec", *change) == "7\n"
    wait_until_unused(packed)
    assert runner.read("exec", *flags, str(packed), "cat", "/etc/new") == "7\n"
    if runner.uid:
        packed.chmod(0o444)
        wait_until_unused(packed)
        assert_says(runner.run("exec", "--writable", str(packed), "true").stderr, "run/you-cannot-write")


def test_exec_reads_an_ext3_image_whose_last_writer_was_killed(runner: Runner, packed: Path) -> None:
    words = [require_program("debugfs"), "-w", "-R", "feature needs_recovery", str(packed)]
    subprocess.run(words, check=True, capture_output=True)
    assert runner.read("exec", str(packed), "ls", "-d", "/bin") == "/bin\n"


def test_exec_overlay_directory_can_be_deleted_by_any_program(runner: Runner, image: str) -> None:
    """The kernel closes its own directory below `work` to everybody."""
    folder = runner.home / "deleted"
    folder.mkdir()
    give_to(runner, folder)
    runner.read("exec", "--overlay", str(folder), image, "sh", "-c", "echo 1 >/etc/new")
    closed = [path for path in folder.rglob("*") if path.is_dir() and not path.stat().st_mode & 0o700]
    assert closed == []


def test_exec_has_many_readers_or_one_writer(runner: Runner, image: str, overlay: Path) -> None:
    for held, others in (
        (":ro", {":ro": "", "": "only while no other container uses it"}),
        ("", {":ro": "in use by a container that writes", "": "only while no other container uses it"}),
    ):
        words = ("exec", "--overlay", f"{overlay}{held}", image, "sh", "-c", "echo up; cat")
        with runner.start(*words, pipes="stdin stdout") as holder:
            assert holder.stdout.readline() == "up\n"
            for wanted, refused in others.items():
                done = runner.run("exec", "--overlay", f"{overlay}{wanted}", image, "true")
                assert done.returncode == (255 if refused else 0), (held, wanted, done.stderr)
                assert refused in done.stderr
                assert not refused or ("fuse2fs" in done.stderr and ":ro" in done.stderr.partition("hint: ")[2])
            holder.communicate("")
        wait_until_unused(overlay)


def test_exec_several_overlays_lie_in_their_order(runner: Runner, image: str, overlay: Path) -> None:
    for name in ("first", "second"):
        folder = runner.home / name / "upper"
        folder.mkdir(parents=True)
        (folder / "which").write_text(name)
        (folder / name).write_text("")
    give_to(runner, runner.home)
    flags = ("--overlay", str(overlay), "--overlay", f"{runner.home}/first:ro", "--overlay", f"{runner.home}/second:ro")
    assert runner.read("exec", *flags, image, "sh", "-c", "cat /which; ls /opt") == "secondmade\n"
    write(runner, image, *flags, command="echo third > /which")
    wait_until_unused(overlay)
    assert runner.read("exec", *flags, image, "cat", "/which") == "third\n"
    assert (runner.home / "second/upper/which").read_text() == "second"
    wait_until_unused(overlay)


def test_exec_squashfs_overlay(runner: Runner, image: str) -> None:
    require_program("squashfuse")
    content = runner.home / "content/opt/tool"
    content.mkdir(parents=True)
    (content / "version").write_text("7")
    pack = [require_program("mksquashfs"), str(runner.home / "content"), str(runner.home / "tool.sqf"), "-quiet"]
    subprocess.run(pack, check=True, capture_output=True)
    give_to(runner, runner.home)
    flags = ("--overlay", f"{runner.home}/tool.sqf:ro")
    assert runner.read("exec", *flags, image, "cat", "/opt/tool/version") == "7"
    warned = runner.run("exec", "--overlay", f"{runner.home}/tool.sqf", image, "true")
    assert warned.returncode == 0
    assert "read-only" in warned.stderr


def test_exec_overlay_inside_a_sif_is_used_and_written_with_writable(runner: Runner, image: str) -> None:
    require_program("mkfs.ext3")
    require_program("fuse2fs")
    path = runner.home / "image.sif"
    runner.read("convert", image, str(path))
    refused = runner.run("exec", "--writable", str(path), "true")
    assert refused.returncode == 255
    assert "overlay partition" in refused.stderr
    runner.read("overlay", "create", str(path))
    assert runner.run("exec", "--writable", str(path), "sh", "-c", "echo inside > /kept").returncode == 0
    wait_until_unused(path)
    assert runner.read("exec", str(path), "cat", "/kept") == "inside\n"
    wait_until_unused(path)
    assert runner.read("exec", "--overlay", f"{path}:ro", image, "cat", "/kept") == "inside\n"
    wait_until_unused(path)


def test_exec_writable_says_how_to_make_a_mount_point(runner: Runner) -> None:
    box = str(give_to(runner, make_sandbox(runner.folder / "changeable")))
    done = runner.run("exec", "--writable", "--bind", f"{runner.home}:/data/deep", box, "true")
    assert done.returncode == 255
    assert "mkdir -p IMAGE/data/deep" in done.stderr
    assert not Path(box, "data").exists()


def test_exec_scratch_is_empty_and_writable_and_kept_below_a_work_folder(runner: Runner, image: str) -> None:
    count = "ls -A /scratch | wc -l; touch /scratch/file"
    assert runner.read("exec", "--scratch", "/scratch", image, "sh", "-c", count) == "0\n"
    assert runner.read("exec", "--scratch", "/scratch", image, "sh", "-c", count) == "0\n"
    (runner.home / "work").mkdir()
    give_to(runner, runner.home / "work")
    flags = ("--scratch", "/scratch", "--workdir", "work")
    assert runner.read("exec", *flags, image, "sh", "-c", count) == "0\n"
    assert (runner.home / "work/scratch/scratch/file").exists()
    assert runner.read("exec", *flags, image, "sh", "-c", count) == "1\n"


def test_exec_contain_with_a_work_folder_keeps_tmp(runner: Runner, image: str) -> None:
    (runner.folder / "work").mkdir()
    give_to(runner, runner.folder / "work")
    flags = ("--contain", "--workdir", str(runner.folder / "work"), "--no-home")
    done = runner.run("exec", *flags, image, "sh", "-c", "touch /tmp/one /var/tmp/two")
    assert done.returncode == 0, done.stderr
    assert (runner.folder / "work/tmp/one").exists()
    assert (runner.folder / "work/var_tmp/two").exists()
    assert not (runner.folder / "work/home").exists()
