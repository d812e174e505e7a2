# SPDX-License-Identifier: BSD-3-Clause
"""What a Python interpreter of this host consists of, asked of that interpreter itself.

Asking beats guessing: virtual environments, Debian's dist-packages, conda and builds in odd prefixes all answer the
same questions. It runs isolated (`-I`), so neither PYTHONPATH nor the user's own packages have a say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kedge.errors import FileProblem, ProgramFailed, UnsupportedFormat
from kedge.posix.process import run_program

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


@dataclass(frozen=True, slots=True)
class _PythonEnvironment:
    """Where an interpreter keeps its standard library, and files: packages asked for, certificates it trusts."""

    prefixes: tuple[str, ...]
    library: tuple[str, ...]
    files: tuple[str, ...]


def ask_python(interpreter: str, packages: tuple[str, ...]) -> _PythonEnvironment:
    """Ask the interpreter about itself and these packages with what they require."""
    try:
        # -B: asking must not leave byte code behind, which would change what is packed next time
        answer = run_program([interpreter, "-I", "-B", "-c", _QUESTION, json.dumps(packages)], timeout=120)
        report: dict[str, Any] = json.loads(answer.output)
    except ProgramFailed as problem:
        raise ProgramFailed(
            f"{interpreter} could not be asked about its packages",
            context=problem.context,
            hint="kedge packs Python 3.8 and newer; try it by hand: 'python3 -I -c \"import sysconfig\"'",
        ) from problem
    except ValueError:
        raise ProgramFailed(f"{interpreter} did not list its packages") from None
    _check_packages(interpreter, report)
    library = [*report["library"], *report["dynload"], *report["zip"]]
    return _PythonEnvironment(
        prefixes=tuple(dict.fromkeys(report["prefixes"])),
        library=tuple(dict.fromkeys(library)),
        files=tuple(report["files"]),
    )


def _check_packages(interpreter: str, report: dict[str, Any]) -> None:
    for name, needer in report["missing"]:
        why = f", which {needer} requires" if needer else ""
        raise FileProblem(
            f"{interpreter} has no package '{name}'{why}",
            context={"package": name},
            hint=f"install it for that interpreter first: {interpreter} -m pip install {name}",
        )
    for name in report["editable"]:
        raise UnsupportedFormat(
            f"the package '{name}' is installed as a link to its source directory (editable)",
            hint="install it first without -e: pip install .",
        )
