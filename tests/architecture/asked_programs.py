# SPDX-License-Identifier: BSD-3-Clause
"""Reads what the tests, scripts and benchmarks ask the machine for: programs and files, each with the place that asks.

Of Python: `require_program`, `require_file` and `shutil.which`, and lists that begin with a name where a program is
started. Of shell scripts: the first word of every command, where this machine has such a program: other words are of
texts. Names that are computed cannot be read; they are told apart.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.source_tree import dotted_call
from tests.requirements import SBIN

_ASKING = ("require_program", "require_file", "shutil.which")
_STARTING = ("subprocess.run", "subprocess.Popen", "subprocess.check_output", "subprocess.check_call", "os.execvp")
_PATH = f"/usr/bin:/bin:{SBIN}"
_BUILTINS = {
    *("alias", "break", "builtin", "case", "cd", "command", "compgen", "continue", "declare", "done", "echo", "esac"),
    *("eval", "exit", "export", "false", "fi", "for", "function", "hash", "in", "kill", "local", "mapfile", "printf"),
    *("pushd", "popd", "pwd", "read", "readonly", "return", "set", "shift", "source", "test", "trap", "true", "type"),
    *("ulimit", "umask", "unset", "wait"),
}
_KEYWORD = re.compile(r"\b(?:then|do|else|elif|if|while|until|exec|time)\s|(?<=\s)!(?=\s)|(?<=\s)\{(?=\s)")
_COMMAND = re.compile(r"(?:^|[;|&(`]|\$\()\s*(?:[A-Za-z_]+=\S*\s+)*([a-z][\w.+-]*)(?=[\s;|&)`]|$)", re.MULTILINE)
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_ARRAY = re.compile(r"\b\w+\+?=\([^)]*\)")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1.*?\n.*?^\s*\2$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, order=True, slots=True)
class Asked:
    """A program or file, and who asks for it; `name` is source text where it is computed."""

    name: str
    place: str
    is_computed: bool = False


def read_shell(text: str) -> set[str]:
    """The programs that a shell script starts, except those that strings name."""
    text = _HERE.sub("<<END", text)
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"(?m)(^|\s)#.*$", "", text)
    own = set(re.findall(r"(?m)^\s*(\w+)\(\)", text))
    text = _ARRAY.sub("", _QUOTED.sub(_keep_commands, text))
    text = re.sub(r"(?m)^\s*\S[^\n(]*\)\s", "", text)  # the patterns of `case`
    return set(_COMMAND.findall(_KEYWORD.sub("; ", text))) - _BUILTINS - own


def _keep_commands(quoted: re.Match[str]) -> str:
    """Of a text in double quotes the commands whose output is put there; of others nothing."""
    return "".join(re.findall(r"\$\([^)\"]*\)?", quoted[0])) if quoted[0].startswith('"') else "''"


def read_python(tree: ast.Module, place: str) -> Iterator[Asked]:
    """What a module asks for."""
    for function, node in _walk(tree, tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = dotted_call(node)
        if called in _ASKING:
            yield from _resolve(node.args[0], function, f"{place}:{node.lineno}")
        elif called in _STARTING:
            yield from _first_word(node.args[0], function, f"{place}:{node.lineno}")


def _walk(node: ast.AST, function: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    waiting = [(node, function)]
    while waiting:
        node, function = waiting.pop()
        yield function, node
        below = node if isinstance(node, ast.FunctionDef) else function
        waiting += [(child, below) for child in ast.iter_child_nodes(node)]


def _resolve(argument: ast.expr, function: ast.AST, place: str) -> Iterator[Asked]:
    """The names that an argument can have: a constant, or what a loop of the same function goes through."""
    if isinstance(argument, ast.Constant):
        yield Asked(str(argument.value), place)
        return
    names = list(_values(argument.id, function)) if isinstance(argument, ast.Name) else []
    for name in names:
        yield Asked(name, place)
    if not names:
        yield Asked(ast.unparse(argument), place.rpartition(":")[0], is_computed=True)


def _values(variable: str, function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        loops = isinstance(node, (ast.For, ast.comprehension)) and ast.unparse(node.target) == variable
        if loops and isinstance(node.iter, (ast.Tuple, ast.List)):
            yield from (each.value for each in node.iter.elts if _is_text(each))


def _first_word(argument: ast.expr, function: ast.AST, place: str) -> Iterator[Asked]:
    """The program of a command line that is written as a list, here or where the variable is made."""
    lists = [argument]
    if isinstance(argument, ast.Name):
        made = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
        lists = [node.value for node in made if ast.unparse(node.targets[0]) == argument.id]
    for each in lists:
        if isinstance(each, ast.Constant) and _is_text(each):
            yield Asked(each.value, place)
        elif isinstance(each, (ast.List, ast.Tuple)) and each.elts and _is_text(each.elts[0]):
            yield Asked(each.elts[0].value, place)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def read_folder(repository: Path, paths: list[Path]) -> list[Asked]:
    """What these files ask for; each is read as what its name or its first line says."""
    found: set[Asked] = set()
    for path in paths:
        text, place = path.read_text(encoding="utf-8", errors="replace"), str(path.relative_to(repository))
        first = text.partition("\n")[0]
        shebang = re.match(r"#! ?\S*?([^/\s]+)(?: +([\w.]+))?$", first)
        if shebang:
            found.add(Asked(shebang[2] if shebang[1] == "env" and shebang[2] else shebang[1], f"{place}:1"))
        if path.suffix == ".py" or "python" in first:
            if any(name in text for name in (*_ASKING, *_STARTING)):  # most files ask for nothing
                found.update(read_python(ast.parse(text), place))
        elif shebang and shebang[1] in ("sh", "bash"):
            found.update(Asked(name, place) for name in read_shell(text) if shutil.which(name, path=_PATH))
    return sorted(found)
