# SPDX-License-Identifier: BSD-3-Clause
"""What stands around a container under attack: the caller's home with secrets, processes, sockets, keys, terminal.

All secrets begin with the same word, so that any output that holds it has read one of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import tty
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.builders.containers import as_user
from tests.requirements import require_program

SECRET = f"canary-{os.getpid():x}-"  # another run beside this one has others
FLAG = SECRET + "flag"  # what a command line says with --env
PROGRAM = Path(__file__).parent / "program"
MARKER = "marker-of-the-attack"
# Reports that need no secret: what they say is the success itself
_STATES = ("devices", "settings", "paste", "sys", "sys remounted")


@dataclass(frozen=True)
class Measured:
    """What one start led to."""

    signs: frozenset[str]
    details: dict[str, list[str]]
    is_whole: bool  # whether the attacking program ran to its end
    status: int
    errors: str
    refusals: list[str]  # how typing into the terminal was refused: a filter says EPERM, a kernel without it EIO


@dataclass
class Scene:
    """The user's places. `base` is where no container has a bind by itself."""

    base: Path
    uid: int
    attack: Path
    temporary: Path
    servers: dict[str, str] = field(default_factory=dict)
    watched: Path | None = None  # the interpreter, where it is the user's own
    images: list[Path] = field(default_factory=list)  # directories that containers run from

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def project(self) -> Path:
        return self.home / "projects/run"

    @property
    def node(self) -> Path:
        return self.temporary / "node"

    @property
    def typed(self) -> Path:
        """Where the caller notes what was typed into the terminal meanwhile."""
        return self.base / "typed"

    def as_caller(self, words: list[str]) -> list[str]:
        """A command line that runs as the user."""
        return as_user(self.uid, words)

    def own(self, path: Path) -> Path:
        """Give a tree to the user."""
        if os.getuid() == 0:
            for each in (path, *path.rglob("*")):
                os.chown(each, self.uid, self.uid, follow_symlinks=False)
        return path

    def write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return path

    def furnish(self) -> None:
        """Put the secrets in their places."""
        self.write(self.home / ".ssh/id_ed25519", SECRET + "home\n")
        self.write(self.home / ".ngc/config", f"apikey = {SECRET}ngc\n")
        self.write(self.home / ".docker/config.json", json.dumps({"auths": {"x": {"auth": SECRET + "docker"}}}))
        self.write(self.project / "data", SECRET + "project\n")
        self.write(self.base / "outside/secret", SECRET + "outside\n")
        for name in ("readonly", "mountpoint"):
            (self.base / name).mkdir()
        self.node.mkdir(mode=0o700)
        self.write(self.temporary / "secret", SECRET + "temporary\n")
        self.own(self.base)
        self.own(self.temporary)

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The caller's environment, with a key in it."""
        return {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "NGC_API_KEY": SECRET + "environment",
            "KEDGE_NODEDIR": str(self.node),
            "KEDGE_CACHEDIR": str(self.base / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(more or {}),
        }

    def look(self) -> dict[str, object]:
        """All that no container may change, with content, modes, times and attributes."""
        files = [self.base / "outside", self.base / "outside/secret", self.home / ".ssh", self.home / ".ssh/id_ed25519"]
        return {str(path): describe(path) for path in files}

    # -- starts

    def start(
        self, command: list[str], cwd: Path | str, env: Mapping[str, str] | None = None, prefix: tuple[str, ...] = ()
    ) -> Measured:
        """Run a command line as the caller, with everything around it, and see what the attack has reached.

        `command` ends with the attacking program in the container; its arguments are added here. `prefix` is what root
        does before the caller's turn.
        """
        before = self.look()
        self.mend_interpreter()
        self.typed.unlink(missing_ok=True)
        with _terminal(self.uid) as (own, other), _victims(self) as (known, spared):
            spare = os.open(self.base / "outside", os.O_RDONLY)
            words = [*command, *self.arguments(known), f"spared={spared.pid}", f"terminal={os.ttyname(other)}"]
            arguments = self.base / "arguments"
            arguments.write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))
            try:
                done = subprocess.run(
                    [*prefix, *self.as_caller([str(self.attack), "caller", str(arguments), str(self.typed)])],
                    stdin=own,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    env=self.variables(env),
                    cwd=cwd,
                    pass_fds=(spare,),
                    start_new_session=True,
                    timeout=120,
                    check=False,
                )
            finally:
                os.close(spare)
            details = read_reports(done.stdout)
            details["killed"] = ["its process is gone"] if _was_killed(spared) else []
        assert self.typed.exists(), done.stderr
        details["typed"] = [text for text in (self.typed.read_text(errors="replace"),) if SECRET in text]
        details |= self._look_around(before)
        details["interpreter changed"] = self.mend_interpreter()
        signs = frozenset(name for name, found in details.items() if found)
        refusals = [line for line in done.stdout.splitlines() if "typing refused" in line]
        return Measured(signs, details, '"end"' in done.stdout, done.returncode, done.stderr, refusals)

    def run(
        self, *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A plain command of the user's, from the project directory."""
        return subprocess.run(
            as_user(self.uid, [str(word) for word in words]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=self.variables(env),
            cwd=cwd or self.project,
            timeout=120,
            check=False,
        )

    def mend_interpreter(self) -> list[str]:
        """What was changed of the interpreter; it is then as it was."""
        if self.watched is None:
            return []
        copy = self.base / "interpreter"
        if not copy.exists():
            shutil.copy2(self.watched, copy)
            self.own(copy)
        names = ("content", "mode", "times", "owner", "attributes")
        found = [
            name for name, old, new in zip(names, describe(copy), describe(self.watched), strict=True) if old != new
        ]
        if found:
            self.watched.unlink()
            shutil.copy2(copy, self.watched)
            self.own(self.watched)
        return found

    def arguments(self, known: Mapping[str, str]) -> list[str]:
        """Where the attacking program finds what, as NAME=VALUE."""
        given: dict[str, object] = {
            "key": self.home / ".ssh/id_ed25519",
            "project": self.project / "data",
            "outside": self.base / "outside/secret",
            "temporary": self.temporary / "secret",
            "readonly": "/data",
            "mountpoint": "/mountpoint",
            "node": self.node,
            "disk": self.base.stat().st_dev,
            "interpreter": self.watched.stat().st_ino if self.watched else 0,
            **self.servers,
            **known,
        }
        if os.getuid() != 0:
            del given["outside"]  # it is in the real home, which containers have
        return [f"{name}={value}" for name, value in given.items()]

    def _look_around(self, before: dict[str, object]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for sign, folders in (
            ("readonly written", [self.base / "readonly"]),
            ("image written", self.images),
            ("node written", [self.node]),
            ("mount outside", [self.base / "mountpoint"]),
        ):
            markers = [marker for folder in folders for marker in folder.rglob(MARKER)]
            found[sign] = [str(marker) for marker in markers]
            for marker in markers:
                marker.unlink()
        found["changed outside"] = [path for path, state in self.look().items() if state != before[path]]
        return found


def describe(path: Path) -> tuple[object, ...]:
    """Content, mode, times and attributes of a file."""
    status = path.stat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else sorted(os.listdir(path))  # noqa: PTH208
    names = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return content, status.st_mode, status.st_mtime_ns, status.st_uid, names


def read_reports(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.startswith('{"attack"'):
            continue
        said = json.loads(line)
        if said["found"] == FLAG and not said["attack"].endswith("cmdline"):
            continue  # the program was given it
        if said["found"] == SECRET + "command":
            said["attack"] = "command lines"  # of any process of the host's
        if SECRET in said["found"] or said["attack"] in _STATES or said["attack"] == "program":
            found.setdefault(said["attack"], []).append(f"{said['how']}: {said['found']}")
    return found


@contextlib.contextmanager
def _terminal(uid: int) -> Iterator[tuple[int, int]]:
    """The caller's terminal, and another one of theirs in which a secret was typed."""
    opened = [*os.openpty(), *os.openpty()]
    for slave in (opened[1], opened[3]):
        tty.setraw(slave)
        if os.getuid() == 0:
            os.chown(os.ttyname(slave), uid, -1)
    os.write(opened[2], (SECRET + "terminal\n").encode())
    try:
        yield opened[1], opened[3]
    finally:
        for file in opened:
            os.close(file)


@contextlib.contextmanager
def _victims(scene: Scene) -> Iterator[tuple[dict[str, str], subprocess.Popen[bytes]]]:
    """A process of the user's with secrets in memory, and one that others may try to end."""
    queue = f"/kedge-attack-{os.getpid()}-{scene.uid}"
    holder = as_user(scene.uid, [str(scene.attack), "victim", queue])
    spared = as_user(scene.uid, [str(scene.attack), "spared", SECRET + "command"])
    variables = scene.variables()
    with (
        subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, cwd=scene.home) as one,
        subprocess.Popen(spared, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, cwd=scene.home) as two,
    ):
        assert one.stdout is not None
        assert two.stdout is not None
        assert two.stdout.readline() == b"here\n"  # and is the user's: until then no user may kill it
        address, segment = one.stdout.readline().decode().split()
        try:
            yield {"victim": str(one.pid), "address": address, "segment": segment, "queue": queue}, two
        finally:
            two.kill()
            one.communicate()


def _was_killed(process: subprocess.Popen[bytes]) -> bool:
    """Whether somebody's signal has ended it. It is told to end now, and a signal sent before comes before that."""
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(60) == -signal.SIGKILL


@contextlib.contextmanager
def make_scene(uid: int, attack: Path, kind: type[Scene] = Scene) -> Iterator[Scene]:
    """A furnished scene; everything is removed at the end."""
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kedge-attack-", dir=_find_place())))
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kedge-attack-", dir="/tmp")))
        shared = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kedge-attack-", dir="/dev/shm")))
        base.chmod(0o755)
        scene = kind(base, uid, base / "attack", temporary)
        shutil.copy(attack, scene.attack)  # to a place that everybody can reach
        scene.attack.chmod(0o755)
        scene.furnish()
        scene.own(scene.write(shared / "secret", SECRET + "shm\n").parent)
        scene.servers = {"shm": str(shared / "secret"), **stack.enter_context(_servers(scene))}
        yield scene


def _find_place() -> Path:
    """A directory that no container has by itself; who is not root has but the home, /tmp and /var/tmp."""
    place = Path("/srv") if os.getuid() == 0 else Path(pwd.getpwuid(os.getuid()).pw_dir)
    if not os.access(place, os.W_OK) or place.is_relative_to("/tmp") or place.is_relative_to("/var/tmp"):
        pytest.skip("there is no place here for secrets: no home, or one below /tmp")
    return place


@contextlib.contextmanager
def _servers(scene: Scene) -> Iterator[dict[str, str]]:
    """Programs of the user's that tell a secret to whoever asks."""
    name = f"kedge-attack-{os.getpid()}-{scene.uid}"
    path = scene.temporary / "socket"
    listening = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)]
    listening[0].bind(f"\0{name}")
    listening[1].bind(str(path))
    listening[2].bind(("127.0.0.1", 0))
    path.chmod(0o777)
    threads = [threading.Thread(target=_answer, args=(each,), daemon=True) for each in listening]
    for each, thread in zip(listening, threads, strict=True):
        each.listen()
        thread.start()
    try:
        yield {"abstract": name, "socket": str(path), "port": str(listening[2].getsockname()[1])}
    finally:
        for each in listening:
            each.shutdown(socket.SHUT_RDWR)
            each.close()


def _answer(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            connection.sendall((SECRET + "socket").encode())


def compile_attack(folder: Path) -> tuple[Path, Path]:
    """The attacking program and the loader of a hostile image, both static."""
    compiler = require_program("gcc")
    attack, loader = folder / "attack", folder / "loader"
    sources = sorted(str(path) for path in PROGRAM.glob("*.c") if path.name != "loader.c")
    common = [compiler, "-O1", "-Wall", "-Werror", f'-DCANARY="{SECRET}"']
    subprocess.run([*common, "-static", "-no-pie", "-o", attack, *sources], check=True)
    alone = ["-nostdlib", "-static-pie", "-fPIE", "-fno-stack-protector"]
    subprocess.run([*common, *alone, "-o", loader, PROGRAM / "loader.c"], check=True)
    return attack, loader


def put_into(image: Path, attack: Path) -> Path:
    """An image with the attacking program in it."""
    shutil.copy(attack, image / "bin/attack")
    (image / "bin/attack").chmod(0o755)
    return image
