# SPDX-License-Identifier: BSD-3-Clause
"""A program of several modules as one text, which `python3 -c` runs where none of its files are.

For the Pythons of old images (3.6 and newer), as the programs themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

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
