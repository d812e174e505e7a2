# SPDX-License-Identifier: BSD-3-Clause
"""`host:` references: programs of this host, with all they need to run, as a file tree.

A program brings its ELF interpreter and the closure of its shared objects; a script brings its interpreter; Python
brings its standard library and the packages named after `+`; `rules` brings what cannot be seen from outside.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kedge.base.manifest import ImageConfig, parse_config
from kedge.base.nearest import propose
from kedge.base.platform import Platform
from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.errors import FileProblem, KedgeError, ProgramMissing, UnsupportedFormat
from kedge.image.formats.elf import ElfObject
from kedge.image.host_programs import rules
from kedge.image.host_programs.linker import Linker, Needer, name_musl_paths, write_cache
from kedge.image.host_programs.python_environment import StartsPython, ask_python, start_on_host
from kedge.system.files import explain, explained
from kedge.system.host.private_places import find_homes
from kedge.system.programs import find_program
from kedge.system.views import follow_links

_MAXIMUM_SCRIPTS = 5  # a script may name a script as its interpreter; the kernel stops there too
_PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# On merged systems these are links into /usr, and programs written for either place must find their files.
_MERGED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_BASE_FOLDERS = (
    "/dev",
    "/etc",
    "/home",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/srv",
    "/sys",
    "/usr/bin",
    "/usr/lib",
    "/var",
)
_BASE_FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/resolv.conf": "",  # runtimes mount the host's own over it
}


@dataclass(frozen=True, slots=True)
class PackedHost:
    """The result: a tree, how to run it, and what was left out (GPU driver objects, optional modules' needs)."""

    root: Node
    config: ImageConfig
    files: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One program of the reference: its path here, and Python packages."""

    path: str
    packages: tuple[str, ...]
    is_named: bool  # by a path, not found on PATH


def pack_host(programs: Sequence[str], sink: ContentSink, start_python: StartsPython = start_on_host) -> PackedHost:
    """Pack programs (`bash`, `/opt/x/bin/prog`, `python3+numpy`) of this host; their bytes go to `sink`.

    `start_python` starts interpreters, which are asked about themselves.
    """
    wanted = [_find_wanted(text) for text in programs]
    packer = _Packer(HostTree(sink), start_python)
    for program in wanted:
        packer.allow(program)
    shell = find_program("/bin/sh")
    for program in wanted:
        packer.add_program(program.path, program.packages)
    if shell is not None:
        packer.add_program(shell, ())
    _add_base(packer.tree)
    packer.finish()
    return PackedHost(packer.tree.finish(), _make_config(wanted), packer.tree.files, packer.missing())


def describe_host(programs: Sequence[str]) -> ImageConfig:
    """The config `pack_host` will give, before anything is packed: a SIF has it before its file system."""
    return _make_config([_find_wanted(text) for text in programs])


def _find_wanted(text: str) -> _Wanted:
    """A program as written, else with `+package`s split off: `g++` is a program, `python3+numpy` is not."""
    path = _locate(text)
    name, *packages = text.split("+")
    if path is None and packages and all(packages):
        path = _locate(name)
        if path is not None and not rules.PYTHON_NAME.match(os.path.realpath(path).rpartition("/")[2]):
            raise FileProblem(
                f"'{name}' is not Python: packages after '+' are Python packages", context={"program": path}
            )
    else:
        packages = []
    if path is None:
        raise _not_found(text if not packages else name)
    return _Wanted(os.path.abspath(path), tuple(packages), "/" in text)  # noqa: PTH100 - links are kept


def _locate(name: str) -> str | None:
    if "/" in name:
        return name if os.path.isfile(name) and os.access(name, os.X_OK) else None  # noqa: PTH113
    return find_program(name)


def _not_found(name: str) -> FileProblem:
    if "/" in name:
        kind = "is not a program (it cannot be executed)" if os.path.exists(name) else "does not exist"  # noqa: PTH110
        return FileProblem(
            f"host:{name}: {name} {kind}", hint="name a program by its path, or by its name if it is on PATH"
        )
    if len(names := name.split()) > 1:
        return FileProblem(
            f"host:{name}: no program has that name", hint=f"separate programs by commas: {','.join(names)}"
        )
    there: set[str] = set()
    for folder in os.environ.get("PATH", "").split(":"):
        try:
            there.update(os.listdir(folder) if folder.startswith("/") else ())  # noqa: PTH208
        except OSError:
            continue
    hint = propose(name, sorted(there)) or "name it by its full path if it is not on PATH"
    return FileProblem(f"host:{name}: program '{name}' not found on this host", hint=hint)


def _make_config(wanted: Sequence[_Wanted]) -> ImageConfig:
    own = [folder for program in wanted for folder in _list_folders(program.path)]
    folders = [*(folder for folder in own if folder not in _PROGRAM_FOLDERS), *_PROGRAM_FOLDERS]
    document = {
        "architecture": Platform.host().architecture,
        "os": "linux",
        "config": {
            "Env": [f"PATH={':'.join(dict.fromkeys(folders))}", "LANG=C.UTF-8"],
            "Entrypoint": [wanted[0].path] if len(wanted) == 1 else None,
            "Cmd": None if len(wanted) == 1 else ["/bin/sh"],
        },
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    return parse_config(json.dumps(document).encode())


def _list_folders(path: str, depth: int = 0) -> list[str]:
    """The directories that have to be on PATH for a program: its own, and those where a script's env finds programs."""
    folders = [path.rpartition("/")[0]]
    if depth < _MAXIMUM_SCRIPTS:
        with contextlib.suppress(KedgeError):  # no script; what else is wrong with it shows when it is packed
            for started in read_interpreter(os.path.realpath(path))[1:]:
                folders += _list_folders(started, depth + 1)
    return folders


class _Packer:
    """Follows what programs need until nothing new turns up."""

    def __init__(self, tree: HostTree, start_python: StartsPython) -> None:
        self.tree = tree
        self._start_python = start_python
        host = Platform.host()
        self._architecture = host.architecture
        self._bits = 32 if host.architecture in ("386", "arm") else 64
        self._linker = Linker(host.architecture, self._bits)
        self._done: set[str] = set()
        self._interpreters: dict[str, None] = {}
        self._left_out: dict[str, str] = {}

    def allow(self, program: _Wanted) -> None:
        """A program named by its path may bring what belongs to it, even from a home."""
        if program.is_named:
            for place in (program.path, os.path.realpath(program.path)):
                self.tree.allow(place)
                self.tree.allow(place.rpartition("/")[0].removesuffix("/bin"))

    def missing(self) -> tuple[str, ...]:
        """Return what was not found and perhaps not needed, one line each."""
        names = {path.rpartition("/")[2] for path in self.tree.packed}
        return tuple(f"{name} ({why})" for name, why in sorted(self._left_out.items()) if name not in names)

    def add_program(self, path: str, packages: tuple[str, ...] = (), depth: int = 0) -> None:
        """Add a program and what it needs: an ELF file, or a script with its interpreter."""
        if path in self._done and not packages:
            return
        self._done.add(path)
        real = self.tree.add(path)
        name = real.rpartition("/")[2]
        elf = self._linker.read(real)
        if elf is None:
            self._add_script(path, real, depth)
            return
        self._check_architecture(elf, real)
        if elf.interpreter:
            self._interpreters[elf.interpreter] = None
            self._add_object(elf.interpreter, ())
        self._add_closure(Needer(real, elf), required=True)
        if rules.PYTHON_NAME.match(name):
            self._add_python(path, packages)
        elif rules.PERL_NAME.match(name):
            self._add_data(rules.PERL_FOLDERS)

    def finish(self) -> None:
        """Write the loader's cache, for objects outside its default folders; musl has a list of folders instead."""
        if any("ld-linux" in name or "/ld64" in name or "/ld.so" in name for name in self._interpreters):
            self.tree.put("/etc/ld.so.cache", write_cache(self._linker.entries, self.tree.packed))
            self._add_data(("/etc/ld.so.conf", "/etc/ld.so.conf.d/*.conf"))
        self._add_data([name_musl_paths(name) for name in self._interpreters if "/ld-musl" in name])

    def _add_script(self, path: str, real: str, depth: int) -> None:
        if depth >= _MAXIMUM_SCRIPTS:
            raise UnsupportedFormat(f"{path}: the interpreters of this script form a loop")
        for interpreter in read_interpreter(real):
            try:
                self.add_program(interpreter, (), depth + 1)
            except KedgeError as problem:
                problem.context.setdefault("needed by", path)
                raise

    def _check_architecture(self, elf: ElfObject, path: str) -> None:
        if (elf.architecture, elf.bits) != (self._architecture, self._bits):
            raise UnsupportedFormat(
                f"{path} is for {elf.architecture} ({elf.bits} bit), this host is {self._architecture}",
                hint="an image has one architecture: pack it on a {elf.architecture} host",
            )

    def _add_closure(self, start: Needer, *, required: bool) -> None:
        """Breadth first, as the loader does; an object loaded once under a name serves all who need that name."""
        queue, loaded = [start], {start.elf.soname or start.path.rpartition("/")[2]}
        while queue:
            needer = queue.pop(0)
            for name in needer.elf.needed:
                if name in loaded:
                    continue
                loaded.add(name)
                library = self._require(name, needer, required=required)
                if library is not None:
                    queue.append(library)

    def _require(self, name: str, needer: Needer, *, required: bool) -> Needer | None:
        if rules.is_driver_object(name.rpartition("/")[2]):
            self._left_out[name] = f"part of the GPU driver, needed by {needer.path}"
            return None
        path = self._linker.find(name, needer)
        if path is None:
            if required:
                raise FileProblem(
                    f"{needer.path} needs the shared object {name}, which is not on this host",
                    context={"needed by": needer.path, "object": name},
                    hint=f"'ldd {needer.path}' shows what is missing",
                )
            self._left_out[name] = f"needed by {needer.path}"
            return None
        return self._add_object(path, (needer, *needer.chain))

    def _add_object(self, path: str, chain: tuple[Needer, ...]) -> Needer | None:
        """Add one shared object under the name it is found by, and what the rules say about it."""
        real = self.tree.add(path)
        elf = self._linker.read(real)
        if elf is None:
            raise FileProblem(f"{path} should be a shared object, but it is not an ELF file")
        if path not in self._done:
            self._done.add(path)
            for rule in rules.rules_for(path.rpartition("/")[2]):
                self._apply_rule(rule)
        return Needer(path, elf, chain)

    def _apply_rule(self, rule: rules.PackRule) -> None:
        interpreter = next(iter(self._interpreters), "")
        for name in rule.objects:
            path = self._linker.find_by_name(name, interpreter)
            if path is not None and path not in self._done:
                library = self._add_object(path, ())
                if library is not None:
                    self._add_closure(library, required=False)
        self._add_data(rule.files)

    def _add_data(self, patterns: Sequence[str]) -> None:
        for path in _glob(patterns):
            if os.path.isdir(path):  # noqa: PTH112
                self.tree.add_folder(path, self._is_skipped, self._add_if_object)
            elif os.path.exists(path):  # noqa: PTH110 - a link that leads nowhere is no data
                self.tree.add(path)
                self._add_if_object(path)

    def _add_python(self, path: str, packages: tuple[str, ...]) -> None:
        folders = {place.rpartition("/")[0] for place in self.tree.packed}
        environment = ask_python(path, packages, self._start_python, folders)
        for prefix in environment.prefixes:
            if os.path.isfile(f"{prefix}/pyvenv.cfg"):  # noqa: PTH113
                self.tree.add(f"{prefix}/pyvenv.cfg")
        for place in environment.library:
            if os.path.isdir(place):  # noqa: PTH112
                self.tree.add_folder(place, _is_left_out_of_python, self._add_if_object)
            elif os.path.exists(place):  # noqa: PTH110
                self.tree.add(place)
        self._add_data([glob.escape(file) for file in environment.files])
        self._add_data(rules.PYTHON_FILES)

    def _add_if_object(self, path: str) -> None:
        """Follow the needs of a loadable module; what it lacks is noted and not fatal: nobody may ever load it."""
        name = path.rpartition("/")[2]
        if path in self._done or not (name.endswith(".so") or ".so." in name):
            return
        self._done.add(path)
        try:
            elf = self._linker.read(path)
        except KedgeError as problem:
            self._left_out[name] = problem.message
            return
        if elf is not None and elf.architecture == self._architecture:
            self._add_closure(Needer(path, elf), required=False)

    def _is_skipped(self, path: str) -> bool:
        return path.endswith((".a", ".la"))


def _is_left_out_of_python(path: str) -> bool:
    return bool(rules.PYTHON_SKIPPED.search(path)) or path.endswith(".a")


def _glob(patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        yield from sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207 - absolute


def _add_base(tree: HostTree) -> None:
    """Directories to mount on, root and nobody, and name lookup; what the programs brought themselves is kept."""
    for path in _MERGED:
        if Path(path).is_symlink():
            tree.add(path)
    for path in _BASE_FOLDERS:
        tree.make_folder(path)
    for path in ("/tmp", "/var/tmp"):
        tree.make_folder(path, 0o1777)
    for path, text in _BASE_FILES.items():
        tree.put(path, text.encode())


# The programs that a `#!` line names.

_MAXIMUM_LINE = 255  # BINPRM_BUF_SIZE less one: the kernel looks no further
_WITH_VALUE = ("-u", "--unset", "-C", "--chdir")  # options of env whose value is a word of its own


def read_interpreter(path: str) -> list[str]:
    """The paths to pack for the script at `path`: its interpreter, and for `env` also what env will start."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise explain(problem, path) from problem
    try:
        with explained(path):
            line = os.read(descriptor, _MAXIMUM_LINE).partition(b"\n")[0]
    finally:
        os.close(descriptor)
    if not line.startswith(b"#!"):
        raise UnsupportedFormat(
            f"{path} is neither an ELF program nor a script with a '#!' line",
            hint="put '#!' and the path of its interpreter into its first line",
        )
    words = os.fsdecode(line[2:]).split()
    if not words or not words[0].startswith("/"):
        raise FileProblem(f"{path}: its '#!' line does not name an interpreter by its full path")
    _require_file(words[0], path)
    if words[0].rpartition("/")[2] != "env":
        return [words[0]]
    started = _find_env_program(words[1:], path)
    return [words[0], started]


def _require_file(interpreter: str, script: str) -> None:
    if not os.path.isfile(interpreter):  # noqa: PTH113 - text in, text out
        raise ProgramMissing(f"{script} needs the interpreter {interpreter}, which is not on this host")


def _find_env_program(words: list[str], script: str) -> str:
    """`env [-S] [NAME=VALUE…] PROGRAM …`: the first word that is neither an option nor a variable."""
    following = iter(words)
    for word in following:
        word = word.removeprefix("--split-string=").removeprefix("-S")
        if word in _WITH_VALUE:
            next(following, None)
            continue
        if not word or word.startswith("-") or "=" in word:
            continue
        program = find_program(word)
        if program is None:
            raise ProgramMissing(f"{script} needs the program '{word}' (after env), which is not on this host")
        return os.path.abspath(program)  # noqa: PTH100 - links are kept
    raise FileProblem(f"{script}: its '#!' line names env, but no program after it")


# A file tree filled with files of this host, at the paths they have here.
#
# Symbolic links on the way are kept as links and what they lead to is added, so `/lib -> usr/lib` and `libx.so.1 ->
# libx.so.1.2` stay as they are. Owners become root, set-user bits go, times of directories follow their content: the
# same files give the same tree. Nothing under the user's home is taken unless it was named.

_SMALL = 128 << 10
_LATEST = (1 << 32) - 1  # SquashFS keeps 32 bits


class HostTree:
    """The tree being built. Adding a path twice does nothing."""

    def __init__(self, sink: ContentSink) -> None:
        self.root = Node(NodeKind.DIRECTORY, 0o755)
        self._nodes = {"": self.root}  # by path, with no link in it
        self.files = 0
        self.packed: set[str] = set()  # every path added, links too, as it was asked for
        self._sink = sink
        self._inodes: dict[tuple[int, int], Node] = {}
        self._homes = find_homes()
        self._allowed: list[str] = []

    def allow(self, path: str) -> None:
        """Let a file, or what is below a directory, be taken even from the user's home; never a whole home."""
        for place in {path.rstrip("/") + "/", os.path.realpath(path).rstrip("/") + "/"}:
            if not any(home.startswith(place) for home in self._homes):
                self._allowed.append(place)

    def is_private(self, path: str) -> bool:
        """Whether the path is in the user's home and was not named."""
        inside = any(path.startswith(home) for home in self._homes)
        return inside and not any((path + "/").startswith(folder) for folder in self._allowed)

    def add(self, path: str) -> str:
        """Add a file or directory (without its content) and all links on the way; returns the path behind the links."""
        self.packed.add(path)
        real = self._follow(path, self._add_name)
        self.packed.add(real)
        return real

    def add_folder(self, path: str, skip: Callable[[str], bool], visit: Callable[[str], None] | None = None) -> None:
        """Add everything below a directory; `skip` sees full paths, `visit` is called for every regular file."""
        stack = [self.add(path)]
        seen = set(stack)
        while stack:
            folder = stack.pop()
            for name in self._list(folder):
                place = f"{folder}/{name}"
                if skip(place) or self.is_private(place):
                    continue
                kind = self._kind(place)
                if kind is None:
                    continue
                real = self.add(place)
                if kind is NodeKind.DIRECTORY and real not in seen:
                    seen.add(real)
                    stack.append(real)
                elif kind is NodeKind.FILE and visit is not None:
                    visit(place)

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file of our own making in place, unless there is one."""
        parent = self.make_folder(os.path.dirname(path))  # noqa: PTH120
        name = os.fsencode(os.path.basename(path))  # noqa: PTH119
        if name in parent.children:
            return
        node = Node(NodeKind.FILE, mode)
        node.size, node.content = len(data), self._sink.add(data) if data else None
        parent.children[name] = node
        self.packed.add(path)
        self.files += 1

    def make_folder(self, path: str, mode: int = 0o755) -> Node:
        """The directory at `path`, made when missing; links on the way are followed inside the tree."""
        node = self._nodes[self._follow(path, self._make_name)]
        if mode != 0o755:
            node.mode = mode
        return node

    def finish(self) -> Node:
        """The tree, with the time of each directory that of the newest entry in it."""
        _date_folders(self.root)
        return self.root

    def _follow(self, path: str, read_link: Callable[[str], str | None]) -> str:
        """The path behind the links; `read_link` puts every name on the way into the tree."""
        try:
            return follow_links(path, read_link).rstrip("/")
        except OSError as problem:
            if problem.errno != errno.ELOOP:  # of the image that is being written: a full disk
                raise
            raise FileProblem(f"{path}: too many levels of symbolic links") from None

    def _add_name(self, path: str) -> str | None:
        """Add what this host has at a path whose parent is in the tree; returns a link's target."""
        parent, _, name = path.rpartition("/")
        children = self._nodes[parent].children
        node = children.get(os.fsencode(name))
        if node is None:
            if self._nodes[parent].kind is not NodeKind.DIRECTORY:
                raise FileProblem(f"{path}: a part of this path is a file, not a directory")
            node = children[os.fsencode(name)] = self._copy_entry(path)
        return self._note(path, node)

    def _make_name(self, path: str) -> str | None:
        """Make a directory at a path whose parent is in the tree, unless there is one; returns a link's target."""
        parent, _, name = path.rpartition("/")
        node = self._nodes[parent].children.setdefault(os.fsencode(name), Node(NodeKind.DIRECTORY, 0o755))
        if node.kind not in (NodeKind.DIRECTORY, NodeKind.SYMLINK):
            raise FileProblem(f"{path} is not a directory")
        return self._note(path, node)

    def _note(self, path: str, node: Node) -> str | None:
        self._nodes[path] = node
        return os.fsdecode(node.target) if node.kind is NodeKind.SYMLINK else None

    def _copy_entry(self, path: str) -> Node:
        try:
            status = os.lstat(path)
        except OSError as problem:
            raise explain(problem, path) from problem
        node = self._inodes.get((status.st_dev, status.st_ino)) if stat.S_ISREG(status.st_mode) else None
        return self._make_node(path, status) if node is None else node

    def _make_node(self, path: str, status: os.stat_result) -> Node:
        mtime = min(max(int(status.st_mtime), 0), _LATEST)
        if stat.S_ISDIR(status.st_mode):
            return Node(NodeKind.DIRECTORY, (status.st_mode & 0o777) | 0o555)
        if stat.S_ISLNK(status.st_mode):
            node = Node(NodeKind.SYMLINK, 0o777, mtime=mtime)
            with explained(path):
                node.target = os.fsencode(os.readlink(path))  # noqa: PTH115 - Path would tidy the target up
            return node
        if not stat.S_ISREG(status.st_mode):
            raise FileProblem(f"{path} is neither a file nor a directory nor a link: kedge cannot pack it")
        if self.is_private(path):
            raise FileProblem(
                f"{path} is in your home directory; kedge packs files from there only if you name them",
                hint=f"name it by its full path: host:{path}",
            )
        executable = 0o111 if status.st_mode & 0o111 else 0
        node = Node(NodeKind.FILE, (status.st_mode & 0o755) | 0o444 | executable, mtime=mtime)
        node.size = status.st_size
        node.content = self._store(path, status.st_size)
        self.files += 1
        if status.st_nlink > 1:
            self._inodes[status.st_dev, status.st_ino] = node
        return node

    def _store(self, path: str, size: int) -> object:
        if size == 0:
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as problem:
            raise explain(problem, path) from problem
        try:
            chunks = _read_exactly(descriptor, size, path)
            return self._sink.add(b"".join(chunks)) if size <= _SMALL else self._sink.add_stream(size, chunks)
        finally:
            os.close(descriptor)

    def _list(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
        except OSError as problem:
            raise explain(problem, folder) from problem

    def _kind(self, path: str) -> NodeKind | None:
        """Directory or file, behind links; None for broken links, special files and links into a home."""
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116 - called for every file
        except OSError:
            return None
        if self.is_private(os.path.realpath(path)):
            return None
        return NodeKind.DIRECTORY if stat.S_ISDIR(mode) else NodeKind.FILE if stat.S_ISREG(mode) else None


def _read_exactly(descriptor: int, size: int, path: str) -> Iterator[bytes]:
    done = 0
    while done < size:
        with explained(path):
            piece = os.read(descriptor, min(1 << 20, size - done))
        if not piece:
            raise FileProblem(
                f"{path} was truncated while kedge read it", hint="try again when no program writes to it"
            )
        done += len(piece)
        yield piece


def _date_folders(root: Node) -> None:
    order, stack = [], [root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(child for child in node.children.values() if child.kind is NodeKind.DIRECTORY)
    for folder in reversed(order):
        folder.mtime = max((child.mtime for child in folder.children.values()), default=0)
