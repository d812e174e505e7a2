# SPDX-License-Identifier: BSD-3-Clause
"""`kedge unpack` in both roles: what becomes of the files, once for many, after a kill, without room, and eviction."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.base.manifest import OCI_INDEX, OCI_MANIFEST
from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.errors import FileProblem, ImageNotFound, NoSpace, UnsupportedFormat
from kedge.image import node_cache
from tests.builders.busybox import read_busybox
from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.builders.images import add_rich_image, make_config, noise, rich_layers
from tests.builders.layers import compress, file, layer
from tests.builders.small_disks import small_memory
from tests.builders.squashfs_images import add_file, add_folder, add_special, write_image
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_says


@pytest.fixture
def runner() -> Iterator[Runner]:
    """A user: what is the same for root is shown once."""
    yield from each_role("user", is_warm=True)


@pytest.fixture(params=["user", "root"])
def both(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """For owners, modes and the look from this process, where root is another case."""
    yield from each_role(request.param, is_warm=True)


def put_squashfs(runner: Runner, name: str = "image.sqsh", files: int = 20, size: int = 3000) -> Path:
    """An image with odd modes, links, a hole, a pipe, and some files more."""

    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY, 0o555, 0, 0, 1_600_000_000)
        locked = add_folder(root, b"locked", 0o000)
        add_file(sink, locked, b"inside", b"read me", mode=0o000)
        add_file(sink, root, b"setuid", b"#!/bin/sh\n", mode=0o4755)
        add_file(sink, root, b"owned", b"x", owner=1234)
        add_file(sink, root, b"noted", b"x", mode=0o400).xattrs = ((b"user.note", b"1"),)
        twin = add_file(sink, root, b"twin", b"both", mtime=1_500_000_000)
        locked.children[b"other"] = twin
        add_file(sink, root, b"hole", b"a" * 200_000 + bytes(1 << 20))
        add_special(root, b"link", NodeKind.SYMLINK, target=b"/etc/passwd")
        add_special(root, b"pipe", NodeKind.FIFO)
        add_special(root, b"device", NodeKind.CHARACTER_DEVICE, rdev=os.makedev(1, 3))
        many = add_folder(root, b"many", 0o1777)
        for number in range(files):
            add_file(sink, many, b"%d" % number, noise(size, f"{name}{number}"))
        return root

    path = runner.folder / name
    path.write_bytes(write_image(fill))
    path.chmod(0o644)
    return path


def unpack(runner: Runner, *words: str | Path, env: dict[str, str] | None = None) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = json.loads(runner.read("unpack", "--json", *map(str, words), env=env))
    return done


def images(runner: Runner) -> list[str]:
    """What is in the directory of images, locks left out."""
    return sorted(path.name for path in (runner.folder / "node/images").glob("*") if path.suffix != ".lock")


def test_unpack_gives_a_tree_that_its_owner_can_use(both: Runner) -> None:
    path = put_squashfs(both)
    (done,) = unpack(both, path)
    root = Path(done["root"])
    assert done["unpacked"]
    assert os.lstat(root).st_mode & 0o7777 == 0o555
    assert (root / "locked").stat().st_mode & 0o7777 == 0o500
    assert (root / "locked/inside").stat().st_mode & 0o7777 == 0o400
    assert (root / "locked/inside").read_bytes() == b"read me"
    assert (root / "setuid").stat().st_mode & 0o7777 == 0o755
    assert (root / "many").stat().st_mode & 0o7777 == 0o1777
    assert (root / "twin").samefile(root / "locked/other")
    assert (root / "twin").stat().st_mtime == 1_500_000_000
    assert (root / "twin").stat().st_atime > 1_700_000_000, "a cleaner of /tmp must not take it for old"
    assert (root / "hole").read_bytes() == b"a" * 200_000 + bytes(1 << 20)
    assert (root / "hole").stat().st_blocks * 512 < 600_000
    assert (root / "link").readlink() == Path("/etc/passwd")
    assert (root / "many/7").read_bytes() == noise(3000, "image.sqsh7")
    assert ((root / "noted").stat().st_mode & 0o777, os.getxattr(root / "noted", "user.note")) == (0o400, b"1")
    assert (root / "owned").stat().st_uid == (1234 if both.uid == 0 else both.uid)
    (again,) = unpack(both, path)
    assert (again["unpacked"], again["root"]) == (False, done["root"])


def test_unpack_prints_nothing_without_json(runner: Runner) -> None:
    done = runner.run("unpack", str(put_squashfs(runner)))
    assert (done.returncode, done.stdout) == (0, "")


def test_unpack_a_folder_is_nothing_to_do(runner: Runner) -> None:
    (runner.home / "root/bin").mkdir(parents=True)
    (done,) = unpack(runner, runner.home / "root")
    assert (done["root"], done["unpacked"]) == (str(runner.home / "root"), False)


def test_unpack_registry_image_is_found_by_name_without_network(both: Runner) -> None:
    with FakeRegistry() as registry:
        add_rich_image(registry)
        reference = f"docker://{registry.host}/team/rich:1"
        (done,) = unpack(both, reference)
    environ = both.variables()
    if both.uid == os.getuid():
        assert node_cache.find_by_reference(reference, "", environ) == done["root"]
    root = Path(done["root"])
    assert (root / "data/replaced").read_bytes() == b"above"
    assert (root / "data/setuid").stat().st_mode & 0o7777 == 0o755
    assert (root / ".singularity.d/runscript").exists()
    assert json.loads((root.parent / "oci-config.json").read_bytes())["WorkingDir"] == "/data"
    (again,) = unpack(both, reference)  # the registry is gone
    assert (again["root"], again["unpacked"]) == (done["root"], False)
    assert not list((both.folder / "cache").rglob("*.sif"))


def test_unpack_policies_say_when_the_registry_is_asked(runner: Runner) -> None:
    with FakeRegistry() as registry:
        reference = f"docker://{registry.host}/team/rich:1"
        add_rich_image(registry)
        unpack(runner, reference)
        tars = [*rich_layers(), layer(file("data/newer", b"new"))]
        registry.add_image("team/rich", "1", [compress(tar) for tar in tars], make_config(tars))
        (old,) = unpack(runner, "--pull", "missing", reference)
        (new,) = unpack(runner, "--pull", "newer", reference)
        (same,) = unpack(runner, "--pull", "newer", reference)
        (forced,) = unpack(runner, "--pull", "always", reference)
        unknown = runner.run("unpack", "--pull", "never", f"docker://{registry.host}/team/rich:2")
    assert not (Path(old["root"]) / "data/newer").exists()
    assert (Path(new["root"]) / "data/newer").read_bytes() == b"new"
    assert (new["unpacked"], same["unpacked"], forced["unpacked"]) == (True, False, True)
    assert forced["root"] == new["root"]
    assert unknown.returncode == ImageNotFound.exit_code
    assert len(images(runner)) == 2


def test_exec_runs_the_image_of_the_architecture_that_is_asked_for(runner: Runner) -> None:
    own, other = ("arm64", "amd64") if os.uname().machine == "aarch64" else ("amd64", "arm64")
    shell = file("bin/sh", read_busybox(), mode=0o755)
    settings = runner.folder / "settings.toml"
    settings.write_text(f'architecture = "{other}"\n')
    settings.chmod(0o644)
    with FakeRegistry() as registry:
        found = []
        for architecture in (own, other):
            tar = layer(shell, file("which", architecture.encode()))
            config = make_config([tar], {}, architecture=architecture)
            digest = registry.add_image("team/two", architecture, [compress(tar)], config)
            size = len(registry.manifests["team/two", architecture][0])
            platform = {"os": "linux", "architecture": architecture}
            found.append({"mediaType": OCI_MANIFEST, "digest": str(digest), "size": size, "platform": platform})
        index = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": found}).encode()
        registry.add_manifest("team/two", "1", index, OCI_INDEX)
        words = (f"docker://{registry.host}/team/two:1", "/bin/sh", "-c", "read x </which; echo $x")
        ways: list[tuple[tuple[str, ...], dict[str, str], str]] = [
            ((), {}, own),
            (("--arch", other), {}, other),
            (("--arch", own), {"APPTAINER_PULL_ARCH": other}, own),
            ((), {"APPTAINER_PULL_ARCH": other}, other),
            ((), {"KEDGE_SITE_CONFIG": str(settings)}, other),
        ]
        for flags, env, expected in ways:
            assert runner.read("exec", *flags, *words, env=env).strip() == expected, (flags, env)


def test_unpack_archives_files_of_registries_and_host_programs(runner: Runner) -> None:
    with FakeRegistry() as registry:
        add_rich_image(registry)
        reference = f"docker://{registry.host}/team/rich:1"
        archive = runner.home / "rich.tar"
        runner.read("pull", f"oci-archive:{archive}", reference)
        runner.read("pull", str(runner.home / "rich.sif"), reference)
        runner.read("push", str(runner.home / "rich.sif"), f"oras://{registry.host}/sif/rich:1")
        found = unpack(runner, reference, f"oci-archive:{archive}", f"oras://{registry.host}/sif/rich:1")
    assert [each["unpacked"] for each in found] == [True, False, True], "an archive of the same image is the same image"
    for each in found:
        assert (Path(each["root"]) / "data/replaced").read_bytes() == b"above"
    (packed,) = unpack(runner, "host:/bin/true")
    assert (Path(packed["root"]) / "bin").exists()


def test_unpack_once_for_six_at_once(runner: Runner) -> None:
    path = put_squashfs(runner, files=200, size=20_000)
    started = [runner.start("unpack", "--json", "-v", str(path), pipes="stdout stderr") for _ in range(6)]
    answers = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0] * 6, answers
    found = [json.loads(out)[0] for out, _ in answers]
    assert sum(each["unpacked"] for each in found) == 1
    assert len({each["root"] for each in found}) == 1
    assert len(images(runner)) == 1


def test_unpack_that_is_killed_leaves_nothing_that_counts(runner: Runner) -> None:
    path = put_squashfs(runner, files=1200, size=12_000)
    folder = runner.folder / "node/images"
    process = subprocess.Popen(
        runner.argv("unpack", str(path)), env=runner.variables(), cwd=runner.home, start_new_session=True
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not list(folder.glob(".kedge-tmp-*/root/many/*")):
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.02)
    assert all(name.startswith(".kedge-tmp-") for name in images(runner))
    (done,) = unpack(runner, path)
    assert done["unpacked"]
    assert len(list((Path(done["root"]) / "many").iterdir())) == 1200
    assert images(runner) == [done["identity"]], "what the killed one left is gone"


def test_unpack_worker_that_is_killed_is_an_error(runner: Runner) -> None:
    path = put_squashfs(runner, files=1200, size=12_000)
    process = runner.start("unpack", "--threads", "2", str(path), pipes="stderr")
    workers: list[int] = []
    while process.poll() is None and len(workers) < 2:
        workers = [each for child in children(process.pid) for each in children(child)]
    if len(workers) < 2:
        pytest.skip("it was over before its processes could be found")
    with contextlib.suppress(ProcessLookupError):
        os.kill(workers[0], signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the worker had done its part")
    assert "killed" in said
    assert images(runner) == []


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def test_unpack_without_room_says_so_and_leaves_nothing(runner: Runner) -> None:
    path = put_squashfs(runner, files=100, size=50_000)
    with small_memory(runner.folder / "small", 4 << 20, runner.uid) as small:
        done = runner.run("unpack", str(path), env={"KEDGE_NODEDIR": str(small / "node")})
        left = [found.name for found in (small / "node/images").glob("*") if found.suffix != ".lock"]
    assert done.returncode == NoSpace.exit_code, done.stderr
    assert "KEDGE_NODEDIR=" in done.stderr
    assert "--root-from squashfuse" in done.stderr
    assert left == []


def test_unpack_full_store_is_not_taken_for_a_full_node(runner: Runner) -> None:
    with small_memory(runner.folder / "small", 1 << 20, runner.uid) as small, FakeRegistry() as registry:
        shell = [file(f"bin/{name}", read_busybox(), mode=0o755) for name in ("sh", "wc")]
        tar = layer(*shell, file("big", noise(3_000_000, "big")))
        registry.add_image("team/big", "1", [compress(tar)], make_config([tar]))
        env = {"KEDGE_CACHEDIR": str(small / "cache"), "KEDGE_TMPDIR": str(small)}
        words = ("exec", f"docker://{registry.host}/team/big:1", "/bin/sh", "-c", "exec wc -c </big")
        refused = runner.run(*words, env=env)
        assert not registry.server.seen("GET .*/blobs/")
        left = [path.name for path in small.iterdir() if path.name != "cache"]
        done = runner.run(*words, env={**env, "KEDGE_TMPDIR": str(runner.home)})
    assert refused.returncode == 255
    assert "--tmpdir " in refused.stderr
    assert left == []
    assert (done.returncode, done.stdout.strip()) == (0, "3000000"), done.stderr
    assert not list(runner.home.glob("kedge-store*"))
    for said in (refused.stderr, done.stderr):
        assert_says(said, "image/cache-not-used-download")
        assert "KEDGE_CACHEDIR=" in said
        assert "KEDGE_NODEDIR=" not in said
        assert "squashfuse" not in said


def test_unpack_evicts_the_longest_unused_but_nothing_held(runner: Runner) -> None:
    roots = []
    for number, name in enumerate(("a", "b", "c")):
        (done,) = unpack(runner, put_squashfs(runner, name, size=100_000))
        roots.append(Path(done["root"]))
        used = time.time() - 1000 + number
        os.utime(roots[-1].parent / "lock", (used, used))
    held = os.open(roots[0].parent / "lock", os.O_RDONLY)
    try:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_SH)
        done_d = runner.run("unpack", str(put_squashfs(runner, "d", size=100_000)), env={"KEDGE_NODE_LIMIT": "10M"})
        assert done_d.returncode == 0, done_d.stderr
        assert "removed the unpacked" in done_d.stderr
        assert [root.exists() for root in roots] == [True, False, True]
        cleaned = json.loads(runner.read("cache", "clean", "--node", "--json"))
    finally:
        os.close(held)
    assert len(cleaned["removed"]) == 2
    assert roots[0].exists()
    listed = json.loads(runner.read("cache", "list", "--json", "--type", "unpacked"))
    assert [each["name"] for each in listed] == [str(runner.folder / "a")]
    runner.read("cache", "clean", "--node")
    assert images(runner) == []


def test_unpack_never_takes_an_image_from_a_program_that_closed_its_lock(runner: Runner) -> None:
    image = str(runner.home / "image.sif")
    runner.read("convert", str(give_to(runner, make_sandbox(runner.folder / "sandbox"))), image)
    (done,) = unpack(runner, image)
    close_all = "; ".join(f"exec {number}>&-" for number in range(3, 10))
    for option in ("--userns", "--underlay", "--writable-tmpfs"):
        script = f"{close_all}; echo ready; read x; ls /bin/sh"
        words = ("exec", "--root-from", "unpack", option, image, "sh", "-c", script)
        process = runner.start(*words, pipes="stdin stdout")
        assert process.stdout.readline() == "ready\n"
        listed = json.loads(runner.read("cache", "list", "--json", "--type", "unpacked"))
        cleaned = json.loads(runner.read("cache", "clean", "--node", "--json"))
        (again,) = unpack(runner, "--pull", "always", image)  # another takes its place meanwhile
        said, _ = process.communicate("\n", timeout=30)
        assert ([each["in_use"] for each in listed], cleaned["removed"]) == ([True], []), option
        assert again["root"] == done["root"]
        assert said == "/bin/sh\n", option
    runner.read("cache", "clean", "--node")
    assert images(runner) == []


def test_unpack_refuses_a_file_that_changes_meanwhile(both: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    if both.uid != os.getuid():
        pytest.skip("in this process, as its own user")
    from kedge.image.layers.unpack_squashfs import TreeExtractor
    from kedge.image.unpack import unpack as unpack_image
    from kedge.image.workplace import Workplace
    from kedge.system.settings import Settings

    path, other = put_squashfs(both), put_squashfs(both, "other.sqsh")
    extract = TreeExtractor.extract

    def replace(self: TreeExtractor, root: Node, target: Path) -> None:
        other.replace(path)
        extract(self, root, target)

    monkeypatch.setattr(TreeExtractor, "extract", replace)
    for name, value in both.variables().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FileProblem, match="changed while kedge unpacked it"):
        unpack_image(str(path), Workplace(Settings.load()))
    assert images(both) == []


def test_unpack_makes_a_broken_image_again(runner: Runner) -> None:
    path = put_squashfs(runner)
    (done,) = unpack(runner, path)
    (Path(done["root"]).parent / "info").unlink()  # as a cleaner of /tmp does
    (again,) = unpack(runner, path)
    assert again["unpacked"]
    assert again["root"] == done["root"]
    assert len(images(runner)) == 1


def test_unpack_refuses_ext3_with_a_remedy(runner: Runner) -> None:
    path = runner.folder / "old.img"
    path.write_bytes(bytes(1080) + b"\x53\xef" + bytes(4000))
    path.chmod(0o644)
    done = runner.run("unpack", str(path))
    assert done.returncode == UnsupportedFormat.exit_code
    assert_says(done.stderr, "image/only-mount")
