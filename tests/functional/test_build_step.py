# SPDX-License-Identifier: BSD-3-Clause
"""The container of a build's step: as an ordinary user, in layers over a base and in one directory that is written."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.owner_records import DEVICE_ATTRIBUTE, OWNER_ATTRIBUTE
from kedge.base.tree import walk
from kedge.image.layers.directory_tree import FolderOptions, read_folder
from kedge.image.layers.owners import take_noted_owner
from kedge.image.layers.upper_directory import read_upper
from tests.builders.build_steps import Steps, give, make_steps
from tests.builders.sleepers import find_sleepers, make_seconds
from tests.requirements import require_program
from tests.wording import assert_reads, assert_says

WAYS = ("layers", "directory")


@pytest.fixture(params=WAYS)
def steps(request: pytest.FixtureRequest) -> Iterator[Steps]:
    yield from make_steps(request.param)


@pytest.fixture
def layered() -> Iterator[Steps]:
    yield from make_steps("layers")


def list_tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_step_has_the_given_variables_and_no_others(layered: Steps) -> None:
    output = layered.read("env", environment={"A": "$x 'y'\nz", "PATH": "/bin"})
    assert sorted(output.splitlines()) == ["A=$x 'y'", "HOME=/root", "PATH=/bin", "z"]
    assert "HOME=/given" in layered.read("/bin/env", environment={"HOME": "/given"})


def test_step_runs_in_its_directory_with_its_input(layered: Steps) -> None:
    assert layered.read("sh", "-c", "pwd; cat", directory="/etc", stdin="x" * 100_000) == "/etc\n" + "x" * 100_000
    assert layered.read("sh", "-c", "cat; echo end") == "end\n"
    assert layered.read("sh", "-c", "pwd; stat -c %a .", directory="/new/one") == "/new/one\n755\n"
    assert "cannot change to /etc/passwd" in layered.run("true", directory="/etc/passwd").error


def test_step_ends_as_its_program_does(layered: Steps) -> None:
    done = layered.run("sh", "-c", "echo out; echo err >&2; exit 255")
    assert (done.output, done.status) == ("out\nerr\n", 255)
    assert layered.run("sh", "-c", "kill -9 $$").status == 137
    assert "executable file not found" in layered.run("nosuch").error


def test_step_hands_over_output_as_it_comes(layered: Steps) -> None:
    assert layered.run("sh", "-c", "echo a; sleep 0.3; echo b").pieces == 2


def test_step_writes_a_layer_without_mount_points(layered: Steps) -> None:
    before = list_tree(layered.base)
    layered.read("sh", "-c", "echo x > /root/made; echo y > /tmp/kept; rm /bin/stat; mkdir -p /new/deep")
    assert list_tree(layered.upper) == {"root", "root/made", "tmp", "tmp/kept", "bin", "bin/stat", "new", "new/deep"}
    assert stat.S_ISCHR((layered.upper / "bin/stat").lstat().st_mode)
    assert list_tree(layered.base) == before


def test_step_without_an_overlay_leaves_no_mount_points() -> None:
    for steps in make_steps("directory"):
        for name in ("proc", "sys", "dev"):
            (steps.base / name).rmdir()
        before, times = list_tree(steps.base), (steps.base.stat().st_mtime_ns, (steps.base / "etc").stat().st_mtime_ns)
        binds = [[str(steps.runner.home), "/data/deep", ""]]
        steps.read(
            "sh", "-c", "ls /proc/self/status /dev/null /data/deep; cat /etc/resolv.conf", named={"binds": binds}
        )
        assert list_tree(steps.base) == before
        assert times == (steps.base.stat().st_mtime_ns, (steps.base / "etc").stat().st_mtime_ns)


def test_step_sees_the_layers_below_it(layered: Steps) -> None:
    layered.read("sh", "-c", "echo 1 > /one; mkdir /dir; echo x > /dir/old")
    layered.stack()
    layered.read("sh", "-c", "rm -r /dir; mkdir /dir; echo y > /dir/new; rm /bin/stat")
    layered.stack()
    assert layered.read("sh", "-c", "cat /one; ls /dir; ls /bin | grep -c '^stat$' || true") == "1\nnew\n0\n"


def test_step_runs_above_a_hundred_layers(layered: Steps) -> None:
    for number in range(120):
        layer = give(layered.runner, layered.runner.folder / f"a-name-of-a-layer-that-is-rather-long-{number}")
        (layer / f"file{number}").write_text(f"{number}\n")
        layered.layers.append(layer)
    assert layered.read("sh", "-c", "cat /file0 /file119; ls /file* | wc -l").split() == ["0", "119", "120"]


def test_step_sees_nothing_else_of_the_host(steps: Steps) -> None:
    steps.setup = "true"  # a start of its own: /proc shows with which environment
    home = steps.runner.home
    (home / "private").write_text("mine")
    for place in (home, Path("/tmp")):
        assert steps.run("ls", f"{place}/private").status == 1
    assert steps.read("ls", "/tmp", "/var/tmp", "/root").split() == ["/root:", "/tmp:", "/var/tmp:"]
    assert not (steps.base / "mnt").exists()  # APPTAINER_BIND says nothing to builds
    devices = steps.read("ls", "/dev").split()
    assert set(devices) <= {
        *("null", "zero", "full", "random", "urandom", "tty", "shm", "mqueue", "pts", "ptmx"),
        *("fd", "stdin", "stdout", "stderr", "console"),
    }
    assert steps.read("sh", "-c", "ls -d /proc/[0-9]* | wc -l").strip() in "2345"
    assert steps.read("hostname") == "localhost\n"
    assert "seen" not in steps.read("sh", "-c", "cat /proc/1/environ /proc/self/environ | grep -a . || true")


def test_step_keeps_what_it_writes_to_tmp_and_home(layered: Steps) -> None:
    layered.read("sh", "-c", "echo a > /tmp/a; echo b > /var/tmp/b; echo c > /root/c; echo d > /home/d")
    for name in ("tmp/a", "var/tmp/b", "root/c", "home/d"):
        assert (layered.upper / name).exists()


def test_step_has_binds_and_memory(steps: Steps) -> None:
    (steps.runner.home / "word").write_text("given\n")
    odd = give(steps.runner, steps.runner.folder / "a:b,c")
    named = {
        "binds": [[str(odd), "/data", ""], [str(steps.runner.home / "word"), "/run/secrets/word", "ro"]],
        "memory": [["/scratch", 1 << 20, 0o700]],
    }
    script = (
        "cat /run/secrets/word; touch /data/made; echo x > /scratch/y; echo no > /run/secrets/word; stat -c %a /scratch"
    )
    done = steps.run("sh", "-c", script, named=named)
    assert done.output.startswith("given\n")
    assert done.output.endswith("700\n")
    assert (odd / "made").exists()
    assert (steps.runner.home / "word").read_text() == "given\n"
    assert not any((steps.upper / name).exists() for name in ("data", "scratch", "run"))
    text = steps.run("cat", "/etc/word", named={"binds": [f"{steps.runner.home}/word:/etc/word:ro"]})
    assert text.output == "given\n"


def test_step_without_network(layered: Steps) -> None:
    output = layered.read(
        "sh", "-c", "cat /proc/net/dev | wc -l; ls /etc/resolv.conf || true", named={"network": "none"}
    )
    assert output.startswith("3\n")
    assert "No such file" in output


def test_step_runs_as_a_user_of_the_image(steps: Steps) -> None:
    (steps.base / "tmp").chmod(0o1777)
    script = (
        "id -u; id -g; echo $HOME; touch /tmp/file; stat -c %u:%g /tmp/file; chmod 4755 /tmp/file;"
        "busybox chown 0:0 /tmp/file 2>/dev/null || echo refused;"
        "busybox chgrp audio /tmp/file; stat -c '%g %a' /tmp/file"
    )
    said = steps.read("sh", "-c", script, user="app").split()
    assert said == ["1000", "50", "/srv/app", "1000:50", "refused", "29", "755"]
    assert steps.read("sh", "-c", "id -u; id -g; echo $HOME", user="7:audio").split() == ["7", "29", "/"]
    assert_reads(steps.run("true", user="nosuch").error, "build/image-no-user", "nosuch")
    assert_reads(steps.run("true", user="0:nosuch").error, "build/image-no-group", "nosuch")


def test_step_leaves_no_process_behind(layered: Steps) -> None:
    began, seconds = time.monotonic(), make_seconds()
    assert layered.read("sh", "-c", f"sleep {seconds} & (sleep {seconds} &) ; echo started") == "started\n"
    done = layered.run("sh", "-c", f"trap '' TERM; sleep {seconds}", named={"timeout": 1})
    assert_says(done.error, "run/did-not-end-within-s", 1)
    assert time.monotonic() - began < 60
    assert not find_sleepers(seconds)


def test_script_with_programs_of_the_host_changes_the_image_alone(steps: Steps) -> None:
    steps.context = give(steps.runner, steps.runner.folder / "context")
    (steps.context / "word").write_text("given\n")
    (steps.runner.home / "private").write_text("mine")
    script = """
        pwd; cat word; cp word $APPTAINER_ROOTFS/etc/word; chown 7:7 $SINGULARITY_ROOTFS/etc/word
        echo x > /tmp/kedge-left-by-a-script; ls /tmp/kedge-left-by-a-script
    """
    assert steps.read("sh", "-ec", script) == f"{steps.context}\ngiven\n/tmp/kedge-left-by-a-script\n"
    assert (steps.upper / "etc/word").read_text() == "given\n"
    assert os.getxattr(steps.upper / "etc/word", OWNER_ATTRIBUTE) == b"7:7"
    for place in ("/etc/x", "/x", "x", "/usr/x", f"{steps.runner.home}/x", "/var/x"):
        assert steps.run("touch", place).status != 0
    assert steps.run("ls", f"{steps.runner.home}/private").status != 0
    assert not Path("/tmp/kedge-left-by-a-script").exists()
    assert "seen" not in steps.read("env")


def test_script_does_not_see_what_is_hidden_in_its_directory(layered: Steps) -> None:
    layered.context = give(layered.runner, layered.runner.folder / "context")
    for name in ("kept/file", "folder/secret", "secret"):
        (layered.context / name).parent.mkdir(exist_ok=True)
        (layered.context / name).write_text(name)
    layered.hidden = (f"{layered.context}/folder", f"{layered.context}/secret")
    assert layered.read("sh", "-ec", "cat secret kept/file; ls -A folder; find . -size +0 -type f -exec cat {} +") == (
        "kept/file" * 2
    )
    assert (layered.context / "folder/secret").read_text() == "folder/secret"


def test_directory_of_a_script_that_was_exchanged_is_refused(layered: Steps) -> None:
    layered.context = give(layered.runner, layered.runner.folder / "context")
    layered.inode = layered.runner.home.stat().st_ino
    done = layered.run("ls")
    assert_says(done.error, "build/not-directory-chosen-somebody-exchanged")


def test_step_notes_to_whom_its_program_gives_files(steps: Steps) -> None:
    script = """
        mkdir -p /srv/app/deep; echo x > /srv/app/file; ln -s /srv/app /link; echo y > /srv/app/deep/mine
        chown -R 1000:50 /srv/app; chown 7:8 /link/file; cd /srv; chown 9:9 app/deep/mine
        chown 0:0 app/deep/mine; chown 3:3 /etc/group; chown 5:5 /nosuch
    """
    bound = give(steps.runner, steps.runner.folder / "bound")
    script += "touch /bound/file; chown -R 4:4 /bound\n"
    named = {"binds": [[str(bound), "/bound", ""]]}
    done = steps.run("/bin/busybox", "sh", "-c", "alias chown='busybox chown'\n" + script, named=named)
    assert os.listxattr(bound / "file") == os.listxattr(bound) == []
    assert "/nosuch: No such file" in done.output
    tree, source = read_upper(steps.upper) if steps.changes else read_folder(steps.base, FolderOptions(all_root=True))
    source.close()
    nodes = dict(walk(tree))
    for node in nodes.values():
        take_noted_owner(node)
    owners = {path: (nodes[path].uid, nodes[path].gid) for path in (b"srv", b"etc/group")}
    owners |= {path: (node.uid, node.gid) for path, node in nodes.items() if path.startswith(b"srv/app")}
    assert owners == {
        b"srv": (0, 0),
        b"srv/app": (1000, 50),
        b"srv/app/deep": (1000, 50),
        b"srv/app/deep/mine": (0, 0),
        b"srv/app/file": (7, 8),
        b"etc/group": (3, 3),
    }
    assert not [key for node in nodes.values() for key, _ in node.xattrs if b"kedge" in key]


def test_step_serves_package_managers(layered: Steps) -> None:
    source = Path(__file__).parents[1] / "programs/package_manager_calls.c"
    program = layered.base / "bin/install-packages"
    subprocess.run([require_program("gcc"), "-Wall", "-static", "-o", program, source], check=True)
    (layered.base / "opt").mkdir()
    os.chown(layered.base / "opt", layered.runner.uid, layered.runner.uid)
    done = layered.run("install-packages")
    assert (done.status, done.output) == (0, "done\n")
    found = os.listxattr(layered.upper / "opt/program")
    assert "security.capability" in found
    assert os.getxattr(layered.upper / "opt/null", DEVICE_ATTRIBUTE) == b"c 1:3"  # an empty file to the kernel
