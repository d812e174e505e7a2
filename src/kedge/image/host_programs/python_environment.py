# SPDX-License-Identifier: BSD-3-Clause
"""What a Python interpreter of this host consists of, asked of that interpreter itself.

Asking beats guessing: virtual environments, Debian's dist-packages, conda and builds in odd prefixes all answer the
same questions. It runs isolated (`-I`), so neither PYTHONPATH nor the user's own packages have a say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kedge.errors import FileProblem, ProgramFailed, UnsupportedFormat
from kedge.system.process import run_program

# Prints one JSON object. Distributions are found by name; their files come from RECORD, or where a distributor removed
# that, from the folders of their modules. A requirement with a marker that is not installed here was not wanted here.
_QUESTION = r"""
import importlib.metadata as metadata, importlib.util, json, os, re, sys, sysconfig

def normalise(name):
    return re.sub(r"[-_.]+", "-", name).lower()

def module_files(name):
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.has_location and not spec.submodule_search_locations:
        return []
    return list(spec.submodule_search_locations or [spec.origin])

def files_of(dist):
    editable = json.loads(dist.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable")
    if editable:
        return None
    if dist.files is not None and dist.read_text("RECORD"):
        found = [os.path.normpath(str(dist.locate_file(file))) for file in dist.files]
        return [file for file in found if os.path.lexists(file)]
    modules = (dist.read_text("top_level.txt") or dist.metadata["Name"].replace("-", "_")).split()
    found = [file for module in modules for file in module_files(module)]
    own = str(getattr(dist, "_path", ""))
    return found + ([own] if own else [])

def requirements(dist):
    for text in dist.requires or ():
        name, _, marker = text.partition(";")
        if "extra" not in marker:
            yield re.match(r"[A-Za-z0-9._-]+", name.strip())[0], bool(marker)

wanted = [(name, False, "") for name in json.loads(sys.argv[1])]
known = {normalise(d.metadata["Name"]): d for d in reversed(list(metadata.distributions())) if d.metadata["Name"]}
files, missing, editable, seen = [], [], [], set()
while wanted:
    name, optional, needer = wanted.pop(0)
    if normalise(name) in seen:
        continue
    seen.add(normalise(name))
    dist = known.get(normalise(name))
    if dist is None:
        found = module_files(name) if not needer else []
        files += found
        if not found and not optional:
            missing.append([name, needer])
        continue
    found = files_of(dist)
    if found is None:
        editable.append(name)
        continue
    files += found
    wanted += [(other, marked, name) for other, marked in requirements(dist)]
try:
    import ssl
    authorities = ssl.get_default_verify_paths()
    certificates = [authorities.openssl_cafile, authorities.openssl_capath]
except ImportError:
    certificates = []
paths = sysconfig.get_paths()
print(json.dumps({
    "prefixes": [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix],
    "library": [paths["stdlib"], paths["platstdlib"]],
    "dynload": [p for p in sys.path if p.endswith("lib-dynload")],
    "zip": [p for p in sys.path if p.endswith(".zip") and os.path.isfile(p)],
    "names": sorted(known),
    "files": sorted({*files, *certificates}), "missing": missing, "editable": editable,
}))
"""


_PLACES = ("prefixes", "library", "dynload", "zip", "files")  # lists of absolute paths

# Starts an interpreter with these words, and gives what it prints; the directories hold its shared objects.
StartsPython = Callable[[Sequence[str], Iterable[str]], bytes]


def start_on_host(argv: Sequence[str], folders: Iterable[str]) -> bytes:
    """Run a program as the user, outside of any container: for interpreters that the user names."""
    del folders
    return run_program(argv, timeout=120).output


@dataclass(frozen=True, slots=True)
class _PythonEnvironment:
    """Where an interpreter keeps its standard library, and files: packages asked for, certificates it trusts."""

    prefixes: tuple[str, ...]
    library: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Report:
    """What an interpreter says."""

    lists: dict[str, list[str]]
    missing: list[list[str]]


def ask_python(
    interpreter: str,
    packages: tuple[str, ...],
    start: StartsPython = start_on_host,
    folders: Iterable[str] = (),
) -> _PythonEnvironment:
    """Ask the interpreter about itself and these packages with what they require."""
    try:
        # -B: asking must not leave byte code behind, which would change what is packed next time
        report = _read_report(start([interpreter, "-I", "-B", "-c", _QUESTION, json.dumps(packages)], folders))
    except ProgramFailed as problem:
        raise ProgramFailed(
            f"{interpreter} could not be asked about its packages",
            context=problem.context,
            hint="kedge packs Python 3.8 and newer; try it by hand: 'python3 -I -c \"import sysconfig\"'",
        ) from problem
    except ValueError:
        raise ProgramFailed(
            f"{interpreter} did not list its packages: it is not Python, or not a Python that kedge can pack",
            hint="kedge packs Python 3.8 and newer; try it by hand: 'python3 -I -c \"import sysconfig\"'",
        ) from None
    _check_packages(interpreter, report)
    lists = report.lists
    library = [*lists["library"], *lists["dynload"], *lists["zip"]]
    return _PythonEnvironment(
        prefixes=tuple(dict.fromkeys(lists["prefixes"])),
        library=tuple(dict.fromkeys(library)),
        files=tuple(lists["files"]),
    )


def _read_report(output: bytes) -> _Report:
    """The answer, which is the last line; ValueError for what is none: any program may be called python."""
    lines = output.splitlines() or [b""]
    try:
        answer = json.loads(lines[-1])
    except RecursionError:
        raise ValueError from None
    if not isinstance(answer, dict):
        raise ValueError
    lists = {key: _require_texts(answer.get(key)) for key in (*_PLACES, "editable")}
    if not all(os.path.isabs(place) for key in _PLACES for place in lists[key]):  # noqa: PTH117
        raise ValueError
    missing = answer.get("missing")
    if not isinstance(missing, list):
        raise ValueError
    return _Report(lists, [_require_texts(pair, 2) for pair in missing])


def _require_texts(value: object, length: int | None = None) -> list[str]:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise ValueError
    for text in value:
        if not isinstance(text, str) or "\0" in text:
            raise ValueError
    return value


def _check_packages(interpreter: str, report: _Report) -> None:
    for name, needer in report.missing:
        why = f", which {needer} requires" if needer else ""
        raise FileProblem(
            f"{interpreter} has no package '{name}'{why}",
            context={"package": name},
            hint=f"install it for that interpreter first: {interpreter} -m pip install {name}",
        )
    for name in report.lists["editable"]:
        raise UnsupportedFormat(
            f"the package '{name}' is installed as a link to its source directory (editable)",
            hint="install it first without -e: pip install .",
        )
