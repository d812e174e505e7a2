# SPDX-License-Identifier: BSD-3-Clause
"""Finds the places of a module where one small fault can be put, and puts one there.

Left out is what no test should hold: annotations, docstrings, decorators, the wording of errors and sentences, and
statements whose deletion no program survives (imports, definitions, assignments outside of functions).
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

_SENTENCE = 3  # words; a text of so many is for people, and its wording is free
_APART = ("annotation", "returns", "decorator_list", "type_params")  # fields that are no code that runs later
_NAMES_APART = ("__slots__", "__all__", "TYPE_CHECKING")
_WORDING = ("hint", "context", "message", "strict")  # arguments: texts of errors, and zip's own check of itself
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}


class Mutant(NamedTuple):
    """One fault: where it is, and what it makes of what."""

    file: str
    function: str  # the qualified name of the function or class around it
    kind: str
    change: str  # BEFORE -> AFTER, and a number where a function has the same more than once
    line: int
    column: int

    @property
    def identity(self) -> tuple[str, str, str]:
        """What stays the same when lines move."""
        return self.file, self.function, self.change

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.kind}  {self.change}"


class _Fault(NamedTuple):
    """A node and what stands in its place."""

    kind: str
    node: ast.AST
    new: ast.AST
    parent: ast.AST
    field: str
    at: int | None  # in a list
    function: str
    place: tuple[int, int]  # line and column

    def put(self) -> None:
        """Change the tree."""
        if self.at is None:
            setattr(self.parent, self.field, self.new)
        else:
            getattr(self.parent, self.field)[self.at] = self.new


BY_PLACE = attrgetter("file", "line", "column", "kind")


def list_mutants(file: str, text: str) -> list[Mutant]:
    """All mutants of a module, in the order of their lines."""
    return [mutant for mutant, _ in _pair_faults(file, ast.parse(text))]


def make_mutant(text: str, mutant: Mutant) -> str:
    """The module with this fault."""
    tree = ast.parse(text)
    next(fault for found, fault in _pair_faults(mutant.file, tree) if found == mutant).put()
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def identify_sample(mutants: list[Mutant]) -> str:
    """A short text that is another one for other mutants."""
    return hashlib.sha256(repr([mutant.identity for mutant in mutants]).encode()).hexdigest()[:12]


def choose_sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of them; which ones hangs on their text and the seed alone, so that few change when the source does."""

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256(repr((seed, mutant.identity)).encode()).digest()

    return sorted(sorted(mutants, key=rank)[:count], key=BY_PLACE)


def _pair_faults(file: str, tree: ast.Module) -> Iterator[tuple[Mutant, _Fault]]:
    seen: Counter[tuple[str, str]] = Counter()
    places: set[tuple[int, int, str]] = set()
    for fault in _Finder(tree).find():
        if (*fault.place, fault.kind) in places:
            continue
        places.add((*fault.place, fault.kind))
        change = f"{_show(fault.node)} -> {_show(fault.new)}"
        seen[fault.function, change] += 1
        number = seen[fault.function, change]
        shown = f"{change} ({number})" if number > 1 else change
        yield Mutant(file, fault.function, fault.kind, shown, *fault.place), fault


def _show(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else f"{text[:60]} … {text[-36:]}"


class _Finder:
    """Walks a module in the order of its text."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._errors = {
            each.asname or each.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == "errors"
            for each in node.names
        }

    def find(self) -> Iterator[_Fault]:
        yield from self._walk(self._tree, "")

    def _walk(self, parent: ast.AST, function: str) -> Iterator[_Fault]:
        for field, value in ast.iter_fields(parent):
            if field in _APART:
                continue
            nodes = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for index, node in nodes:
                if not isinstance(node, ast.AST) or self._is_apart(node, parent):
                    continue
                name = getattr(node, "name", "") if isinstance(node, _DEFINITIONS) else ""
                within = f"{function}.{name}".lstrip(".") if name else function
                for kind, new, operand in _mutate(node, parent, field, is_inside=_is_inside(parent, function)):
                    yield _Fault(kind, node, new, parent, field, index, within, _find_place(node, operand))
                if not isinstance(node, ast.Raise):  # what it says is free
                    yield from self._walk(node, within)

    def _is_apart(self, node: ast.AST, parent: ast.AST) -> bool:
        match node:
            case ast.Expr(value=ast.Constant()):
                return True
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.If(test=ast.Name(id=name)):
                return name in _NAMES_APART
            case ast.keyword(arg=name):
                return name in _WORDING
            case ast.Call(func=ast.Name(id=name)):
                return name in self._errors or name.endswith(("Error", "Warning", "Exception"))
            case ast.Constant(value=str(text)):
                return (isinstance(parent, ast.JoinedStr) and _is_sentence(parent)) or len(text.split()) >= _SENTENCE
        return False


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _find_place(node: ast.AST, operand: ast.AST | None) -> tuple[int, int]:
    """Where an operator stands, which is behind its first operand; else where the node begins."""
    if operand is not None:
        return getattr(operand, "end_lineno", 1), getattr(operand, "end_col_offset", 0) + 1
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1


def _is_inside(parent: ast.AST, function: str) -> bool:
    """Whether a statement of `parent` is in a function; what a module or class says at its top is a definition."""
    return bool(function) and not isinstance(parent, ast.ClassDef | ast.Module)


def _is_sentence(node: ast.JoinedStr) -> bool:
    texts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
    return len("".join(map(str, texts)).split()) >= _SENTENCE


def _mutate(
    node: ast.AST, parent: ast.AST, field: str, *, is_inside: bool
) -> Iterator[tuple[str, ast.AST, ast.AST | None]]:
    """Kind, new node, and the operand before the operator, if that is what changes."""
    if isinstance(node, ast.expr) and _is_condition(parent, field) and not _has_own_fault(node):
        yield "negate", ast.UnaryOp(ast.Not(), node), None
    match node:
        case ast.Compare():
            yield from _mutate_comparison(node)
        case ast.BoolOp():
            yield "and-or", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And()), node.values[0]
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node.operand, None
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "sign", operand, None
        case ast.BinOp() | ast.AugAssign() if type(node.op) in _COMPUTED:
            first = node.left if isinstance(node, ast.BinOp) else node.target
            yield "arithmetic", _with(node, op=_COMPUTED[type(node.op)]()), first
        case ast.Constant():
            for kind, value in _mutate_constant(node.value):
                yield kind, ast.Constant(value), None
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "return", ast.Return(ast.Constant(None)), None
    is_annotation = isinstance(node, ast.AnnAssign) and node.value is None
    if is_inside and isinstance(node, _STATEMENTS) and not is_annotation:
        yield "delete", ast.Pass(), None


_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Raise, ast.Continue, ast.Break, ast.Expr)


def _mutate_comparison(node: ast.Compare) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    for index, operator in enumerate(node.ops):
        operators = list(node.ops)
        operators[index] = _COMPARED[type(operator)]()
        yield "compare", _with(node, ops=operators), [node.left, *node.comparators][index]


def _mutate_constant(value: object) -> Iterator[tuple[str, bool | int | str | bytes]]:
    if isinstance(value, bool):
        yield "boolean", not value
    elif isinstance(value, int):
        yield "number+1", value + 1
        yield "number-1", value - 1
    elif isinstance(value, str):
        yield "text", f"~{value}~"
    elif isinstance(value, bytes):
        yield "text", b"~%b~" % value


def _is_condition(parent: ast.AST, field: str) -> bool:
    return (field == "test" and isinstance(parent, ast.If | ast.While | ast.IfExp)) or (
        field == "ifs" and isinstance(parent, ast.comprehension)
    )


def _has_own_fault(node: ast.expr) -> bool:
    """Whether negating it is what another fault does, or about that."""
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1
    return isinstance(node, ast.BoolOp | ast.Constant) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _with(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
