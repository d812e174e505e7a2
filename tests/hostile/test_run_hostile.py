# SPDX-License-Identifier: BSD-3-Clause
"""Images that mean harm, run for real: what lies outside of them is neither read nor changed.

A canary lies on the host where no bind leads. After every start it must be as it was, and no output may hold its text.
As an ordinary user; as root, too, where root mounts or the kernel decides otherwise.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kedge.system.confined_paths import remove_tree
from tests.builders.busybox import read_busybox
from tests.builders.containers import APPLETS, Runner, each_role, give_to, make_sandbox
from tests.builders.images import MACHINE
from tests.builders.matrices import EVERY
from tests.builders.oci_archive import Entry, OciArchive
from tests.builders.rows import each_row
from tests.programs import read_program
from tests.requirements import require_program
from tests.wording import assert_says

SECRET = "text-of-the-canary"
OUT = ("--no-mount", "tmp,home,cwd")  # nothing of the directory that the canary is in
WAYS = ((), ("--contain",), ("--underlay",), ("--writable",), ("--writable-tmpfs",))
# Every place that a start mounts on, reads or writes; those that can be broken together are.
PLACES = (
    ("tmp", "var/tmp", "sys", "home", "root", "mnt", ".singularity.d/libs", ".singularity.d/runscript"),
    ("etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf", "etc/localtime", "etc/hostname"),
    ("etc",),
    ("proc",),
    ("dev",),
    (".singularity.d",),
    (".singularity.d/env", "bin/sh"),
)
KINDS = ("pipe", "socket", "device", "folder")
AS_BOTH = pytest.mark.parametrize("runner", ["user", "root"], indirect=True, scope="module")
LINKS = (
    *("/", "{canary}", "{canary}/secret", "{canary}/new", "../../../../../../../..{canary}"),
    *("/proc/self/root{canary}", "/proc/self/fd/3", "/proc/1/root{canary}", "/proc/self/cwd", "itself", "/hop"),
)


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield from each_role(getattr(request, "param", "user"))


@pytest.fixture(scope="module")
def plain(runner: Runner) -> Path:
    return give_to(runner, make_sandbox(runner.folder / "plain", environment="export FROM_IMAGE=yes"))


class Canary:
    """A directory of the caller's that nothing in an image may touch."""

    def __init__(self, runner: Runner) -> None:
        self.path = runner.folder / "canary"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        (self.path / "secret").write_text(SECRET)
        (self.path / "folder").mkdir()
        give_to(runner, self.path)
        self.before = self.look()

    def look(self) -> list[tuple[str, int, int, int]]:
        """All that is there, with modes and times."""
        found = [(path, path.lstat()) for path in (self.path, *sorted(self.path.rglob("*")))]
        return [(str(path), status.st_mode, status.st_mtime_ns, status.st_nlink) for path, status in found]

    def check(self, done: subprocess.CompletedProcess[str], *, about: object = "") -> None:
        """Nothing was touched, nothing was read, and a failure was said in words."""
        said = f"{about}\n{done.stdout}{done.stderr}"
        assert self.look() == self.before, said
        assert SECRET not in said, said
        assert "Traceback" not in done.stderr, said
        assert "this is a bug" not in done.stderr, said


@pytest.fixture
def canary(runner: Runner) -> Canary:
    return Canary(runner)


@pytest.fixture
def image(runner: Runner, plain: Path) -> Iterator[Path]:
    """A copy of the plain image, to be spoilt."""
    folder = runner.folder / "spoilt"
    yield copy_image(plain, folder)
    shutil.rmtree(folder, ignore_errors=True)


def copy_image(plain: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(plain, folder, symlinks=True)
    return folder


def clear(path: Path) -> Path:
    """Remove what is in a place, so that something else can be."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def spoil(image: Path, places: tuple[str, ...], link: str) -> None:
    (image / "hop").symlink_to("hop2/../hop2")
    (image / "hop2").symlink_to("/proc/self/fd/../root/tmp")
    for place in places:
        path = clear(image / place)
        path.symlink_to(path.name if link == "itself" else link)


@AS_BOTH
@EVERY
@each_row("link", LINKS)
def test_links_in_the_places_of_a_start_lead_nowhere(runner: Runner, plain: Path, link: str, is_every: bool) -> None:
    """Each link in a place, and each place with a link; `make test-all` tries all pairs."""
    if is_reason_of(runner, link) or is_every:
        try_link(runner, plain, link, PLACES if is_every else [PLACES[LINKS.index(link) % len(PLACES)]])


def is_reason_of(runner: Runner, link: str) -> bool:
    """The kernel follows a link in the same way for all; but some that lead through /proc it follows for root alone."""
    return runner.uid != 0 or link.startswith("/proc/") or link == "{canary}"


def try_link(runner: Runner, plain: Path, link: str, groups: Iterable[tuple[str, ...]]) -> None:
    canary = Canary(runner)
    script = f"cat {canary.path}/secret; cat /tmp/secret /etc/passwd /mnt/secret; ls -d /; echo reached"
    for places in groups:
        image = copy_image(plain, runner.folder / "spoilt")
        spoil(image, places, link.format(canary=canary.path))
        give_to(runner, image)
        number = LINKS.index(link) + PLACES.index(places)
        for way in {WAYS[0], WAYS[number % len(WAYS)]}:
            words = (*way, "-B", f"{runner.home}:/mnt/deep", str(image), "/bin/busybox", "sh", "-c", script)
            done = runner.run("exec", *OUT, *words, cwd="/")
            canary.check(done, about=(places, link, way))
            assert ("reached" in done.stdout) == (done.returncode == 0), done.stderr
            assert done.returncode in (0, 255), done.stderr
        shutil.rmtree(image)


@AS_BOTH
@each_row("link", LINKS)
def test_links_in_place_of_the_program_or_the_folder(runner: Runner, plain: Path, canary: Canary, link: str) -> None:
    if not is_reason_of(runner, link):
        return
    image = copy_image(plain, runner.folder / "spoilt")
    (image / "place").symlink_to("place" if link == "itself" else link.format(canary=canary.path))
    (image / "hop").symlink_to("/proc/self/root/..")
    give_to(runner, image)
    for words in (
        ("--pwd", "/place", str(image), "cat", "secret"),
        (str(image), "/place/bin/busybox", "cat", "secret"),
    ):
        done = runner.run("exec", *OUT, *words, cwd="/")
        canary.check(done, about=words)
        assert done.returncode in (1, 255)
    shutil.rmtree(image)


@AS_BOTH
@EVERY
@each_row("places", PLACES)
def test_odd_files_in_the_places_of_a_start_do_not_stop_it(
    runner: Runner, plain: Path, canary: Canary, places: tuple[str, ...], is_every: bool
) -> None:
    """Each place has code of its own for each kind, which a user runs; each way mounts otherwise, and root does."""
    for kind, way in itertools.product(KINDS, WAYS[:3]):
        place, number = PLACES.index(places), KINDS.index(kind)
        turn = WAYS.index(way) == (place + number if runner.uid else place) % 3
        if (kind == "device" and os.getuid() != 0) or not (is_every or (turn and (runner.uid or number == place % 4))):
            continue
        image = copy_image(plain, runner.folder / "spoilt")
        for each in places:
            make_odd(clear(image / each), kind)
        give_to(runner, image)
        done = runner.run("exec", *way, str(image), "/bin/busybox", "echo", "reached", cwd="/")
        canary.check(done, about=(places, kind, way))
        assert done.returncode in (0, 255)
        shutil.rmtree(image)


def make_odd(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.chdir(path.parent)  # the whole path is too long for a socket's name
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
        os.chdir("/")
    elif kind == "device":
        os.mknod(path, 0o20666, os.makedev(1, 5))  # /dev/zero, which never ends
    else:
        path.mkdir()


def limited(runner: Runner, *words: str) -> subprocess.CompletedProcess[str]:
    """With little memory and little time: whoever reads without end has neither."""
    argv = [require_program("prlimit"), f"--as={1 << 30}", "--cpu=20", *runner.argv(*words)]
    return subprocess.run(
        argv, env=runner.variables(), cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def test_huge_files_are_not_read_to_their_end(runner: Runner, image: Path) -> None:
    for name in ("etc/passwd", "etc/group", "etc/hosts", "etc/localtime", "etc/ld.so.conf", "etc/ld.so.cache"):
        (image / name).touch()
        os.truncate(image / name, 10 << 30)
    done = limited(runner, "exec", str(image), "echo", "reached")
    assert done.stdout == "reached\n", done.stderr


def test_huge_environment_scripts_are_refused(runner: Runner, image: Path) -> None:
    script = image / ".singularity.d/env/50-huge.sh"
    script.touch()
    os.truncate(script, 1 << 30)
    done = limited(runner, "exec", str(image), "true")
    assert done.returncode == 255
    assert_says(done.stderr, "run/image-too-large-environment-script", "50-huge.sh")


def test_endless_environment_scripts_are_refused(runner: Runner, image: Path) -> None:
    for number in range(2_500):
        (image / f".singularity.d/env/50-{number}.sh").symlink_to("90-environment.sh")
    done = limited(runner, "exec", str(image), "true")
    assert done.returncode == 255
    assert_says(done.stderr, "run/image-too-many-environment-scripts", 25)


def test_variables_that_grow_without_end_are_left_to_a_shell(runner: Runner, image: Path) -> None:
    text = "A=0123456789abcdef\n" + "A=$A$A\n" * 60 + "export A\n"
    (image / ".singularity.d/env/50-grows.sh").write_text(text)
    (image / "bin/sh").unlink()  # which there is none of: the script is left out
    done = limited(runner, "exec", str(image), "/bin/busybox", "echo", "reached")
    assert done.stdout == "reached\n", done.stderr
    assert "50-grows.sh is skipped" in done.stderr


def test_passwd_lines_that_name_the_caller_change_nothing_but_names(runner: Runner, image: Path) -> None:
    lines = [
        f"evil:x:{runner.uid}:0:\x1b[2J:/canary:/bin/evil",
        f"root:x:{runner.uid}:{runner.uid}::/:/bin/sh",
        f"::{runner.uid}:::::::",
        f"x:x:{runner.uid}",
        "\0\0\0",
        ":" * 5000,
    ]
    (image / "etc/passwd").write_text("\n".join(lines))
    (image / "etc/group").write_text(f"evil:x:{runner.uid}:{'a,' * 5000}\n:::")
    said = runner.read("exec", str(image), "sh", "-c", "id -u; id -g", cwd="/")
    assert said.split() == [str(runner.uid), str(runner.uid)]


@AS_BOTH
def test_setuid_and_capabilities_give_nothing(runner: Runner, image: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs real root")
    give_to(runner, image)
    for name, owner in (("busybox-root", 0), ("busybox-other", 1234)):
        (image / "bin" / name).write_bytes(read_busybox())
        os.chown(image / "bin" / name, owner, owner)
        (image / "bin" / name).chmod(0o6755)
    capable = image / "bin/busybox-capable"
    capable.write_bytes(read_busybox())
    capable.chmod(0o755)
    os.setxattr(
        capable, "security.capability", bytes.fromhex("010000 02ff ffff 1f 00 00 00 00 ff 01 00 00 00 00 00 00")
    )
    for way in (WAYS[0], WAYS[3]):
        for name in ("busybox-root", "busybox-other"):
            said = runner.read(
                "exec", *way, str(image), f"/bin/{name}", "sh", "-c", "id -u; grep Uid: /proc/self/status"
            )
            assert set(said.split()) == {"Uid:", str(runner.uid)}
        own = runner.read("exec", *way, str(image), "grep", "-E", "Cap|NoNewPrivs", "/proc/self/status")
        said = runner.read(
            "exec", *way, str(image), "/bin/busybox-capable", "grep", "-E", "Cap|NoNewPrivs", "/proc/self/status"
        )
        assert said == own
        assert "NoNewPrivs:\t1" in said
        if runner.uid != 0:
            assert "CapEff:\t0000000000000000" in said


def test_devices_of_an_image_cannot_be_used(runner: Runner, image: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs real root")
    os.mknod(image / "etc/memory", 0o20666, os.makedev(1, 5))
    (image / "etc/memory").chmod(0o666)
    for way in WAYS:
        done = runner.run("exec", *way, str(image), "head", "-c", "1", "/etc/memory")
        assert done.returncode == 1, way
        assert "ermission" in done.stderr


def test_environment_of_an_image_acts_only_inside(runner: Runner, image: Path, canary: Canary) -> None:
    names = ("APPTAINER_BIND", "SINGULARITY_BIND", "APPTAINER_BINDPATH", "KEDGE_BIND", "APPTAINER_OVERLAY")
    lines = [f"export {name}={canary.path}:/mnt" for name in names]
    lines += [f"export {name}={canary.path}" for name in ("KEDGE_NODEDIR", "TMPDIR", "PYTHONPATH", "XDG_CONFIG_HOME")]
    lines += ["export LD_PRELOAD=/evil.so LD_LIBRARY_PATH=/evil PATH=/bin:/proc/self/fd/3/bin", "export NO_PRIVS=0"]
    (image / ".singularity.d/env/90-environment.sh").write_text("\n".join(lines))
    done = runner.run("exec", *OUT, str(image), "sh", "-c", "ls -A /mnt; env", cwd="/")
    assert done.returncode == 0
    assert "LD_PRELOAD=/evil.so" in done.stdout
    assert "secret" not in done.stdout
    assert "evil" not in done.stderr
    canary.check(done)


def oci(runner: Runner, config: dict[str, object], *more: Entry) -> str:
    """An archive of one layer that is run as it is."""
    entries = [Entry(name) for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "var", "var/tmp")]
    entries += [Entry("bin/busybox", read_busybox()), Entry("etc/passwd", b"root:x:0:0::/:/bin/sh\n", mode=0o644)]
    entries += [Entry(f"bin/{name}", target="busybox") for name in APPLETS]
    path = runner.folder / "hostile.tar"
    OciArchive([*entries, *more], config, MACHINE).write(path)
    path.chmod(0o644)
    return f"oci-archive:{path}"


FOLDERS = (*(f"/proc/self/fd/{n}" for n in range(3, 13)), "/proc/1/root", "/proc/1/cwd", "/proc/self/cwd")


@pytest.mark.parametrize("runner", ["root"], indirect=True, scope="module")
def test_working_folder_is_in_the_image(runner: Runner, plain: Path, canary: Canary) -> None:
    """Every descriptor that kedge may have open, and every other name, by root; by users: attacks/test_places.py."""
    paths = " ".join(f"{'../' * depth}.{canary.path}/secret" for depth in range(6))
    for folder in FOLDERS:
        words = ("exec", *OUT, "--pwd", folder, str(plain), "/bin/sh", "-c", f"pwd; cat {paths}")
        done = runner.run(*words, cwd="/")
        canary.check(done, about=folder)
        assert done.returncode in (1, 255), folder


# What an image names goes the same way as what the caller names above: one kind of each is enough
@each_row("folder", ("/proc/self/fd/3", "/proc/1/root"))
def test_working_folder_of_an_image_is_in_the_image(runner: Runner, canary: Canary, folder: str) -> None:
    try_working_folder(runner, canary, folder)


def try_working_folder(runner: Runner, canary: Canary, folder: str) -> None:
    paths = " ".join(f"{'../' * depth}.{canary.path}/secret" for depth in range(6))
    image = oci(runner, {"WorkingDir": folder, "Entrypoint": ["/bin/sh", "-c", f"pwd; cat {paths}"]})
    done = runner.run("run", *OUT, image, cwd="/")
    canary.check(done, about=folder)
    assert done.returncode == 1
    assert done.stdout.startswith("/")


@AS_BOTH
def test_program_of_an_image_is_in_the_image(runner: Runner, plain: Path, canary: Canary) -> None:
    """Named by the caller through every descriptor that kedge may have open; and by an image, which is the same."""
    program = shutil.copy(plain / "bin/busybox", canary.path)
    canary.before = canary.look()
    starts = (*(f"/proc/self/fd/{number}" for number in range(3, 13)), "/proc/self/root/..")
    tries = [("exec", *OUT, str(plain), f"{start}{program}", "cat", f"{canary.path}/secret") for start in starts]
    image = oci(runner, {"Entrypoint": [f"{starts[0]}{program}", "cat", f"{canary.path}/secret"]})
    for words in (*tries, ("run", *OUT, image)):
        done = runner.run(*words, cwd="/")
        canary.check(done, about=words)
        assert done.returncode == 255, words


CONFIGS: tuple[dict[str, object], ...] = (
    {"Env": ["A\nexport B=evil=1", "=x", "", "C D=1", "$(touch /tmp/x)=1", "E=`id`\n$(id)\0"]},
    {"Env": ["PATH=/bin", "X=\0", "Y=\ud800"], "Cmd": ["/bin/echo", "\ud800", "a\0b"]},
    {"WorkingDir": "/a\0b"},
    {"WorkingDir": "/\ud800"},
    {"WorkingDir": "/etc\n/tmp"},
    {"Entrypoint": ["\0"]},
    {"User": "root:root\n", "Labels": {"\n": "\0"}, "Volumes": {"../../x": {}}},
)


@AS_BOTH
@each_row("config", CONFIGS)
def test_config_of_an_image_is_refused_or_harmless(runner: Runner, canary: Canary, config: dict[str, object]) -> None:
    """It is read in the same way for all; but what User means differs for root."""
    if runner.uid == 0 and "User" not in config:
        return
    image = oci(runner, config)
    done = runner.run("exec", *OUT, image, "env", cwd="/")
    canary.check(done, about=config)
    assert "B=evil" not in done.stdout.splitlines()
    if done.returncode == 0:
        canary.check(runner.run("run", *OUT, image, "/bin/true", cwd="/"), about=config)


SWAP = read_program("swap_link_and_directory")


@contextlib.contextmanager
def swapping(runner: Runner, image: Path, target: Path, *names: str) -> Iterator[None]:
    """Another process of the same user that puts links in the place of folders and takes them away, all the time."""
    for name in names:
        (image / f"link-{name}").symlink_to(target)
    give_to(runner, image)
    with subprocess.Popen([sys.executable, "-c", SWAP, str(image), *names]) as process:
        try:
            yield
        finally:
            process.kill()


# Points are made or found: by a user, in a namespace of the user's own, and by root, on the host's file system
@AS_BOTH
@pytest.mark.parametrize("has_points", [False, True])
@EVERY
def test_links_swapped_by_another_container_lead_nowhere(
    runner: Runner, image: Path, canary: Canary, has_points: bool, is_every: bool
) -> None:
    """Promised: nothing outside is changed. Not promised: that a start whose image changes meanwhile succeeds."""
    (image / "mnt").mkdir()
    for name in ("mnt/deep", "tmp/new/er") if has_points else ():
        (image / name).mkdir(parents=True)
    with swapping(runner, image, canary.path, "tmp", "mnt", "etc"):
        for way in WAYS * (3 if is_every else 1):
            words = ("-B", f"{runner.home}:/mnt/deep", "-B", f"{runner.home}/:/tmp/new/er", str(image))
            done = runner.run("exec", *OUT, *way, *words, "cat", "/tmp/secret", "/mnt/secret", "/etc/secret", cwd="/")
            canary.check(done, about=way)


@AS_BOTH
@EVERY
def test_folders_of_an_overlay_that_are_swapped_lead_nowhere(
    runner: Runner, plain: Path, canary: Canary, is_every: bool
) -> None:
    layer = runner.folder / "layer"
    for name in ("upper", "work"):
        (layer / name).mkdir(parents=True, exist_ok=True)
    with swapping(runner, layer, canary.path, "upper", "work"):
        for _ in range(8 if is_every else 3):
            words = ("exec", *OUT, "--overlay", str(layer), str(plain), "sh", "-c", "echo 1 >/new; cat /secret")
            canary.check(runner.run(*words, cwd="/"))
    remove_tree(layer)


def test_links_left_in_a_scratch_folder_lead_nowhere(runner: Runner, plain: Path, canary: Canary) -> None:
    work = runner.home / "work"
    work.mkdir()
    give_to(runner, work)
    words = ("exec", *OUT, "--workdir", str(work), "--scratch")
    assert runner.run(*words, "/a", str(plain), "ln", "-s", str(canary.path), "/a/b").returncode == 0
    for place in ("/a/b", "/a/b/c"):
        done = runner.run(*words, place, str(plain), "cat", "/a/b/secret")
        canary.check(done)
        assert_says(done.stderr, "run/workdir-needs-directory")
    shutil.rmtree(work)


@AS_BOTH
@each_row("target", ["", "/new"])
def test_links_in_place_of_the_folders_of_an_overlay(runner: Runner, plain: Path, canary: Canary, target: str) -> None:
    layer = runner.folder / "layer"
    for name in ("upper", "work"):
        remove_tree(layer)
        layer.mkdir()
        (layer / name).symlink_to(f"{canary.path}{target}")
        give_to(runner, layer)
        words = ("exec", *OUT, "--overlay", str(layer), str(plain), "sh", "-c", "echo 1 >/new; cat /secret")
        done = runner.run(*words, cwd="/")
        canary.check(done)
        assert done.returncode == 255
    remove_tree(layer)
