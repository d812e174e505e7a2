# SPDX-License-Identifier: BSD-3-Clause
"""Overlays, underlays and ext3 images in real namespaces, as an ordinary user."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import pytest

from kedge.container.mounts import ext3
from tests.builders.servers import wait_until_unused
from tests.programs import read_program
from tests.requirements import require_program, require_root, require_user_namespaces
from tests.wording import assert_reads, assert_says

USER = 1501
F_OFD_SETLK = 37
# A container in small: namespaces and a file system in memory at `base`; the test's own lines follow.
START = read_program("mount_overlay_and_look")


@pytest.fixture
def place():
    """A directory that belongs to the ordinary user; not below pytest's, which other runs of pytest close to others."""
    require_user_namespaces()
    with tempfile.TemporaryDirectory(prefix="kedge-overlay-") as name:
        folder = Path(name)
        (folder / "base").mkdir()
        give(folder, folder / "base")
        yield folder


def give(*paths: Path) -> None:
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, USER, USER)


def command_of(place: Path, lines: str) -> list[str]:
    drop = [require_program("setpriv"), "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
    python = [sys.executable, "-c", START + textwrap.dedent(lines), str(place / "base"), str(place / "image.img")]
    return [*(drop if os.geteuid() == 0 else []), *python]


def perform(place: Path, lines: str, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        command_of(place, lines), env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def make_ext(place: Path, owner: int = 0) -> Path:
    """An ext3 image with upper and work that belong to the user, or to a number."""
    content, image = place / "content", place / "image.img"
    for name in ("upper", "work"):
        (content / name).mkdir(parents=True)
        give(content / name)
    program = require_program("mkfs.ext3")
    subprocess.run([program, "-q", "-F", "-d", str(content), str(image), "16M"], check=True, capture_output=True)
    if owner:
        requests = "".join(f"set_inode_field /{name} uid {owner}\n" for name in ("upper", "work"))
        debugfs = [require_program("debugfs"), "-w", "-f", "-", str(image)]
        subprocess.run(debugfs, input=requests.encode(), check=True, capture_output=True)
    give(image)
    return image


OVERLAY = """
enter_mounts()
prepare("lower/dir", "upper", "work", "root")
write(f"{base}/lower/dir/old")
write(f"{base}/lower/file")
way = mount_overlay([base + "/lower"], base + "/upper", base + "/work", base + "/root", is_written=True)
os.unlink(f"{base}/root/file")
os.mkdir(f"{base}/root/new")
write(f"{base}/root/dir/old", "changed")
answer(way=way, root=sorted(os.listdir(base + "/root")), old=read(base + "/root/dir/old"),
       lower=read(base + "/lower/dir/old"))
"""


def test_the_kernels_overlay_is_used_where_it_works(place):
    found = perform(place, OVERLAY)
    assert str(found["way"]).startswith("kernel overlay")
    assert found["root"] == ["dir", "new"]
    assert (found["old"], found["lower"]) == ("changed", "x")


def test_fuse_overlayfs_is_used_where_the_kernel_refuses(place):
    require_program("fuse-overlayfs")
    refused = """
    real = libc.mount
    def mount(source, target, kind, flags, data=""):
        if kind == "overlay":
            raise OSError(22, "Invalid argument")
        real(source, target, kind, flags, data)
    libc.mount = mount
    """
    found = perform(place, textwrap.dedent(refused) + OVERLAY)
    assert found["way"] == "fuse-overlayfs (kernel overlay: Invalid argument)"
    assert found["root"] == ["dir", "new"]
    assert (found["old"], found["lower"]) == ("changed", "x")


def test_lustre_below_is_never_given_to_the_kernel(place):
    lustre = """
    tried = []
    real = libc.mount
    libc.mount = lambda *words: (tried.append(words[2]), real(*words))[1]
    libc.file_system_type = lambda path: 0x0BD00BD0 if path.endswith("lower") else 0
    """
    found = perform(
        place,
        textwrap.dedent(lustre)
        + """
enter_mounts()
prepare("lower", "upper", "work", "root")
try:
    way = mount_overlay([base + "/lower"], base + "/upper", base + "/work", base + "/root")
except KedgeError as problem:
    way = problem.context["tried"]
answer(way=way, tried=tried)
""",
    )
    assert "Lustre" in str(found["way"])
    assert "overlay" not in found["tried"]


def test_no_way_at_all_is_one_error_with_every_reason(place):
    found = perform(
        place,
        """
        import kedge.container.mount_operations as module
        def refuse(*words): raise OSError(1, "Operation not permitted")
        module.mount_kernel = refuse
        import kedge.container.fuse_program as programs
        programs.find_program = lambda name: ""
        enter_mounts()
        prepare("lower", "upper", "work", "root")
        try:
            mount_overlay([base + "/lower"], base + "/upper", base + "/work", base + "/root")
        except KedgeError as problem:
            answer(text=problem.message, tried=problem.context["tried"], hint=problem.hint)
        """,
    )
    assert found["tried"] == "kernel overlay: Operation not permitted; fuse-overlayfs: it is not installed"
    assert "fuse-overlayfs" in str(found["hint"])


@pytest.mark.parametrize("way", ["kernel", "fuse"])
def test_paths_with_special_characters_and_many_layers_work(place, way):
    if way == "fuse":
        require_program("fuse-overlayfs")
    found = perform(
        place,
        f"""
        from kedge.container.mount_operations import mount_fuse, mount_kernel
        odd = "a,b:c\\\\d e" + '"'
        enter_mounts()
        names = [f"{{odd}}/{{number}}-{{'long' * 30}}" for number in range(60)]
        prepare(*names, odd + "/upper", odd + "/work", "root")
        for number, name in enumerate(names):
            write(f"{{base}}/{{name}}/{{number}}")
        write(f"{{base}}/{{names[0]}}/same", "highest")
        write(f"{{base}}/{{names[1]}}/same", "lower")
        lowers = [f"{{base}}/{{name}}" for name in names]
        mount_{way}(lowers, f"{{base}}/{{odd}}/upper", f"{{base}}/{{odd}}/work", base + "/root")
        write(base + "/root/new")
        answer(count=len(os.listdir(base + "/root")), same=read(base + "/root/same"),
               upper=os.listdir(f"{{base}}/{{odd}}/upper"))
        """,
    )
    assert found == {"count": 62, "same": "highest", "upper": ["new"]}


def test_layers_that_fuse_overlayfs_wrote_keep_files_deleted(place):
    """The kernel does not know its notes of deleted files, and would show `.wh.file` and the deleted file."""
    require_program("fuse-overlayfs")
    found = perform(
        place,
        """
        enter_mounts()
        prepare("lower/dir", "layer/upper/dir", "layer/work", "upper", "work", "root")
        write(f"{base}/lower/dir/gone")
        write(f"{base}/layer/upper/dir/.wh.gone", "")
        lowers = [base + "/layer/upper", base + "/lower"]
        way = mount_overlay(lowers, base + "/upper", base + "/work", base + "/root")
        answer(way=way, names=os.listdir(base + "/root/dir"))
        """,
    )
    assert_says(str(found["way"]), "run/fuse-overlayfs-wrote-one-layers")
    assert found["names"] == []


def test_fuse_overlayfs_reads_squashfs_layers(place):
    """They know no access lists, which fuse-overlayfs must not offer then."""
    for name in ("fuse-overlayfs", "mksquashfs", "squashfuse"):
        require_program(name)
    (place / "content/dir").mkdir(parents=True)
    (place / "content/dir/file").write_text("from SquashFS")
    pack = [require_program("mksquashfs"), str(place / "content"), str(place / "image.img"), "-quiet", "-all-root"]
    subprocess.run(pack, check=True, capture_output=True)
    found = perform(
        place,
        """
        from kedge.container.mounts.squashfuse import FuseServer, find_squashfuse, mount_squashfuse
        from kedge.container.mount_operations import mount_fuse
        server = FuseServer()
        enter_mounts()
        prepare("squash", "lower", "upper", "work", "root")
        mount_squashfuse(image, 0, base + "/squash", find_squashfuse()[0], server)
        mount_fuse([base + "/squash", base + "/lower"], base + "/upper", base + "/work", base + "/root")
        answer(names=os.listdir(base + "/root/dir"), text=read(base + "/root/dir/file"))
        """,
    )
    assert found == {"names": ["file"], "text": "from SquashFS"}


def test_an_overlay_of_a_user_that_the_namespace_does_not_know_is_refused_in_words(place):
    require_program("fuse2fs")
    image = make_ext(place, owner=77777)
    found = perform(
        place,
        """
        servers = enter_beside(image, writable=True)
        prepare("layer", "lower", "root")
        mount_ext(image, 0, 0, base + "/layer", writable=True, servers=servers)
        try:
            mount_overlay([base + "/lower"], base + "/layer/upper", base + "/layer/work", base + "/root")
        except KedgeError as problem:
            answer(text=problem.message, hint=problem.hint)
        """,
    )
    assert "belongs to another user" in str(found["text"])
    assert "kedge overlay create" in str(found["hint"])
    wait_until_unused(image)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("upper", "pass"),
        ("upper", 'os.symlink(base + "/elsewhere", place)'),
        ("work", 'os.symlink(base + "/elsewhere", place)'),
    ],
)
def test_a_layer_whose_folders_are_missing_or_links_is_refused(place, name, change):
    """An image that somebody else made must not bring directories of the host into the container."""
    found = perform(
        place,
        f"""
        enter_mounts()
        prepare("lower", "layer/upper", "layer/work", "root", "elsewhere")
        place = base + "/layer/{name}"
        os.rmdir(place)
        {change}
        try:
            mount_overlay([base + "/lower"], base + "/layer/upper", base + "/layer/work", base + "/root")
        except KedgeError as problem:
            answer(text=problem.message, hint=problem.hint)
        """,
    )
    assert_reads(found["text"], "run/overlay-no-directory", name)
    assert "kedge overlay create" in str(found["hint"])


def test_an_underlay_shows_all_of_the_image_and_what_was_missing(place):
    found = perform(
        place,
        """
        from kedge.container.mounting import Builder
        from kedge.container.mounts.underlay import plan_underlay
        from kedge.system.views import DirectoryView
        enter_mounts()
        builder = Builder(base, lambda level, text: answer(said=text))
        builder.prepare()
        libc.mount("image", base + "/lower", "tmpfs", 0, "")
        for folder in ("etc/ssl", "usr/bin", "usr/lib/deep", "home", "var"):
            os.makedirs(f"{base}/lower/{folder}")
        for name in ("etc/passwd", "usr/bin/tool", "usr/lib/deep/lib"):
            write(f"{base}/lower/{name}", name)
        os.symlink("usr/bin", f"{base}/lower/bin")
        os.symlink("/run", f"{base}/lower/var/run")
        libc.mount(base + "/lower", base + "/root", "", MS_BIND | MS_REC)
        missing = [("/data/set", "d"), ("/etc/hosts", "f"), ("/usr/lib/deep/nvidia", "d"), ("/bin/smi", "f"),
                   ("/var/run/munge", "d"), ("/home/user/work", "d")]
        builder.perform(plan_underlay(missing, DirectoryView(base + "/lower")))
        root = base + "/root"
        libc.mount(base + "/lower/home", root + "/data/set", "", MS_BIND)
        texts = [read(root + path) for path in ("/etc/passwd", "/bin/tool", "/usr/lib/deep/lib")]
        view = DirectoryView(root)
        def try_writing(path):
            try:
                write(path)
                return "written"
            except OSError as problem:
                return problem.strerror
        answer(texts=texts, link=os.readlink(root + "/bin"), names=sorted(os.listdir(root)),
               kinds=[view.kind(path) for path, shape in missing], shapes=[shape for path, shape in missing],
               writing=[try_writing(root + path) for path in ("/etc/passwd", "/usr/lib/deep/new")])
        """,
    )
    assert found["texts"] == ["etc/passwd", "usr/bin/tool", "usr/lib/deep/lib"]
    assert found["link"] == "usr/bin"
    assert found["names"] == ["bin", "data", "etc", "home", "run", "usr", "var"]
    assert found["kinds"] == found["shapes"]
    assert found["writing"] == ["Read-only file system", "Read-only file system"]


def test_an_ext3_file_system_inside_a_file_is_found_at_its_offset(place):
    require_program("fuse2fs")
    image = make_ext(place)
    image.write_bytes(bytes(8192) + image.read_bytes())
    found = perform(
        place,
        """
        size = os.path.getsize(image) - 8192
        servers = enter_beside(image, 8192, size, writable=False)
        prepare("layer")
        mount_ext(image, 8192, size, base + "/layer", writable=False, servers=servers)
        answer(names=sorted(os.listdir(base + "/layer")))
        """,
    )
    assert found["names"] == ["lost+found", "upper", "work"]
    wait_until_unused(image)


def test_an_ext3_image_whose_server_is_about_to_end_is_waited_for(place):
    """A container is over when its program is; the next command of a script comes at once."""
    require_program("fuse2fs")
    image = make_ext(place)
    with image.open("r+b") as file:
        fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        ending = threading.Timer(0.5, file.close)
        ending.start()
        found = perform(place, 'ExtServers([ExtImage(image, 0, 0, writable=True)], base)\nanswer(text="served")')
        ending.join()
    assert found["text"] == "served"
    wait_until_unused(image)


def test_a_damaged_ext3_image_is_one_error_with_what_fuse2fs_says(place):
    require_program("fuse2fs")
    image = make_ext(place)
    with image.open("r+b") as file:
        file.seek(1024 + 24)
        file.write(b"\xff\xff")  # the block size
    found = perform(
        place,
        """
        try:
            ExtServers([ExtImage(image, 0, 0, writable=False)], base)
        except KedgeError as problem:
            answer(text=problem.message, said=problem.context["fuse2fs"])
        """,
    )
    assert "cannot mount" in str(found["text"])
    assert found["said"]


def test_without_fuse2fs_the_error_says_what_to_install(place):
    make_ext(place)
    found = perform(
        place,
        """
        import kedge.container.mounts.ext3 as module
        module.find_program = lambda name: ""
        try:
            ExtServers([ExtImage(image, 0, 0, writable=False)], base)
        except KedgeError as problem:
            answer(text=problem.message, hint=problem.hint)
        """,
    )
    assert "fuse2fs" in str(found["text"])
    assert "SquashFS" in str(found["hint"])


def test_a_server_that_never_mounts_is_given_up_and_ended(tmp_path, monkeypatch):
    require_root()
    program, image = tmp_path / "fuse2fs", tmp_path / "image.img"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    image.touch()
    (tmp_path / "place").mkdir()
    monkeypatch.setattr(ext3, "_PATIENCE", 0.3)
    monkeypatch.setenv("HOME", str(tmp_path))  # whose programs see everything: here nothing is to be mounted
    lock = os.open(image, os.O_RDONLY | os.O_CLOEXEC)
    wanted = ext3.ExtImage(str(image), 0, 0, writable=False)
    said = ext3.start_server(str(program), wanted, str(tmp_path / "place"), lock)
    os.close(lock)
    assert_says(said, "run/did-not-mount-within-s", "0.3")
    wait_until_unused(image)
