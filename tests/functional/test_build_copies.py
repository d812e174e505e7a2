# SPDX-License-Identifier: BSD-3-Clause
"""Files in whole builds, as an ordinary user: ADD of archives and addresses, %setup, hostile and large contexts."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.tree import NodeKind
from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.builders.containers import give_to
from tests.requirements import require_program

shop = warm_shop


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server over a directory of this test."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            del format, args

    (tmp_path / "site").mkdir()
    handler = functools.partial(Quiet, directory=str(tmp_path / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", tmp_path / "site"
        server.shutdown()
        thread.join()


def make_archive(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.uid = len(data), 0o640, 12
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def test_add_fetches_addresses_once(shop: Workshop, site: tuple[str, Path]) -> None:
    address, folder = site
    (folder / "tool.txt").write_bytes(b"tool")
    digest = hashlib.sha256(b"tool").hexdigest()
    shop.write(
        "Dockerfile",
        f"{SHELL}ADD {address}/tool.txt /x/\nADD --checksum=sha256:{digest} --chmod=755 {address}/tool.txt /tool\n",
    )
    shop.build("out.sif", "Dockerfile")
    nodes, _ = shop.look("out.sif")
    assert (nodes["/x/tool.txt"].mode, nodes["/tool"].mode) == (0o600, 0o755)
    assert set(shop.states("--force", "out.sif", "Dockerfile")) == {"cached"}
    (folder / "tool.txt").write_bytes(b"newer tool")
    os.utime(folder / "tool.txt", (2e9, 2e9))  # the server tells versions apart by the second
    done = shop.start("--force", "out.sif", "Dockerfile")
    assert done.returncode == 0, done.stderr  # the one with a checksum is in the cache
    assert shop.read("out.sif", "/x/tool.txt", "/tool") == "newer tooltool"


def test_add_with_a_wrong_checksum_leaves_nothing(shop: Workshop, site: tuple[str, Path]) -> None:
    address, folder = site
    (folder / "tool.txt").write_bytes(b"tool")
    shop.write("Dockerfile", f"{SHELL}ADD --checksum=sha256:{'0' * 64} {address}/tool.txt /tool\n")
    done = shop.start("out.sif", "Dockerfile")
    assert done.returncode != 0
    assert "the recipe wants sha256:000" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (shop.context / "out.sif").exists()
    assert shop.list_builds() == []


def test_add_of_a_git_repository(shop: Workshop, site: tuple[str, Path], tmp_path: Path) -> None:
    git = require_program("git")
    address, folder = site
    work = tmp_path / "work"
    script = f"""set -e; export HOME={tmp_path} GIT_CONFIG_GLOBAL=/dev/null
        {git} init -q -b main {work}; cd {work}; mkdir sub; echo hi > sub/file; echo top > top
        {git} -c user.name=a -c user.email=a@b add .; {git} -c user.name=a -c user.email=a@b commit -qm first
        {git} tag v1; {git} clone -q --bare {work} {folder}/tool.git; cd {folder}/tool.git; {git} update-server-info"""
    subprocess.run(["sh", "-c", script], check=True)
    shop.write("Dockerfile", f"{SHELL}ADD {address}/tool.git#v1:sub /sub\nADD {address}/tool.git /whole\n")
    shop.build("out.sif", "Dockerfile")
    listed = sorted(path for path in shop.look("out.sif")[0] if path.startswith(("/sub", "/whole")))
    assert listed == ["/sub", "/sub/file", "/whole", "/whole/sub", "/whole/sub/file", "/whole/top"]


def test_a_directory_that_a_build_begins_with_stays_as_it_was(shop: Workshop) -> None:
    base = shop.make_base()
    before = {path: (path.lstat().st_ctime_ns, os.listxattr(path, follow_symlinks=False)) for path in base.rglob("*")}
    shop.write(
        "x.def", f"Bootstrap: localimage\nFrom: {base}\n%post\nbusybox chown 7:8 /bin/busybox\nbusybox rm /bin/sh\n"
    )
    shop.build("out.sif", "x.def")
    after = {path: (path.lstat().st_ctime_ns, os.listxattr(path, follow_symlinks=False)) for path in base.rglob("*")}
    assert (after, os.listxattr(base)) == (before, [])


def test_setup_changes_the_image_and_nothing_else(shop: Workshop) -> None:
    shop.write("tool", "from the context\n")
    shop.write(
        "x.def",
        f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%setup\ncp tool $APPTAINER_ROOTFS/tool\n"
        "mkdir $SINGULARITY_ROOTFS/made\nif echo x > written; then exit 9; fi\n",
    )
    shop.build("out.sif", "x.def")
    assert shop.read("out.sif", "/tool") == "from the context\n"
    assert not (shop.context / "written").exists()
    assert "done" not in shop.states("--force", "out.sif", "x.def")
    shop.write("tool", "changed\n")
    shop.build("--force", "out.sif", "x.def")
    assert shop.read("out.sif", "/tool") == "changed\n"


def test_setup_runs_again_beside_what_cannot_be_read(shop: Workshop) -> None:
    """As the work directory of an overlay is, which the kernel closes."""
    shop.write("work/closed", "x\n").chmod(0)
    shop.write("x.def", f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%setup\ntouch $APPTAINER_ROOTFS/made\n")
    shop.build("out.sif", "x.def")
    assert "done" in shop.states("--force", "out.sif", "x.def")


def test_setup_on_the_host_has_the_host(shop: Workshop) -> None:
    shop.write(
        "x.def",
        f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%pre\necho pre > written\n"
        "%setup\ntest -d $APPTAINER_ROOTFS/bin\ncp written $APPTAINER_ROOTFS/\n%files\nwritten /copied\n",
    )
    done = shop.start("out.sif", "x.def")
    assert done.returncode != 0
    assert "--setup-on-host" in done.stderr
    shop.build("--setup-on-host", "out.sif", "x.def")
    assert shop.read("out.sif", "/written", "/copied") == "pre\npre\n"


def test_a_context_with_odd_files(shop: Workshop) -> None:
    """Pipes, sockets, names with newlines and links that leave are no reason to hang or fail."""
    folder = shop.context / "odd"
    folder.mkdir()
    subprocess.run(["mkfifo", str(folder / "pipe")], check=True)
    (folder / "new\nline").write_bytes(b"1")
    (folder / b"\xff\xfe".decode("utf-8", "surrogateescape")).write_bytes(b"2")
    (folder / "out").symlink_to("/etc/passwd")
    give_to(shop.runner, folder)
    shop.write("Dockerfile", f"{SHELL}COPY odd /odd\n")
    shop.build("out.sif", "Dockerfile")
    nodes = shop.look("out.sif")[0]
    kinds = [node.kind for path, node in sorted(nodes.items()) if path.startswith("/odd/")]
    assert kinds == [NodeKind.FILE, NodeKind.SYMLINK, NodeKind.FIFO, NodeKind.FILE]
    assert nodes["/odd/out"].target == b"/etc/passwd"
