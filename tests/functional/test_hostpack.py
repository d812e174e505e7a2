# SPDX-License-Identifier: BSD-3-Clause
"""`host:` images: packed, written to a folder, entered with chroot in a user namespace; ldd and strace are judges."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.base.platform import Platform
from kedge.base.tree import Node, NodeKind, walk
from kedge.errors import FileProblem, KedgeError, ProgramMissing, UnsupportedFormat
from kedge.image.host_programs.packer import PackedHost, pack_host
from kedge.image.host_programs.python_environment import ask_python
from tests.builders.folder_sink import MemorySink, write_tree
from tests.builders.rows import each_row
from tests.requirements import open_way, require_program, require_user_namespaces
from tests.wording import assert_begins, assert_reads

PYTHON = str(Path(shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable))
MODULES = "import ssl, sqlite3, ctypes, socket, lzma, bz2, decimal, zoneinfo, hashlib, asyncio, json"


def pack(*programs: str) -> PackedHost:
    return pack_host(programs, MemorySink())


def enter(folder: Path, *argv: str, prefix: tuple[str, ...] = ()) -> str:
    """Run a command with the directory as its root, and nothing of the machine's environment."""
    require_user_namespaces()
    for name in ("unshare", "mount", "chroot"):
        require_program(name)
    # $ORIGIN is read from /proc, and shells like a /dev/null
    script = 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
    clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    start = [*prefix, "unshare", "-rm", *clean, "/bin/sh", "-c", script, str(folder), *argv]
    done = subprocess.run(start, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def compile_c(folder: Path, name: str, source: str, *flags: str) -> Path:
    compiler = require_program("gcc")
    (folder / f"{name}.c").write_text(source)
    command = [compiler, "-o", folder / name, folder / f"{name}.c", *flags]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return folder / name


def resolve(root: Node, path: str) -> Node | None:
    """The node behind the links of a tree."""
    parts, place = [part for part in path.split("/") if part], []
    node = root
    for _ in range(400):
        if not parts:
            return node
        part = parts.pop(0)
        if part == "..":
            place = place[:-1]
            node = resolve(root, "/".join(place)) or root
            continue
        child = node.children.get(os.fsencode(part))
        if child is None:
            return None
        if child.kind is NodeKind.SYMLINK:
            target = os.fsdecode(child.target)
            place = [] if target.startswith("/") else place
            parts = [each for each in target.split("/") if each not in ("", ".")] + parts
            node = resolve(root, "/".join(place)) or root
            continue
        node = child
        place.append(part)
    return None


def same_file(root: Node, path: str) -> bool:
    node = resolve(root, path)
    return node is not None and (node.content or b"") == Path(path).read_bytes()


def test_hostpack_shell_and_tools_run_in_their_image(tmp_path: Path) -> None:
    packed = pack("bash", "ls", "id")
    write_tree(packed.root, tmp_path / "root")
    said = enter(tmp_path / "root", "/bin/bash", "-c", "ls /etc/passwd; echo ${BASH_VERSION:+bash}; sh -c 'echo works'")
    assert said.split() == ["/etc/passwd", "bash", "works"]
    if os.geteuid() == 0:  # and for ordinary users
        open_way(tmp_path)
        prefix = (require_program("setpriv"), "--reuid", "1501", "--regid", "1501", "--clear-groups")
        assert enter(tmp_path / "root", "/bin/bash", "-c", "id -un", prefix=prefix) == "root\n"
    assert packed.config.entrypoint == ()
    assert packed.config.command == ("/bin/sh",)
    assert packed.missing == ()
    assert packed.files == sum(1 for _, node in walk(packed.root) if node.kind is NodeKind.FILE)


def test_hostpack_python_runs_with_its_library(tmp_path: Path) -> None:
    packed = pack(PYTHON)
    write_tree(packed.root, tmp_path / "root")
    program = (
        f"{MODULES}, threading, locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8');"
        "zoneinfo.ZoneInfo('Europe/Berlin'); socket.getaddrinfo('localhost', 80); ctypes.CDLL('libgcc_s.so.1');"
        "import pwd; print(pwd.getpwuid(0).pw_name, sqlite3.connect(':memory:').execute('select 7').fetchone()[0])"
    )
    assert enter(tmp_path / "root", PYTHON, "-c", program) == "root 7\n"
    assert packed.config.entrypoint == (PYTHON,)
    assert packed.config.platform.architecture == Platform.host().architecture
    names = {name for name, _ in walk(packed.root)}
    assert not [name for name in names if b"/idlelib/" in name or b"/tkinter/" in name or b"/test/" in name]


def test_hostpack_python_brings_the_certificates_its_own_openssl_trusts() -> None:
    ask = "import ssl; print(ssl.get_default_verify_paths().openssl_cafile)"
    answer = subprocess.run([PYTHON, "-I", "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    assert answer in ask_python(PYTHON, ()).files


def test_hostpack_python_package_brings_what_it_requires(tmp_path: Path) -> None:
    packed = pack(f"{sys.executable}+hypothesis")
    write_tree(packed.root, tmp_path / "root")
    shown = enter(
        tmp_path / "root", sys.executable, "-c", "import hypothesis, sortedcontainers, sys; print(sys.prefix)"
    )
    assert shown.strip() == sys.prefix
    names = {name for name, _ in walk(packed.root)}
    assert not [name for name in names if b"site-packages/pytest" in name]


def test_hostpack_script_brings_its_interpreters(tmp_path: Path) -> None:
    inner, outer, with_env = tmp_path / "inner", tmp_path / "outer", tmp_path / "with-env"
    inner.write_text("#!/bin/sh\necho inner $1\n")
    outer.write_text(f"#! {inner} first\n")
    with_env.write_text("#!/usr/bin/env -S LC_ALL=C bash\necho ${BASH_VERSION:+bash}\n")
    for script in (inner, outer, with_env):
        script.chmod(0o755)
    packed = pack(str(outer), str(with_env))
    write_tree(packed.root, tmp_path / "root")
    assert enter(tmp_path / "root", str(outer)) == "inner first\n"
    assert enter(tmp_path / "root", str(with_env)) == "bash\n"


@pytest.mark.parametrize("words", ["tool", "-S tool -x", "-S -u HOME A=1 tool", "--split-string=tool -x"])
def test_hostpack_script_finds_in_its_image_what_env_finds_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    tools, script = tmp_path / "tools", tmp_path / "scripts" / "script"
    for place in (tools, script.parent):
        place.mkdir()
    shutil.copy("/bin/sh", tools / "tool")
    script.write_text(f"#!/usr/bin/env {words}\necho started\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    packed = pack(str(script))
    assert resolve(packed.root, str(tools / "tool")) is not None
    path = next(entry for entry in packed.config.environment if entry.startswith("PATH="))
    assert path.startswith(f"PATH={script.parent}:{tools}:/usr/local/sbin:")


def test_hostpack_follows_search_paths_of_objects(tmp_path: Path) -> None:
    """RUNPATH with $ORIGIN in the program, RPATH inherited by a library, SONAME links, and a plug-in by dlopen."""
    for folder in ("app/bin", "app/lib", "app/deep"):
        (tmp_path / folder).mkdir(parents=True)
    app = tmp_path / "app"
    compile_c(app / "deep", "libdeep.so", "int deep(void) { return 40; }", "-shared", "-fPIC", "-Wl,-soname,libdeep.so")
    compile_c(
        app / "lib", "libmid.so.1.0", "int deep(void); int mid(void) { return deep() + 2; }", "-shared", "-fPIC",
        "-Wl,-soname,libmid.so.1", f"-L{app}/deep", "-ldeep",
    )  # fmt: skip
    (app / "lib/libmid.so.1").symlink_to("libmid.so.1.0")
    (app / "lib/libmid.so").symlink_to("libmid.so.1")
    program = compile_c(
        app / "bin", "prog", "int mid(void); int main(void) { return mid() != 42; }",
        f"-L{app}/lib", "-lmid", "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../lib:$ORIGIN/../deep",
        f"-Wl,-rpath-link,{app}/deep",
    )  # fmt: skip
    packed = pack(str(program))
    write_tree(packed.root, tmp_path / "root")
    enter(tmp_path / "root", str(program))
    found = resolve(packed.root, str(app / "lib"))
    assert found is not None
    assert found.children[b"libmid.so.1"].kind is NodeKind.SYMLINK
    assert b"libmid.so" not in found.children  # the name for compilers is not needed


def test_hostpack_missing_object_names_who_needs_it(tmp_path: Path) -> None:
    compile_c(tmp_path, "libgone.so", "int gone(void) { return 1; }", "-shared", "-fPIC", "-Wl,-soname,libgone.so.3")
    program = compile_c(
        tmp_path, "prog", "int gone(void); int main(void) { return gone(); }", f"-L{tmp_path}", "-lgone"
    )
    with pytest.raises(FileProblem, match=r"prog needs the shared object libgone\.so\.3") as caught:
        pack(str(program))
    assert caught.value.context["needed by"] == str(program)


def test_hostpack_leaves_gpu_driver_objects_out(tmp_path: Path) -> None:
    compile_c(tmp_path, "libcuda.so", "int cu(void) { return 1; }", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    program = compile_c(
        tmp_path,
        "prog",
        "int cu(void); int main(void) { return cu(); }",
        f"-L{tmp_path}",
        "-lcuda",
        f"-Wl,-rpath,{tmp_path}",
    )
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so")
    packed = pack(str(program))
    assert len(packed.missing) == 1
    assert_begins(packed.missing[0], "run/libcuda-part-gpu-driver")
    assert not [name for name, _ in walk(packed.root) if b"libcuda" in name]


def test_hostpack_static_program_needs_nothing_else(tmp_path: Path) -> None:
    program = compile_c(tmp_path, "prog", "int main(void) { return 0; }", "-static")
    write_tree(pack(str(program)).root, tmp_path / "root")
    enter(tmp_path / "root", str(program))


def test_hostpack_program_of_another_machine_is_refused(tmp_path: Path) -> None:
    data = bytearray(Path("/bin/sh").read_bytes())
    data[18:20] = (22).to_bytes(2, sys.byteorder)  # s390
    (tmp_path / "prog").write_bytes(data)
    (tmp_path / "prog").chmod(0o755)
    with pytest.raises(UnsupportedFormat, match="this host is"):
        pack(str(tmp_path / "prog"))


@each_row(
    "content, kind, message",
    [
        ("no interpreter line\n", UnsupportedFormat, "neither an ELF program nor a script"),
        ("#!\n", FileProblem, "not name an interpreter"),
        ("#!relative/sh\n", FileProblem, "not name an interpreter"),
        ("#!/nowhere/sh\n", ProgramMissing, "/nowhere/sh"),
        ("#!/usr/bin/env\n", FileProblem, "no program after it"),
        ("#!/usr/bin/env no-such-program-here\n", ProgramMissing, "no-such-program-here"),
        ("\x7fELF\x02\x01\x01", KedgeError, "damaged"),
    ],
)
def test_hostpack_refuses_what_cannot_run(tmp_path: Path, content: str, kind: type[KedgeError], message: str) -> None:
    script = tmp_path / "script"
    script.write_text(content)
    script.chmod(0o755)
    with pytest.raises(kind, match=message):
        pack(str(script))


def test_hostpack_script_that_interprets_itself_is_refused(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).write_text(f"#!{tmp_path / other}\n")
        (tmp_path / name).chmod(0o755)
    assert pack(str(tmp_path / "a")).files  # each is packed once; that the kernel refuses to run it is not ours to say


def test_hostpack_unknown_program_suggests_near_ones() -> None:
    with pytest.raises(FileProblem, match="program 'bahs' not found") as caught:
        pack("bahs")
    assert "bash" in (caught.value.hint or "")
    with pytest.raises(FileProblem, match="no program has that name") as caught:
        pack("sh cat")
    assert_reads(caught.value.hint, "image/separate-programs-commas-sh-cat")
    with pytest.raises(FileProblem, match="does not exist"):
        pack("/nowhere/prog")
    with pytest.raises(FileProblem, match="cannot be executed"):
        pack("/etc/passwd")
    with pytest.raises(FileProblem, match="is not Python"):
        pack("bash+numpy")
    with pytest.raises(FileProblem, match="has no package 'no-such-package'"):
        pack(f"{PYTHON}+no-such-package")


def test_hostpack_same_machine_gives_same_tree() -> None:
    def describe(packed: PackedHost) -> list[tuple[object, ...]]:
        return [
            (name, node.kind, node.mode, node.uid, node.gid, node.mtime, node.size, node.content, node.target)
            for name, node in walk(packed.root)
        ]

    first, second = pack("bash", "ls"), pack("bash", "ls")
    assert describe(first) == describe(second)
    assert first.config == second.config
    assert {(node.uid, node.gid) for _, node in walk(first.root)} == {(0, 0)}
    assert not [name for name, node in walk(first.root) if node.mode & 0o6000]


def test_hostpack_takes_nothing_from_home_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/bin:/usr/bin:/bin")
    compile_c(home / "lib", "libmine.so", "int mine(void) { return 0; }", "-shared", "-fPIC")
    source = "int mine(void); int main(void) { return mine(); }"
    flags = (f"-L{home}/lib", "-lmine", f"-Wl,-rpath,{home}/lib")
    compile_c(home / "bin", "prog", source, *flags)
    with pytest.raises(FileProblem, match="in your home") as caught:
        pack("prog")
    assert f"host:{home}/bin/prog" in (caught.value.hint or "")
    with pytest.raises(FileProblem, match=r"libmine\.so is in your home"):
        pack(str(home / "bin/prog"))  # naming a program in the home does not open the whole home
    (home / "app/bin").mkdir(parents=True)
    (home / "lib").rename(home / "app/lib")
    flags = (f"-L{home}/app/lib", "-lmine", f"-Wl,-rpath,{home}/app/lib")
    named = compile_c(home / "app/bin", "prog", source, *flags)
    packed = pack(str(named))
    assert same_file(packed.root, str(home / "app/lib/libmine.so"))


def test_hostpack_loader_cache_serves_objects_outside_default_folders(tmp_path: Path) -> None:
    """The cache we write is read by the machine's own `ldconfig -p`, and lists only what is packed."""
    ldconfig = require_program("ldconfig")
    packed = pack(PYTHON)
    node = resolve(packed.root, "/etc/ld.so.cache")
    assert node is not None
    (tmp_path / "cache").write_bytes(node.content)  # type: ignore[arg-type]
    shown = subprocess.run(
        [ldconfig, "-C", tmp_path / "cache", "-p"], capture_output=True, text=True, check=True
    ).stdout
    paths = re.findall(r"=> (\S+)", shown)
    assert paths
    assert all(same_file(packed.root, path) for path in paths)


def test_hostpack_has_every_object_ldd_lists() -> None:
    ldd, wanted = require_program("ldd"), {}
    for name in ("bash", "find", "git", "curl", "perl", "gcc", "ssh", "skopeo"):
        path = require_program(name)
        shown = subprocess.run([ldd, path], capture_output=True, text=True, check=False)
        if "not a dynamic executable" not in shown.stderr + shown.stdout:
            wanted[path] = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", shown.stdout, re.MULTILINE)
    assert len(wanted) > 5
    packed = pack(*wanted)
    assert [object_ for objects in wanted.values() for object_ in objects if not same_file(packed.root, object_)] == []


def test_hostpack_has_every_file_strace_sees_python_open(tmp_path: Path) -> None:
    strace = require_program("strace")
    trace = tmp_path / "trace"
    command = [strace, "-f", "-y", "-o", trace, "-e", "trace=openat,execve", PYTHON, "-I", "-B", "-c", MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"LANG": "C.UTF-8"})
    if "ptrace" in done.stderr.lower():
        pytest.skip("tracing is not allowed here")
    opened = set(re.findall(r'openat\([^"]*"(/[^"]+)".*\) = \d+', trace.read_text()))
    files = sorted(
        path for path in opened if Path(path).is_file() and not path.startswith(("/proc/", "/sys/", "/dev/"))
    )
    packed = pack(PYTHON)
    assert len(files) > 50
    # the machine's own nsswitch.conf may name libnss_systemd, which needs libcap; the image's does not
    not_taken = re.compile(
        r"/(?:site|dist)-packages/|/usr/lib/locale/locale-archive\Z|/etc/localtime\Z|/libnss_systemd|/libcap\."
    )
    made_by_us = ("/etc/ld.so.cache", "/etc/passwd", "/etc/nsswitch.conf")
    wanted = [path for path in files if path not in made_by_us and not not_taken.search(path)]
    assert [path for path in wanted if not same_file(packed.root, path)] == []
