# SPDX-License-Identifier: BSD-3-Clause
"""What a program in a container can reach: no open file, process, mount or folder of the runtime leads to the host."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.container.processes.instance_records import Instance
from tests.builders.containers import Runner, each_role, give_to, make_runner, make_sandbox
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row
from tests.builders.squashfs_images import add_file, add_folder, add_special, write_image
from tests.requirements import require_program, require_root
from tests.wording import assert_says

SECRET = "text-of-the-canary"
OUT = ("--no-mount", "tmp,home,cwd")
WAYS = ((), ("--contain",), ("--pid",), ("--containall",), ("--underlay",), ("--writable-tmpfs",), ("--fakeroot",))


AS_BOTH = pytest.mark.parametrize("runner", ["user", "root"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """An ordinary user; root for tests whose answer depends on it."""
    yield from each_role(getattr(request, "param", "user"))


@pytest.fixture(scope="module")
def packed(runner: Runner, image: str) -> str:
    """The same in a file."""
    path = runner.folder / "image.sqsh"
    subprocess.run(
        [require_program("mksquashfs"), image, path, "-quiet", "-no-progress", "-all-root"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    path.chmod(0o644)
    return str(path)


@pytest.fixture
def canary(runner: Runner) -> Path:
    folder = runner.folder / "canary"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return give_to(runner, folder)


FORMS = ("sandbox", "unpack", "squashfuse")


@AS_BOTH
@EVERY
@each_row("form,way", itertools.product(FORMS, WAYS))
def test_a_program_has_no_open_file_of_the_host(
    runner: Runner, image: str, packed: str, canary: Path, *, form: str, way: tuple[str, ...], is_every: bool
) -> None:
    """Each way of starting opens files of its own, and so does each form of an image; a user's namespaces, too."""
    is_turn = (WAYS.index(way) + FORMS.index(form)) % 3 == bool(runner.uid)
    if not (is_every or is_turn or (form == "sandbox" and runner.uid)):
        return
    secret = f"{canary}/secret"
    script = (
        "cd /; for file in /proc/$$/fd/*; do stat -L -c '%N %F' $file; "
        f"for way in $file $file/.. $file/../.. $file/../../../..; do cat $way{secret}; done; done; "
        f"cd /proc/$$/fd/3 && cat .{secret}; cd /proc/$$/cwd/..; cat .{secret} ../..{secret}"
    )
    words = (image,) if form == "sandbox" else ("--root-from", form, packed)
    done = runner.run("exec", *OUT, *way, *words, "sh", "-c", script, cwd="/", stdin="")
    assert SECRET not in done.stdout
    kinds = re.findall(r"^(\S+) (.*)$", done.stdout, re.MULTILINE)
    assert [kind for _, kind in kinds[3:]] in ([], ["regular empty file"]), done.stdout  # the lock of the image
    assert len(kinds) == 3 or form != "sandbox"
    assert "directory" not in done.stdout


@AS_BOTH
@each_row("way", WAYS)
def test_the_hosts_tree_is_gone(runner: Runner, image: str, way: tuple[str, ...]) -> None:
    if runner.uid or way in WAYS[3:5]:  # root mounts these on the host's file system
        look_for_the_hosts_tree(runner, image, way)


def look_for_the_hosts_tree(runner: Runner, image: str, way: tuple[str, ...]) -> None:
    said = runner.read("exec", *OUT, *way, image, "cat", "/proc/self/mountinfo", cwd="/")
    mounts = [line.split() for line in said.splitlines()]
    host = next(
        line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4] == "/"
    )
    assert not [mount for mount in mounts if mount[2] == host[2] and mount[3] == "/"]
    allowed = ("/", "/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/root", str(runner.home))
    files = ("/etc/localtime", "/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group")
    found = {mount[4] for mount in mounts if not mount[4].startswith(("/proc/", "/sys/", "/dev/"))}
    if "--underlay" not in way:  # which consists of mounts
        assert found <= {*allowed, *files}
    assert mounts[0][4] == "/"
    assert "nosuid" in mounts[0][5]
    assert "nodev" in mounts[0][5]
    # what overlays and sessions are made of has no name inside
    layers = re.findall(r"(?:upperdir|workdir|lowerdir)=([^,\s]+)", said)
    node = str(runner.folder / "node")
    done = runner.run("exec", *OUT, *way, image, "ls", *layers, node, "/session", "/lower", "/host", cwd="/")
    assert done.stdout == ""


@contextlib.contextmanager
def running(runner: Runner, *words: str, uid: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of some user on the host."""
    argv = list(words)
    if uid is not None and uid != os.getuid():
        argv = [require_program("setpriv"), f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *argv]
    with subprocess.Popen(argv, env=runner.variables(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as each:
        try:
            yield each
        finally:
            each.kill()


@AS_BOTH
def test_the_hosts_processes_cannot_be_entered(runner: Runner, image: str, canary: Path) -> None:
    """Root is root: only a process-id namespace hides the host's processes from it."""
    pid_flags = ("--pid",) if runner.uid == 0 else ()
    is_root = os.getuid() == 0
    with (
        running(runner, "sleep", "60", uid=runner.uid) as own,
        running(runner, "sleep", "60", uid=0 if is_root else None) as other,
    ):
        # users may end their own processes, from a container too: those of the tests then
        spared = (own.pid,) if is_root else (own.pid, other.pid, os.getpid())
        script = "".join(
            f"for way in root cwd; do cat /proc/{pid}/$way{canary}/secret; done; "
            f"cat /proc/{pid}/environ; head -c 1 /proc/{pid}/mem; kill -9 {1 if pid in spared else pid}; "
            for pid in (1, own.pid, other.pid, os.getpid())
        )
        for flags in (pid_flags, ("--containall",), (*pid_flags, "--contain")):
            done = runner.run("exec", *OUT, *flags, image, "sh", "-c", script + "echo reached", cwd="/")
            if "--pid" in flags or "--containall" in flags:
                done.stdout = done.stdout.rpartition("\0")[2]  # process 1 is the container's own, and so its variables
            assert SECRET not in done.stdout
            assert "HOME=" not in done.stdout
        assert own.poll() is None
        assert other.poll() is None


@AS_BOTH
def test_root_inside_is_kept_in_by_a_process_id_namespace(packed: str, runner: Runner, canary: Path) -> None:
    script = f"for pid in $(ls /proc | grep '^[0-9]'); do cat /proc/$pid/root{canary}/secret; done; echo reached"
    words = ("exec", *OUT, "--fakeroot", "--pid", "--root-from", "squashfuse", packed)
    done = runner.run(*words, "sh", "-c", script, cwd="/")
    assert "reached" in done.stdout, done.stderr
    assert SECRET not in done.stdout


# -- the node's directories, and other users


@pytest.fixture
def stranger() -> Iterator[Runner]:
    """Somebody with a number of their own, whom others attack."""
    require_root()
    yield from each_role("user")


def attack(folder: Path, kind: str, victim: int) -> None:
    """What another user may have put in place of a directory of ours."""
    shutil.rmtree(folder, ignore_errors=True)
    if kind == "link":
        folder.symlink_to(folder.parent / "elsewhere")
        (folder.parent / "elsewhere").mkdir(exist_ok=True)
        os.chown(folder.parent / "elsewhere", victim, victim)
        return
    if kind == "file":
        folder.touch()
        return
    folder.mkdir()
    owner = victim if kind == "open" else 4321
    os.chown(folder, owner, owner)
    folder.chmod(0o777)


@each_row("kind", ["link", "file", "strange", "open"])
def test_a_node_folder_that_others_made_is_not_used(stranger: Runner, kind: str) -> None:
    image = str(make_sandbox(stranger.folder / kind))
    packed = stranger.folder / "image.sqsh"
    packed.write_bytes(write_image())
    packed.chmod(0o644)
    node = stranger.folder / f"attacked-{kind}"
    attack(node, kind, stranger.uid)
    environment = {"KEDGE_NODEDIR": str(node)}
    done = stranger.run("unpack", str(packed), env=environment)
    assert done.returncode not in (0, 1)
    assert_says(done.stderr, "image/cannot-unpack-images", node)
    assert "KEDGE_NODEDIR=" in done.stderr or "chmod go-w" in done.stderr
    # what needs no image on the node goes on without it
    assert stranger.read("exec", image, "echo", "reached", env=environment) == "reached\n"
    assert node.is_file() or list(node.iterdir()) == []


def test_the_usual_node_folder_is_not_used_when_somebody_else_made_it(stranger: Runner) -> None:
    uid = 1_509_001
    (stranger.folder / "victim").mkdir()
    victim = make_runner(stranger.folder / "victim", uid)
    folders = [Path(f"/var/tmp/kedge-{uid}"), Path(f"/dev/shm/kedge-{uid}"), Path(f"/tmp/kedge-{uid}")]
    image = str(make_sandbox(stranger.folder / "image"))
    try:
        for folder in folders[:2]:
            attack(folder, "strange", uid)
            (folder / "images").mkdir()
            (folder / "session").mkdir()
            (folder / "sharing").mkdir()
        before = [sorted(map(str, folder.rglob("*"))) for folder in folders[:2]]
        words = ("exec", "--sharens", image, "echo", "reached")
        assert victim.read(*words, env={"KEDGE_NODEDIR": ""}) == "reached\n"
        assert [sorted(map(str, folder.rglob("*"))) for folder in folders[:2]] == before
        attack(folders[2], "link", uid)
        done = victim.run(*words, env={"KEDGE_NODEDIR": ""})
        assert done.returncode == 255
        assert "kedge needs a private directory in memory" in done.stderr
    finally:
        for folder in folders:
            folder.unlink() if folder.is_symlink() else shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree("/tmp/elsewhere", ignore_errors=True)


@AS_BOTH
def test_unpacked_images_are_closed_to_other_users(runner: Runner, packed: str) -> None:
    require_root()
    runner.read("exec", "--root-from", "unpack", packed, "true")
    node = runner.folder / "node"
    found = [node, *node.glob("*"), *node.glob("images/*")]
    assert len(found) > 3
    assert not [path for path in found if path.is_dir() and path.stat().st_mode & 0o077]
    root = next(node.glob("images/*/root"))
    other = ["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups"]
    for words in (["ls", str(root)], ["touch", f"{root}/new"], ["ls", str(node)]):
        assert subprocess.run([*other, *words], capture_output=True, check=False).returncode != 0


def hostile_tree(name: bytes, target: bytes) -> bytes:
    """An image with links, devices, set-user-ID bits, and a file whose name was changed when the image was made."""
    given = b"q" * len(name)

    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY, 0o755, 0, 0, 1)
        etc = add_folder(root, b"etc")
        add_file(sink, etc, b"setuid", b"#!/bin/sh\n", mode=0o6755)
        add_file(sink, etc, given, b"from the image")
        add_special(etc, b"disk", NodeKind.BLOCK_DEVICE, mode=0o666, rdev=0x801)
        add_special(root, b"tmp", NodeKind.SYMLINK, target=target)
        return root

    data = bytearray(write_image(fill, codec="none"))
    place = data.index(struct.pack("<H", len(given) - 1) + given, 96) + 2
    data[place : place + len(name)] = name
    return bytes(data)


@each_row("name", [b"..", b".", b"../new", b"/new", b"a/../../../new", b"../../../../canary/new"])
def test_unpacked_names_that_lead_out_are_refused(runner: Runner, canary: Path, name: bytes) -> None:
    path = canary / "hostile.sqsh"
    path.write_bytes(hostile_tree(name, b"var"))
    path.chmod(0o644)
    before = sorted(map(str, canary.rglob("*")))
    ways = (("unpack", str(path)), ("exec", "--root-from", "unpack", str(path), "true"))
    for words in ways if name == b".." else ways[:1]:
        done = runner.run(*words)
        assert done.returncode not in (0, 1)
        assert "is not a valid instance name" in done.stderr or "name" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert sorted(map(str, canary.rglob("*"))) == before
    assert not list((runner.folder / "node").rglob("new"))


@AS_BOTH
def test_unpacked_links_devices_and_bits_are_harmless(runner: Runner, canary: Path) -> None:
    path = runner.folder / "links.sqsh"
    path.write_bytes(hostile_tree(b"name", os.fsencode(canary)))
    path.chmod(0o644)
    said = json.loads(runner.read("unpack", "--json", str(path)))
    root = Path(said[0]["root"])
    assert (root / "tmp").is_symlink()
    if runner.uid != 0:
        assert not (root / "etc/setuid").stat().st_mode & 0o6000
        assert not (root / "etc/disk").is_block_device()
    assert (canary / "secret").read_text() == SECRET
    assert sorted(each.name for each in canary.iterdir()) == ["secret"]


# -- joining


def test_containers_of_others_are_not_joined(runner: Runner) -> None:
    """A file in our own directory may name any process: the kernel lets nobody into those of others."""
    require_root()
    image = str(give_to(runner, make_sandbox(runner.folder / "joined")))
    with each_process_of_root(image) as pid:
        folder = runner.home / ".local/state/kedge/instances" / os.uname().nodename
        folder.mkdir(parents=True, exist_ok=True)
        start = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        instance = Instance("victim", pid, start, state="running", image=image)
        fields = {name: getattr(instance, name) for name in Instance.__dataclass_fields__}
        (folder / "victim.json").write_text(json.dumps(fields))
        give_to(runner, runner.home)
        done = runner.run("exec", "instance://victim", "id")
        assert done.returncode == 255, done.stdout
        assert "belongs to another user" in done.stderr


@contextlib.contextmanager
def each_process_of_root(image: str) -> Iterator[int]:
    """A container of root's."""
    argv = [sys.executable, "-m", "kedge", "exec", "--userns", image, "sleep", "60"]
    with subprocess.Popen(argv) as process:
        time.sleep(1)
        try:
            yield process.pid
        finally:
            process.kill()
