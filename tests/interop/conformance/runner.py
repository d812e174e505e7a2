# SPDX-License-Identifier: BSD-3-Clause
"""Runs a case through one of the two runtimes, each in a place of its own that looks the same from inside.

A place is a mount namespace that a sleeping process keeps: the tree of the real Apptainer, or this machine with that
tree's users. /srv, /home, /tmp and /var/tmp are directories of the place; entering costs a few milliseconds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kedge.container.processes.subordinate_ids import find_helper
from kedge.container.shim_file import make_shim
from tests.builders.apptainer import PEER_USER
from tests.builders.own_etc import make_etc
from tests.builders.removal import remove_beside
from tests.interop.conformance.case import HOME, Case
from tests.interop.conformance.images import build_images, make_images
from tests.requirements import REPOSITORY, require_peer, require_program

TIME_LIMIT = 60  # of a case, in seconds
BUILD_LIMIT = 180  # of an image that Apptainer builds: all begins at once when the tests do
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
USER = {"PATH": PATH, "HOME": HOME, "USER": "peer", "LOGNAME": "peer", "LANG": "C.UTF-8", "TERM": "xterm"}
FOLDERS = {"srv": "/srv", "home": "/home", "tmp": "/tmp", "var_tmp": "/var/tmp"}
USERS = ("passwd", "group", "hosts", "resolv.conf")
SUBORDINATES = ("subuid", "subgid")


@dataclass(frozen=True)
class Result:
    """What is compared."""

    status: int
    stdout: str
    after: str


@dataclass(frozen=True)
class Place:
    """One runtime and where it runs."""

    folder: Path  # of this machine; holds srv, home, tmp and var_tmp
    program: tuple[str, ...]
    holder: int  # the process whose mount namespace it is
    shim: tuple[str, ...] = ("apptainer", "-q")  # what is called apptainer there

    def enter(
        self,
        *words: str,
        cwd: str = "/srv",
        environment: dict[str, str] | None = None,
        stdin: str = "",
        limit: float = TIME_LIMIT,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there as the ordinary user."""
        user = ["--reuid", str(PEER_USER), "--regid", str(PEER_USER), "--clear-groups"]
        variables = [f"{name}={value}" for name, value in {**USER, "PWD": cwd, **(environment or {})}.items()]
        start = ["nsenter", f"--mount=/proc/{self.holder}/ns/mnt", "setpriv", *user, "env", "-i", "-C", cwd, *variables]
        return subprocess.run(
            [*start, *words],
            input=stdin,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=limit,
            check=False,
        )

    def run(self, case: Case) -> tuple[Result, str]:
        """Run a case; what is compared, and what it said on stderr."""
        own = self.folder / "srv/case" / case.name
        shutil.rmtree(own, ignore_errors=True)  # another test may have run it
        own.mkdir(parents=True)
        os.chown(own, PEER_USER, PEER_USER)
        cwd = case.cwd or f"/srv/case/{case.name}"
        if case.setup:
            made = self.enter("sh", "-euc", case.setup, cwd=f"/srv/case/{case.name}")
            assert made.returncode == 0, f"the set-up of {case.name} failed: {made.stderr}"
        if case.script:
            names = f"runtime={shlex.quote(shlex.join(self.program))}\nshim={shlex.quote(shlex.join(self.shim))}"
            words = ["sh", "-c", f"{names}\n{case.script}"]
        else:
            words = [*self.program, *case.words]
        done = self.enter(*words, cwd=cwd, environment=dict(case.env), stdin=case.stdin)
        after = self.enter("sh", "-c", case.after, cwd=f"/srv/case/{case.name}").stdout if case.after else ""
        return Result(done.returncode, normalise(done.stdout, case.ignore), normalise(after, "")), done.stderr


@dataclass(frozen=True)
class Places:
    """Both runtimes."""

    apptainer: Place
    kedge: Place
    answers: dict[str, tuple[Result, str]] = field(default_factory=dict)  # Apptainer's, by the names of cases

    @property
    def images(self) -> Path:
        """Where the images are, on this machine."""
        return self.kedge.folder.parent / "images"

    def with_variables(self, **variables: str) -> Places:
        """The same, with variables that only kedge gets."""
        words = ("env", *(f"{name}={value}" for name, value in variables.items()))
        return replace(self, kedge=replace(self.kedge, program=(*words, *self.kedge.program)))

    def run_both(self, case: Case) -> tuple[tuple[Result, str], tuple[Result, str]]:
        """Run a case through both at the same time: what Apptainer did, and what kedge did.

        Apptainer is asked once: the variables that kedge gets in other tests are none of its own.
        """
        with ThreadPoolExecutor(2) as pool:
            theirs = pool.submit(self.ask, case)
            ours = pool.submit(self.kedge.run, case)
            return theirs.result(), ours.result()

    def ask(self, case: Case) -> tuple[Result, str]:
        """What Apptainer does."""
        if case.name not in self.answers:
            self.answers[case.name] = self.apptainer.run(case)
        return self.answers[case.name]


def normalise(text: str, ignore: str) -> str:
    """Take out what a case ignores and what must differ: the runtime's own name, and a variable.

    That variable, which keeps Python packages of the home folder outside, is in every environment of kedge's; the case
    environment-host-python shows it.
    """
    lines = [line for line in text.splitlines(keepends=True) if line != "PYTHONNOUSERSITE=1\n"]
    kept = "".join(line for line in lines if not (ignore and re.search(ignore, line)))
    return re.sub(r"\b(Apptainer|kedge)>", "RUNTIME>", kept)


@contextlib.contextmanager
def hold_namespace(argv: list[str], script: str) -> Iterator[int]:
    """Start a process that runs `script` as root in a mount namespace of its own, and waits; its number."""
    text = f"set -e\n{script}\necho $$\nexec cat"
    command = [*argv, "sh", "-c", text]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        line = process.stdout.readline().strip()
        assert line, f"{argv} failed"
        try:
            yield int(line)
        finally:
            process.stdin.close()  # cat ends, and the namespace with it


def make_folders(place: Path, images: Path, kept: tuple[str, ...] = ()) -> str:
    """The directories of a place, and the shell text that puts them where they belong; `kept` stay in sight."""
    for name in FOLDERS:
        (place / name).mkdir(parents=True)
        (place / name).chmod(0o1777 if "tmp" in name else 0o755)
    for name in ("srv/images", "srv/case", "home/peer"):
        (place / name).mkdir()
        os.chown(place / name, PEER_USER, PEER_USER)
    texts = [f"mount --bind {images} {place}/srv/images"]
    if "/home" in kept:  # a view of both
        texts.append(f"mount -t overlay -o lowerdir={place}/home:/home overlay /home")
        texts.append(f"mount --bind {place}/home/peer /home/peer")
    texts += [f"mount --rbind {place / name} {path}" for name, path in FOLDERS.items() if path not in kept]
    return "\n".join(texts)


def list_needed() -> tuple[str, ...]:
    """Which of the directories hold the code or the interpreter that the tests run."""
    needed = [Path(path).resolve() for path in (REPOSITORY, sys.executable, sys.prefix)]
    return tuple(folder for folder in FOLDERS.values() if any(each.is_relative_to(folder) for each in needed))


def find_kedge(place: Path) -> tuple[str, ...]:
    """The command that is installed beside this Python, or one that we write."""
    installed = Path(sys.executable).parent / "kedge"
    if installed.exists():
        return (str(installed),)
    text = f"import sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r}); from kedge.cli.main import main; main()"
    made = place / "srv/kedge"
    made.write_text(f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(text)} "$@"\n')
    made.chmod(0o755)
    return ("/srv/kedge",)


def can_map_subordinates() -> bool:
    """Whether this machine has what gives a user the ids of /etc/subuid: the tables, and the programs that map them."""
    has_tables = all(Path(f"/etc/{name}").exists() for name in SUBORDINATES)
    return has_tables and all(find_helper(name, is_helper) for name in ("newuidmap", "newgidmap"))


def is_helper(path: str) -> bool:
    """Whether it is a program, and not something that hides one."""
    return Path(path).is_file() and os.access(path, os.X_OK)


def hide_subordinates(space: Path) -> list[str]:
    """What takes the ids of /etc/subuid away in a place."""
    empty = space / "empty"
    empty.touch()
    return [f"if [ -e /etc/{name} ]; then mount --bind {empty} /etc/{name}; fi" for name in SUBORDINATES]


def make_apptainer(place: Path) -> tuple[str, ...]:
    """What `kedge shim install` writes, in /srv of the place."""
    made = place / "srv/apptainer"
    made.write_text(make_shim("apptainer", sys.executable, str(REPOSITORY / "src")))
    made.chmod(0o755)
    return "/srv/apptainer", "-q"


@contextlib.contextmanager
def open_places(built: Path | None = None, *, with_subordinates: bool = True) -> Iterator[Places]:
    """Make both places, and the images where none are built; all is removed at the end.

    Both have the ids of /etc/subuid or both have none: kedge can map them only with the programs of this machine.
    """
    script = require_peer()
    if str(REPOSITORY).startswith("/srv/"):
        pytest.skip("the test covers the checkout, which lies in /srv")
    for program in ("nsenter", "setpriv", "unshare"):
        require_program(program)
    tree = Path(os.environ.get("KEDGE_PEERS") or "/var/tmp/kedge-peers") / "sid"
    space = Path(tempfile.mkdtemp(prefix="kedge-conformance-", dir="/var/tmp"))
    space.chmod(0o755)
    with contextlib.ExitStack() as stack:
        stack.callback(remove_beside, space)
        stack.callback(
            shutil.rmtree, tree / space.relative_to("/"), ignore_errors=True
        )  # an empty directory, to mount on
        images = space / "images"
        if built:
            subprocess.run(["cp", "-a", built, images], check=True)
        else:
            images.mkdir()
            make_images(images)
        hiding = [] if with_subordinates and can_map_subordinates() else hide_subordinates(space)
        mounts = "\n".join([*hiding, make_folders(space / "apptainer", images)])
        start = [str(script), "root", "-d", str(space), "--"]
        holder = stack.enter_context(hold_namespace(start, mounts))
        apptainer = Place(space / "apptainer", ("apptainer", "-q"), holder)
        if not built:
            build_images(images, functools.partial(apptainer.enter, limit=BUILD_LIMIT))
        known = {name: (tree / "etc" / name).read_text() for name in USERS if Path(f"/etc/{name}").exists()}
        known |= {name: "" if hiding else (tree / "etc" / name).read_text() for name in SUBORDINATES}
        users = f"mount --bind {make_etc(space / 'etc', (), **known)} /etc"
        mounts = make_folders(space / "kedge", images, list_needed())
        start = ["unshare", "--mount", "--propagation", "private"]
        holder = stack.enter_context(hold_namespace(start, f"{users}\n{mounts}"))
        kedge = Place(space / "kedge", find_kedge(space / "kedge"), holder, make_apptainer(space / "kedge"))
        # The first start of an image says that it is unpacked; all cases are to be alike.
        kedge.enter(*kedge.program, "unpack", *(f"/srv/images/{each.name}" for each in sorted(images.glob("*.sif"))))
        yield Places(apptainer, kedge)
