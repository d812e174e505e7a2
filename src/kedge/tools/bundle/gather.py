# SPDX-License-Identifier: BSD-3-Clause
"""The files of a bundle: the Python that runs this, its standard library, kedge and the packages that kedge needs."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from kedge.errors import FileProblem, UnsupportedFormat
from kedge.image.host_programs.python_environment import ask_python
from kedge.system.files import explained
from kedge.system.process import run_program
from kedge.system.start_kedge import own_interpreter, own_package
from kedge.tools.bundle import layout, rules
from kedge.tools.bundle.compile_modules import compile_modules
from kedge.tools.bundle.libraries import LibraryCollector
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
    vital = {f"{library}/{name}" for name in rules.VITAL_MODULES}
    files = {}
    compiled = compile_modules(sources, work / "modules")
    for name, code in compiled.items():
        place = f"{library}/{name}c"
        if name in rules.SOURCES_KEPT:  # beside its source, where the interpreter looks for it then
            folder, _, file = f"{library}/{name}".rpartition("/")
            place = f"{folder}/__pycache__/{file.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
        files[place] = BundledFile(code, is_vital=place in vital)
    return files


def _is_module(name: str, library: str) -> bool:
    return name.endswith(".py") and not name.startswith((f"{library}/kedge/examples/", f"{library}/kedge/docs/"))


def _stays_as_it_is(name: str, library: str) -> bool:
    return not _is_module(name, library) or name.removeprefix(f"{library}/") in rules.SOURCES_KEPT


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
        if rules.is_library_left_out(name):
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
        if folder and os.path.isfile(file) and not rules.is_package_left_out(name):  # noqa: PTH113
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
