# SPDX-License-Identifier: BSD-3-Clause
"""Starts that cannot be, and starts that can although much is missing, for real and as an ordinary user.

What kedge cannot do is one sentence that says what and where, a remedy, status 255, and nothing left behind.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import USER, Runner, give_to, list_left, make_runner, make_sandbox
from tests.builders.rows import each_row
from tests.programs import read_program
from tests.requirements import REPOSITORY, require_program, require_root, require_user_namespaces

TMPFS = "mount -t tmpfs -o {} tmpfs {}\n"
FULL = "head -c 100k /dev/zero > {}/full || :\n"


@pytest.fixture(scope="module")
def packed(runner: Runner, image: str) -> Path:
    return pack(image, runner.folder / "image.sqsh")


def pack(image: str, path: Path) -> Path:
    words = [require_program("mksquashfs"), image, str(path), "-quiet", "-no-progress", "-noappend"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    path.chmod(0o644)
    return path


def check_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One error, in words, with a remedy."""
    said = done.stderr
    assert done.returncode == 255, f"{done.stdout}{said}"
    assert done.stdout == ""
    assert "Traceback" not in said
    assert "this is a bug" not in said
    errors = [line for line in said.splitlines() if line.startswith("kedge: ") and "warning:" not in line]
    assert len(errors) == 1, said
    assert said.count("hint: ") == 1, said
    for word in words:
        assert word in said, said


@each_row(
    ("words", "said"),
    [
        (("/no/such.sif",), ("no such file or directory: /no/such.sif",)),
        (("ubuntu",), ("no such file or directory: ubuntu", "docker://ubuntu")),
        (("{folder}/empty",), ("is not a SIF image: it is an empty file", "empty")),
        (("{folder}/text",), ("is not a SIF image", "a directory with a root file system")),
        (("{folder}/nothing",), ("is an empty directory, not an image",)),
        (("{folder}/cut.sqsh",), ("cut.sqsh is truncated or damaged", "fetch the file again")),
        (("{folder}/damaged.sqsh",), ("damaged", "damaged.sqsh", "fetch it again")),
        (("--root-from", "unpack", "{folder}/damaged.sif"), ("damaged", "damaged.sif", "fetch it again")),
        (("{folder}/closed.sqsh",), ("closed.sqsh: Permission denied",)),
        (
            ("-B", "/no/such:/data", "{image}"),
            ("cannot bind /no/such to /data: it does not exist on this host", "--bind"),
        ),
        (("-B", "a:b:c:d", "{image}"), ("has more than three parts", "SOURCE[:DESTINATION[:OPTIONS]]")),
        (("-B", "/etc/hosts:/etc", "{image}"), ("cannot bind host:/etc/hosts to container:/etc",)),
        (("--overlay", "/no/such", "{image}"), ("cannot use the overlay /no/such", "kedge overlay create")),
        (("--overlay", "/proc/self", "{image}"), ("/proc/self", "--writable-tmpfs")),
        (("--overlay", "/usr", "{image}"), ("no write permission for /usr", "--overlay /usr:ro")),
        (("--overlay", "{folder}/text", "{image}"), ("text", "an overlay is a directory")),
        (("--writable", "{image}.sqsh"), ("--writable cannot change", "--overlay DIRECTORY")),
        (("--pwd", "/no/such", "{image}"), ("cannot change to /no/such", "another --pwd")),
        (("--root-from", "kernel", "{image}.sqsh"), ("--root-from kernel does not work on this node",)),
        (("--nonsense", "{image}"), ("has no option --nonsense",)),
        (("instance://nothing",), ("no instance 'nothing'",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_exec_refuses_bad_input_in_one_sentence(runner, image, packed, words, said):
    folder = make_bad_files(runner, packed)
    places = ("home", "node", "cache")
    before = list_left(runner, *places)
    asked = [word.format(folder=folder, image=image) for word in words]
    check_refused(runner.run("exec", *asked, "/bin/true"), *said)
    after = [path for path in list_left(runner, *places) if path not in before and not path.endswith(".lock")]
    unpacked = [path for path in after if "/images/" in path]  # an image that is whole may stay so, with its record
    assert not [path for path in after if path not in unpacked and not (unpacked and "/files/" in path)], after
    assert not list((runner.folder / "node").glob("images/.kedge*"))


def make_bad_files(runner: Runner, packed: Path) -> Path:
    folder = runner.folder / "bad"
    if folder.exists():
        return folder
    (folder / "nothing").mkdir(parents=True)
    (folder / "empty").touch()
    (folder / "text").write_text("#!/bin/sh\necho no image\n")
    data = bytearray(packed.read_bytes())
    (folder / "cut.sqsh").write_bytes(data[: len(data) // 2])
    (folder / "closed.sqsh").write_bytes(data)
    (folder / "closed.sqsh").chmod(0o000)
    data[1000:3000] = bytes(2000)
    (folder / "damaged.sqsh").write_bytes(data)
    runner.read("convert", "-q", str(packed), str(runner.home / "whole.sif"))
    data = bytearray((runner.home / "whole.sif").read_bytes())
    (runner.home / "whole.sif").unlink()
    place = data.index(b"hsqs") + 1000
    data[place : place + 2000] = bytes(2000)
    (folder / "damaged.sif").write_bytes(data)
    return folder


def test_exec_refuses_another_machines_image(runner: Runner, packed: Path) -> None:
    other = "amd64" if os.uname().machine == "aarch64" else "arm64"
    path = runner.folder / "other.sif"
    path.unlink(missing_ok=True)
    runner.read("convert", "-q", str(packed), str(runner.home / "other.sif"))
    data = bytearray((runner.home / "other.sif").read_bytes())
    codes = {"amd64": b"02\0", "arm64": b"04\0"}
    own = codes["arm64" if other == "amd64" else "amd64"]
    for place in [place for place in range(0, 8192) if data[place : place + 3] == own]:
        data[place : place + 3] = codes[other]
    path.write_bytes(data)
    check_refused(runner.run("exec", str(path), "true"), "other.sif", os.uname().machine)


def test_exec_of_a_damaged_image_that_is_mounted_names_the_damage(runner: Runner, packed: Path) -> None:
    require_program("squashfuse")
    folder = make_bad_files(runner, packed)
    done = runner.run("exec", "--root-from", "squashfuse", str(folder / "damaged.sqsh"), "/bin/true")
    check_refused(done, "is damaged: pull or build the image again")


# -- a machine on which much is missing


@pytest.fixture(scope="module")
def machine() -> Iterator[Runner]:
    """A user whose directories are not in /tmp, so that /tmp can be anything."""
    require_root()
    require_user_namespaces()
    if str(REPOSITORY).startswith(("/tmp/", "/var/tmp/")):
        pytest.skip("the test covers the checkout, which lies in /tmp or /var/tmp")
    with tempfile.TemporaryDirectory(prefix="kedge-machine-", dir="/var/lib", ignore_cleanup_errors=True) as folder:
        made = make_runner(Path(folder), USER)
        pack(str(give_to(made, make_sandbox(made.folder / "image"))), made.folder / "image.sqsh")
        yield made


def run_on(machine: Runner, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`kedge exec` after root has changed the machine, in a mount namespace that ends with it."""
    start = [require_program("unshare"), "-m", "--propagation", "private", "sh", "-ec", f'{script}\nexec "$@"', "sh"]
    return machine.call([*start, *machine.argv("exec", *words)], env={"KEDGE_NODEDIR": ""}, cwd="/")


def tmpfs(options: str, *places: str) -> str:
    return "".join(TMPFS.format(options, place) for place in places)


BOTH = ("/tmp", "/var/tmp")
NO_DEVICES = (
    "mount -t tmpfs -o mode=755 tmpfs /mnt\n"
    "for name in null zero full random urandom tty; do touch /mnt/$name; mount --bind /dev/$name /mnt/$name; done\n"
    "mount --rbind /mnt /dev\n"
)
MACHINES = {
    "read-only /tmp": tmpfs("ro", "/tmp"),
    "read-only /tmp and /var/tmp": tmpfs("ro", *BOTH),
    "read-only everything": tmpfs("ro", *BOTH, "/dev/shm"),
    "noexec": tmpfs("noexec,mode=1777", *BOTH, "/dev/shm"),
    "full": tmpfs("size=64k,mode=1777", *BOTH) + "".join(FULL.format(place) for place in BOTH),
    "no /var/tmp": "mount -t tmpfs tmpfs /mnt; mkdir /mnt/lib; mount --bind /var/lib /mnt/lib; "
    "mount --rbind /mnt /var\n",
    "no /dev/shm, no /dev/fuse": tmpfs("mode=1777", *BOTH) + NO_DEVICES,
    "root's home": "chown 0:0 $HOME; chmod 700 $HOME\n",
    "read-only home": "mount --bind $HOME $HOME; mount -o remount,bind,ro $HOME\n",
}


# A directory needs no place to be unpacked to: its machines are those that lack a place for anything.
ON_MACHINES = [(name, "image.sqsh") for name in MACHINES]
ON_MACHINES += [(name, "image") for name in ("read-only everything", "noexec", "full")]


@pytest.mark.parametrize(("name", "kind"), ON_MACHINES)
def test_exec_goes_on_where_much_is_missing(machine: Runner, name: str, kind: str) -> None:
    try:
        done = run_on(machine, MACHINES[name], str(machine.folder / kind), "echo", "reached")
    finally:
        os.chown(machine.home, USER, USER)
    assert done.stdout == "reached\n", done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        (tmpfs("ro", *BOTH), ("--root-from", "unpack"), ("cannot unpack images to", "KEDGE_NODEDIR=DIRECTORY")),
        (tmpfs("ro", *BOTH) + NO_DEVICES, (), ("cannot unpack images to", "KEDGE_NODEDIR=DIRECTORY")),
        (tmpfs("size=1m,mode=1777", *BOTH), ("--root-from", "unpack"), ("/tmp", "KEDGE_NODEDIR=")),
        (
            NO_DEVICES,
            ("--root-from", "squashfuse"),
            ("--root-from squashfuse does not work", "/dev/fuse does not exist"),
        ),
    ],
    ids=["read-only", "read-only, no FUSE", "full", "no FUSE"],
)
def test_exec_says_why_it_cannot_unpack_or_mount(machine, script, words, said):
    shutil.rmtree(f"/var/tmp/kedge-{USER}", ignore_errors=True)
    check_refused(run_on(machine, script, *words, str(machine.folder / "image.sqsh"), "true"), *said)


def test_exec_overlay_on_a_file_system_that_cannot(machine: Runner) -> None:
    script = (
        "mount -t tmpfs tmpfs /mnt; cd /mnt; mkdir low up work over; chmod 777 up\n"
        "mount -t overlay -o lowerdir=low,upperdir=up,workdir=work overlay over; mkdir -m 777 over/layer; cd /\n"
    )
    done = run_on(machine, script, "--overlay", "/mnt/over/layer", str(machine.folder / "image"), "echo", "reached")
    if done.returncode == 0:  # fuse-overlayfs can
        assert done.stdout == "reached\n"
    else:
        check_refused(done, "/mnt/over/layer")
    without = (
        script + "mkdir /mnt/empty; mount --bind /mnt/empty /usr/local/bin\n" + NO_DEVICES.replace("/mnt", "/media")
    )
    done = run_on(machine, without, "--overlay", "/mnt/over/layer", str(machine.folder / "image"), "echo", "reached")
    check_refused(done, "/mnt/over/layer", "overlay")


# -- a caller who has little


def run_raw(runner: Runner, before: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    return runner.call([*before, *runner.argv("exec", *words)], cwd="/")


def test_exec_goes_on_with_small_limits(runner: Runner, image: str, packed: Path) -> None:
    """Of a packed image, which takes more of everything; of a directory with the files that it opens itself."""
    runner.read("exec", str(packed), "true")
    limits = ("--nofile=32", "--nproc=8", f"--as={100 << 20}", "--core=0", f"--stack={1 << 20}")
    for name, limit in [*((str(packed), each) for each in limits), (image, limits[0])]:
        done = run_raw(runner, [require_program("prlimit"), limit], name, "echo", "reached")
        assert done.stdout == "reached\n", f"{name} {limit}: {done.stderr}"


def find_home(uid: int) -> str:
    """What the user database says, which knows whoever runs the tests."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/"


def test_exec_goes_on_without_home_and_variables(runner: Runner, image: str) -> None:
    lost = [f"-u{name}" for name in runner.variables() if not name.startswith("PYTHON")]
    done = run_raw(runner, ["env", *lost], image, "sh", "-c", "echo reached in $HOME")
    assert done.stdout == f"reached in {find_home(runner.uid)}\n", done.stderr
    for home in ("", "relative", "/no/such/home"):
        assert runner.read("exec", image, "echo", "reached", env={"HOME": home}) == "reached\n"


def test_exec_goes_on_in_a_folder_that_is_gone(runner: Runner, image: str) -> None:
    script = 'mkdir "$HOME/gone"; cd "$HOME/gone"; rmdir "$HOME/gone"; exec "$@"'
    done = run_raw(runner, ["sh", "-c", script, "sh"], image, "pwd")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("/")


@pytest.mark.parametrize(
    ("closed", "flags"),
    [("1>&-", ()), ("0<&- 1>&- 2>&-", ()), ("0<&- 1>&- 2>&-", ("--pid",))],  # each: test_run_streams.py
)
def test_exec_goes_on_without_standard_streams(runner: Runner, image: str, closed: str, flags: tuple[str, ...]) -> None:
    script = f"echo said; for file in 0 1 2; do readlink /proc/$$/fd/$file; done > {runner.home}/streams"
    done = run_raw(runner, ["sh", "-c", f'exec "$@" {closed}', "sh"], *flags, image, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("" if "1>" in closed else "said\n")
    assert "/dev/null" in (runner.home / "streams").read_text()
    (runner.home / "streams").unlink()


def test_exec_takes_long_words_and_many_variables(runner: Runner, image: str) -> None:
    many = {f"VARIABLE_{number}": "x" * 20 for number in range(10_000)}
    assert int(runner.read("exec", image, "sh", "-c", "env | grep -c VARIABLE_", env=many)) == 10_000
    words = ("sh", "-c", "echo $# ${#1}", "x", "a" * 130_000, *["b"] * 9_999)
    assert runner.read("exec", image, *words) == "10000 130000\n"
    small = [require_program("prlimit"), f"--stack={512 << 10}"]
    done = run_raw(runner, small, image, "sh", "-c", "echo $#", "x", *["c" * 9] * 4_000)
    assert done.returncode == 0 or "together are too long" in done.stderr, done.stderr


# What has a meaning in lines of /proc, options of mounts or references: these go every way, the others the usual ones.
IN_MOUNTS = ("new\nline", "co:lon", "com,ma", "back\\slash")


@pytest.mark.parametrize(
    "name", ["new\nline", "ümläut", "co:lon", "com,ma", "quo'te\"", "back\\slash", "-da sh $(x)", "n" * 255]
)
def test_exec_takes_images_of_any_name(runner: Runner, image: str, packed: Path, name: str) -> None:
    folder = runner.folder / "names"
    folder.mkdir(exist_ok=True)
    is_special = name in IN_MOUNTS
    place = Path(image).rename(folder / name)
    try:
        assert runner.read("exec", str(place), "echo", "reached") == "reached\n"
        words = ("--contain", "--writable-tmpfs", f"./{name}", "echo", "reached")
        assert runner.read("exec", *words, cwd=folder) == "reached\n"
        if is_special:
            assert runner.read("exec", "--underlay", str(place), "echo", "reached") == "reached\n"
    finally:
        place.rename(image)
    file = shutil.copy(packed, folder / name)
    for way in ("unpack", "squashfuse") if is_special else ("squashfuse",):
        done = runner.run("exec", "--root-from", way, str(file), "echo", "reached")
        if "\n" in name and way == "unpack":
            check_refused(done, "control character")  # as every command that takes a reference
        else:
            assert done.stdout == "reached\n", done.stderr
    Path(file).unlink()


def test_exec_takes_paths_as_long_as_they_can_be(runner: Runner, image: str) -> None:
    folder = str(runner.folder / "long")
    while len(folder) < 3_700:
        folder += "/" + "d" * 200
    Path(folder).mkdir(parents=True)
    place = Path(image).rename(f"{folder}/image")
    try:
        done = runner.run("exec", str(place), "echo", "reached")
        assert done.stdout == "reached\n" or "too long" in done.stderr, done.stderr
        assert runner.read("exec", "./image", "echo", "reached", cwd=folder) == "reached\n"
    finally:
        place.rename(image)


# -- namespaces that are forbidden

_FILTER = read_program("filter_clone3")


def forbid(runner: Runner, call: str, number: int, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """With a filter that refuses one call, as another container or AppArmor does."""
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the numbers of calls are known for two machines")
    argv = runner.argv("exec", *words)
    start = argv.index(sys.executable)
    words = (*argv[:start], sys.executable, "-c", _FILTER, call, str(number), *argv[start:])
    return runner.call(words, env={"PATH": f"{path}/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY / "src")}, cwd="/")


@pytest.mark.parametrize(
    ("call", "refused", "number"),
    [
        *(("unshare", "a user namespace", number) for number in (1, 13, 38)),  # EPERM, EACCES, ENOSYS
        ("mount", "mounts in a user namespace", 13),
    ],
)
def test_exec_names_what_forbids_namespaces(runner: Runner, image: str, call: str, refused: str, number: int) -> None:
    done = forbid(runner, call, number, image, "true")
    check_refused(done, "cannot create a container on this host", f"refused: {refused}", "--runtime apptainer")


def test_exec_leaves_it_to_a_setuid_apptainer(runner: Runner, image: str) -> None:
    require_root()
    prefix = runner.folder / "apptainer"
    starter = prefix / "libexec/apptainer/bin/starter-suid"
    starter.parent.mkdir(parents=True)
    starter.touch()
    starter.chmod(0o4755)
    (prefix / "bin").mkdir()
    (prefix / "bin/apptainer").write_text('#!/bin/sh\necho apptainer "$@"\n')
    (prefix / "bin/apptainer").chmod(0o755)
    done = forbid(runner, "unshare", 1, "--cleanenv", image, "echo", "reached", path=f"{prefix}/bin:")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("apptainer exec ")
    assert done.stdout.endswith(f"{image} echo reached\n")
    assert f"using {prefix}/bin/apptainer instead" in done.stderr


@pytest.mark.parametrize("kind", ["user", "mnt"])
def test_exec_names_a_limit_of_namespaces(runner: Runner, image: str, kind: str) -> None:
    argv = runner.argv("exec", image, "true")
    start = argv.index(sys.executable)
    script = f'echo 0 > /proc/sys/user/max_{kind}_namespaces; exec setpriv --ambient-caps -all --inh-caps -all "$@"'
    words = [require_program("unshare"), "-U", "-c", "--keep-caps", "sh", "-c", script, "sh"]
    done = runner.call([*argv[:start], *words, *argv[start:]], cwd="/")
    check_refused(done, f"user.max_{kind}_namespaces", "is 0", f"sysctl user.max_{kind}_namespaces=15000")


def test_trying_namespaces_leaves_the_caller_outside() -> None:
    """Where AppArmor gives namespaces that are of no use, a setuid runtime must still be able to step in."""
    require_user_namespaces()
    code = (
        "import os; from kedge.container.facts import gather_host; from kedge.container.options import RunOptions; "
        "from kedge.container.mounting import try_namespaces; before = os.readlink('/proc/self/ns/user')\n"
        "try: try_namespaces(RunOptions(), gather_host(os.environ)); print('can')\n"
        "except OSError as problem: print(problem.errno)\n"
        "assert os.readlink('/proc/self/ns/user') == before"
    )
    plain = [sys.executable, "-c", code]
    assert subprocess.run(plain, check=True, capture_output=True, text=True).stdout == "can\n"
    if os.uname().machine in ("x86_64", "aarch64"):
        refused = [sys.executable, "-c", _FILTER, "mount", "13", *plain]
        assert subprocess.run(refused, check=True, capture_output=True, text=True).stdout == "13\n"
