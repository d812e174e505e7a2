# SPDX-License-Identifier: BSD-3-Clause
"""The `enroot` shim as an ordinary user: from a registry to a container, also with images that Enroot has made."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.builders import layers as build
from tests.builders.busybox import read_busybox
from tests.builders.containers import APPLETS, Runner, each_role, give_to
from tests.builders.images import make_config
from tests.builders.shims import with_shim
from tests.fakes.registry import FakeRegistry

ENTRY = b'#!/bin/sh\ncase $1 in default) echo "entry $GREETING" ;; *) exec "$@" ;; esac\n'
SECTION = {"Env": ["PATH=/bin", "GREETING=hello"], "Entrypoint": ["/bin/entry"], "Cmd": ["default"]}


def make_tar() -> bytes:
    return build.layer(
        *(build.folder(name) for name in ("bin", "etc", "root", "tmp", "data")),
        build.file("bin/busybox", read_busybox(), mode=0o755),
        *(build.symlink(f"bin/{name}", "busybox") for name in APPLETS),
        build.file("bin/entry", ENTRY, mode=0o755),
        build.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
    )


@pytest.fixture(scope="module")
def enroot() -> Iterator[Runner]:
    """A user who types enroot, with an image imported and a container created from it."""
    for runner in each_role("user"):
        shim = with_shim(Runner(runner.folder, runner.uid, {**runner.environment, "SECRET": "of the host"}), "enroot")
        tar = make_tar()
        with FakeRegistry() as registry:
            digest = registry.add_image("team/tools", "1", [build.compress(tar)], make_config([tar], SECTION))
            uri = f"docker://{registry.host}#team/tools:1"
            assert shim.read("digest", uri, env={"KEDGE_NO_HTTPS": "1"}) == f"{digest}\n"
            done = shim.run("import", uri, env={"KEDGE_NO_HTTPS": "1"})
            assert done.returncode == 0, done.stderr
            again = shim.run("import", uri, env={"KEDGE_NO_HTTPS": "1"})
            assert (again.returncode, "team+tools+1.sqsh" in again.stderr) == (1, True)
        shim.read("create", "-n", "box", "team+tools+1.sqsh")
        yield shim


def test_a_container_starts_as_the_image_says(enroot: Runner) -> None:
    for name in ("box", "team+tools+1.sqsh"):
        assert enroot.read("start", name) == "entry hello\n"
        shown = enroot.read("start", "-e", "A=1,2", name, "sh", "-c", "echo $A ${SECRET:-none} $PWD; id -u")
        assert shown.split() == ["1,2", "none", "/", str(enroot.uid)]


def test_nothing_of_the_host_is_inside_unless_asked(enroot: Runner) -> None:
    (enroot.home / "mine").touch()
    there = f"ls {enroot.home}/mine"
    assert enroot.run("start", "box", "sh", "-c", there).returncode != 0
    assert enroot.read("start", "box", "sh", "-c", there, env={"ENROOT_MOUNT_HOME": "y"})
    assert enroot.read("start", "--mount", ".:data", "box", "ls", "/data").count("mine") == 1
    assert enroot.read("start", "-m", "tmpfs:/data", "box", "sh", "-c", "echo x > /data/x; cat /data/x") == "x\n"
    assert enroot.read("start", "box", "sh", "-c", "echo x > /tmp/x; ls /tmp") == "x\n"


def test_only_a_writable_container_keeps_changes(enroot: Runner) -> None:
    assert enroot.run("start", "box", "touch", "/kept").returncode == 1
    assert enroot.read("start", "--root", "--rw", "box", "sh", "-c", "id -u; echo x > /kept") == "0\n"
    assert enroot.read("start", "box", "cat", "/kept") == "x\n"
    enroot.read("start", "-w", "team+tools+1.sqsh", "touch", "/lost")
    assert enroot.run("start", "team+tools+1.sqsh", "ls", "/lost").returncode == 1


def test_list_export_and_remove(enroot: Runner) -> None:
    enroot.read("export", "-o", "again.sqsh", "box")
    enroot.read("create", "again.sqsh")
    assert enroot.read("list").split() == ["again", "box"]
    assert enroot.run("create", "again.sqsh").returncode == 1
    enroot.read("create", "--force", "again.sqsh")
    assert enroot.run("remove", "again", stdin="n\n").returncode == 0
    assert "again" in enroot.read("list")
    assert enroot.run("remove", "again", stdin="y\n").returncode == 0
    assert enroot.read("list") == "box\n"
    assert enroot.run("remove", "-f", "again").returncode == 1


def test_exec_goes_into_a_container_that_runs(enroot: Runner) -> None:
    words = enroot.argv("start", "box", "sh", "-c", "echo $$ > /tmp/inside; exec sleep 60")
    with subprocess.Popen(words, env=enroot.variables(), cwd=enroot.home) as process:
        try:
            row = wait_for_row(enroot)
            assert row[0] == "box"
            assert enroot.read("exec", "-e", "A=b", row[1], "sh", "-c", "cat /tmp/inside; echo $A").split()[1] == "b"
        finally:
            process.kill()
    assert enroot.run("exec", "999999999", "true").returncode == 1


def wait_for_row(enroot: Runner) -> list[str]:
    """The line of `enroot list --fancy` with a process."""
    for _ in range(100):
        rows = [line.split() for line in enroot.read("list", "--fancy").splitlines()[1:]]
        found = [row for row in rows if "sleep" in row]
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError("no process is listed")


def test_images_of_enroot_itself(enroot: Runner) -> None:
    """Its importer leaves three files and no `.singularity.d`; the command script decides."""
    folder = enroot.home / ".local/share/enroot/foreign"
    shutil.copytree(enroot.home / ".local/share/enroot/box", folder, symlinks=True)
    shutil.rmtree(folder / ".singularity.d")
    for name in (".exec", ".run", ".shell", ".test", "singularity", "environment"):
        (folder / name).unlink(missing_ok=True)
    (folder / "etc/environment").write_text('PATH=/bin\nGREETING="good day"\n')
    (folder / "etc/rc").write_text('cd /data\n[ $# -eq 0 ] || exec "$@"\nexec echo "rc $GREETING $PWD"\n')
    give_to(enroot, folder)
    assert enroot.read("start", "foreign") == "rc good day /data\n"
    assert enroot.read("start", "foreign", "sh", "-c", "echo $GREETING") == "good day\n"
    enroot.read("export", "foreign")
    enroot.read("create", "-n", "converted", "foreign.sqsh")
    for name in ("foreign.sqsh", "converted"):
        assert enroot.read("start", name) == "rc good day /data\n"
    script = enroot.home / "own-rc"
    script.write_text('echo "own $@"\n')
    assert enroot.read("start", "--rc", "own-rc", "foreign", "a", "b") == "own a b\n"
