# SPDX-License-Identifier: BSD-3-Clause
"""What the Python of an image has for notebooks: it is asked in a container, as a kernel will run there."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from kedge.base.frozen import JsonValue, frozen
from kedge.container.start.step import run_step
from kedge.errors import CannotStart, NotebookProblem

_MARK = "kedge-python "  # environment scripts of an image may print, too
_PATIENCE = 300.0  # seconds; the image may have to be pulled or unpacked first
_NAMES = ("python3", "python")
_LONGEST = 1000
_VERSION = r"[0-9A-Za-z.+!_-]*"
_SHAPES = {
    "program": re.compile(r"/[^\x00-\x1f\x7f]+"),
    "version": re.compile(r"[0-9]{1,2}\.[0-9]{1,3}"),
    "machine": re.compile(r"[A-Za-z0-9_]+"),
    "libc": re.compile(r"(?:[A-Za-z]+ [0-9.]+)?"),
    "ipykernel": re.compile(_VERSION),
    "jupyterlab": re.compile(_VERSION),
    "problem": re.compile(r".*", re.DOTALL),
}
# For Python 3.6 and newer. The first line: `-c` puts the current directory before everything else.
_QUESTIONS = f"""\
import sys; del sys.path[0]
sys.path += sys.argv[1:]
import json, os, platform
from importlib.util import find_spec
try:
    from importlib.metadata import distributions, version
    installed = {{each.metadata["Name"]: each.version for each in distributions() if each.metadata["Name"]}}
    lab = version("jupyterlab") if find_spec("jupyterlab") else ""
except Exception:
    installed, lab = {{}}, "unknown" if find_spec("jupyterlab") else ""
kernel, problem = "", ""
if find_spec("ipykernel"):
    try:
        import ipykernel.kernelapp
        kernel = ipykernel.__version__
    except Exception as error:
        problem = type(error).__name__ + ": " + " ".join(str(error).split())[:200]
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (ValueError, OSError):
    libc = ""
print("\\n{_MARK}" + json.dumps(dict(
    program=sys.executable, version="%d.%d" % sys.version_info[:2], machine=platform.machine(), libc=libc,
    has_pip=find_spec("pip") is not None, ipykernel=kernel, problem=problem, jupyterlab=lab, installed=installed)))
"""


@frozen
class ImagePython(JsonValue):
    """The answers of an image's Python."""

    program: str  # its path in the image
    version: str  # 3.11
    machine: str
    libc: str  # glibc 2.36; empty: another C library
    has_pip: bool
    ipykernel: str  # version; empty: there is none that can be imported
    problem: str  # why the ipykernel that is there cannot be imported
    jupyterlab: str
    installed: tuple[tuple[str, str], ...]  # names and versions of packages


def ask_python(
    image: str, *, program: str = "", packages: str = "", options: Sequence[str] = (), binds: Sequence[str] = ()
) -> ImagePython:
    """Ask the Python of an image, with `packages` at the end of its path; raises NotebookProblem if it has none."""
    for name in (program,) if program else _NAMES:
        words = [name, "-c", _QUESTIONS, *([packages] if packages else [])]
        try:
            done = run_step(image, words, binds=binds, options=options, timeout=_PATIENCE)
        except CannotStart as problem:
            if "executable file not found" not in problem.message and "no such file" not in problem.message:
                raise
            continue
        answer = _read_answer(done.text)
        if answer is not None:
            return answer
        said = done.errors.decode(errors="replace").strip().splitlines()
        raise NotebookProblem(
            f"the Python of {image} gives no answer: {said[-1] if said else f'exit code {done.status}'}",
            hint=f"try it: kedge exec {image} {name} --version (notebooks need Python 3.6 or newer)",
        )
    raise NotebookProblem(
        f"{image} has no {program or 'python3'}",
        hint="name the image's Python: --python /path/in/the/image/bin/python",
    )


def _read_answer(text: str) -> ImagePython | None:
    """What Python said; None where it said nothing of this kind, as a wrapper in the image may."""
    answers = [line for line in text.splitlines() if line.startswith(_MARK)]
    try:
        found = json.loads(answers[-1].removeprefix(_MARK))
        installed = sorted((str(name), str(version)) for name, version in found["installed"].items())
        answer = ImagePython(**{**found, "has_pip": bool(found["has_pip"]), "installed": tuple(installed)})
        return answer if all(_is_plain(name, getattr(answer, name)) for name in _SHAPES) else None
    except (IndexError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_plain(name: str, value: object) -> bool:
    """Whether a word of the image has its shape: it goes to programs of the host, and into lines that users type."""
    return isinstance(value, str) and len(value) <= _LONGEST and bool(_SHAPES[name].fullmatch(value))
