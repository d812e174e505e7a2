# SPDX-License-Identifier: BSD-3-Clause
"""The files of a bundle: the Python that runs this, its standard library, kedge and the packages that kedge needs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kedge.base.platform import Platform
from kedge.errors import FileProblem, KedgeError, ProgramFailed, UnsupportedFormat
from kedge.image.formats.elf import ElfObject
from kedge.image.host_programs.linker import Linker, Needer
from kedge.image.host_programs.python_environment import ask_python
from kedge.image.host_programs.rules import is_driver_object, rules_for
from kedge.system.files import explained
from kedge.system.process import run_program
from kedge.system.start_kedge import own_interpreter, own_package
from kedge.tools.bundle import layout
from kedge.tools.bundle.write_bundle import BundledFile

_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def gather_files(work: Path) -> dict[str, BundledFile]:
    """Return all files by their names in the bundle; `work` is an empty directory for what is compiled."""
    library = f"{sys.platlibdir}/python{sys.version_info[0]}.{sys.version_info[1]}"
    paths = {f"{library}/{name}": path for name, path in _list_all()}
    interpreter = os.path.realpath(own_interpreter())
    packed = {os.path.realpath(path) for path in paths.values()}
    collector = LibraryCollector(interpreter, lambda path: os.path.realpath(path) in packed)
    _check_loader(collector.loader)
    for name, path in paths.items():
        if _is_object(name):
            collector.follow(str(path))
    programs = {layout.LOADER: collector.loader, layout.INTERPRETER: interpreter}
    programs |= {f"{layout.LIBRARIES}/{name}": path for name, path in collector.found.items()}
    files = {name: _read(Path(path), is_program=True) for name, path in programs.items()}
    files |= _compile(paths, library, work)
    files |= {name: _read(path) for name, path in paths.items() if _stays_as_it_is(name, library)}
    start = Path(own_package()) / "cli/bundle_start.py"
    (work / "start").mkdir()
    name = "kedge/cli/bundle_start.py"
    files[layout.START] = BundledFile(compile_modules({name: start}, work / "start")[name], is_vital=True)
    authorities = next((path for path in _CERTIFICATES if os.path.isfile(path)), None)  # noqa: PTH113
    if authorities is not None:
        files[layout.CERTIFICATES] = _read(Path(authorities))
    return files


def _compile(paths: dict[str, Path], library: str, work: Path) -> dict[str, BundledFile]:
    sources = {name.removeprefix(f"{library}/"): path for name, path in paths.items() if _is_module(name, library)}
    (work / "modules").mkdir()
    vital = {f"{library}/{name}" for name in VITAL_MODULES}
    files = {}
    compiled = compile_modules(sources, work / "modules")
    for name, code in compiled.items():
        place = f"{library}/{name}c"
        if name in SOURCES_KEPT:  # beside its source, where the interpreter looks for it then
            folder, _, file = f"{library}/{name}".rpartition("/")
            place = f"{folder}/__pycache__/{file.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
        files[place] = BundledFile(code, is_vital=place in vital)
    return files


def _is_module(name: str, library: str) -> bool:
    return name.endswith(".py") and not name.startswith((f"{library}/kedge/examples/", f"{library}/kedge/docs/"))


def _stays_as_it_is(name: str, library: str) -> bool:
    return not _is_module(name, library) or name.removeprefix(f"{library}/") in SOURCES_KEPT


def _is_object(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.endswith(".so") or ".so." in file


def _read(path: Path, *, is_program: bool = False) -> BundledFile:
    with explained(path):
        return BundledFile(path.read_bytes(), is_program=is_program, is_vital=is_program)


def _list_all() -> Iterator[tuple[str, Path]]:
    yield from _list_library()
    yield from _list_packages()
    yield from _list_own()


def _list_library() -> Iterator[tuple[str, Path]]:
    """The standard library by names below its directory; modules in C are elsewhere with some distributors."""
    folder = Path(os.__file__).parent
    yield from _walk(folder, "")
    dynamic = folder / "lib-dynload"
    for place in sys.path:
        if place.endswith("/lib-dynload") and Path(place) != dynamic:
            yield from _walk(Path(place), "lib-dynload/")


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    with explained(folder):
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if is_library_left_out(name):
            continue
        if entry.is_dir():
            yield from _walk(Path(entry.path), f"{name}/")
        elif entry.is_file() and not name.endswith((".a", ".pyc")):
            yield name, Path(entry.path)


def _list_packages() -> Iterator[tuple[str, Path]]:
    """What kedge requires, with what that requires in turn: files by names below the directory of packages."""
    try:
        required = importlib.metadata.requires("kedge") or []
    except importlib.metadata.PackageNotFoundError:
        raise FileProblem(
            "kedge is not installed for this Python, so its packages are unknown",
            hint="install it from its clone: uv tool install ., or pip install .",
        ) from None
    names = [re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in required if "extra" not in text]
    places = [place.rstrip("/") for place in sys.path if place.startswith("/")]
    folders = [f"{place}/" for place in places if place.endswith(("/site-packages", "/dist-packages"))]
    for file in ask_python(own_interpreter(), tuple(names)).files:
        folder = next((place for place in folders if file.startswith(place)), "")
        name = file.removeprefix(folder)
        if folder and os.path.isfile(file) and not is_package_left_out(name):  # noqa: PTH113
            yield name, Path(file)
        elif folder and os.path.isdir(file):  # noqa: PTH112 - a distributor's package, without a list of its files
            yield from _walk(Path(file), f"{name}/")


def _list_own() -> Iterator[tuple[str, Path]]:
    """kedge itself; in a checkout also what the wheel takes from beside the package."""
    package = Path(own_package())
    for path in sorted(package.rglob("*")):
        name = f"kedge/{path.relative_to(package)}"
        if path.is_file() and "__pycache__" not in name and not name.endswith(".c"):
            yield name, path
    project = package.parent.parent / "pyproject.toml"
    if (package / "docs").is_dir() or not project.is_file():
        return
    with explained(project):
        wheel = tomllib.loads(project.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, target in wheel["force-include"].items():
        place = project.parent / source
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file():
                yield str(Path(target) / path.relative_to(place)) if place.is_dir() else target, path


def _check_loader(loader: str) -> None:
    """The head needs --argv0 of glibc 2.33."""
    done = run_program([loader, "--help"], check=False, timeout=30)
    if b"--argv0" not in done.output:
        raise UnsupportedFormat(
            f"the loader of this host ({loader}) is older than glibc 2.33",
            hint="make the bundle on a newer host (RHEL 9, Debian 12, Ubuntu 22.04); it runs on older ones",
        )


# Compiles modules for a bundle, in a process of its own: the same sources give the same bytes.
#
# The order of constant sets in compiled code follows the hash seed of the process, so that one is fixed.

# Code is never looked at again once it is unpacked (an unchecked hash): nothing is compared or written at a start.
_PROGRAM = r"""
import importlib._bootstrap_external as machinery, importlib.util, json, sys
for number, (path, name) in enumerate(json.load(sys.stdin)):
    with open(path, "rb") as file:
        source = file.read()
    try:
        code = compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as problem:
        sys.exit(f"{path}: {problem}")
    with open(f"{sys.argv[1]}/{number}", "wb") as file:
        file.write(machinery._code_to_hash_pyc(code, importlib.util.source_hash(source), False))
"""


def compile_modules(sources: Mapping[str, Path], work: Path) -> dict[str, bytes]:
    """The compiled code of each source by the same name; `work` is an empty directory for it."""
    order = [[str(path), name] for name, path in sources.items()]
    try:
        run_program(
            [own_interpreter(), "-S", "-s", "-P", "-B", "-c", _PROGRAM, str(work)],
            stdin=json.dumps(order).encode(),
            environment={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": "", "PYTHONOPTIMIZE": ""},
            name="python",
        )
    except ProgramFailed as problem:
        raise ProgramFailed(
            "a module of this installation cannot be compiled", context=problem.context, hint="install kedge again"
        ) from problem
    return {name: (work / str(number)).read_bytes() for number, name in enumerate(sources)}


# The shared libraries of a bundle: what its programs and modules need, found as the loader finds them.


class LibraryCollector:
    """Follows what ELF files need until nothing new turns up. `is_packed`: whether a path is in the bundle anyway."""

    def __init__(self, interpreter: str, is_packed: Callable[[str], bool]) -> None:
        self._linker = Linker(Platform.host().architecture, 64)
        self._is_packed = is_packed
        self.found: dict[str, str] = {}  # soname -> path
        program = self._read(interpreter)
        if program is None or not program.interpreter:
            raise UnsupportedFormat(
                f"{interpreter} is not a program that a loader starts", hint="use a Python that is linked to glibc"
            )
        self.loader = program.interpreter
        if not self.loader.rpartition("/")[2].startswith("ld-linux"):
            raise UnsupportedFormat(
                f"{interpreter} uses the loader {self.loader}", hint="make the bundle with a Python for glibc"
            )
        self.follow(interpreter)
        for name in (*NAMED_OBJECTS, *self._list_opened("libc.so.6")):
            path = self._linker.find_by_name(name, self.loader)
            if path is not None:
                self._keep(name, path)

    def follow(self, path: str) -> None:
        """Add what the ELF file at `path` needs; other files need nothing."""
        elf = self._read(path)
        waiting = [Needer(path, elf)] if elf is not None else []
        while waiting:
            needer = waiting.pop(0)
            for name in needer.elf.needed:
                place = self._find(name, needer)
                if place is not None and self._keep(name, place):
                    part = self._read(place)
                    waiting += [Needer(place, part, (needer, *needer.chain))] if part is not None else []

    def _find(self, name: str, needer: Needer) -> str | None:
        if name in self.found or is_driver_object(name) or name == self.loader.rpartition("/")[2]:
            return None
        place = self._linker.find(name, needer)
        if place is None:
            raise FileProblem(
                f"{needer.path} needs the shared object {name}, which is not on this host",
                hint=f"'ldd {needer.path}' shows what is missing",
            )
        return None if self._is_packed(place) else place

    def _keep(self, name: str, path: str) -> bool:
        if name in self.found:
            return False
        self.found[name] = path
        for other in self._list_opened(name):
            place = self._linker.find_by_name(other, self.loader)
            if place is not None and self._keep(other, place):
                self.follow(place)
        return True

    def _list_opened(self, name: str) -> list[str]:
        return [other for rule in rules_for(name) for other in rule.objects]

    def _read(self, path: str) -> ElfObject | None:
        try:
            return self._linker.read(str(Path(path).resolve()))
        except KedgeError:
            return None


# What a bundle leaves out, and what it needs beyond what its ELF files say.

# Of the standard library: what only its own developers use, what needs a display, what installs other packages.
_LIBRARY_LEFT_OUT = re.compile(
    r"(?:site-packages|dist-packages|test|tests|idlelib|idle_test|tkinter|turtledemo|turtle\.py|ensurepip|lib2to3|venv"
    r"|pydoc_data|distutils|config-[0-9][^/]*|__pycache__|__phello__|EXTERNALLY-MANAGED"
    r"|lib-dynload/(?:_tkinter|_test[a-z]+|_xxtestfuzz|_ctypes_test|xxlimited\w*|ossaudiodev|nis|_dbm|_gdbm)\.[^/]*)"
)
# Of the packages: tests, sources of C, and the second way into zstd, which needs a compiler's parser.
_PACKAGE_LEFT_OUT = re.compile(
    r".*(?:\.pyi|\.c|\.h|\.pxd|\.pyx|\.typed|/RECORD|/INSTALLER|/REQUESTED|/direct_url\.json)"
    r"|(?:zstandard/_cffi|pycparser/|cffi/).*|.*/tests?/.*|.*__pycache__/.*"
)
# Files of kedge that are read as text, by the Python of an image or of a user: these keep their source.
SOURCES_KEPT = ("kedge/__main__.py", "kedge/tools/functions/runner.py", "kedge/launch/probe/allreduce_torch.py")
# Opened by name at run time: by programs, and by the host's own libraries that are loaded into this process (name
# services, the GPU driver), which must get the C library that they find here and not their own.
NAMED_OBJECTS = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2"),
    *("libnss_files.so.2", "libnss_dns.so.2", "libnss_compat.so.2", "libanl.so.1", "libgcc_s.so.1"),
)
# Modules that the interpreter loads before it can say anything.
VITAL_MODULES = ("encodings/__init__.pyc", "encodings/aliases.pyc", "encodings/utf_8.pyc", "kedge/cli/entry.pyc")


def is_library_left_out(name: str) -> bool:
    """Whether a path below the standard library's directory is not taken; what is below it is not either."""
    return bool(_LIBRARY_LEFT_OUT.fullmatch(name) or _LIBRARY_LEFT_OUT.fullmatch(name.rpartition("/")[2]))


def is_package_left_out(name: str) -> bool:
    """Whether a file of a package is not taken."""
    return bool(_PACKAGE_LEFT_OUT.fullmatch(name))
