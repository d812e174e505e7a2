# SPDX-License-Identifier: BSD-3-Clause
"""Brings an ipykernel that fits an image's Python into a directory, with what it needs.

Tried in turn: uv of the host, which resolves for another Python and C library; pip of the image; pip of the host, run
by the image's Python. Versions that the image has are kept to where that is possible, because they come first in the
kernel's path.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.container.start.step import run_step
from kedge.errors import KedgeError, NotebookProblem
from kedge.system.lean_programs import Finished
from kedge.system.process import run_program
from kedge.system.programs import find_program
from kedge.system.start_kedge import own_interpreter
from kedge.tools.jupyter.image_python import ImagePython

_PATIENCE = 600.0
_PLAIN_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.post)\d+)?")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REQUIREMENT = "ipykernel"


@frozen
class Installer:
    """A program that installs packages into a directory."""

    title: str
    run: Callable[[Sequence[str]], Finished]


def bring_ipykernel(image: str, python: ImagePython, target: Path, *, wheels: str = "") -> None:
    """Install into `target`, an empty directory; raises NotebookProblem with the last words of each that failed."""
    failures = []
    with tempfile.TemporaryDirectory(prefix="kedge-") as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in list_constraints(python)))
        for installer in _list_installers(image, python, target, Path(folder), wheels):
            # without the constraints where no such set exists; whether it works is asked afterwards
            for words in (["--constraint", str(constraints)], []):
                try:
                    done = installer.run([*words, *_choose_source(wheels), _REQUIREMENT])
                except KedgeError as problem:
                    failures.append(f"{installer.title}: {problem.message}")
                    break
                if not done.status:
                    _compile(image, python, target)
                    return
            else:
                failures.append(f"{installer.title}: {_last_words(done)}")
    raise explain_failure(image, python, failures, wheels)


def explain_failure(image: str, python: ImagePython, failures: Sequence[str], wheels: str) -> NotebookProblem:
    """Return an error with what was tried, and how to get the packages elsewhere."""
    what = "; ".join(failures) or "neither uv nor pip was found"
    download = f"pip download -d DIR --python-version {python.version} --only-binary :all: ipykernel"
    return NotebookProblem(
        f"cannot install ipykernel for Python {python.version} of {image}: {what}",
        hint=f"put wheels for Python {python.version} and {python.machine} into {wheels}: {download}"
        if wheels
        else f"without internet access, run '{download}' on another host, and give --wheels DIR here",
    )


def list_constraints(python: ImagePython) -> list[tuple[str, str]]:
    """The versions that the image has; odd ones are left out, which installers refuse to read."""
    return [
        (name, version)
        for name, version in python.installed
        if _PLAIN_NAME.fullmatch(name) and _PLAIN_VERSION.fullmatch(version) and name.lower() != _REQUIREMENT
    ]


def choose_platform(python: ImagePython) -> str:
    """The image's platform in uv's words."""
    name, _, version = python.libc.partition(" ")
    if name != "glibc":
        return f"{python.machine}-unknown-linux-musl"
    numbers = [int(each) for each in version.split(".") if each.isdigit()]
    return f"{python.machine}-manylinux_{'2_28' if numbers >= [2, 28] else '2_17'}"


def _list_installers(image: str, python: ImagePython, target: Path, folder: Path, wheels: str) -> Iterator[Installer]:
    uv = find_program("uv") or find_program(str(Path(own_interpreter()).with_name("uv")))
    if uv:
        # uv reads uv.toml and pyproject.toml of the current directory and of those above: in /tmp they are anybody's
        words = ["env", "-C", "/", uv, "pip", "install", "--target", str(target), "--python-version", python.version]
        words += ["--python-platform", choose_platform(python), "--only-binary", ":all:", "--no-cache"]
        yield Installer("uv", lambda more: run_program([*words, *more], check=False, timeout=_PATIENCE, name="uv"))
    binds = [str(target), str(folder), *([f"{wheels}:{wheels}:ro"] if wheels else [])]
    install = ["install", "--target", str(target), "--only-binary", ":all:", "--no-cache-dir"]
    install.append("--disable-pip-version-check")
    if python.has_pip:
        own = [python.program, "-m", "pip", *install]
        yield Installer("the image's pip", lambda more: run_step(image, [*own, *more], binds=binds, timeout=_PATIENCE))
    pip = _find_host_pip()
    if pip:
        host = [python.program, pip, *install]
        bound = [*binds, f"{pip}:{pip}:ro"]
        yield Installer("the host's pip", lambda more: run_step(image, [*host, *more], binds=bound, timeout=_PATIENCE))


def _find_host_pip() -> str:
    """The directory of the host's pip, which any Python can run; empty where there is none."""
    for name in ("pip3", "pip"):
        if find_program(name):
            done = run_program([name, "--version"], check=False, timeout=60)
            found = re.search(r" from (/.*/pip) \(", done.text)
            if found:
                return found[1]
    return ""


def _choose_source(wheels: str) -> list[str]:
    return ["--no-index", "--find-links", wheels] if wheels else []


def _compile(image: str, python: ImagePython, target: Path) -> None:
    """Write bytecode now: kernels see the directory read-only, and would compile at each start."""
    words = [python.program, "-m", "compileall", "-q", str(target)]
    run_step(image, words, binds=[str(target)], timeout=_PATIENCE)


def _last_words(done: Finished) -> str:
    lines = (done.errors or done.output).decode(errors="replace").strip().splitlines()
    return " ".join(line.strip() for line in lines[-3:]) or f"exit code {done.status}"
