# SPDX-License-Identifier: BSD-3-Clause
"""For scripts/make-reference: reference/python.md, from the signatures, types and docstrings of what `kedge` offers.

Fields of classes are read from the source, which has their comments.
"""

from __future__ import annotations

import ast
import inspect
import io
import itertools
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kedge

_WIDTH = 88
_STARS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_HEAD = """\
# Python interface

With examples: [kedge from Python](../guides/python.md), [Jobs from Python](../guides/jobs-python.md).

`import kedge` offers these names. Every failure is a subclass of `kedge.errors.KedgeError` with `message`, `context`
and `hint`: [exit codes](../errors.md). `**settings` takes the keys of [the settings](cli.md#settings),
`**description` those of [kedge.toml](kedge-toml.md).
"""


def make_python_page() -> str:
    """The whole page."""
    names = sorted((name for name in kedge.__all__ if not name.startswith("_")), key=str.lower)
    found = {f"kedge.{name}": getattr(kedge, name) for name in names}
    functions = [_describe_function(name, each) for name, each in found.items() if not inspect.isclass(each)]
    classes = [_describe_class(name, each) for name, each in found.items() if inspect.isclass(each)]
    lines = [_HEAD, "## Functions", "", *itertools.chain(*functions), "## Classes", "", *itertools.chain(*classes)]
    return "\n".join(lines)


def _describe_function(name: str, function: Callable[..., Any]) -> list[str]:
    return [f"### {name}", "", *_show_signature(name, function), inspect.getdoc(function) or "", ""]


def _describe_class(name: str, kind: type) -> list[str]:
    lines = [f"### {name}", "", inspect.getdoc(kind) or "", ""]
    fields = list(_list_fields(kind))
    if fields:
        lines += ["| field | type | |", "|---|---|---|", *fields, ""]
    for part, value in vars(kind).items():
        text = inspect.getdoc(value)
        if part.startswith("_") or not text:
            continue
        if isinstance(value, property):
            lines += [f"`{part}`: `{value.fget.__annotations__['return']}`. {' '.join(text.split())}", ""]
        elif inspect.isfunction(value):
            lines += [*_show_signature(part, value), text, ""]
    return lines


def _show_signature(name: str, function: Callable[..., Any]) -> list[str]:
    """A block of code: on one line where it fits, else a line for each parameter."""
    signature = inspect.signature(function)
    parts: list[str] = []
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        default = "" if each.default is each.empty else f" = {_quote(each.default)}"
        parts.append(f"{_STARS.get(each.kind, '')}{each.name}: {each.annotation}{default}")
    parts = [part for part in parts if not part.startswith("self:")]
    whole = f"{name}({', '.join(parts)}) -> {signature.return_annotation}"
    lines = (
        [whole]
        if len(whole) <= _WIDTH
        else [f"{name}(", *(f"    {part}," for part in parts), whole[whole.rindex(") ->") :]]
    )
    return ["```python", *lines, "```", ""]


def _quote(value: object) -> str:
    return repr(value).replace("'", '"')


def _list_fields(kind: type) -> Iterator[str]:
    """Rows of a table: fields that are annotated in the class, each with the comment on its line."""
    source = Path(str(inspect.getsourcefile(kind))).read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {each.start[0]: each.string.lstrip("# ") for each in tokens if each.type == tokenize.COMMENT}
    [node] = [each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == kind.__name__]
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            is_plain = isinstance(each.value, ast.Constant | ast.Tuple)
            default = f" = {_quote(ast.literal_eval(each.value))}" if is_plain and each.value else ""
            kinds = ast.unparse(each.annotation).replace("|", "\\|")
            note = comments.get(each.end_lineno or each.lineno, "")
            yield f"| `{each.target.id}{default}` | `{kinds}` | {note} |".replace("|  |", "| |")
