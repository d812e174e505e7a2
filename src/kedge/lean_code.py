# SPDX-License-Identifier: BSD-3-Clause
"""Compiles a module of every start without what a start never looks at; loaded where an archive of modules is written.

Docstrings, annotations of functions, and what stands under `if TYPE_CHECKING:` are a sixth of the code, and each
annotated function builds a tuple when its module is loaded. Annotations of classes stay: `frozen` and the tables of
options read them. Lines keep their numbers, so that tracebacks are as they were. A start may write the archive, so
trees are walked here: `ast` imports enum and functools. Functions that are named as late become pieces of code of their
own, for the archive to unpack when they are called.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast as _ast
    from collections.abc import Collection
    from types import CodeType
    from typing import TypeGuard
else:
    import _ast

_TREE = 0x400  # PyCF_ONLY_AST
_AS_TEXT = 0x1000000  # what `from __future__ import annotations` asks the compiler for; that import costs every module


def compile_lean(source: bytes, path: str) -> "CodeType":
    """The code of a module; raises SyntaxError or ValueError as `compile` does."""
    return compile_split(source, path, ())[0]


def compile_split(source: bytes, path: str, late: "Collection[str]") -> "tuple[CodeType, dict[str, CodeType]]":
    """The code of a module without its late functions, and the definition of each, which names no file yet."""
    tree: _ast.Module = compile(source, path, "exec", _TREE, dont_inherit=True)
    flags = _AS_TEXT if any(_is_future(statement) for statement in tree.body) else 0
    _strip(tree)
    apart = [statement for statement in tree.body if _can_be_late(statement, late)]
    tree.body = [statement for statement in tree.body if statement not in apart]
    pieces = {}
    for function in apart:
        alone = _ast.Module(body=[function], type_ignores=[])
        pieces[str(function.name)] = compile(alone, "", "exec", flags, dont_inherit=True)
    code: CodeType = compile(tree, path, "exec", flags, dont_inherit=True)
    return code, pieces


def _can_be_late(statement: "_ast.stmt", late: "Collection[str]") -> "TypeGuard[_ast.FunctionDef]":
    """Whether it is a plain function of the module: a decorator or a default value is evaluated in its turn."""
    if not isinstance(statement, _ast.FunctionDef) or statement.name not in late:
        return False
    defaults = (*statement.args.defaults, *statement.args.kw_defaults)
    is_plain = all(default is None or isinstance(default, _ast.Constant) for default in defaults)
    return is_plain and not statement.decorator_list


def _strip(node: "_ast.AST") -> None:
    """Take out of a tree what is not run, or run to no purpose."""
    if isinstance(node, (_ast.FunctionDef, _ast.AsyncFunctionDef)):
        node.returns = None
        given = node.args
        for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if argument is not None:
                argument.annotation = None
    if isinstance(node, (_ast.Module, _ast.ClassDef, _ast.FunctionDef, _ast.AsyncFunctionDef)):
        node.body = [_replace(statement, is_first=not index) for index, statement in enumerate(node.body)]
    if isinstance(node, _ast.If) and isinstance(node.test, _ast.Name) and node.test.id == "TYPE_CHECKING":
        node.body = [_pass_at(node)]  # no module sets it to true; the constant is not known to the compiler
    for name in node._fields:
        value = getattr(node, name, None)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, _ast.AST):
                _strip(each)


def _replace(statement: "_ast.stmt", *, is_first: bool) -> "_ast.stmt":
    """A statement of a module, class or function, or `pass` instead."""
    is_text = isinstance(statement, _ast.Expr) and isinstance(statement.value, _ast.Constant)
    is_docstring = is_first and is_text and isinstance(statement.value.value, str)  # type: ignore[attr-defined]
    return _pass_at(statement) if is_docstring or _is_future(statement) else statement


def _is_future(statement: "_ast.stmt") -> bool:
    """Whether it is the order to the compiler, which is carried out without the import."""
    return (
        isinstance(statement, _ast.ImportFrom)
        and statement.module == "__future__"
        and [name.name for name in statement.names] == ["annotations"]
    )


def _pass_at(statement: "_ast.stmt") -> "_ast.stmt":
    places = {name: getattr(statement, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    return _ast.Pass(**places)
