# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program of `examples/` with the image's Python, or outside of containers, and reads the lines it prints.

The same files are examples for users: the wheel brings them along. Python gets the text itself, of all modules of a
program, so the image needs nothing of kedge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.base.frozen import frozen
from kedge.errors import ProgramFailed
from kedge.launch.probe.answers import read_lines
from kedge.system.lean_programs import Finished
from kedge.system.process import run_program
from kedge.system.programs import find_program
from kedge.system.start_kedge import own_command, own_package

_NOT_FOUND = 127
_SHOWN = 12  # lines of an error


@frozen
class ProgramPlace:
    """Where a measured program runs."""

    image: str  # empty: outside of containers, with this host's Python
    options: tuple[str, ...]  # of the container, as `kedge exec` takes them
    seconds: float  # that it may take
    has_gpus: bool = False  # that it is to use


def read_program(name: str) -> str:
    """examples/NAME/NAME.py and the modules beside it, of the wheel or of the checkout that this is, as one text."""
    package = Path(own_package())
    installed = package / "examples" / name
    folder = installed if installed.exists() else package.parent.parent / "examples" / name
    return join_modules(name, {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")})


def run_example(
    name: str, words: Sequence[str], where: ProgramPlace, environ: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What the program prints, line by line; raises ProgramFailed with its own reason."""
    command = [find_python(where, environ), "-c", read_program(name), *words]
    if where.image:
        command = own_command("exec", *where.options, where.image, *command)
    done = run_program(command, environment=environ, timeout=where.seconds, check=False, name=f"bench {name}")
    values = [value for value in read_lines(done.text) if value["kedge"] == name]
    if done.status or not values:
        raise _explain(name, where, done)
    return values


def find_python(where: ProgramPlace, environ: Mapping[str, str]) -> str:
    """The image's own; in a container of this host's system the one that PATH finds outside, as of an environment."""
    if where.image != "/":
        return "python3"
    return find_program("python3", environ.get("PATH")) or "python3"


def _explain(name: str, where: ProgramPlace, done: Finished) -> ProgramFailed:
    said = [line for line in (done.text + done.errors.decode(errors="replace")).splitlines() if line.strip()]
    place = f"in {where.image}" if where.image else "outside of containers"
    if done.status == _NOT_FOUND and not any("Error" in line for line in said):
        return ProgramFailed(
            f"{name} cannot run {place}: no python3", hint="use an image with Python and NumPy or PyTorch"
        )
    return ProgramFailed(
        f"{name} failed {place} with exit code {done.status}",
        context={"said": "\n".join(said[-_SHOWN:])} if said else {},
    )


# A program of several modules as one text, which `python3 -c` runs where none of its files are.
#
# For the Pythons of old images (3.6 and newer), as the programs themselves.

# Before all other finders: with -c the current directory is searched, too, and may have modules of these names.
_LOADER = '''import importlib.machinery
import sys


class Texts:
    """Imports the modules that came along as text."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name in TEXTS else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(compile(TEXTS[module.__name__], module.__name__ + ".py", "exec"), module.__dict__)


sys.meta_path.insert(0, Texts())
'''


def join_modules(main: str, texts: Mapping[str, str]) -> str:
    """Return one text that runs the module `main`, which imports the others by name; a module alone stays as it is."""
    if len(texts) == 1:
        return texts[main]
    carried = f"TEXTS = {dict(sorted(texts.items()))!r}\n"
    return f'{carried}{_LOADER}exec(compile(TEXTS[{main!r}], "{main}.py", "exec"))\n'
